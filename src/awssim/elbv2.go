package awssim

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"kubernetes-release/awssim/forward"
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

// Listener passes one port of a load balancer to a target group.
type Listener struct {
	ARN          string `json:"arn"`
	LoadBalancer string `json:"load_balancer"` // ARN
	Protocol     string `json:"protocol"`      // TCP, UDP, TCP_UDP; the data path carries TCP
	Port         int    `json:"port"`
	TargetGroup  string `json:"target_group"` // ARN
	Tags         Tags   `json:"tags,omitempty"`
}

// TargetGroup is a set of targets with a health check.
type TargetGroup struct {
	ARN         string            `json:"arn"`
	Name        string            `json:"name"`
	Protocol    string            `json:"protocol"`
	Port        int               `json:"port"`
	VPC         string            `json:"vpc"`
	TargetType  string            `json:"target_type"` // instance, ip
	HealthCheck GroupHealthCheck  `json:"health_check"`
	Targets     []GroupTarget     `json:"targets,omitempty"`
	Attributes  map[string]string `json:"attributes,omitempty"`
	Tags        Tags              `json:"tags,omitempty"`
}

// GroupHealthCheck has the API's values; times are in seconds.
type GroupHealthCheck struct {
	Protocol  string `json:"protocol"`          // TCP, HTTP, HTTPS (which is probed by connecting)
	Port      string `json:"port"`              // traffic-port or a number
	Path      string `json:"path,omitempty"`    // HTTP, HTTPS
	Matcher   string `json:"matcher,omitempty"` // HTTP, HTTPS: codes such as 200-399
	Interval  int    `json:"interval"`
	Timeout   int    `json:"timeout"`
	Healthy   int    `json:"healthy"`
	Unhealthy int    `json:"unhealthy"`
}

// GroupTarget is an instance id or an address, with a port.
type GroupTarget struct {
	ID   string `json:"id"`
	Port int    `json:"port"`
}

func (t GroupTarget) key() string { return t.ID + ":" + strconv.Itoa(t.Port) }

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

// v2ARN makes an ARN such as …:loadbalancer/net/NAME/0123456789abcdef.
func (c *call) v2ARN(path string) string {
	c.Serial++
	return c.arn("elasticloadbalancing", c.Region, fmt.Sprintf("%s/%x", path, c.mac("arn", path, fmt.Sprint(c.Serial))[:8]))
}

// resourceName is the part of the ARN that descriptions of network interfaces use: net/NAME/ID.
func (l LoadBalancer) resourceName() string {
	_, name, _ := strings.Cut(l.ARN, ":loadbalancer/")
	return name
}

// v2Tags finds the tags of any resource of the API by its ARN.
func (w *World) v2Tags(arn string) (tags *Tags, missing error) {
	switch {
	case strings.Contains(arn, ":loadbalancer/net/"):
		if l := find(w.LoadBalancers, arn); l != nil {
			return &l.Tags, nil
		}
		return nil, errorf("LoadBalancerNotFound", "Load balancer '%s' not found", arn)
	case strings.Contains(arn, ":targetgroup/"):
		if g := find(w.TargetGroups, arn); g != nil {
			return &g.Tags, nil
		}
		return nil, errorf("TargetGroupNotFound", "Target group '%s' not found", arn)
	case strings.Contains(arn, ":listener/net/"):
		if l := find(w.Listeners, arn); l != nil {
			return &l.Tags, nil
		}
		return nil, errorf("ListenerNotFound", "Listener '%s' not found", arn)
	}
	return nil, errorf("ValidationError", "'%s' is not a valid load balancer, target group or listener ARN", arn)
}

// touch asks for permission to change the resources and makes sure that they exist.
func (c *call) touch(arns ...string) error {
	for _, arn := range arns {
		subject := target{arn: arn}
		tags, missing := c.v2Tags(arn)
		if tags != nil {
			subject.tags = *tags
		}
		if err := c.allow(subject); err != nil {
			return err
		}
		if missing != nil {
			return missing
		}
	}
	return nil
}

// allowCreate asks for permission to create something with tags.
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
	view := c.v2View(l)
	view.State.Code = "provisioning"
	return &v2LoadBalancers{LoadBalancers: []v2LoadBalancer{view}}, nil
}

// mappings merges the two ways to name subnets; fixed has the addresses that were asked for.
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

