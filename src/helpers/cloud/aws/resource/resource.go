// Package resource has the resources of AWS as far as checks of an instance and of an account need them, and what both
// check: where route tables lead, and what rules of security groups admit. A value that AWS left out is the zero value.
package resource

import (
	"net/netip"
	"slices"
	"strings"

	"kubernetes-release/cloud/aws/clustertags"
)

// The ports of Services on nodes, unless the cluster has others.
const (
	FirstNodePort = 30000
	LastNodePort  = 32767
)

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
	ID, Zone, VPC string
	Tags          clustertags.Tags
	Network       netip.Prefix // IPv4; not valid if it has none
	Free          int          // addresses
}

// RouteTable has the routes of subnets.
type RouteTable struct {
	ID, VPC      string
	Owner        string            // AWS account
	Main         bool              // applies to the subnets that have no table of their own
	Subnets      []string          // ids of those that it is the table of
	Associations map[string]string // ids of its associations by subnet
	Routes       []Route
	Tags         clustertags.Tags
}

// Route is where packets to a network go.
type Route struct {
	Destination netip.Prefix // IPv4; not valid if it is something else
	List        bool         // the destination is a prefix list
	Target      string       // local, or the id of a gateway or of something else
	Blackhole   bool         // the target is gone, and packets are dropped
}

// ToInternet reports whether the target of the route is an internet gateway.
func (r Route) ToInternet() bool { return strings.HasPrefix(r.Target, "igw") }

// ToOpenInternet reports whether that gateway is there.
func (r Route) ToOpenInternet() bool { return r.ToInternet() && !r.Blackhole }

// ToNAT reports whether the target of the route is a NAT gateway.
func (r Route) ToNAT() bool { return strings.HasPrefix(r.Target, "nat-") }

// IsLocal reports whether the route is one within the VPC.
func (r Route) IsLocal() bool { return r.Target == "local" }

// LeadsOut reports whether the route leads out of the VPC, with IPv4. Those of gateway endpoints, for a prefix list, do
// not; a firewall's endpoint is the target of a network.
func (r Route) LeadsOut() bool {
	toList := r.List && !strings.HasPrefix(r.Target, "vpce-")
	return !r.Blackhole && !r.IsLocal() && (r.Destination.IsValid() || toList)
}

// RouteTables are those of a VPC.
type RouteTables []RouteTable

// Of returns the route table that applies to a subnet: its own or else the VPC's main one; nil if there is none.
func (l RouteTables) Of(subnet string) *RouteTable {
	var main *RouteTable
	for i := range l {
		if subnet != "" && slices.Contains(l[i].Subnets, subnet) {
			return &l[i]
		}
		if l[i].Main {
			main = &l[i]
		}
	}
	return main
}

// Destinations are the IPv4 networks that selected routes lead to.
func (t RouteTable) Destinations(selected func(Route) bool) []netip.Prefix {
	var networks []netip.Prefix
	for _, r := range t.Routes {
		if r.Destination.IsValid() && selected(r) {
			networks = append(networks, r.Destination)
		}
	}
	return networks
}

// LeadsAnywhere reports whether selected routes lead to all addresses: a default route, or several that are one
// together.
func (t RouteTable) LeadsAnywhere(selected func(Route) bool) bool {
	return Cover(t.Destinations(selected), AnyAddress)
}

// InternetGateway is the id of an internet gateway that the table leads to, or "".
func (t RouteTable) InternetGateway() string {
	if i := slices.IndexFunc(t.Routes, Route.ToOpenInternet); i >= 0 {
		return t.Routes[i].Target
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

// SecurityGroup has the rules for what may connect to its members, and what these may connect to.
type SecurityGroup struct {
	ID, VPC         string
	Tags            clustertags.Tags
	Ingress, Egress Rules
}

// Rule allows traffic to a range of ports, or to all, from or to members of groups and addresses.
type Rule struct {
	Protocols    []string // tcp, udp or both
	From, To     int
	Groups       []string
	Descriptions []string       // of the groups in the rule, in the same order
	Networks     []netip.Prefix // IPv4
	Lists        []string       // prefix lists
}

// Rules are those of security groups for one direction.
type Rules []Rule

// Each reports whether rules admit something to each port of a range. They can admit less only behind the last port of
// one, so that asking there and at the first port of the range is enough.
func (l Rules) Each(protocol string, first, last int, admits func(Rules) bool) bool {
	ports := []int{first}
	for _, r := range l {
		ports = append(ports, r.To+1)
	}
	return !slices.ContainsFunc(ports, func(port int) bool {
		return first <= port && port <= last && !admits(l.At(protocol, port))
	})
}

// At are the rules that open a port.
func (l Rules) At(protocol string, port int) Rules {
	return slices.DeleteFunc(slices.Clone(l), func(r Rule) bool {
		return !slices.Contains(r.Protocols, protocol) || port < r.From || r.To < port
	})
}

// Admit reports whether one of the rules admits the members of a group.
func (l Rules) Admit(group string) bool {
	return slices.ContainsFunc(l, func(r Rule) bool { return slices.Contains(r.Groups, group) })
}

// Networks are those that the rules admit.
func (l Rules) Networks() []netip.Prefix {
	var networks []netip.Prefix
	for _, r := range l {
		networks = append(networks, r.Networks...)
	}
	return networks
}

// Lists are the prefix lists in the rules. What is in them is not known.
func (l Rules) Lists() []string {
	var lists []string
	for _, r := range l {
		lists = append(lists, r.Lists...)
	}
	return lists
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
