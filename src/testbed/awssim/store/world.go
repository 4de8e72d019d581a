// Package store is what exists in the simulated account and region, and how the parts of it belong together.
package store

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"kubernetes-release/testbed/awssim/iam"
)

// World is everything that exists in the simulated account and region. The world file (YAML) and the state file (JSON)
// have the same form.
type World struct {
	Region    string `json:"region"`              // us-east-1
	Account   string `json:"account"`             // twelve digits
	Partition string `json:"partition,omitempty"` // aws (default), aws-cn, aws-us-gov, aws-eusc

	Settings Settings `json:"settings,omitzero"`
	// StaticKeys are access keys that do not come from instance metadata, for operators and test beds.
	StaticKeys []StaticKey `json:"static_keys,omitempty"`

	VPCs             []VPC             `json:"vpcs,omitempty"`
	InternetGateways []InternetGateway `json:"internet_gateways,omitempty"`
	VPCEndpoints     []VPCEndpoint     `json:"vpc_endpoints,omitempty"`
	Subnets          []Subnet          `json:"subnets,omitempty"`
	RouteTables      []RouteTable      `json:"route_tables,omitempty"`
	NetworkACLs      []NetworkACL      `json:"network_acls,omitempty"`
	SecurityGroups   []SecurityGroup   `json:"security_groups,omitempty"`
	Roles            []Role            `json:"roles,omitempty"`
	ManagedPolicies  []ManagedPolicy   `json:"managed_policies,omitempty"`
	InstanceProfiles []InstanceProfile `json:"instance_profiles,omitempty"`
	Instances        []Instance        `json:"instances,omitempty"`
	Repositories     []Repository      `json:"repositories,omitempty"`
	Buckets          []string          `json:"buckets,omitempty"`
	ChangedBuckets   []Bucket          `json:"changed_buckets,omitempty"`
	OIDCProviders    []OIDCProvider    `json:"oidc_providers,omitempty"`

	Volumes   []Volume   `json:"volumes,omitempty"`
	Snapshots []Snapshot `json:"snapshots,omitempty"`
	// Encryption is the account's encryption of new volumes, with KMSKeys besides the key of AWS.
	Encryption Encryption `json:"encryption,omitzero"`
	KMSKeys    []KMSKey   `json:"kms_keys,omitempty"`
	// Overlaps are the times at which several machines used a volume.
	Overlaps []Overlap `json:"overlaps,omitempty"`
	// ClientTokens are those of CreateVolume and CopyVolumes that EC2 remembers.
	ClientTokens []ClientToken `json:"client_tokens,omitempty"`

	// The load balancing APIs create these; world files normally omit them.
	ClassicLoadBalancers []ClassicLoadBalancer `json:"classic_load_balancers,omitempty"`
	LoadBalancers        []LoadBalancer        `json:"load_balancers,omitempty"`
	TargetGroups         []TargetGroup         `json:"target_groups,omitempty"`
	ListenerRules        []ListenerRule        `json:"listener_rules,omitempty"`
	Listeners            []Listener            `json:"listeners,omitempty"`
	// Certificates are those that were imported to Certificate Manager.
	Certificates []Certificate `json:"certificates,omitempty"`

	// Secret seals metadata tokens and role credentials. Random if empty.
	Secret []byte `json:"secret,omitempty"`
	// Serial counts created resources; ids are derived from it.
	Serial int `json:"serial,omitempty"`
}

// StaticKey is a long-lived access key.
type StaticKey struct {
	AccessKeyID     string       `json:"access_key_id"`
	SecretAccessKey string       `json:"secret_access_key"`
	User            string       `json:"user"` // name of the IAM user in ARNs
	Policies        []iam.Policy `json:"policies"`
	// Inline are the policies of the user that the API can change, by name.
	Inline map[string]iam.Policy `json:"inline,omitempty"`
}