// v2Delete succeeds for a load balancer that is not there, as AWS does.
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

type v2Matcher struct {
	HttpCode string `xml:",omitempty"`
}

type v2CreateTargetGroupInput struct {
	Name            string
	Protocol        string
	Port            int
	VpcId           string
	TargetType      string
	IpAddressType   string
	ProtocolVersion string
	Tags            []elbTag
	v2HealthCheck
}

// v2HealthCheck has the parameters that creating and modifying a target group share.
type v2HealthCheck struct {
	HealthCheckEnabled         *bool
	HealthCheckProtocol        string
	HealthCheckPort            string
	HealthCheckPath            string
	HealthCheckIntervalSeconds int
	HealthCheckTimeoutSeconds  int
	HealthyThresholdCount      int
	UnhealthyThresholdCount    int
	Matcher                    v2Matcher
}

// over lays the request's values over those that are there and checks the result.
func (in v2HealthCheck) over(h GroupHealthCheck) (GroupHealthCheck, error) {
	h.Protocol = cmp.Or(in.HealthCheckProtocol, h.Protocol)
	h.Port = cmp.Or(in.HealthCheckPort, h.Port)
	h.Path = cmp.Or(in.HealthCheckPath, h.Path)
	h.Matcher = cmp.Or(in.Matcher.HttpCode, h.Matcher)
	h.Interval = cmp.Or(in.HealthCheckIntervalSeconds, h.Interval)
	h.Timeout = cmp.Or(in.HealthCheckTimeoutSeconds, h.Timeout)
	h.Healthy = cmp.Or(in.HealthyThresholdCount, h.Healthy)
	h.Unhealthy = cmp.Or(in.UnhealthyThresholdCount, h.Unhealthy)
	switch h.Protocol {
	case "TCP":
		if in.HealthCheckPath != "" || in.Matcher.HttpCode != "" {
			return h, errorf("ValidationError", "Health check path and matcher are not supported for health checks with protocol TCP")
		}
		h.Path, h.Matcher = "", ""
		h.Timeout = cmp.Or(h.Timeout, 10)
	case "HTTP", "HTTPS":
		h.Path, h.Matcher = cmp.Or(h.Path, "/"), cmp.Or(h.Matcher, "200-399")
		h.Timeout = cmp.Or(h.Timeout, 6)
	default:
		return h, errorf("ValidationError", "Health check protocol '%s' must be one of 'HTTP', 'HTTPS', 'TCP'", h.Protocol)
	}
	if port, err := strconv.Atoi(h.Port); h.Port != "traffic-port" && (err != nil || port < 1 || port > 65535) {
		return h, errorf("ValidationError", "Health check port '%s' must be 'traffic-port' or a number between 1 and 65535", h.Port)
	}
	switch {
	case h.Interval < 5 || h.Interval > 300:
		return h, errorf("ValidationError", "Health check interval '%d' must be between '5' and '300' seconds", h.Interval)
	case h.Timeout < 2 || h.Timeout > 120:
		return h, errorf("ValidationError", "Health check timeout '%d' must be between '2' and '120' seconds", h.Timeout)
	case h.Healthy < 2 || h.Healthy > 10 || h.Unhealthy < 2 || h.Unhealthy > 10:
		return h, errorf("ValidationError", "Health check thresholds must be between '2' and '10'")
	}
	return h, nil
}

type v2TargetGroup struct {
	TargetGroupArn             string
	TargetGroupName            string
	Protocol                   string
	Port                       int
	VpcId                      string
	HealthCheckProtocol        string
	HealthCheckPort            string
	HealthCheckEnabled         bool
	HealthCheckIntervalSeconds int
	HealthCheckTimeoutSeconds  int
	HealthyThresholdCount      int
	UnhealthyThresholdCount    int
	HealthCheckPath            string     `xml:",omitempty"`
	Matcher                    *v2Matcher `xml:",omitempty"`
	LoadBalancerArns           []string   `xml:"LoadBalancerArns>member"`
	TargetType                 string
	IpAddressType              string
}

type v2TargetGroups struct {
	TargetGroups []v2TargetGroup `xml:"TargetGroups>member"`
	NextMarker   string          `xml:",omitempty"`
}

