package openstacksim

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// World is what exists in the project.
type World struct {
	Region string `json:"region"`
	// KeystoneRegion is where the catalog has Keystone; empty: in Region.
	KeystoneRegion string `json:"keystone_region,omitempty"`

	Project Project `json:"project"`
	User    User    `json:"user"`
	// Credentials are the application credentials of the user.
	Credentials []ApplicationCredential `json:"credentials"`
	// WithoutOctavia removes the load balancing service from the catalog.
	WithoutOctavia bool `json:"without_octavia,omitempty"`
	// WithoutCinder removes the block storage service from the catalog.
	WithoutCinder bool  `json:"without_cinder,omitempty"`
	Quota         Quota `json:"quota"`
	// ClockOffset is how far the cloud's clock is ahead of the machine's.
	ClockOffset time.Duration `json:"clock_offset,omitempty"`

	// Hidden is the id of a server that belongs to another project: it has metadata, and the API does not have it.
	Hidden string `json:"hidden,omitempty"`

	Flavors        []Flavor        `json:"flavors"`
	Servers        []Server        `json:"servers"`
	Networks       []Network       `json:"networks"`
	Subnets        []Subnet        `json:"subnets"`
	Routers        []Router        `json:"routers"`
	Ports          []Port          `json:"ports"`
	FloatingIPs    []FloatingIP    `json:"floatingips"`
	SecurityGroups []SecurityGroup `json:"security_groups"`
	LoadBalancers  []LoadBalancer  `json:"loadbalancers"`
	Listeners      []Listener      `json:"listeners"`
	Pools          []Pool          `json:"pools"`
	Monitors       []Monitor       `json:"healthmonitors"`
	VolumeTypes    []VolumeType    `json:"volume_types"`
	Volumes        []Volume        `json:"volumes"`
	Snapshots      []Snapshot      `json:"snapshots"`
}

// Project is the project that everything belongs to which has no other project_id. Lists show what belongs to others,
// too, as to an administrator.
type Project struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Domain Domain `json:"domain"`
}

// Domain is the domain of the project and the user.
type Domain struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// User is the user with a password.
type User struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	Password string `json:"password"`
	Domain   Domain `json:"domain"`
}

// ApplicationCredential is a credential of the user for the project.
type ApplicationCredential struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Secret string `json:"secret"`
	// Expires is the zero time if it never does.
	Expires time.Time `json:"expires"`
}

// Quota has the limits of the project; a negative number is none.
type Quota struct {
	LoadBalancers int `json:"loadbalancers"`
	FloatingIPs   int `json:"floatingips"`
	Volumes       int `json:"volumes"`
	Snapshots     int `json:"snapshots"`
	Gigabytes     int `json:"gigabytes"` // of volumes and snapshots
}

// Flavor is a type of server.
type Flavor struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// Server is a VM.
type Server struct {
	ID               string            `json:"id"`
	Name             string            `json:"name"`
	Status           string            `json:"status"`
	Flavor           map[string]string `json:"flavor"`
	Metadata         map[string]string `json:"metadata"`
	AvailabilityZone string            `json:"OS-EXT-AZ:availability_zone"`
}

// Network has subnets.
type Network struct {
	ID       string   `json:"id"`
	Name     string   `json:"name"`
	Status   string   `json:"status"`
	External bool     `json:"router:external"`
	Subnets  []string `json:"subnets"`
}

// Subnet has addresses.
type Subnet struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	NetworkID string `json:"network_id"`
	CIDR      string `json:"cidr"`
	GatewayIP string `json:"gateway_ip,omitempty"`
	IPVersion int    `json:"ip_version"`
	// ProjectID is the owner. If it is another project, the subnet is shared with this one, and connected by routers
	// that Neutron does not show.
	ProjectID string `json:"project_id"`
	// First is the first address that load balancers and floating IPs get; empty: the third of the subnet.
	First string `json:"first,omitempty"`
}

// Router connects subnets, whose ports it owns, to an external network.
type Router struct {
	ID      string   `json:"id"`
	Name    string   `json:"name"`
	Status  string   `json:"status"`
	AdminUp bool     `json:"admin_state_up"`
	Gateway *Gateway `json:"external_gateway_info"`
}

// Gateway is a router's connection to an external network.
type Gateway struct {
	NetworkID string `json:"network_id"`
}

