package store

import (
	"net/netip"
	"time"
)

// ClassicLoadBalancer is a load balancer of the first generation.
type ClassicLoadBalancer struct {
	Name            string                `json:"name"`
	DNSName         string                `json:"dns_name"`
	Scheme          string                `json:"scheme"` // internet-facing, internal
	VPC             string                `json:"vpc"`
	Addresses       map[string]netip.Addr `json:"addresses"` // by subnet id
	SecurityGroups  []string              `json:"security_groups,omitempty"`
	Listeners       []ClassicListener     `json:"listeners"`
	HealthCheck     ClassicHealthCheck    `json:"health_check"`
	Attributes      ClassicAttributes     `json:"attributes"`
	Policies        []ClassicPolicy       `json:"policies,omitempty"`
	BackendPolicies map[int][]string      `json:"backend_policies,omitempty"` // by instance port
	Instances       []string              `json:"instances,omitempty"`
	Created         time.Time             `json:"created"`
	Tags            Tags                  `json:"tags,omitempty"`
}

// ClassicListener forwards a port to the instances. The data path is TCP for both TCP and HTTP.
type ClassicListener struct {
	Protocol         string   `json:"protocol"`
	Port             int      `json:"port"`
	InstanceProtocol string   `json:"instance_protocol"`
	InstancePort     int      `json:"instance_port"`
	Policies         []string `json:"policies,omitempty"`
}

// ClassicHealthCheck has the API's field names. Times are in seconds.
type ClassicHealthCheck struct {
	Target             string
	Interval           int
	Timeout            int
	UnhealthyThreshold int
	HealthyThreshold   int
}

// ClassicAttributes has the API's field names. Pointers are nil for attributes that a request omits.
type ClassicAttributes struct {
	CrossZoneLoadBalancing *ClassicEnabled
	AccessLog              *ClassicAccessLog
	ConnectionDraining     *ClassicDraining
	ConnectionSettings     *ClassicConnection
	AdditionalAttributes   []Pair `xml:"AdditionalAttributes>member"`
}

// ClassicEnabled turns an attribute on.
type ClassicEnabled struct{ Enabled bool }

// ClassicAccessLog is where access is logged.
type ClassicAccessLog struct {
	Enabled        bool
	EmitInterval   *int   `xml:",omitempty"`
	S3BucketName   string `xml:",omitempty"`
	S3BucketPrefix string `xml:",omitempty"`
}

// ClassicDraining is how long connections of deregistered instances live.
type ClassicDraining struct {
	Enabled bool
	Timeout *int `xml:",omitempty"`
}

// ClassicConnection is how long an idle connection lives.
type ClassicConnection struct{ IdleTimeout int }

// ClassicPolicy is a policy such as ProxyProtocolPolicyType. It is stored; the data path ignores it.
type ClassicPolicy struct {
	Name       string                   `json:"name"`
	Type       string                   `json:"type"`
	Attributes []ClassicPolicyAttribute `json:"attributes,omitempty"`
}

// ClassicPolicyAttribute is an attribute of a policy.
type ClassicPolicyAttribute struct{ AttributeName, AttributeValue string }

// GroupID names the load balancer's targets in the data path.
func (l *ClassicLoadBalancer) GroupID() string { return "classic/" + l.Name }
