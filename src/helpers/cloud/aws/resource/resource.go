// Package resource has the resources of AWS as far as the checks need them. A value that AWS left out is the zero
// value.
package resource

import (
	"net/netip"
	"slices"
	"strings"

	"kubernetes-release/cloud/aws/clustertags"
)

// The fixes of findings are complete command lines: a test parses each with bash and with the AWS CLI, and runs it. A
// value that an earlier line determines, or that only the operator knows, is a shell variable.

// AnyAddress is the destination of a default route.
var AnyAddress = netip.MustParsePrefix("0.0.0.0/0")

// Cover reports whether IPv4 networks contain all addresses of another one together.
func Cover(networks []netip.Prefix, all netip.Prefix) bool {
	part := false
	for _, n := range networks {
		if n.Bits() <= all.Bits() && n.Contains(all.Addr()) {
			return true
		}
		part = part || n.Overlaps(all)
	}
	if !part {
		return false
	}
	upper := all.Addr().As4()
	upper[all.Bits()/8] |= 1 << (7 - all.Bits()%8)
	return Cover(networks, netip.PrefixFrom(all.Addr(), all.Bits()+1)) &&
		Cover(networks, netip.PrefixFrom(netip.AddrFrom4(upper), all.Bits()+1))
}

// Only reports whether no subnets but the given ones use the table.
func (t RouteTable) Only(subnets []string) bool {
	return !t.Main && !slices.ContainsFunc(t.Subnets, func(id string) bool { return !slices.Contains(subnets, id) })
}

// The types here are AWS's resources as far as the checks need them. calls.go converts the SDK's answers to them, so
// that no check has to deal with the SDK's pointers. A value that AWS left out is the zero value.

// Instance is this machine as EC2 describes it.
type Instance struct {
	ID              string
	PrivateDNSName  string
	Address         string // the primary private one
	Subnet          string
	VPC             string
	Groups          []string // ids of its security groups
	Tags            clustertags.Tags
	Interfaces      []Interface
	SourceDestCheck bool
	// MetadataHopLimit is how many network hops a session token of instance metadata may pass; 0: EC2 did not say.
	MetadataHopLimit int
	// MetadataV1 tells whether instance metadata also answers requests without a session token (IMDSv1), to which the
	// hop limit does not apply.
	MetadataV1 bool
}

// Addresses are all private addresses of the instance.
func (i Instance) Addresses() []string {
	all := []string{i.Address}
	for _, n := range i.Interfaces {
		all = append(all, n.Addresses...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Interface is a network interface of an instance.
type Interface struct {
	ID              string
	Addresses       []string // private
	IPv6            []string
	SourceDestCheck bool
}

// Subnet is one of a VPC.
type Subnet struct {
	ID, Zone string
	Tags     clustertags.Tags
	Network  netip.Prefix // IPv4; not valid if it has none
}

// RouteTable has the routes of subnets.
type RouteTable struct {
	ID, VPC      string
	Main         bool              // applies to the subnets that have no table of their own
	Subnets      []string          // ids of those that it is the table of
	Associations map[string]string // ids of its associations by subnet
	Routes       []Route
	Tags         clustertags.Tags
}

// Route is where packets to a network go.
type Route struct {
	Destination netip.Prefix // IPv4; not valid if it is something else
	Gateway     string       // such as local or igw-…; "": something else, such as a NAT gateway
	Blackhole   bool         // the target is gone, and packets are dropped
}

// ToInternet reports whether the target of the route is an internet gateway.
func (r Route) ToInternet() bool { return strings.HasPrefix(r.Gateway, "igw") }

// InternetGateway is the id of an internet gateway that the table leads to, or "".
func (t RouteTable) InternetGateway() string {
	for _, r := range t.Routes {
		if r.ToInternet() && !r.Blackhole {
			return r.Gateway
		}
	}
	return ""
}

// IsPublic reports whether the table has a route to an internet gateway, as the cloud controller does: for any
// destination, and in any state (isSubnetPublic in cloud-provider-aws).
func (t RouteTable) IsPublic() bool {
	return slices.ContainsFunc(t.Routes, Route.ToInternet)
}

// Default is the route for 0.0.0.0/0, or nil.
func (t RouteTable) Default() *Route {
	for i := range t.Routes {
		if t.Routes[i].Destination == AnyAddress {
			return &t.Routes[i]
		}
	}
	return nil
}

// Zone is an availability zone, local zone or wavelength zone.
type Zone struct{ Name, Type string }

// SecurityGroup has the rules for what may connect to its members.
type SecurityGroup struct {
	ID, VPC string
	Tags    clustertags.Tags
	Ingress []IngressRule
}

// IngressRule allows traffic to a range of ports, or to all, from sources outside of the group.
type IngressRule struct {
	Protocols []string // tcp, udp or both
	From, To  int
	Groups    []string
	Networks  []netip.Prefix // IPv4
	Lists     []string       // prefix lists
}

// Encryption are the account's settings for new volumes in the region.
type Encryption struct {
	ByDefault bool
	Key       string // of encryption by default
}

// Key is a key of KMS, with the values of its API.
type Key struct {
	ARN                string
	State, Spec, Usage string
}

// Machine is an instance of the cluster with what it has attached.
type Machine struct {
	ID, VPC, Kind       string
	State               string // such as running and stopped
	Tags                clustertags.Tags
	Volumes, Interfaces int
	Limit               int  // of its type; 0: unknown
	Shared              bool // the limit counts further network interfaces
}

// Free is how many volumes can still be attached (getVolumesLimit in pkg/driver/node.go of the EBS CSI driver).
func (m Machine) Free() int {
	free := m.Limit - m.Volumes
	if m.Shared {
		free -= max(0, m.Interfaces-1)
	}
	return free
}