func (c *call) v2GroupView(g TargetGroup) v2TargetGroup {
	h := g.HealthCheck
	v := v2TargetGroup{
		TargetGroupArn: g.ARN, TargetGroupName: g.Name, Protocol: g.Protocol, Port: g.Port, VpcId: g.VPC, HealthCheckProtocol: h.Protocol, HealthCheckPort: h.Port,
		HealthCheckEnabled: true, HealthCheckIntervalSeconds: h.Interval, HealthCheckTimeoutSeconds: h.Timeout, HealthyThresholdCount: h.Healthy, UnhealthyThresholdCount: h.Unhealthy,
		HealthCheckPath: h.Path, LoadBalancerArns: c.balancersOf(g.ARN), TargetType: g.TargetType, IpAddressType: "ipv4",
	}
	if h.Matcher != "" {
		v.Matcher = &v2Matcher{h.Matcher}
	}
	return v
}

// balancersOf lists the load balancers whose listeners use a target group.
func (w *World) balancersOf(group string) []string {
	var arns []string
	for _, l := range w.Listeners {
		if l.TargetGroup == group && !slices.Contains(arns, l.LoadBalancer) {
			arns = append(arns, l.LoadBalancer)
		}
	}
	return arns
}

var v2Protocols = []string{"TCP", "UDP", "TCP_UDP"}

func checkProtocol(protocol string, port int) error {
	if protocol == "TLS" {
		return errorf("CertificateNotFound", "Certificates are not simulated, so there can be no TLS")
	}
	if !slices.Contains(v2Protocols, protocol) {
		return errorf("UnsupportedProtocol", "Protocol '%s' must be one of 'TCP', 'TLS', 'UDP', 'TCP_UDP'", protocol)
	}
	if port < 1 || port > 65535 {
		return errorf("ValidationError", "Port '%d' must be between 1 and 65535", port)
	}
	return nil
}

func (c *call) v2CreateTargetGroup(in v2CreateTargetGroupInput) (*v2TargetGroups, error) {
	tags, err := mergeTags(nil, in.Tags)
	if err != nil {
		return nil, err
	}
	if err := c.allowCreate("targetgroup/"+in.Name, tags); err != nil {
		return nil, err
	}
	g := TargetGroup{
		Name: in.Name, Protocol: in.Protocol, Port: in.Port, VPC: in.VpcId, TargetType: cmp.Or(in.TargetType, "instance"), Tags: tags,
		Attributes: map[string]string{
			"deregistration_delay.timeout_seconds": "300", "deregistration_delay.connection_termination.enabled": "false", "proxy_protocol_v2.enabled": "false",
			"preserve_client_ip.enabled": strconv.FormatBool(in.TargetType != "ip"), "stickiness.enabled": "false", "stickiness.type": "source_ip",
			"load_balancing.cross_zone.enabled": "use_load_balancer_configuration",
		},
	}
	if err := checkLoadBalancerName(in.Name); err != nil {
		return nil, err
	}
	if err := checkProtocol(g.Protocol, g.Port); err != nil {
		return nil, err
	}
	switch {
	case find(c.VPCs, g.VPC) == nil:
		return nil, errorf("ValidationError", "The VPC ID '%s' is not found", g.VPC)
	case g.TargetType != "instance" && g.TargetType != "ip":
		return nil, errorf("ValidationError", "Target type '%s' is not simulated; it must be instance or ip", g.TargetType)
	case slices.ContainsFunc(c.TargetGroups, func(o TargetGroup) bool { return o.Name == g.Name }):
		return nil, errorf("DuplicateTargetGroupName", "A target group with the same name '%s' exists, but with different settings", g.Name)
	}
	if g.HealthCheck, err = in.over(GroupHealthCheck{Protocol: "TCP", Port: "traffic-port", Interval: 30, Healthy: 5, Unhealthy: 2}); err != nil {
		return nil, err
	}
	g.ARN = c.v2ARN("targetgroup/" + g.Name)
	c.TargetGroups = append(c.TargetGroups, g)
	return &v2TargetGroups{TargetGroups: []v2TargetGroup{c.v2GroupView(g)}}, nil
}

type v2ModifyTargetGroupInput struct {
	TargetGroupArn string
	v2HealthCheck
}

func (c *call) v2ModifyTargetGroup(in v2ModifyTargetGroupInput) (*v2TargetGroups, error) {
	if err := c.touch(in.TargetGroupArn); err != nil {
		return nil, err
	}
	g := find(c.TargetGroups, in.TargetGroupArn)
	h, err := in.over(g.HealthCheck)
	if err != nil {
		return nil, err
	}
	g.HealthCheck = h
	return &v2TargetGroups{TargetGroups: []v2TargetGroup{c.v2GroupView(*g)}}, nil
}

