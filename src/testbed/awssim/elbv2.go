package awssim

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"kubernetes-release/testbed/awssim/forward"
)

// LoadBalancer is a network load balancer. Application and gateway load balancers are not simulated.
type LoadBalancer struct {
	ARN            string                `json:"arn"`
	Name           string                `json:"name"`
	DNSName        string                `json:"dns_name"`
	Scheme         string                `json:"scheme"` // internet-facing, internal
	VPC            string                `json:"vpc"`
	Addresses      map[string]netip.Addr `json:"addresses"` // by subnet id
	SecurityGroups []string              `json:"security_groups,omitempty"`
	Attributes     map[string]string     `json:"attributes,omitempty"`
	IPAddressType  string                `json:"ip_address_type"`
	Created        time.Time             `json:"created"`
	Tags           Tags                  `json:"tags,omitempty"`
}

// elbv2Operations is the table of the v2 API's actions.
var elbv2Operations = map[string]operation{
	"AddTags":                        changing((*call).v2AddTags),
	"CreateListener":                 changing((*call).v2CreateListener),
	"CreateLoadBalancer":             changing((*call).v2Create),
	"CreateTargetGroup":              changing((*call).v2CreateTargetGroup),
	"DeleteListener":                 changing((*call).v2DeleteListener),
	"DeleteLoadBalancer":             changing((*call).v2Delete),
	"DeleteTargetGroup":              changing((*call).v2DeleteTargetGroup),
	"DeregisterTargets":              changing((*call).v2Deregister),
	"DescribeListeners":              reading((*call).v2DescribeListeners),
	"DescribeLoadBalancerAttributes": reading((*call).v2DescribeAttributes),
	"DescribeLoadBalancers":          reading((*call).v2Describe),
	"DescribeTags":                   reading((*call).v2DescribeTags),
	"DescribeTargetGroupAttributes":  reading((*call).v2DescribeGroupAttributes),
	"DescribeTargetGroups":           reading((*call).v2DescribeTargetGroups),
	"DescribeTargetHealth":           reading((*call).v2DescribeTargetHealth),
	"ModifyListener":                 changing((*call).v2ModifyListener),
	"ModifyLoadBalancerAttributes":   changing((*call).v2ModifyAttributes),
	"ModifyTargetGroup":              changing((*call).v2ModifyTargetGroup),
	"ModifyTargetGroupAttributes":    changing((*call).v2ModifyGroupAttributes),
	"RegisterTargets":                changing((*call).v2Register),
	"RemoveTags":                     changing((*call).v2RemoveTags),
	"SetSecurityGroups":              changing((*call).v2SetSecurityGroups),
	"SetSubnets":                     changing((*call).v2SetSubnets),
}

// v2ARN returns an ARN such as …:loadbalancer/net/NAME/0123456789abcdef.
func (c *call) v2ARN(path string) string {
	c.Serial++
	return c.arn("elasticloadbalancing", c.Region, fmt.Sprintf("%s/%x", path, c.mac("arn", path, fmt.Sprint(c.Serial))[:8]))
}

// resourceName is the part of the ARN that descriptions of network interfaces use: net/NAME/ID.
func (l LoadBalancer) resourceName() string {
	_, name, _ := strings.Cut(l.ARN, ":loadbalancer/")
	return name
}

// allowCreate checks the permission to create a resource with tags.
func (c *call) allowCreate(path string, tags Tags) error {
	arn := c.arn("elasticloadbalancing", c.Region, path+"/*")
	if err := c.allow(target{arn: arn, requestTags: tags}); err != nil {
		return err
	}
	return c.allowTagsOnCreate("elasticloadbalancing:AddTags", "elasticloadbalancing:CreateAction", arn, tags)
}

type v2SubnetMapping struct {
	SubnetId           string
	AllocationId       string // accepted without effect: there are no elastic addresses
	PrivateIPv4Address string
}

type v2CreateInput struct {
	Name           string
	Type           string
	Scheme         string
	Subnets        []string
	SubnetMappings []v2SubnetMapping
	SecurityGroups []string
	IpAddressType  string
	Tags           []elbTag
}

