package awssim

import (
	"cmp"
	"slices"
)

// Listener forwards a port of a load balancer to a target group.
type Listener struct {
	ARN          string `json:"arn"`
	LoadBalancer string `json:"load_balancer"` // ARN
	Protocol     string `json:"protocol"`      // TCP, UDP, TCP_UDP; the data path carries TCP
	Port         int    `json:"port"`
	TargetGroup  string `json:"target_group"` // ARN
	Tags         Tags   `json:"tags,omitempty"`
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

// targetGroup is the only group that the actions forward to.
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

// checkListener validates a listener.
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
