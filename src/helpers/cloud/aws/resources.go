package aws

import (
	"net/netip"
	"slices"
	"strings"

	"kubernetes-release/cloud/aws/clustertags"
)

// The types here are AWS's resources as far as the checks need them. calls.go converts the SDK's answers to them, so
// that no check has to deal with the SDK's pointers. A value that AWS left out is the zero value.

// instance is this machine as EC2 describes it.
type instance struct {
	ID              string
	PrivateDNSName  string
	Address         string // the primary private one
	Subnet          string
	VPC             string
	Groups          []string // ids of its security groups
	Tags            clustertags.Tags
	Interfaces      []networkInterface
	SourceDestCheck bool
	// MetadataHopLimit is how many network hops a session token of instance metadata may pass; 0: EC2 did not say.
	MetadataHopLimit int
}

// addresses are all private addresses of the instance.
func (i instance) addresses() []string {
	all := []string{i.Address}
	for _, n := range i.Interfaces {
		all = append(all, n.Addresses...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

type networkInterface struct {
	ID              string
	Addresses       []string // private
	IPv6            []string
	SourceDestCheck bool
}

type subnet struct {
	ID, Zone string
	Tags     clustertags.Tags
}

type routeTable struct {
	ID, VPC      string
	Main         bool              // applies to the subnets that have no table of their own
	Subnets      []string          // ids of those that it is the table of
	Associations map[string]string // ids of its associations by subnet
	Gateways     []string          // targets of its routes, such as local, igw-… and nat-…
	HasDefault   bool              // has a route for 0.0.0.0/0
	Tags         clustertags.Tags
}

// internetGateway is the id of the internet gateway that the table has a route to, or "".
func (t routeTable) internetGateway() string {
	for _, id := range t.Gateways {
		if strings.HasPrefix(id, "igw") {
			return id
		}
	}
	return ""
}

// isPublic reports whether the table has a route to an internet gateway.
func (t routeTable) isPublic() bool {
	return t.internetGateway() != ""
}

type zone struct{ Name, Type string }

type securityGroup struct {
	ID, VPC string
	Tags    clustertags.Tags
	Ingress []ingressRule
}

// ingressRule allows traffic to a range of ports, or to all, from sources outside of the group.
type ingressRule struct {
	Protocols []string // tcp, udp or both
	From, To  int
	Groups    []string
	Networks  []netip.Prefix // IPv4
	Lists     []string       // prefix lists
	Anywhere  bool           // also from addresses
}

// evaluation is IAM's answer about one action on one resource.
type evaluation struct {
	Action   string
	Resource string // ARN; or * for all
	Allowed  bool
	Explicit bool     // a statement denies it
	Missing  []string // condition keys that the question did not have
}

// question asks IAM about actions of one scope on one kind of resource.
type question struct {
	actions   []string
	resources []string
	context   map[string]string // condition key to value
}