type v2State struct{ Code string }

type v2Address struct {
	PrivateIPv4Address string `xml:",omitempty"`
	IpAddress          string `xml:",omitempty"`
}

type v2Zone struct {
	ZoneName  string
	SubnetId  string
	Addresses []v2Address `xml:"LoadBalancerAddresses>member"`
}

type v2LoadBalancer struct {
	LoadBalancerArn       string
	DNSName               string
	CanonicalHostedZoneId string
	CreatedTime           string
	LoadBalancerName      string
	Scheme                string
	VpcId                 string
	State                 v2State
	Type                  string
	AvailabilityZones     []v2Zone `xml:"AvailabilityZones>member"`
	SecurityGroups        []string `xml:"SecurityGroups>member"`
	IpAddressType         string
}

type v2LoadBalancers struct {
	LoadBalancers []v2LoadBalancer `xml:"LoadBalancers>member"`
	NextMarker    string           `xml:",omitempty"`
}

func (c *call) v2View(l LoadBalancer) v2LoadBalancer {
	v := v2LoadBalancer{
		LoadBalancerArn: l.ARN, DNSName: l.DNSName, CanonicalHostedZoneId: "Z26RNL4JYFTOTI", CreatedTime: l.Created.Format(time.RFC3339), LoadBalancerName: l.Name, Scheme: l.Scheme,
		VpcId: l.VPC, State: v2State{"active"}, Type: "network", SecurityGroups: l.SecurityGroups, IpAddressType: l.IPAddressType,
	}
	for _, id := range sortedKeys(l.Addresses) {
		zone := v2Zone{SubnetId: id}
		if s := find(c.Subnets, id); s != nil {
			zone.ZoneName = s.AvailabilityZone
		}
		if l.Scheme == "internal" {
			zone.Addresses = []v2Address{{PrivateIPv4Address: l.Addresses[id].String()}}
		}
		v.AvailabilityZones = append(v.AvailabilityZones, zone)
	}
	return v
}

func (c *call) v2Create(in v2CreateInput) (*v2LoadBalancers, error) {
	tags, err := mergeTags(nil, in.Tags)
	if err != nil {
		return nil, err
	}
	if in.Type != "network" {
		return nil, errorf("ValidationError", "Load balancers of type '%s' are not simulated; only 'network' is", cmp.Or(in.Type, "application"))
	}
	if err := c.allowCreate("loadbalancer/net/"+in.Name, tags); err != nil {
		return nil, err
	}
	if err := c.allowFirst(); err != nil {
		return nil, err
	}
	if err := checkLoadBalancerName(in.Name); err != nil {
		return nil, err
	}
	scheme := cmp.Or(in.Scheme, "internet-facing")
	if scheme != "internet-facing" && scheme != "internal" {
		return nil, errorf("InvalidScheme", "Scheme '%s' is not valid; it must be internet-facing or internal", scheme)
	}
	if slices.ContainsFunc(c.LoadBalancers, func(l LoadBalancer) bool { return l.Name == in.Name }) {
		return nil, errorf("DuplicateLoadBalancerName", "A load balancer with the same name '%s' exists, but with different settings", in.Name)
	}
	ids, fixed, err := c.mappings(in.Subnets, in.SubnetMappings)
	if err != nil {
		return nil, err
	}
	subnets, err := c.balancerSubnets(ids, scheme == "internet-facing")
	if err != nil {
		return nil, err
	}
	if err := c.checkGroups(in.SecurityGroups, subnets[0].VPC); err != nil {
		return nil, err
	}
	l := LoadBalancer{
		Name: in.Name, Scheme: scheme, VPC: subnets[0].VPC, SecurityGroups: in.SecurityGroups, IPAddressType: cmp.Or(in.IpAddressType, "ipv4"), Created: c.now, Tags: tags,
		Attributes: map[string]string{
			"access_logs.s3.enabled": "false", "access_logs.s3.bucket": "", "access_logs.s3.prefix": "", "deletion_protection.enabled": "false",
			"load_balancing.cross_zone.enabled": "false", "dns_record.client_routing_policy": "any_availability_zone",
		},
	}
	if l.Addresses, err = c.attach(fixed, ids); err != nil {
		return nil, err
	}
	l.ARN, l.DNSName = c.v2ARN("loadbalancer/net/"+l.Name), c.balancerDNSName(l.Name, scheme, false)
	c.LoadBalancers = append(c.LoadBalancers, l)
	c.Settings.NoServiceLinkedRole = false
	view := c.v2View(l)
	view.State.Code = "provisioning"
	return &v2LoadBalancers{LoadBalancers: []v2LoadBalancer{view}}, nil
}

