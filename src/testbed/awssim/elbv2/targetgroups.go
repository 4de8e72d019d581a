package elbv2

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"kubernetes-release/testbed/awssim/api"
	"kubernetes-release/testbed/awssim/balancing"
	"kubernetes-release/testbed/awssim/forward"
	"kubernetes-release/testbed/awssim/store"
)

type v2Matcher struct {
	HttpCode string `xml:",omitempty"`
	GrpcCode string `xml:",omitempty"`
}

// grpc is the protocol version of target groups for gRPC, whose matchers are of codes of gRPC.
const grpc = "GRPC"

type v2CreateTargetGroupInput struct {
	Name            string
	Protocol        string
	Port            int
	VpcId           string
	TargetType      string
	IpAddressType   string
	ProtocolVersion string
	Tags            []store.Pair
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

// over merges the request's values into the existing ones and validates the result.
func (in v2HealthCheck) over(h store.GroupHealthCheck) (store.GroupHealthCheck, error) {
	h.Protocol = cmp.Or(in.HealthCheckProtocol, h.Protocol)
	h.Port = cmp.Or(in.HealthCheckPort, h.Port)
	h.Path = cmp.Or(in.HealthCheckPath, h.Path)
	h.Matcher = cmp.Or(in.Matcher.GrpcCode, in.Matcher.HttpCode, h.Matcher)
	h.Interval = cmp.Or(in.HealthCheckIntervalSeconds, h.Interval)
	h.Timeout = cmp.Or(in.HealthCheckTimeoutSeconds, h.Timeout)
	h.Healthy = cmp.Or(in.HealthyThresholdCount, h.Healthy)
	h.Unhealthy = cmp.Or(in.UnhealthyThresholdCount, h.Unhealthy)
	switch h.Protocol {
	case "TCP":
		if in.HealthCheckPath != "" || in.Matcher != (v2Matcher{}) {
			return h, api.Errorf(
				"ValidationError",
				"Health check path and matcher are not supported for health checks with protocol TCP",
			)
		}
		h.Path, h.Matcher = "", ""
		h.Timeout = cmp.Or(h.Timeout, 10)
	case "HTTP", "HTTPS":
		h.Path, h.Matcher = cmp.Or(h.Path, "/"), cmp.Or(h.Matcher, "200-399")
		h.Timeout = cmp.Or(h.Timeout, 6)
	default:
		return h, api.Errorf(
			"ValidationError", "Health check protocol '%s' must be one of 'HTTP', 'HTTPS', 'TCP'", h.Protocol,
		)
	}
	if port, err := strconv.Atoi(h.Port); h.Port != "traffic-port" && (err != nil || port < 1 || port > 65535) {
		return h, api.Errorf(
			"ValidationError", "Health check port '%s' must be 'traffic-port' or a number between 1 and 65535", h.Port,
		)
	}
	switch {
	case h.Interval < 5 || h.Interval > 300:
		return h, api.Errorf(
			"ValidationError", "Health check interval '%d' must be between '5' and '300' seconds", h.Interval,
		)
	case h.Timeout < 2 || h.Timeout > 120:
		return h, api.Errorf(
			"ValidationError", "Health check timeout '%d' must be between '2' and '120' seconds", h.Timeout,
		)
	case h.Timeout > h.Interval:
		return h, api.Errorf("ValidationError", "Health check interval must be greater than the timeout.")
	case h.Healthy < 2 || h.Healthy > 10 || h.Unhealthy < 2 || h.Unhealthy > 10:
		return h, api.Errorf("ValidationError", "Health check thresholds must be between '2' and '10'")
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
	ProtocolVersion            string `xml:",omitempty"`
}

type v2TargetGroups struct {
	TargetGroups []v2TargetGroup `xml:"TargetGroups>member"`
	NextMarker   string          `xml:",omitempty"`
}

func v2GroupView(c *api.Call, g store.TargetGroup) v2TargetGroup {
	h := g.HealthCheck
	v := v2TargetGroup{
		TargetGroupArn:             g.ARN,
		TargetGroupName:            g.Name,
		Protocol:                   g.Protocol,
		Port:                       g.Port,
		VpcId:                      g.VPC,
		HealthCheckProtocol:        h.Protocol,
		HealthCheckPort:            h.Port,
		HealthCheckEnabled:         true,
		HealthCheckIntervalSeconds: h.Interval,
		HealthCheckTimeoutSeconds:  h.Timeout,
		HealthyThresholdCount:      h.Healthy,
		UnhealthyThresholdCount:    h.Unhealthy,
		HealthCheckPath:            h.Path,
		LoadBalancerArns:           balancersOf(c.World, g.ARN),
		TargetType:                 g.TargetType,
		IpAddressType:              "ipv4",
	}
	if g.Protocol == "HTTP" {
		v.ProtocolVersion = cmp.Or(g.ProtocolVersion, "HTTP1")
	}
	switch {
	case h.Matcher == "":
	case g.ProtocolVersion == grpc:
		v.Matcher = &v2Matcher{GrpcCode: h.Matcher}
	default:
		v.Matcher = &v2Matcher{HttpCode: h.Matcher}
	}
	return v
}

// balancersOf lists the load balancers whose listeners use a target group.
func balancersOf(w *store.World, group string) []string {
	var arns []string
	for _, l := range w.Listeners {
		uses := l.TargetGroup == group || slices.Contains(store.Groups(l.Actions), group) ||
			slices.ContainsFunc(w.ListenerRules, func(r store.ListenerRule) bool {
				return r.Listener == l.ARN && slices.Contains(store.Groups(r.Actions), group)
			})
		if uses && !slices.Contains(arns, l.LoadBalancer) {
			arns = append(arns, l.LoadBalancer)
		}
	}
	return arns
}

func v2CreateTargetGroup(c *api.Call, in v2CreateTargetGroupInput) (*v2TargetGroups, error) {
	tags, err := balancing.MergeTags(nil, in.Tags)
	if err != nil {
		return nil, err
	}
	if err := allowCreate(c, "targetgroup/"+in.Name, tags); err != nil {
		return nil, err
	}
	g := store.TargetGroup{
		Name:     in.Name,
		Protocol: in.Protocol,
		Port:     in.Port,
		VPC:      in.VpcId,

		ProtocolVersion: in.ProtocolVersion,
		TargetType:      cmp.Or(in.TargetType, "instance"),
		Tags:            tags,
		Attributes: map[string]string{
			"deregistration_delay.timeout_seconds":                "300",
			"deregistration_delay.connection_termination.enabled": "false",
			"proxy_protocol_v2.enabled":                           "false",
			"preserve_client_ip.enabled":                          strconv.FormatBool(in.TargetType != "ip"),
			"stickiness.enabled":                                  "false",
			"stickiness.type":                                     "source_ip",
			"load_balancing.cross_zone.enabled":                   "use_load_balancer_configuration",
		},
	}
	check := store.GroupHealthCheck{Protocol: "TCP", Port: "traffic-port", Interval: 30, Healthy: 5, Unhealthy: 2}
	if g.Protocol == "HTTP" { // of an application load balancer
		g.Attributes = httpGroupAttributes()
		check.Protocol, check.Matcher, check.Timeout = "HTTP", "200", 5
		if in.ProtocolVersion == grpc {
			check.Path, check.Matcher = "/AWS.ALB/healthcheck", "12"
		}
	}
	if err := balancing.CheckLoadBalancerName(in.Name); err != nil {
		return nil, err
	}
	if g.Protocol != "HTTP" {
		if err := checkProtocol(g.Protocol, g.Port); err != nil {
			return nil, err
		}
	}
	switch {
	case store.Find(c.VPCs, g.VPC) == nil:
		return nil, api.Errorf("ValidationError", "The VPC ID '%s' is not found", g.VPC)
	case g.ProtocolVersion != "" && (g.Protocol != "HTTP" || g.ProtocolVersion != "HTTP1" && g.ProtocolVersion != grpc):
		return nil, api.Errorf(
			"ValidationError", "Protocol version '%s' is not simulated for target groups with protocol %s",
			g.ProtocolVersion, g.Protocol,
		)
	case g.TargetType != "instance" && g.TargetType != "ip":
		return nil, api.Errorf(
			"ValidationError", "Target type '%s' is not simulated; it must be instance or ip", g.TargetType,
		)
	case slices.ContainsFunc(c.TargetGroups, func(o store.TargetGroup) bool { return o.Name == g.Name }):
		return nil, api.Errorf(
			"DuplicateTargetGroupName", "A target group with the same name '%s' exists, but with different settings",
			g.Name,
		)
	}
	if g.HealthCheck, err = in.over(check); err != nil {
		return nil, err
	}
	g.ARN = v2ARN(c, "targetgroup/"+g.Name)
	c.TargetGroups = append(c.TargetGroups, g)
	return &v2TargetGroups{TargetGroups: []v2TargetGroup{v2GroupView(c, g)}}, nil
}

type v2ModifyTargetGroupInput struct {
	TargetGroupArn string
	v2HealthCheck
}

func v2ModifyTargetGroup(c *api.Call, in v2ModifyTargetGroupInput) (*v2TargetGroups, error) {
	if err := touch(c, in.TargetGroupArn); err != nil {
		return nil, err
	}
	g := store.Find(c.TargetGroups, in.TargetGroupArn)
	h, err := in.over(g.HealthCheck)
	if err != nil {
		return nil, err
	}
	g.HealthCheck = h
	return &v2TargetGroups{TargetGroups: []v2TargetGroup{v2GroupView(c, *g)}}, nil
}

type v2DescribeTargetGroupsInput struct {
	balancing.Paging
	LoadBalancerArn string
	TargetGroupArns []string
	Names           []string
}

func v2DescribeTargetGroups(c *api.Call, in v2DescribeTargetGroupsInput) (*v2TargetGroups, error) {
	if in.LoadBalancerArn != "" && store.Find(c.LoadBalancers, in.LoadBalancerArn) == nil {
		return nil, api.Errorf("LoadBalancerNotFound", "Load balancer '%s' not found", in.LoadBalancerArn)
	}
	var list []store.TargetGroup
	for _, g := range c.TargetGroups {
		named := slices.Contains(in.TargetGroupArns, g.ARN) || slices.Contains(in.Names, g.Name)
		if len(in.TargetGroupArns)+len(in.Names) == 0 {
			named = in.LoadBalancerArn == "" || slices.Contains(balancersOf(c.World, g.ARN), in.LoadBalancerArn)
		}
		if named {
			list = append(list, g)
		}
	}
	if len(list) < len(in.TargetGroupArns)+len(in.Names) {
		return nil, api.Errorf("TargetGroupNotFound", "One or more target groups not found")
	}
	part, next, err := balancing.Paginate(list, in.Paging)
	out := &v2TargetGroups{NextMarker: next}
	for _, g := range part {
		out.TargetGroups = append(out.TargetGroups, v2GroupView(c, g))
	}
	return out, err
}

type v2TargetGroupArn struct{ TargetGroupArn string }

func v2DeleteTargetGroup(c *api.Call, in v2TargetGroupArn) (*api.Nothing, error) {
	if err := touch(c, in.TargetGroupArn); err != nil {
		return nil, err
	}
	if len(balancersOf(c.World, in.TargetGroupArn)) > 0 {
		return nil, api.Errorf(
			"ResourceInUse", "Target group '%s' is currently in use by a listener or a rule", in.TargetGroupArn,
		)
	}
	c.TargetGroups = store.Remove(c.TargetGroups, in.TargetGroupArn)
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

// targets resolves default ports and validates the targets of a group.
func targets(c *api.Call, g *store.TargetGroup, asked []v2Target) ([]store.GroupTarget, error) {
	var targets []store.GroupTarget
	for _, t := range asked {
		target := store.GroupTarget{ID: t.Id, Port: g.Port}
		if t.Port != nil {
			target.Port = *t.Port
		}
		if g.TargetType == "ip" {
			if a, err := netip.ParseAddr(t.Id); err != nil || !a.Is4() {
				return nil, api.Errorf("ValidationError", "The IP address '%s' is not a valid IPv4 address", t.Id)
			}
		} else if i := store.Find(c.Instances, t.Id); i == nil || i.State == store.Terminated {
			return nil, api.Errorf(
				"InvalidTarget", "The following targets are not in a running state and cannot be registered: '%s'",
				t.Id,
			)
		}
		targets = append(targets, target)
	}
	return targets, nil
}

func v2Register(c *api.Call, in v2TargetsInput) (*api.Nothing, error) {
	if err := touch(c, in.TargetGroupArn); err != nil {
		return nil, err
	}
	g := store.Find(c.TargetGroups, in.TargetGroupArn)
	targets, err := targets(c, g, in.Targets)
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
func v2Deregister(c *api.Call, in v2TargetsInput) (*api.Nothing, error) {
	if err := touch(c, in.TargetGroupArn); err != nil {
		return nil, err
	}
	g := store.Find(c.TargetGroups, in.TargetGroupArn)
	g.Targets = slices.DeleteFunc(g.Targets, func(t store.GroupTarget) bool {
		return slices.ContainsFunc(
			in.Targets, func(o v2Target) bool { return o.Id == t.ID && (o.Port == nil || *o.Port == t.Port) },
		)
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

func v2DescribeTargetHealth(c *api.Call, in v2DescribeTargetHealthInput) (*v2DescribeTargetHealthOutput, error) {
	g := store.Find(c.TargetGroups, in.TargetGroupArn)
	if g == nil {
		return nil, api.Errorf("TargetGroupNotFound", "One or more target groups not found")
	}
	list := g.Targets
	if len(in.Targets) > 0 {
		var err error
		if list, err = targets(c, g, in.Targets); err != nil {
			return nil, err
		}
	}
	out := &v2DescribeTargetHealthOutput{}
	for _, t := range list {
		port := g.HealthCheck.Port
		if port == "traffic-port" {
			port = strconv.Itoa(t.Port)
		}
		out.Targets = append(
			out.Targets, v2TargetHealthDescription{v2Target{Id: t.ID, Port: &t.Port}, port, targetHealth(c, g, t)},
		)
	}
	return out, nil
}

// targetHealth returns the state of a target in the API's terms.
func targetHealth(c *api.Call, g *store.TargetGroup, t store.GroupTarget) v2TargetHealth {
	health, known := c.Engine.Health(g.ARN, t.Key())
	switch {
	case !slices.Contains(g.Targets, t):
		return v2TargetHealth{"unused", "Target.NotRegistered", "Target is not registered to the target group"}
	case len(balancersOf(c.World, g.ARN)) == 0:
		return v2TargetHealth{
			"unused",
			"Target.NotInUse",
			"Target group is not configured to receive traffic from the load balancer",
		}
	case !known:
		return v2TargetHealth{"unused", "Target.InvalidState", "Target is in the stopped state"}
	case health.Healthy:
		return v2TargetHealth{State: "healthy"}
	case health.Initial:
		return v2TargetHealth{"initial", "Elb.RegistrationInProgress", "Target registration is in progress"}
	}
	return v2TargetHealth{"unhealthy", "Target.FailedHealthChecks", "Health checks failed"}
}

// ForwardGroup adds the target group to the data path, if a listener uses it.
func ForwardGroup(g *store.TargetGroup, w *store.World, c *forward.Config) {
	if len(balancersOf(w, g.ARN)) == 0 {
		return
	}
	h := g.HealthCheck
	check := forward.Check{
		Protocol:  "TCP",
		Interval:  w.CheckInterval(h.Interval),
		Timeout:   time.Duration(h.Timeout) * time.Second,
		Healthy:   h.Healthy,
		Unhealthy: h.Unhealthy,
	}
	if h.Protocol == "HTTP" {
		check.Protocol, check.Path, check.Codes = "HTTP", h.Path, h.Matcher
	}
	if h.Port != "traffic-port" {
		check.Port, _ = strconv.Atoi(h.Port) // checked before it was stored
	}
	check.GRPC = g.ProtocolVersion == grpc
	group := forward.Group{ID: g.ARN, Check: check, TLS: g.Protocol == "TLS"}
	for _, t := range g.Targets {
		address, ok := w.InstanceAddress(t.ID)
		if g.TargetType == "ip" {
			var err error
			address, err = netip.ParseAddr(t.ID)
			ok = err == nil
		}
		if ok {
			group.Targets = append(group.Targets, forward.Target{ID: t.Key(), Address: address, Port: t.Port})
		}
	}
	c.Groups = append(c.Groups, group)
}

func v2DescribeGroupAttributes(c *api.Call, in v2TargetGroupArn) (*v2Attributes, error) {
	g := store.Find(c.TargetGroups, in.TargetGroupArn)
	if g == nil {
		return nil, api.Errorf("TargetGroupNotFound", "Target group '%s' not found", in.TargetGroupArn)
	}
	return viewAttributes(g.Attributes), nil
}

type v2ModifyGroupAttributesInput struct {
	TargetGroupArn string
	Attributes     []store.Pair
}

func v2ModifyGroupAttributes(c *api.Call, in v2ModifyGroupAttributesInput) (*v2Attributes, error) {
	if err := touch(c, in.TargetGroupArn); err != nil {
		return nil, err
	}
	return setAttributes(store.Find(c.TargetGroups, in.TargetGroupArn).Attributes, in.Attributes)
}
