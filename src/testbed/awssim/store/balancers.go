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
	Protocol     string `json:"protocol"`      // TCP, UDP, TCP_UDP; the data path carries TCP
	Port         int    `json:"port"`
	TargetGroup  string `json:"target_group"` // ARN
	Tags         Tags   `json:"tags,omitempty"`
}

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

// ResourceName is the part of the ARN that descriptions of network interfaces use: net/NAME/ID.
func (l LoadBalancer) ResourceName() string {
	_, name, _ := strings.Cut(l.ARN, ":loadbalancer/")
	return name
}
