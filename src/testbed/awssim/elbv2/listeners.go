package elbv2

import (
	"cmp"
	"slices"

	"kubernetes-release/testbed/awssim/api"
	"kubernetes-release/testbed/awssim/balancing"
	"kubernetes-release/testbed/awssim/ec2api"
	"kubernetes-release/testbed/awssim/store"
)

// groupProtocols are those of target groups that the listeners of a network load balancer can forward to, by their own
// ("Listeners for your Network Load Balancers" in its user guide).
var groupProtocols = map[string][]string{
	"TCP": {"TCP", "TCP_UDP"}, "TLS": {"TCP", "TLS"}, "UDP": {"UDP", "TCP_UDP"}, "TCP_UDP": {"TCP_UDP"},
}

// hasCertificates reports whether listeners with a protocol end TLS.
func hasCertificates(protocol string) bool { return protocol == "HTTPS" || protocol == "TLS" }

func checkProtocol(protocol string, port int) error {
	if groupProtocols[protocol] == nil {
		return api.Errorf(
			"UnsupportedProtocol", "Protocol '%s' must be one of 'TCP', 'TLS', 'UDP', 'TCP_UDP'", protocol,
		)
	}
	if port < 1 || port > 65535 {
		return api.Errorf("ValidationError", "Port '%d' must be between 1 and 65535", port)
	}
	return nil
}

type v2ListenerInput struct {
	LoadBalancerArn string // create
	ListenerArn     string // modify
	Protocol        string
	Port            int
	DefaultActions  []store.Action
	Tags            []store.Pair
	SslPolicy       string
	AlpnPolicy      []string
	Certificates    []certificateRef
}

// targetGroup is the only group that the actions forward to.
func (in v2ListenerInput) targetGroup() (string, error) {
	if len(in.DefaultActions) != 1 || in.DefaultActions[0].Type != "forward" {
		return "", api.Errorf(
			"ValidationError",
			"A listener of a network load balancer needs exactly one default action, of type forward",
		)
	}
	a := in.DefaultActions[0]
	if a.TargetGroupArn == "" && a.ForwardConfig != nil && len(a.ForwardConfig.TargetGroups) == 1 {
		a.TargetGroupArn = a.ForwardConfig.TargetGroups[0].TargetGroupArn
	}
	return a.TargetGroupArn, nil
}

type v2Listener struct {
	ListenerArn     string
	LoadBalancerArn string
	Port            int
	Protocol        string
	DefaultActions  []store.Action   `xml:"DefaultActions>member"`
	Certificates    []certificateRef `xml:"Certificates>member,omitempty"`
	SslPolicy       string           `xml:",omitempty"`
}

type v2Listeners struct {
	Listeners  []v2Listener `xml:"Listeners>member"`
	NextMarker string       `xml:",omitempty"`
}

func view(l store.Listener) v2Listener {
	actions := l.Actions
	if l.TargetGroup != "" {
		actions = []store.Action{{
			Type: "forward", Order: 1, TargetGroupArn: l.TargetGroup,
			ForwardConfig: &store.ForwardConfig{TargetGroups: []store.WeightedGroup{{TargetGroupArn: l.TargetGroup}}},
		}}
	}
	v := v2Listener{
		ListenerArn: l.ARN, LoadBalancerArn: l.LoadBalancer, Port: l.Port, Protocol: l.Protocol,
		DefaultActions: actions, SslPolicy: l.SecurityPolicy,
	}
	if len(l.Certificates) > 0 {
		v.Certificates = []certificateRef{{CertificateArn: l.Certificates[0]}}
	}
	return v
}

// direct sets what a listener does with connections or requests.
func direct(c *api.Call, l *store.Listener, in v2ListenerInput) (err error) {
	if b := store.Find(c.LoadBalancers, l.LoadBalancer); b != nil && b.Application() {
		l.Actions, err = actions(c, in.DefaultActions)
		return err
	}
	l.TargetGroup, err = in.targetGroup()
	return err
}

// checkListener validates a listener.
func checkListener(c *api.Call, l store.Listener) error {
	application := store.Find(c.LoadBalancers, l.LoadBalancer).Application()
	if !application {
		if err := checkProtocol(l.Protocol, l.Port); err != nil {
			return err
		}
	}
	if application && l.Protocol != "HTTP" && l.Protocol != "HTTPS" {
		return api.Errorf("UnsupportedProtocol", "Protocol '%s' must be one of 'HTTP', 'HTTPS'", l.Protocol)
	}
	g := store.Find(c.TargetGroups, l.TargetGroup)
	if !application && g == nil {
		return api.Errorf("TargetGroupNotFound", "Target group '%s' not found", l.TargetGroup)
	}
	if !application && !slices.Contains(groupProtocols[l.Protocol], g.Protocol) {
		return api.Errorf(
			"IncompatibleProtocols", "Target group '%s' has protocol %s, which a listener with protocol %s cannot use",
			g.ARN, g.Protocol, l.Protocol,
		)
	}
	for _, other := range c.Listeners {
		if other.ARN != l.ARN && other.LoadBalancer == l.LoadBalancer && other.Port == l.Port {
			return api.Errorf(
				"DuplicateListener", "A listener already exists on this port for this load balancer '%s'",
				l.LoadBalancer,
			)
		}
	}
	return nil
}