// VPC is a virtual network.
type VPC struct {
	ID   string       `json:"id"`
	CIDR netip.Prefix `json:"cidr"`
	Tags Tags         `json:"tags,omitempty"`
	// NoDNSHostnames turns off the attribute enableDnsHostnames: instances have no private DNS names.
	NoDNSHostnames bool `json:"no_dns_hostnames,omitempty"`
	// DomainName is that of the VPC's DHCP options, in which instance metadata names instances; empty: EC2's own. The
	// names that the API returns do not depend on it.
	DomainName string `json:"domain_name,omitempty"`
}

// InternetGateway connects at most one VPC to the internet.
type InternetGateway struct {
	ID  string `json:"id"`
	VPC string `json:"vpc,omitempty"`
}

// VPCEndpoint is stored, but forwards nothing.
type VPCEndpoint struct {
	ID             string   `json:"id"`
	VPC            string   `json:"vpc"`
	Type           string   `json:"type"` // Interface or Gateway
	Service        string   `json:"service"`
	Subnets        []string `json:"subnets,omitempty"`
	SecurityGroups []string `json:"security_groups,omitempty"`
	RouteTables    []string `json:"route_tables,omitempty"`
	PrivateDNS     bool     `json:"private_dns,omitempty"`
}

// Subnet lies in one availability zone.
type Subnet struct {
	ID               string       `json:"id"`
	VPC              string       `json:"vpc"`
	AvailabilityZone string       `json:"availability_zone"`
	CIDR             netip.Prefix `json:"cidr"`
	Tags             Tags         `json:"tags,omitempty"`
}

// RouteTable belongs to a VPC; the main one serves subnets without an association.
type RouteTable struct {
	ID      string   `json:"id"`
	VPC     string   `json:"vpc"`
	Main    bool     `json:"main,omitempty"`
	Subnets []string `json:"subnets,omitempty"` // explicit associations
	Routes  []Route  `json:"routes,omitempty"`
	Tags    Tags     `json:"tags,omitempty"`
}

// Route has one destination and one target.
type Route struct {
	Destination string `json:"destination"`        // CIDR
	Gateway     string `json:"gateway,omitempty"`  // local, igw-…, vgw-…
	NAT         string `json:"nat,omitempty"`      // nat-…
	Instance    string `json:"instance,omitempty"` // i-…
	// Blackhole is true if the target was deleted.
	Blackhole bool `json:"blackhole,omitempty"`
}

// NetworkACL filters what enters and leaves subnets. It is stored and described; it filters nothing here.
type NetworkACL struct {
	ID      string     `json:"id"`
	VPC     string     `json:"vpc"`
	Default bool       `json:"default,omitempty"` // of all subnets that no other one lists
	Subnets []string   `json:"subnets,omitempty"`
	Entries []ACLEntry `json:"entries,omitempty"`
	Tags    Tags       `json:"tags,omitempty"`
}

// ACLEntry is a rule. The matching one with the lowest number decides; without one, traffic is denied.
type ACLEntry struct {
	Number   int          `json:"number"` // 1 to 32766
	Egress   bool         `json:"egress,omitempty"`
	Allow    bool         `json:"allow,omitempty"`
	Protocol string       `json:"protocol"` // -1 for all, 6 for TCP, 17 for UDP
	CIDR     netip.Prefix `json:"cidr"`
	FromPort int          `json:"from_port,omitempty"`
	ToPort   int          `json:"to_port,omitempty"`
}

// AllowAll are the entries of a VPC's default network ACL.
func AllowAll() []ACLEntry {
	anywhere := netip.MustParsePrefix("0.0.0.0/0")
	return []ACLEntry{
		{Number: 100, Allow: true, Protocol: "-1", CIDR: anywhere},
		{Number: 100, Egress: true, Allow: true, Protocol: "-1", CIDR: anywhere},
	}
}

// SecurityGroup is stored and described; it filters nothing.
type SecurityGroup struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	VPC         string `json:"vpc"`
	Ingress     []Rule `json:"ingress,omitempty"`
	Egress      []Rule `json:"egress,omitempty"`
	Tags        Tags   `json:"tags,omitempty"`
}