type v2DescribeTargetGroupsInput struct {
	elbPaging
	LoadBalancerArn string
	TargetGroupArns []string
	Names           []string
}

func (c *call) v2DescribeTargetGroups(in v2DescribeTargetGroupsInput) (*v2TargetGroups, error) {
	if in.LoadBalancerArn != "" && find(c.LoadBalancers, in.LoadBalancerArn) == nil {
		return nil, errorf("LoadBalancerNotFound", "Load balancer '%s' not found", in.LoadBalancerArn)
	}
	var list []TargetGroup
	for _, g := range c.TargetGroups {
		named := slices.Contains(in.TargetGroupArns, g.ARN) || slices.Contains(in.Names, g.Name)
		if len(in.TargetGroupArns)+len(in.Names) == 0 {
			named = in.LoadBalancerArn == "" || slices.Contains(c.balancersOf(g.ARN), in.LoadBalancerArn)
		}
		if named {
			list = append(list, g)
		}
	}
	if len(list) < len(in.TargetGroupArns)+len(in.Names) {
		return nil, errorf("TargetGroupNotFound", "One or more target groups not found")
	}
	part, next, err := paginateELB(list, in.elbPaging)
	out := &v2TargetGroups{NextMarker: next}
	for _, g := range part {
		out.TargetGroups = append(out.TargetGroups, c.v2GroupView(g))
	}
	return out, err
}

type v2TargetGroupArn struct{ TargetGroupArn string }

func (c *call) v2DeleteTargetGroup(in v2TargetGroupArn) (*nothing, error) {
	if err := c.touch(in.TargetGroupArn); err != nil {
		return nil, err
	}
	if len(c.balancersOf(in.TargetGroupArn)) > 0 {
		return nil, errorf("ResourceInUse", "Target group '%s' is currently in use by a listener or a rule", in.TargetGroupArn)
	}
	c.TargetGroups = remove(c.TargetGroups, in.TargetGroupArn)
	return nil, nil
}

type v2Target struct {
	Id               string
	Port             *int
	AvailabilityZone string `xml:",omitempty"`
}

type v2TargetsInput struct {
	TargetGroupArn string
	Targets        []v2Target
}

// targets resolves default ports and checks that a group can have the targets.
func (c *call) targets(g *TargetGroup, asked []v2Target) ([]GroupTarget, error) {
	var targets []GroupTarget
	for _, t := range asked {
		target := GroupTarget{ID: t.Id, Port: g.Port}
		if t.Port != nil {
			target.Port = *t.Port
		}
		if g.TargetType == "ip" {
			if a, err := netip.ParseAddr(t.Id); err != nil || !a.Is4() {
				return nil, errorf("ValidationError", "The IP address '%s' is not a valid IPv4 address", t.Id)
			}
		} else if i := find(c.Instances, t.Id); i == nil || i.State == Terminated {
			return nil, errorf("InvalidTarget", "The following targets are not in a running state and cannot be registered: '%s'", t.Id)
		}
		targets = append(targets, target)
	}
	return targets, nil
}

func (c *call) v2Register(in v2TargetsInput) (*nothing, error) {
	if err := c.touch(in.TargetGroupArn); err != nil {
		return nil, err
	}
	g := find(c.TargetGroups, in.TargetGroupArn)
	targets, err := c.targets(g, in.Targets)
	if err != nil {
		return nil, err
	}
	for _, t := range targets {
		if !slices.Contains(g.Targets, t) {
			g.Targets = append(g.Targets, t)
		}
	}
	return nil, nil
}

// v2Deregister ignores targets that are not registered, as AWS does. Without a port it removes all ports of an id.
func (c *call) v2Deregister(in v2TargetsInput) (*nothing, error) {
	if err := c.touch(in.TargetGroupArn); err != nil {
		return nil, err
	}
	g := find(c.TargetGroups, in.TargetGroupArn)
	g.Targets = slices.DeleteFunc(g.Targets, func(t GroupTarget) bool {
		return slices.ContainsFunc(in.Targets, func(o v2Target) bool { return o.Id == t.ID && (o.Port == nil || *o.Port == t.Port) })
	})
	return nil, nil
}