// Port is an interface in a network.
type Port struct {
	ID             string    `json:"id"`
	Name           string    `json:"name"`
	Status         string    `json:"status"`
	NetworkID      string    `json:"network_id"`
	DeviceID       string    `json:"device_id"`
	DeviceOwner    string    `json:"device_owner"`
	FixedIPs       []FixedIP `json:"fixed_ips"`
	SecurityGroups []string  `json:"security_groups"`
	PortSecurity   bool      `json:"port_security_enabled"`
	Tags           []string  `json:"tags"`
}

// FixedIP is an address of a port.
type FixedIP struct {
	SubnetID  string `json:"subnet_id"`
	IPAddress string `json:"ip_address"`
}

// FloatingIP is an address of an external network that forwards to a port.
type FloatingIP struct {
	ID          string  `json:"id"`
	Description string  `json:"description"`
	NetworkID   string  `json:"floating_network_id"`
	Address     string  `json:"floating_ip_address"`
	FixedIP     *string `json:"fixed_ip_address"`
	PortID      *string `json:"port_id"`
	Status      string  `json:"status"`
	ProjectID   string  `json:"project_id"`
}

// SecurityGroup filters packets of ports.
type SecurityGroup struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Description string `json:"description"`
	Rules       []Rule `json:"security_group_rules"`
	ProjectID   string `json:"project_id"`
}

// Rule allows packets.
type Rule struct {
	ID        string `json:"id"`
	GroupID   string `json:"security_group_id"`
	Direction string `json:"direction"`
	EtherType string `json:"ethertype"`
	// Protocol, Minimum and Maximum are null for all.
	Protocol      *string `json:"protocol"`
	Minimum       *int    `json:"port_range_min"`
	Maximum       *int    `json:"port_range_max"`
	RemoteGroupID *string `json:"remote_group_id"`
	RemotePrefix  *string `json:"remote_ip_prefix"`
	// RemoteAddressGroupID names a list of addresses that the project keeps.
	RemoteAddressGroupID *string `json:"remote_address_group_id"`
}

// LoadBalancer is a load balancer of Octavia.
type LoadBalancer struct {
	ID           string   `json:"id"`
	Name         string   `json:"name"`
	Description  string   `json:"description"`
	Provider     string   `json:"provider"`
	Provisioning string   `json:"provisioning_status"`
	Operating    string   `json:"operating_status"`
	VIPAddress   string   `json:"vip_address"`
	VIPPortID    string   `json:"vip_port_id"`
	VIPSubnetID  string   `json:"vip_subnet_id"`
	VIPNetworkID string   `json:"vip_network_id"`
	Tags         []string `json:"tags"`
	Created      string   `json:"created_at"` // 2026-11-30T12:00:00
	ProjectID    string   `json:"project_id"`
	// Settles is when the state PENDING_… ends.
	Settles time.Time `json:"settles"`
}

// Listener is a port of a load balancer.
type Listener struct {
	ID             string            `json:"id"`
	Name           string            `json:"name"`
	LoadBalancers  []Reference       `json:"loadbalancers"`
	DefaultPoolID  string            `json:"default_pool_id"`
	Protocol       string            `json:"protocol"`
	ProtocolPort   int               `json:"protocol_port"`
	ConnLimit      int               `json:"connection_limit"`
	ClientData     int               `json:"timeout_client_data"`
	MemberData     int               `json:"timeout_member_data"`
	MemberConnect  int               `json:"timeout_member_connect"`
	TCPInspect     int               `json:"timeout_tcp_inspect"`
	AllowedCIDRs   []string          `json:"allowed_cidrs"`
	InsertHeaders  map[string]string `json:"insert_headers"`
	TLSContainer   string            `json:"default_tls_container_ref"`
	Tags           []string          `json:"tags"`
	ProjectID      string            `json:"project_id"`
	LoadBalancerID string            `json:"loadbalancer_id,omitempty"` // only in requests
}

// Reference is the id of another object.
type Reference struct {
	ID string `json:"id"`
}

// Pool is a set of members that a listener forwards to.
type Pool struct {
	ID             string      `json:"id"`
	Name           string      `json:"name"`
	Protocol       string      `json:"protocol"`
	Algorithm      string      `json:"lb_algorithm"`
	LoadBalancers  []Reference `json:"loadbalancers"`
	Listeners      []Reference `json:"listeners"`
	Members        []Member    `json:"members"`
	MonitorID      string      `json:"healthmonitor_id"`
	Tags           []string    `json:"tags"`
	ProjectID      string      `json:"project_id"`
	ListenerID     string      `json:"listener_id,omitempty"`     // only in requests
	LoadBalancerID string      `json:"loadbalancer_id,omitempty"` // only in requests
}