// Rule permits one range of ports from one source. Exactly one of CIDR, CIDRv6, Group and PrefixList is set.
type Rule struct {
	Protocol    string `json:"protocol"`            // tcp, udp, icmp, a number, or -1 for all
	FromPort    int    `json:"from_port,omitempty"` // not used when Protocol is -1
	ToPort      int    `json:"to_port,omitempty"`
	CIDR        string `json:"cidr,omitempty"`
	CIDRv6      string `json:"cidr_v6,omitempty"`
	Group       string `json:"group,omitempty"`
	PrefixList  string `json:"prefix_list,omitempty"`
	Description string `json:"description,omitempty"`
}

// Role is an IAM role that instances can assume.
type Role struct {
	Name string `json:"name"`
	Path string `json:"path,omitempty"` // such as /team/; default /
	// TrustedBy are the ARNs of the roles in its trust policy that may assume it, apart from EC2: of roles, which then
	// need no permission, or arn:aws:iam::ACCOUNT:root for all roles that have the permission sts:AssumeRole.
	TrustedBy []string              `json:"trusted_by,omitempty"`
	Policies  map[string]iam.Policy `json:"policies,omitempty"` // by policy name
	Attached  []string              `json:"attached,omitempty"` // ARNs of managed policies
	// Untrusted is true if the role's trust policy does not let EC2 assume it.
	Untrusted bool `json:"untrusted,omitempty"`
	// Federated are the statements of its trust policy for tokens of OpenID Connect providers.
	Federated []FederatedTrust `json:"federated,omitempty"`
	Tags      Tags             `json:"tags,omitempty"`
}

// SetPolicy replaces all policies of a role with the policy document.
func (w *World) SetPolicy(role string, document []byte) error {
	var policy iam.Policy
	if err := json.Unmarshal(document, &policy); err != nil {
		return fmt.Errorf("policy of role %s: %w", role, err)
	}
	r := Find(w.Roles, role)
	if r == nil {
		return fmt.Errorf("there is no role %s", role)
	}
	r.Policies = map[string]iam.Policy{"kubernetes": policy}
	return nil
}

// ManagedPolicy is a policy that can be attached to roles.
type ManagedPolicy struct {
	ARN      string     `json:"arn"`
	Document iam.Policy `json:"document"` // of the default version
	// Versions is how many versions there are besides the first one.
	Versions int `json:"versions,omitempty"`
}

// InstanceProfile gives instances a role. An empty Role is the common mistake of a profile without a role.
type InstanceProfile struct {
	Name string `json:"name"`
	Role string `json:"role,omitempty"`
	Tags Tags   `json:"tags,omitempty"`
}

// InstanceState is the state of an instance, as EC2 names it.
type InstanceState string

// Instance states that last. While one changes to another EC2 names more.
const (
	Running    InstanceState = "running"
	Stopped    InstanceState = "stopped"
	Terminated InstanceState = "terminated"
)

// Instance is a virtual machine.
type Instance struct {
	ID              string          `json:"id"`
	Type            string          `json:"type,omitempty"`  // default m5.large
	Image           string          `json:"image,omitempty"` // AMI id
	Subnet          string          `json:"subnet"`
	Address         netip.Addr      `json:"address"`
	SecurityGroups  []string        `json:"security_groups,omitempty"` // ids
	InstanceProfile string          `json:"instance_profile,omitempty"`
	State           InstanceState   `json:"state,omitempty"` // default running
	SourceDestCheck *bool           `json:"source_dest_check,omitempty"`
	Metadata        MetadataOptions `json:"metadata,omitzero"`
	UserData        string          `json:"user_data,omitempty"` // base64, as in RunInstances
	LaunchTime      time.Time       `json:"launch_time,omitzero"`
	TerminationTime time.Time       `json:"termination_time,omitzero"`
	// Code in instance metadata instead of Success
	CredentialStatus string  `json:"credential_status,omitempty"`
	Notices          Notices `json:"notices,omitzero"`
	Tags             Tags    `json:"tags,omitempty"`
}