// mappings merges the two ways to specify subnets; fixed has the requested addresses.
func (c *call) mappings(ids []string, mappings []v2SubnetMapping) (all []string, fixed map[string]netip.Addr, err error) {
	if len(ids) > 0 && len(mappings) > 0 {
		return nil, nil, errorf("ValidationError", "You must specify either subnets or subnet mappings, but not both")
	}
	all, fixed = ids, map[string]netip.Addr{}
	for _, m := range mappings {
		all = append(all, m.SubnetId)
		if m.PrivateIPv4Address == "" {
			continue
		}
		s := find(c.Subnets, m.SubnetId)
		a, err := netip.ParseAddr(m.PrivateIPv4Address)
		if s == nil || err != nil || !s.CIDR.Contains(a) || c.addressInUse(a) != "" {
			return nil, nil, errorf("ValidationError", "The private IPv4 address '%s' is not free in subnet '%s'", m.PrivateIPv4Address, m.SubnetId)
		}
		fixed[m.SubnetId] = a
	}
	return all, fixed, nil
}

type v2DescribeInput struct {
	elbPaging
	LoadBalancerArns []string
	Names            []string
}

func (c *call) v2Describe(in v2DescribeInput) (*v2LoadBalancers, error) {
	var list []LoadBalancer
	for _, l := range c.LoadBalancers {
		named := slices.Contains(in.LoadBalancerArns, l.ARN) || slices.Contains(in.Names, l.Name)
		if named || len(in.LoadBalancerArns)+len(in.Names) == 0 {
			list = append(list, l)
		}
	}
	if asked := len(in.LoadBalancerArns) + len(in.Names); asked > len(list) {
		return nil, errorf("LoadBalancerNotFound", "One or more load balancers not found")
	}
	part, next, err := paginateELB(list, in.elbPaging)
	out := &v2LoadBalancers{NextMarker: next}
	for _, l := range part {
		out.LoadBalancers = append(out.LoadBalancers, c.v2View(l))
	}
	return out, err
}

type v2LoadBalancerArn struct{ LoadBalancerArn string }

// v2Delete succeeds if the load balancer does not exist, as on AWS.
func (c *call) v2Delete(in v2LoadBalancerArn) (*nothing, error) {
	if err := c.touch(in.LoadBalancerArn); err != nil {
		if isCode(err, "LoadBalancerNotFound") {
			return nil, nil
		}
		return nil, err
	}
	if find(c.LoadBalancers, in.LoadBalancerArn).Attributes["deletion_protection.enabled"] == "true" {
		return nil, errorf("OperationNotPermitted", "Load balancer '%s' cannot be deleted because deletion protection is enabled", in.LoadBalancerArn)
	}
	c.LoadBalancers = remove(c.LoadBalancers, in.LoadBalancerArn)
	c.Listeners = slices.DeleteFunc(c.Listeners, func(l Listener) bool { return l.LoadBalancer == in.LoadBalancerArn })
	return nil, nil
}

// forwarding adds the load balancer to the data path.
func (l *LoadBalancer) forwarding(w *World, c *forward.Config) {
	b := forward.Balancer{ID: l.ARN, Addresses: sortedAddresses(l.Addresses)}
	for _, listener := range w.Listeners {
		if listener.LoadBalancer == l.ARN && listener.Protocol != "UDP" {
			b.Listeners = append(b.Listeners, forward.Listener{Port: listener.Port, Group: listener.TargetGroup})
		}
	}
	c.Balancers = append(c.Balancers, b)
}

