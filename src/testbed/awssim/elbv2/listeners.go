package elbv2

import (
	"cmp"
	"slices"

	"kubernetes-release/testbed/awssim/api"
	"kubernetes-release/testbed/awssim/balancing"
	"kubernetes-release/testbed/awssim/ec2api"
	"kubernetes-release/testbed/awssim/store"
)

var v2Protocols = []string{"TCP", "UDP", "TCP_UDP"}

func checkProtocol(protocol string, port int) error {
	if protocol == "TLS" {
		return api.Errorf("CertificateNotFound", "Certificates are not simulated, so there can be no TLS")
	}
	if !slices.Contains(v2Protocols, protocol) {
		return api.Errorf(
			"UnsupportedProtocol", "Protocol '%s' must be one of 'TCP', 'TLS', 'UDP', 'TCP_UDP'", protocol,
		)
	}
	if port < 1 || port > 65535 {
		return api.Errorf("ValidationError", "Port '%d' must be between 1 and 65535", port)
	}
	return nil
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
	Tags            []store.Pair
	SslPolicy       string
	AlpnPolicy      []string
	Certificates    []struct{ CertificateArn string }
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

func view(l store.Listener) v2Listener {
	return v2Listener{
		l.ARN,
		l.LoadBalancer,
		l.Port,
		l.Protocol,
		[]v2ListenerAction{{"forward", l.TargetGroup, 1, l.TargetGroup}},
	}
}

// checkListener validates a listener.
func checkListener(c *api.Call, l store.Listener) error {
	if err := checkProtocol(l.Protocol, l.Port); err != nil {
		return err
	}
	g := store.Find(c.TargetGroups, l.TargetGroup)
	if g == nil {
		return api.Errorf("TargetGroupNotFound", "Target group '%s' not found", l.TargetGroup)
	}
	if g.Protocol != l.Protocol {
		return api.Errorf(
			"ValidationError", "Target group '%s' has protocol %s, which a listener with protocol %s cannot use", g.ARN,
			g.Protocol, l.Protocol,
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
	if l.TargetGroup, err = in.targetGroup(); err != nil {
		return nil, err
	}
	if err := checkListener(c, l); err != nil {
		return nil, err
	}
	l.ARN = v2ARN(c, path)
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
		var err error
		if wanted.TargetGroup, err = in.targetGroup(); err != nil {
			return nil, err
		}
	}
	if err := checkListener(c, wanted); err != nil {
		return nil, err
	}
	*l = wanted
	return &v2Listeners{Listeners: []v2Listener{view(*l)}}, nil
}

type v2ListenerArn struct{ ListenerArn string }

func v2DeleteListener(c *api.Call, in v2ListenerArn) (*api.Nothing, error) {
	if err := touch(c, in.ListenerArn); err != nil {
		return nil, err
	}
	c.Listeners = store.Remove(c.Listeners, in.ListenerArn)
	return nil, nil
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