// Notices are what EC2 announces to an instance. Nothing happens to the instance when their time comes.
type Notices struct {
	Spot            *SpotNotice      `json:"spot,omitempty"`
	Rebalance       time.Time        `json:"rebalance,omitzero"` // when it was recommended
	ScheduledEvents []ScheduledEvent `json:"scheduled_events,omitempty"`
}

// SpotNotice is that of a Spot interruption, with EC2's names.
type SpotNotice struct {
	Action string    `json:"action"` // hibernate, stop or terminate
	Time   time.Time `json:"time"`
}

// ScheduledEvent is maintenance of an instance.
type ScheduledEvent struct {
	ID          string    `json:"id"`
	Code        string    `json:"code"`
	Description string    `json:"description,omitempty"`
	State       string    `json:"state"` // active, completed or canceled
	NotBefore   time.Time `json:"not_before"`
	NotAfter    time.Time `json:"not_after"`
}

// MetadataOptions are an instance's metadata options, with EC2's names and values.
type MetadataOptions struct {
	HTTPEndpoint string `json:"http_endpoint,omitempty"`  // enabled (default), disabled
	HTTPTokens   string `json:"http_tokens,omitempty"`    // required (default), optional
	HopLimit     int    `json:"http_hop_limit,omitempty"` // default 1, 1 to 64
}

// TerminatedFor is how long EC2 describes a terminated instance.
const TerminatedFor = time.Hour

// SetDefaults completes what is left out.
func (w *World) SetDefaults() {
	if w.Partition == "" {
		w.Partition = "aws"
	}
	if w.Settings.CredentialLifetime == 0 {
		w.Settings.CredentialLifetime = Duration(6 * time.Hour)
	}
	w.Settings.Volumes.setDefaults()
	for i := range w.Instances {
		w.Instances[i].SetDefaults()
	}
}

// SetDefaults completes what is left out.
func (i *Instance) SetDefaults() {
	set := func(s *string, value string) {
		if *s == "" {
			*s = value
		}
	}
	set(&i.Type, "m5.large")
	set(&i.Image, "ami-0123456789abcdef0")
	i.State = cmp.Or(i.State, Running)
	set(&i.Metadata.HTTPEndpoint, "enabled")
	set(&i.Metadata.HTTPTokens, "required")
	if i.Metadata.HopLimit == 0 {
		i.Metadata.HopLimit = 1
	}
	if i.SourceDestCheck == nil {
		yes := true
		i.SourceDestCheck = &yes
	}
	if i.LaunchTime.IsZero() {
		i.LaunchTime = time.Now().UTC().Truncate(time.Second)
	}
}

// Resource is an element of a World's lists, with an id (or name, or ARN).
type Resource interface{ key() string }

func (v VPC) key() string { return v.ID }

func (g InternetGateway) key() string { return g.ID }

func (e VPCEndpoint) key() string { return e.ID }

func (p ManagedPolicy) key() string { return p.ARN }

func (s Subnet) key() string { return s.ID }

func (t RouteTable) key() string { return t.ID }

func (a NetworkACL) key() string { return a.ID }

func (g SecurityGroup) key() string { return g.ID }

func (r Role) key() string { return r.Name }

func (p InstanceProfile) key() string { return p.Name }

func (i Instance) key() string { return i.ID }

func (l ClassicLoadBalancer) key() string { return l.Name }

func (l LoadBalancer) key() string { return l.ARN }

func (g TargetGroup) key() string { return g.ARN }

func (l Listener) key() string { return l.ARN }

func (r Repository) key() string { return r.Name }

func (r ListenerRule) key() string { return r.ARN }

// Find returns a pointer to the element with the key, or nil.
func Find[T Resource](list []T, key string) *T {
	for i := range list {
		if list[i].key() == key {
			return &list[i]
		}
	}
	return nil
}

// Put replaces the element with the same key, or adds one.
func Put[T Resource](list *[]T, v T) {
	if old := Find(*list, v.key()); old != nil {
		*old = v
		return
	}
	*list = append(*list, v)
}

// Remove deletes the element with the key from the list.
func Remove[T Resource](list []T, key string) []T {
	return slices.DeleteFunc(list, func(t T) bool { return t.key() == key })
}