type v2TargetHealth struct {
	State       string
	Reason      string `xml:",omitempty"`
	Description string `xml:",omitempty"`
}

type v2TargetHealthDescription struct {
	Target          v2Target
	HealthCheckPort string
	TargetHealth    v2TargetHealth
}

type v2DescribeTargetHealthInput struct {
	TargetGroupArn string
	Targets        []v2Target
	Include        []string
}

type v2DescribeTargetHealthOutput struct {
	Targets []v2TargetHealthDescription `xml:"TargetHealthDescriptions>member"`
}

func (c *call) v2DescribeTargetHealth(in v2DescribeTargetHealthInput) (*v2DescribeTargetHealthOutput, error) {
	g := find(c.TargetGroups, in.TargetGroupArn)
	if g == nil {
		return nil, errorf("TargetGroupNotFound", "One or more target groups not found")
	}
	list := g.Targets
	if len(in.Targets) > 0 {
		var err error
		if list, err = c.targets(g, in.Targets); err != nil {
			return nil, err
		}
	}
	out := &v2DescribeTargetHealthOutput{}
	for _, t := range list {
		port := g.HealthCheck.Port
		if port == "traffic-port" {
			port = strconv.Itoa(t.Port)
		}
		out.Targets = append(out.Targets, v2TargetHealthDescription{v2Target{Id: t.ID, Port: &t.Port}, port, c.targetHealth(g, t)})
	}
	return out, nil
}

// targetHealth tells what the probes found, in the API's words.
func (c *call) targetHealth(g *TargetGroup, t GroupTarget) v2TargetHealth {
	health, known := c.sim.engine.Health(g.ARN, t.key())
	switch {
	case !slices.Contains(g.Targets, t):
		return v2TargetHealth{"unused", "Target.NotRegistered", "Target is not registered to the target group"}
	case len(c.balancersOf(g.ARN)) == 0:
		return v2TargetHealth{"unused", "Target.NotInUse", "Target group is not configured to receive traffic from the load balancer"}
	case !known:
		return v2TargetHealth{"unused", "Target.InvalidState", "Target is in the stopped state"}
	case health.Healthy:
		return v2TargetHealth{State: "healthy"}
	case health.Initial:
		return v2TargetHealth{"initial", "Elb.RegistrationInProgress", "Target registration is in progress"}
	}
	return v2TargetHealth{"unhealthy", "Target.FailedHealthChecks", "Health checks failed"}
}

