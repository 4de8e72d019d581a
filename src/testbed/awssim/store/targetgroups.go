package store

import (
	"strconv"
)

// TargetGroup is a set of targets with a health check.
type TargetGroup struct {
	ARN      string `json:"arn"`
	Name     string `json:"name"`
	Protocol string `json:"protocol"`
	Port     int    `json:"port"`
	// ProtocolVersion of HTTP: HTTP1, which is the default, or GRPC.
	ProtocolVersion string `json:"protocol_version,omitempty"`

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

// Key tells the targets of a group apart.
func (t GroupTarget) Key() string { return t.ID + ":" + strconv.Itoa(t.Port) }
