package forward

import (
	"net/netip"
	"time"
)

// Config is the desired state of an engine.
type Config struct {
	Balancers []Balancer
	Groups    []Group
}

// Balancer listens on each of its addresses.
type Balancer struct {
	ID        string
	Addresses []netip.Addr
	Listeners []Listener
}

// Listener forwards connections on a port to a group.
type Listener struct {
	Port  int
	Group string // Group.ID
	// TargetPort is the port on every target; 0 means each target's own.
	TargetPort int
	// Rules make it a listener for HTTP; the last one matches every request.
	Rules []Rule
	// Certificates make it one for HTTPS, or without rules for TLS. The first one is for names that no other covers.
	Certificates []Certificate
}

// Certificate is a chain of certificates and the private key, in PEM.
type Certificate struct{ Chain, Key string }

// Group is a set of targets with one health check.
type Group struct {
	ID      string
	Check   Check
	TLS     bool // connections to targets are encrypted
	Targets []Target
}

// Target is a destination.
type Target struct {
	ID      string // unique in its group
	Address netip.Addr
	Port    int // 0 in groups whose listeners and check name the port
}

// Check configures the probes of targets.
type Check struct {
	Protocol  string // TCP or HTTP
	Port      int    // 0: the target's own
	Path      string // HTTP only
	GRPC      bool   // targets speak gRPC: requests and probes are HTTP/2, and Codes are those of gRPC
	Codes     string // HTTP codes that count as healthy: "200", "200-399", "200,204"
	Interval  time.Duration
	Timeout   time.Duration
	Healthy   int // successes in a row until a target is healthy
	Unhealthy int // failures in a row until it is unhealthy again
}

// Rule says what a listener for HTTP does with a request.
type Rule struct {
	Conditions

	Groups      []Weighted // empty: the response below
	Status      int
	ContentType string
	Body        string
	Location    *Location // of a redirect
}

// Conditions all have to be met. Each is a list of alternatives; values have the wildcards * and ?.
type Conditions struct {
	Hosts, Paths, Methods [][]string
	Headers               []Header
	Queries               [][]Parameter
}

// Header is a condition on the values of a header.
type Header struct {
	Name   string
	Values []string
}

// Parameter is the parameter of a query; without a key, any parameter can have the value.
type Parameter struct{ Key, Value string }

// Weighted is a group that gets this part of the requests.
type Weighted struct {
	Group  string // Group.ID
	Weight int
}

// Location is where a redirect leads to; #{protocol}, #{host}, #{port}, #{path} and #{query} stand for the request's.
type Location struct{ Protocol, Host, Port, Path, Query string }