// Member is a destination of a pool.
type Member struct {
	ID           string `json:"id"`
	Name         string `json:"name"`
	Address      string `json:"address"`
	ProtocolPort int    `json:"protocol_port"`
	MonitorPort  *int   `json:"monitor_port"`
	SubnetID     string `json:"subnet_id"`
	Operating    string `json:"operating_status"`
}

// Monitor checks the members of a pool.
type Monitor struct {
	ID         string      `json:"id"`
	Name       string      `json:"name"`
	Type       string      `json:"type"`
	Delay      int         `json:"delay"`
	Timeout    int         `json:"timeout"`
	Retries    int         `json:"max_retries"`
	Down       int         `json:"max_retries_down"`
	URLPath    string      `json:"url_path,omitempty"`
	HTTPMethod string      `json:"http_method,omitempty"`
	Codes      string      `json:"expected_codes,omitempty"`
	Pools      []Reference `json:"pools"`
	PoolID     string      `json:"pool_id,omitempty"` // only in requests
}

// VolumeType is what an operator of Cinder offers.
type VolumeType struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// Volume is a volume of Cinder.
type Volume struct {
	ID               string             `json:"id"`
	Name             string             `json:"name"`
	Description      string             `json:"description"`
	Status           string             `json:"status"`
	Size             int                `json:"size"` // GiB
	VolumeType       string             `json:"volume_type"`
	AvailabilityZone string             `json:"availability_zone"`
	SnapshotID       string             `json:"snapshot_id,omitempty"`
	SourceVolumeID   string             `json:"source_volid,omitempty"`
	Metadata         map[string]string  `json:"metadata"`
	Created          string             `json:"created_at"`
	Attachments      []VolumeAttachment `json:"attachments"`
	// Settles is when a state that is not final, such as creating, ends.
	Settles time.Time `json:"settles"`
}

// VolumeAttachment is a volume's connection to a server.
type VolumeAttachment struct {
	ID           string `json:"id"` // of the volume
	VolumeID     string `json:"volume_id"`
	AttachmentID string `json:"attachment_id"`
	ServerID     string `json:"server_id"`
	Device       string `json:"device"`
}

// Snapshot is a copy of a volume.
type Snapshot struct {
	ID          string            `json:"id"`
	Name        string            `json:"name"`
	Description string            `json:"description"`
	Status      string            `json:"status"`
	VolumeID    string            `json:"volume_id"`
	Size        int               `json:"size"` // GiB
	Metadata    map[string]string `json:"metadata"`
	Created     string            `json:"created_at"`
	Settles     time.Time         `json:"settles"`
}

// newID returns a random UUID, as all services of OpenStack give.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// clone returns a deep copy.
func (w *World) clone() (*World, error) {
	text, err := json.Marshal(w)
	if err != nil {
		return nil, err
	}
	var c World
	return &c, json.Unmarshal(text, &c)
}

// find returns the object of a list that has a property, or nil.
func find[T any](list []T, is func(*T) bool) *T {
	for i := range list {
		if is(&list[i]) {
			return &list[i]
		}
	}
	return nil
}

func (w *World) subnet(id string) *Subnet {
	return find(w.Subnets, func(s *Subnet) bool { return s.ID == id })
}

func (w *World) network(id string) *Network {
	return find(w.Networks, func(n *Network) bool { return n.ID == id })
}

func (w *World) port(id string) *Port { return find(w.Ports, func(p *Port) bool { return p.ID == id }) }

func (w *World) balancer(id string) *LoadBalancer {
	return find(w.LoadBalancers, func(l *LoadBalancer) bool { return l.ID == id })
}

func (w *World) pool(id string) *Pool { return find(w.Pools, func(p *Pool) bool { return p.ID == id }) }

// addresses are all that are in use in the network.
func (w *World) addresses() []string {
	var used []string
	for _, p := range w.Ports {
		for _, ip := range p.FixedIPs {
			used = append(used, ip.IPAddress)
		}
	}
	for _, f := range w.FloatingIPs {
		used = append(used, f.Address)
	}
	return used
}

// allocate returns an unused address of a subnet.
func (w *World) allocate(s *Subnet) (string, error) {
	network, err := netip.ParsePrefix(s.CIDR)
	if err != nil {
		return "", err
	}
	address, err := netip.ParseAddr(cmp.Or(s.First, network.Addr().Next().Next().String()))
	if err != nil {
		return "", err
	}
	used := w.addresses()
	for ; network.Contains(address); address = address.Next() {
		if text := address.String(); text != s.GatewayIP && !slices.Contains(used, text) {
			return text, nil
		}
	}
	return "", fmt.Errorf("no more IP addresses available on network %s", s.NetworkID)
}