type v2Attributes struct {
	Attributes []elbTag `xml:"Attributes>member"` // key and value, as tags
}

func viewAttributes(m map[string]string) *v2Attributes {
	return &v2Attributes{elbTags(m)}
}

// setAttributes changes known attributes and refuses others.
func setAttributes(m map[string]string, asked []elbTag) (*v2Attributes, error) {
	for _, a := range asked {
		if _, known := m[a.Key]; !known {
			return nil, errorf("ValidationError", "Attribute key '%s' is not recognized", a.Key)
		}
	}
	for _, a := range asked {
		m[a.Key] = a.Value
	}
	return viewAttributes(m), nil
}

func (c *call) v2DescribeAttributes(in v2LoadBalancerArn) (*v2Attributes, error) {
	l := find(c.LoadBalancers, in.LoadBalancerArn)
	if l == nil {
		return nil, errorf("LoadBalancerNotFound", "Load balancer '%s' not found", in.LoadBalancerArn)
	}
	return viewAttributes(l.Attributes), nil
}

type v2ModifyAttributesInput struct {
	LoadBalancerArn string
	Attributes      []elbTag
}

func (c *call) v2ModifyAttributes(in v2ModifyAttributesInput) (*v2Attributes, error) {
	if err := c.touch(in.LoadBalancerArn); err != nil {
		return nil, err
	}
	return setAttributes(find(c.LoadBalancers, in.LoadBalancerArn).Attributes, in.Attributes)
}

type v2SecurityGroupsInput struct {
	LoadBalancerArn                                      string
	SecurityGroups                                       []string
	EnforceSecurityGroupInboundRulesOnPrivateLinkTraffic string
}

type v2SecurityGroupsOutput struct {
	SecurityGroupIds []string `xml:"SecurityGroupIds>member"`
}

// v2SetSecurityGroups refuses to add the first group to a load balancer that was created without groups, as AWS does.
func (c *call) v2SetSecurityGroups(in v2SecurityGroupsInput) (*v2SecurityGroupsOutput, error) {
	if err := c.touch(in.LoadBalancerArn); err != nil {
		return nil, err
	}
	l := find(c.LoadBalancers, in.LoadBalancerArn)
	if len(l.SecurityGroups) == 0 && len(in.SecurityGroups) > 0 {
		return nil, errorf("InvalidConfigurationRequest", "You cannot set security groups on a Network Load Balancer that was created without security groups")
	}
	if err := c.checkGroups(in.SecurityGroups, l.VPC); err != nil {
		return nil, err
	}
	l.SecurityGroups = in.SecurityGroups
	return &v2SecurityGroupsOutput{l.SecurityGroups}, nil
}

type v2SetSubnetsInput struct {
	LoadBalancerArn string
	Subnets         []string
	SubnetMappings  []v2SubnetMapping
	IpAddressType   string
}

type v2SetSubnetsOutput struct {
	AvailabilityZones []v2Zone `xml:"AvailabilityZones>member"`
	IpAddressType     string
}

func (c *call) v2SetSubnets(in v2SetSubnetsInput) (*v2SetSubnetsOutput, error) {
	if err := c.touch(in.LoadBalancerArn); err != nil {
		return nil, err
	}
	l := find(c.LoadBalancers, in.LoadBalancerArn)
	ids, fixed, err := c.mappings(in.Subnets, in.SubnetMappings)
	if err != nil {
		return nil, err
	}
	if _, err := c.balancerSubnets(ids, l.Scheme == "internet-facing"); err != nil {
		return nil, err
	}
	for id, a := range l.Addresses {
		if _, asked := fixed[id]; !asked {
			fixed[id] = a
		}
	}
	addresses, err := c.attach(fixed, ids)
	if err != nil {
		return nil, err
	}
	l.Addresses = addresses
	return &v2SetSubnetsOutput{c.v2View(*l).AvailabilityZones, l.IPAddressType}, nil
}