// forwarding adds the target group to the data path, if a listener uses it.
func (g *TargetGroup) forwarding(w *World, c *forward.Config) {
	if len(w.balancersOf(g.ARN)) == 0 {
		return
	}
	h := g.HealthCheck
	check := forward.Check{Protocol: "TCP", Interval: w.checkInterval(h.Interval), Timeout: time.Duration(h.Timeout) * time.Second, Healthy: h.Healthy, Unhealthy: h.Unhealthy}
	if h.Protocol == "HTTP" {
		check.Protocol, check.Path, check.Codes = "HTTP", h.Path, h.Matcher
	}
	if h.Port != "traffic-port" {
		check.Port, _ = strconv.Atoi(h.Port) // checked before it was stored
	}
	group := forward.Group{ID: g.ARN, Check: check}
	for _, t := range g.Targets {
		address, ok := w.instanceAddress(t.ID)
		if g.TargetType == "ip" {
			var err error
			address, err = netip.ParseAddr(t.ID)
			ok = err == nil
		}
		if ok {
			group.Targets = append(group.Targets, forward.Target{ID: t.key(), Address: address, Port: t.Port})
		}
	}
	c.Groups = append(c.Groups, group)
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

type v2Action struct {
	Type           string
	TargetGroupArn string `xml:",omitempty"`
	Order          *int   `xml:",omitempty"`
	ForwardConfig  struct {
		TargetGroups []struct {
			TargetGroupArn string
			Weight         *int `xml:",omitempty"`
		} `xml:"TargetGroups>member"`
	}
}

type v2ListenerInput struct {
	LoadBalancerArn string // create
	ListenerArn     string // modify
	Protocol        string
	Port            int
	DefaultActions  []v2Action
	Tags            []elbTag
	SslPolicy       string
	AlpnPolicy      []string
	Certificates    []struct{ CertificateArn string }
}

// targetGroup is the one group that the actions forward to.
func (in v2ListenerInput) targetGroup() (string, error) {
	if len(in.DefaultActions) != 1 || in.DefaultActions[0].Type != "forward" {
		return "", errorf("ValidationError", "A listener of a network load balancer needs exactly one default action, of type forward")
	}
	a := in.DefaultActions[0]
	if a.TargetGroupArn == "" && len(a.ForwardConfig.TargetGroups) == 1 {
		a.TargetGroupArn = a.ForwardConfig.TargetGroups[0].TargetGroupArn
	}
	return a.TargetGroupArn, nil
}

type v2ListenerAction struct {
	Type           string
	TargetGroupArn string
	Order          int
	ForwardGroup   string `xml:"ForwardConfig>TargetGroups>member>TargetGroupArn"`
}

type v2Listener struct {
	ListenerArn     string
	LoadBalancerArn string
	Port            int
	Protocol        string
	DefaultActions  []v2ListenerAction `xml:"DefaultActions>member"`
}

type v2Listeners struct {
	Listeners  []v2Listener `xml:"Listeners>member"`
	NextMarker string       `xml:",omitempty"`
}

func (l Listener) view() v2Listener {
	return v2Listener{l.ARN, l.LoadBalancer, l.Port, l.Protocol, []v2ListenerAction{{"forward", l.TargetGroup, 1, l.TargetGroup}}}
}

// checkListener makes sure that a listener can be as it should be.
func (c *call) checkListener(l Listener) error {
	if err := checkProtocol(l.Protocol, l.Port); err != nil {
		return err
	}
	g := find(c.TargetGroups, l.TargetGroup)
	if g == nil {
		return errorf("TargetGroupNotFound", "Target group '%s' not found", l.TargetGroup)
	}
	if g.Protocol != l.Protocol {
		return errorf("ValidationError", "Target group '%s' has protocol %s, which a listener with protocol %s cannot use", g.ARN, g.Protocol, l.Protocol)
	}
	for _, other := range c.Listeners {
		if other.ARN != l.ARN && other.LoadBalancer == l.LoadBalancer && other.Port == l.Port {
			return errorf("DuplicateListener", "A listener already exists on this port for this load balancer '%s'", l.LoadBalancer)
		}
	}
	return nil
}

func (c *call) v2CreateListener(in v2ListenerInput) (*v2Listeners, error) {
	if err := c.touch(in.LoadBalancerArn); err != nil {
		return nil, err
	}
	tags, err := mergeTags(nil, in.Tags)
	if err != nil {
		return nil, err
	}
	path := "listener/" + find(c.LoadBalancers, in.LoadBalancerArn).resourceName()
	arn := c.arn("elasticloadbalancing", c.Region, path+"/*")
	if err := c.allowTagsOnCreate("elasticloadbalancing:AddTags", "elasticloadbalancing:CreateAction", arn, tags); err != nil {
		return nil, err
	}
	l := Listener{LoadBalancer: in.LoadBalancerArn, Protocol: in.Protocol, Port: in.Port, Tags: tags}
	if l.TargetGroup, err = in.targetGroup(); err != nil {
		return nil, err
	}
	if err := c.checkListener(l); err != nil {
		return nil, err
	}
	l.ARN = c.v2ARN(path)
	c.Listeners = append(c.Listeners, l)
	return &v2Listeners{Listeners: []v2Listener{l.view()}}, nil
}

func (c *call) v2ModifyListener(in v2ListenerInput) (*v2Listeners, error) {
	if err := c.touch(in.ListenerArn); err != nil {
		return nil, err
	}
	l := find(c.Listeners, in.ListenerArn)
	wanted := *l
	wanted.Protocol, wanted.Port = cmp.Or(in.Protocol, l.Protocol), cmp.Or(in.Port, l.Port)
	if len(in.DefaultActions) > 0 {
		var err error
		if wanted.TargetGroup, err = in.targetGroup(); err != nil {
			return nil, err
		}
	}
	if err := c.checkListener(wanted); err != nil {
		return nil, err
	}
	*l = wanted
	return &v2Listeners{Listeners: []v2Listener{l.view()}}, nil
}

type v2ListenerArn struct{ ListenerArn string }

func (c *call) v2DeleteListener(in v2ListenerArn) (*nothing, error) {
	if err := c.touch(in.ListenerArn); err != nil {
		return nil, err
	}
	c.Listeners = remove(c.Listeners, in.ListenerArn)
	return nil, nil
}

type v2DescribeListenersInput struct {
	elbPaging
	LoadBalancerArn string
	ListenerArns    []string
}

func (c *call) v2DescribeListeners(in v2DescribeListenersInput) (*v2Listeners, error) {
	if in.LoadBalancerArn != "" && find(c.LoadBalancers, in.LoadBalancerArn) == nil {
		return nil, errorf("LoadBalancerNotFound", "One or more load balancers not found")
	}
	var list []Listener
	for _, l := range c.Listeners {
		if l.LoadBalancer == in.LoadBalancerArn || slices.Contains(in.ListenerArns, l.ARN) {
			list = append(list, l)
		}
	}
	if len(list) < len(in.ListenerArns) {
		return nil, errorf("ListenerNotFound", "One or more listeners not found")
	}
	part, next, err := paginateELB(list, in.elbPaging)
	out := &v2Listeners{NextMarker: next}
	for _, l := range part {
		out.Listeners = append(out.Listeners, l.view())
	}
	return out, err
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

func (c *call) v2DescribeGroupAttributes(in v2TargetGroupArn) (*v2Attributes, error) {
	g := find(c.TargetGroups, in.TargetGroupArn)
	if g == nil {
		return nil, errorf("TargetGroupNotFound", "Target group '%s' not found", in.TargetGroupArn)
	}
	return viewAttributes(g.Attributes), nil
}

type v2ModifyGroupAttributesInput struct {
	TargetGroupArn string
	Attributes     []elbTag
}

func (c *call) v2ModifyGroupAttributes(in v2ModifyGroupAttributesInput) (*v2Attributes, error) {
	if err := c.touch(in.TargetGroupArn); err != nil {
		return nil, err
	}
	return setAttributes(find(c.TargetGroups, in.TargetGroupArn).Attributes, in.Attributes)
}

type v2SecurityGroupsInput struct {
	LoadBalancerArn                                      string
	SecurityGroups                                       []string
	EnforceSecurityGroupInboundRulesOnPrivateLinkTraffic string
}

type v2SecurityGroupsOutput struct {
	SecurityGroupIds []string `xml:"SecurityGroupIds>member"`
}

// v2SetSecurityGroups refuses what AWS refuses: adding the first group to a load balancer that was made without.
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

type v2TagsInput struct {
	ResourceArns []string
	Tags         []elbTag
}

func (c *call) v2AddTags(in v2TagsInput) (*nothing, error) {
	request := Tags{}
	for _, t := range in.Tags {
		request[t.Key] = t.Value
	}
	for _, arn := range in.ResourceArns {
		tags, missing := c.v2Tags(arn)
		subject := target{arn: arn, requestTags: request}
		if tags != nil {
			subject.tags = *tags
		}
		if err := c.allow(subject); err != nil {
			return nil, err
		}
		if missing != nil {
			return nil, missing
		}
		merged, err := mergeTags(*tags, in.Tags)
		if err != nil {
			return nil, err
		}
		*tags = merged
	}
	return nil, nil
}

type v2RemoveTagsInput struct {
	ResourceArns []string
	TagKeys      []string
}

func (c *call) v2RemoveTags(in v2RemoveTagsInput) (*nothing, error) {
	if err := c.touch(in.ResourceArns...); err != nil {
		return nil, err
	}
	for _, arn := range in.ResourceArns {
		tags, _ := c.v2Tags(arn)
		for _, key := range in.TagKeys {
			delete(*tags, key)
		}
	}
	return nil, nil
}

type v2TagDescription struct {
	ResourceArn string
	Tags        []elbTag `xml:"Tags>member"`
}

type v2DescribeTagsOutput struct {
	Descriptions []v2TagDescription `xml:"TagDescriptions>member"`
}

type v2DescribeTagsInput struct{ ResourceArns []string }

func (c *call) v2DescribeTags(in v2DescribeTagsInput) (*v2DescribeTagsOutput, error) {
	out := &v2DescribeTagsOutput{}
	for _, arn := range in.ResourceArns {
		tags, missing := c.v2Tags(arn)
		if missing != nil {
			return nil, missing
		}
		out.Descriptions = append(out.Descriptions, v2TagDescription{arn, elbTags(*tags)})
	}
	return out, nil
}