func v2CreateListener(c *api.Call, in v2ListenerInput) (*v2Listeners, error) {
	if err := touch(c, in.LoadBalancerArn); err != nil {
		return nil, err
	}
	tags, err := balancing.MergeTags(nil, in.Tags)
	if err != nil {
		return nil, err
	}
	path := "listener/" + store.Find(c.LoadBalancers, in.LoadBalancerArn).ResourceName()
	arn := c.ARN("elasticloadbalancing", c.Region, path+"/*")
	if err := ec2api.AllowTagsOnCreate(
		c, "elasticloadbalancing:AddTags", "elasticloadbalancing:CreateAction", arn, tags,
	); err != nil {
		return nil, err
	}
	l := store.Listener{LoadBalancer: in.LoadBalancerArn, Protocol: in.Protocol, Port: in.Port, Tags: tags}
	if err := direct(c, &l, in); err != nil {
		return nil, err
	}
	if err := secure(c, &l, in); err != nil {
		return nil, err
	}
	if err := checkListener(c, l); err != nil {
		return nil, err
	}
	l.ARN = v2ARN(c, path)
	l.Attributes = map[string]string{"tcp.idle_timeout.seconds": "350"}
	if len(l.Actions) > 0 {
		l.Attributes = map[string]string{"routing.http.response.server.enabled": "true"}
		addRule(c, &store.ListenerRule{Listener: l.ARN})
	}
	c.Listeners = append(c.Listeners, l)
	return &v2Listeners{Listeners: []v2Listener{view(l)}}, nil
}

func v2ModifyListener(c *api.Call, in v2ListenerInput) (*v2Listeners, error) {
	if err := touch(c, in.ListenerArn); err != nil {
		return nil, err
	}
	l := store.Find(c.Listeners, in.ListenerArn)
	wanted := *l
	wanted.Protocol, wanted.Port = cmp.Or(in.Protocol, l.Protocol), cmp.Or(in.Port, l.Port)
	if len(in.DefaultActions) > 0 {
		if err := direct(c, &wanted, in); err != nil {
			return nil, err
		}
	}
	if err := secure(c, &wanted, in); err != nil {
		return nil, err
	}
	if err := checkListener(c, wanted); err != nil {
		return nil, err
	}
	*l = wanted
	return &v2Listeners{Listeners: []v2Listener{view(*l)}}, nil
}

func v2DeleteListener(c *api.Call, in v2ListenerArn) (*api.Nothing, error) {
	if err := touch(c, in.ListenerArn); err != nil {
		return nil, err
	}
	c.Listeners = store.Remove(c.Listeners, in.ListenerArn)
	removeRules(c.World, in.ListenerArn)
	return nil, nil
}

func describeListenerAttributes(c *api.Call, in v2ListenerArn) (*v2Attributes, error) {
	l := store.Find(c.Listeners, in.ListenerArn)
	if l == nil {
		return nil, api.Errorf("ListenerNotFound", "One or more listeners not found")
	}
	return viewAttributes(l.Attributes), nil
}

type modifyListenerAttributesInput struct {
	ListenerArn string
	Attributes  []store.Pair
}

func modifyListenerAttributes(c *api.Call, in modifyListenerAttributesInput) (*v2Attributes, error) {
	if err := touch(c, in.ListenerArn); err != nil {
		return nil, err
	}
	return setAttributes(store.Find(c.Listeners, in.ListenerArn).Attributes, in.Attributes)
}

type v2DescribeListenersInput struct {
	balancing.Paging
	LoadBalancerArn string
	ListenerArns    []string
}

func v2DescribeListeners(c *api.Call, in v2DescribeListenersInput) (*v2Listeners, error) {
	if in.LoadBalancerArn != "" && store.Find(c.LoadBalancers, in.LoadBalancerArn) == nil {
		return nil, api.Errorf("LoadBalancerNotFound", "One or more load balancers not found")
	}
	var list []store.Listener
	for _, l := range c.Listeners {
		if l.LoadBalancer == in.LoadBalancerArn || slices.Contains(in.ListenerArns, l.ARN) {
			list = append(list, l)
		}
	}
	if len(list) < len(in.ListenerArns) {
		return nil, api.Errorf("ListenerNotFound", "One or more listeners not found")
	}
	part, next, err := balancing.Paginate(list, in.Paging)
	out := &v2Listeners{NextMarker: next}
	for _, l := range part {
		out.Listeners = append(out.Listeners, view(l))
	}
	return out, err
}

// defaultSecurityPolicy is that of listeners that name none.
const defaultSecurityPolicy = "ELBSecurityPolicy-2016-08"

// secure sets the default certificate of a listener that ends TLS, and its security policy.
func secure(c *api.Call, l *store.Listener, in v2ListenerInput) error {
	if !hasCertificates(l.Protocol) {
		if len(in.Certificates) > 0 {
			return api.Errorf(
				"InvalidConfigurationRequest", "A certificate cannot be specified for %s listeners", l.Protocol,
			)
		}
		l.Certificates, l.SecurityPolicy = nil, ""
		return nil
	}
	if len(in.Certificates) > 1 {
		return api.Errorf("TooManyCertificates", "Exactly one certificate must be specified")
	}
	for _, given := range in.Certificates {
		if store.Find(c.Certificates, given.CertificateArn) == nil {
			return api.Errorf("CertificateNotFound", "Certificate '%s' not found", given.CertificateArn)
		}
		extra := slices.DeleteFunc(slices.Clone(l.Certificates), func(arn string) bool {
			return arn == given.CertificateArn || arn == l.Certificates[0]
		})
		l.Certificates = append([]string{given.CertificateArn}, extra...)
	}
	if len(l.Certificates) == 0 {
		return api.Errorf("CertificateNotFound", "A certificate must be specified for %s listeners", l.Protocol)
	}
	if in.SslPolicy != "" || l.SecurityPolicy == "" {
		l.SecurityPolicy = in.SslPolicy
	}
	if l.SecurityPolicy == "" {
		l.SecurityPolicy = defaultSecurityPolicy
	}
	return nil
}
