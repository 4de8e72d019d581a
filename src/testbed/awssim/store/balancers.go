package store

import (
	"net/netip"
	"strings"
	"time"
)

// Listener forwards a port of a load balancer to a target group.
type Listener struct {
	ARN          string `json:"arn"`
	LoadBalancer string `json:"load_balancer"` // ARN
	Protocol     string `json:"protocol"`      // TCP, UDP, TCP_UDP, HTTP, HTTPS; the data path carries TCP and HTTP(S)
	Port         int    `json:"port"`
	TargetGroup  string `json:"target_group,omitempty"` // ARN; of a network load balancer
	// Actions are what an application load balancer does with requests that no rule matches.
	Actions    []Action          `json:"actions,omitempty"`
	Attributes map[string]string `json:"attributes,omitempty"`
	// Certificates are the ARNs of those for HTTPS, the default one first.
	Certificates   []string `json:"certificates,omitempty"`
	SecurityPolicy string   `json:"security_policy,omitempty"`
	Tags           Tags     `json:"tags,omitempty"`
}

// ListenerRule is a rule of an application load balancer's listener.
type ListenerRule struct {
	ARN        string      `json:"arn"`
	Listener   string      `json:"listener"` // ARN
	Priority   int         `json:"priority"` // 0 is the default rule, which has the listener's actions
	Conditions []Condition `json:"conditions,omitempty"`
	Actions    []Action    `json:"actions,omitempty"`
	Tags       Tags        `json:"tags,omitempty"`
}

// Action is what a listener or a rule does with a request, in the API's form.
type Action struct {
	Type                string
	Order               int                  `json:",omitempty" xml:",omitempty"`
	TargetGroupArn      string               `json:",omitempty" xml:",omitempty"`
	ForwardConfig       *ForwardConfig       `json:",omitempty"`
	FixedResponseConfig *FixedResponseConfig `json:",omitempty"`
	RedirectConfig      *RedirectConfig      `json:",omitempty"`
}

// ForwardConfig has the target groups of an action of type forward.
type ForwardConfig struct {
	TargetGroups                []WeightedGroup `json:",omitempty" xml:"TargetGroups>member"`
	TargetGroupStickinessConfig *struct {
		Enabled         bool
		DurationSeconds int `json:",omitempty" xml:",omitempty"`
	} `json:",omitempty"`
}

// WeightedGroup is one of the target groups of an action.
type WeightedGroup struct {
	TargetGroupArn string
	Weight         *int `json:",omitempty"`
}

// FixedResponseConfig is the response of an action of type fixed-response.
type FixedResponseConfig struct {
	StatusCode  string
	ContentType string `json:",omitempty" xml:",omitempty"`
	MessageBody string `json:",omitempty" xml:",omitempty"`
}

// RedirectConfig is the response of an action of type redirect.
type RedirectConfig struct {
	Protocol, Port, Host, Path, Query string
	StatusCode                        string
}

// Condition is a condition of a rule. Those on addresses, and regular expressions, are not simulated.
type Condition struct {
	Field                   string
	Values                  []string      `json:",omitempty" xml:"Values>member"`
	HostHeaderConfig        *Values       `json:",omitempty"`
	HttpHeaderConfig        *HeaderValues `json:",omitempty"`
	HttpRequestMethodConfig *Values       `json:",omitempty"`
	PathPatternConfig       *Values       `json:",omitempty"`
	QueryStringConfig       *QueryValues  `json:",omitempty"`
}

// HeaderValues are the patterns of which the values of a header match one.
type HeaderValues struct {
	HttpHeaderName string
	Values         []string `xml:"Values>member"`
}

// QueryValues are the parameters of which the query of a request has one.
type QueryValues struct {
	Values []QueryParameter `xml:"Values>member"`
}

// QueryParameter is the pattern of a parameter of a query; without a key, any parameter can have the value.
type QueryParameter struct {
	Key   string `json:",omitempty" xml:",omitempty"`
	Value string
}

// Values are patterns with the wildcards * and ?.
type Values struct {
	Values []string `xml:"Values>member"`
}

// Groups are the ARNs of the target groups that actions forward to.
func Groups(actions []Action) []string {
	var groups []string
	for _, a := range actions {
		if a.TargetGroupArn != "" {
			groups = append(groups, a.TargetGroupArn)
		}
		if a.ForwardConfig != nil {
			for _, g := range a.ForwardConfig.TargetGroups {
				if g.TargetGroupArn != a.TargetGroupArn {
					groups = append(groups, g.TargetGroupArn)
				}
			}
		}
	}
	return groups
}

// LoadBalancer is a network or an application load balancer. Gateway load balancers are not simulated.
type LoadBalancer struct {
	ARN            string                `json:"arn"`
	Name           string                `json:"name"`
	Type           string                `json:"type,omitempty"` // network (also if empty), application
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

// Application reports whether it is an application load balancer.
func (l LoadBalancer) Application() bool { return l.Type == "application" }

// ResourceName is the part of the ARN that descriptions of network interfaces use: net/NAME/ID or app/NAME/ID.
func (l LoadBalancer) ResourceName() string {
	_, name, _ := strings.Cut(l.ARN, ":loadbalancer/")
	return name
}
