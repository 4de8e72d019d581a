// Package subnetchoice predicts which subnets the cloud controller would attach load balancers to.
package subnetchoice

import (
	"cmp"
	"fmt"
	"slices"

	"kubernetes-release/cloud/aws/clustertags"
	"kubernetes-release/cloud/aws/resource"
	"kubernetes-release/preflight"
)

// RegularZone is the type of the zones that can have load balancers; local and wavelength zones cannot.
const RegularZone = "availability-zone"

// Rejected is a subnet that the cloud controller does not choose, and why.
type Rejected struct {
	Subnet resource.Subnet
	Why    string
}

// zoneChoice is the subnet that the cloud controller chooses in one zone.
type zoneChoice struct {
	Zone   string
	Subnet resource.Subnet
	By     string // the rule that decided
	Others []Rejected
	// Ambiguous: another subnet was rejected only because of its higher id.
	Ambiguous bool
}

// Rivals are the ids of the subnets that were rejected only because of their higher ids.
func (z zoneChoice) Rivals() []string {
	var ids []string
	for _, other := range z.Others {
		if other.Why == higherID {
			ids = append(ids, other.Subnet.ID)
		}
	}
	return ids
}

// Choice is what the cloud controller would choose among the subnets of a VPC for one kind of load balancer.
type Choice struct {
	Internal bool
	Zones    []zoneChoice // sorted by zone; regular zones only
	Rejected []Rejected   // never considered
	// Unrouted are the subnets that no route table applies to; the cloud controller fails if there is even one.
	Unrouted []string
}

// IDs of the chosen subnets, in the order of their zones.
func (c Choice) IDs() []string {
	ids := make([]string, 0, len(c.Zones))
	for _, z := range c.Zones {
		ids = append(ids, z.Subnet.ID)
	}
	return ids
}

// Has reports whether there is a subnet in the zone.
func (c Choice) Has(zone string) bool {
	return slices.ContainsFunc(c.Zones, func(z zoneChoice) bool { return z.Zone == zone })
}

// VPC is what the choice depends on.
type VPC struct {
	Cluster   string
	OwnSubnet string // of this instance
	Subnets   []resource.Subnet
	Tables    resource.RouteTables
	Zones     []resource.Zone
}

// Choose predicts which subnets the cloud controller manager would attach a load balancer to. In every zone it chooses
// one of the subnets that have the cluster's tag or no cluster's tag: preferably one with the tag for this kind of load
// balancer, then one with the cluster's tag, then the one with the lowest id. An internet-facing load balancer requires
// a route to an internet gateway. If all subnets belong to other clusters, the cloud controller falls back to the
// instance's own. The rules are those of findELBSubnets in cloud-provider-aws.
func (v VPC) Choose(internal bool) Choice {
	choice := Choice{Internal: internal}
	candidates := map[string][]resource.Subnet{}
	for _, s := range v.eligible(&choice) {
		if s.ID == "" || s.Zone == "" {
			continue
		}
		table := v.Tables.Of(s.ID)
		switch {
		case table == nil:
			choice.Unrouted = append(choice.Unrouted, s.ID)
		case !internal && !table.IsPublic():
			choice.Rejected = append(choice.Rejected, Rejected{s, NoPublicRoute})
		case !v.IsRegular(s.Zone):
			choice.Rejected = append(
				choice.Rejected, Rejected{s, "zone " + s.Zone + " is not of the type " + RegularZone},
			)
		default:
			candidates[s.Zone] = append(candidates[s.Zone], s)
		}
	}
	for zone, subnets := range candidates {
		choice.Zones = append(choice.Zones, v.best(zone, subnets, internal))
	}
	slices.SortFunc(choice.Zones, func(a, b zoneChoice) int { return cmp.Compare(a.Zone, b.Zone) })
	slices.SortFunc(choice.Rejected, func(a, b Rejected) int { return cmp.Compare(a.Subnet.ID, b.Subnet.ID) })
	slices.Sort(choice.Unrouted)
	return choice
}

// higherID is why a subnet is rejected whose tags are as good as those of the chosen one.
const higherID = "its id is higher"

// NoPublicRoute is why a subnet is rejected for internet-facing load balancers.
const NoPublicRoute = "no route to an internet gateway"

func (v VPC) eligible(choice *Choice) []resource.Subnet {
	var eligible []resource.Subnet
	for _, s := range v.Subnets {
		if s.Tags.OnlyForeign(v.Cluster) {
			choice.Rejected = append(
				choice.Rejected, Rejected{s, "tagged only for " + clustertags.Quote(s.Tags.Clusters())},
			)
			continue
		}
		eligible = append(eligible, s)
	}
	if len(eligible) > 0 {
		return eligible
	}
	for i, s := range v.Subnets {
		if s.ID == v.OwnSubnet {
			choice.Rejected = slices.Delete(choice.Rejected, i, i+1) // it contains all subnets, in the same order
			return []resource.Subnet{s}
		}
	}
	return nil
}

// IsRegular reports whether a zone can have load balancers.
func (v VPC) IsRegular(name string) bool {
	for _, z := range v.Zones {
		if z.Name == name {
			return z.Type == RegularZone
		}
	}
	return true // the cloud controller accepts subnets in zones that EC2 did not describe
}

// best chooses one of the subnets of a zone and explains why not the others.
func (v VPC) best(zone string, subnets []resource.Subnet, internal bool) zoneChoice {
	role := clustertags.PublicRole
	if internal {
		role = clustertags.InternalRole
	}
	rank := func(s resource.Subnet) int {
		n := 0
		if !s.Tags.Has(role) {
			n += 2
		}
		if !s.Tags.BelongTo(v.Cluster) {
			n++
		}
		return n
	}
	slices.SortFunc(
		subnets, func(a, b resource.Subnet) int {
			return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.ID, b.ID))
		},
	)
	chosen := zoneChoice{Zone: zone, Subnet: subnets[0], By: "the only one"}
	if subnets[0].Tags.OnlyForeign(v.Cluster) {
		chosen.By = "this instance's own, because all others belong to other clusters"
	}
	won := rank(subnets[0])
	for i, s := range subnets[1:] {
		lost := rank(s)
		other := Rejected{Subnet: s}
		var by string
		switch {
		case won < 2 && lost >= 2:
			by, other.Why = "tag "+role, "no tag "+role
		case won != lost:
			by, other.Why = "the cluster's tag", "not tagged for the cluster"
		default:
			by, other.Why = "the lowest id", higherID
			chosen.Ambiguous = true
		}
		if i == 0 {
			chosen.By = by
		}
		chosen.Others = append(chosen.Others, other)
	}
	return chosen
}

// IsPublic reports whether the route table of a subnet has a route to an internet gateway.
func (v VPC) IsPublic(subnet string) bool {
	table := v.Tables.Of(subnet)
	return table != nil && table.IsPublic()
}

// Explain describes the choice to an operator.
func (c Choice) Explain() preflight.Explanation {
	e := preflight.Explanation{Title: "An internet-facing load balancer would get:"}
	if c.Internal {
		e.Title = "An internal load balancer would get:"
	}
	for _, z := range c.Zones {
		line := fmt.Sprintf("%s  %s (%s)", z.Zone, z.Subnet.ID, z.By)
		for _, o := range z.Others {
			line += fmt.Sprintf("; not %s: %s", o.Subnet.ID, o.Why)
		}
		e.Lines = append(e.Lines, line)
	}
	if len(c.Zones) == 0 {
		e.Lines = append(e.Lines, "no subnet")
	}
	const limit = 20 // a VPC may have hundreds of subnets that are irrelevant to the cluster
	for i, r := range c.Rejected {
		if i == limit {
			e.Lines = append(e.Lines, fmt.Sprintf("and %d more are not considered", len(c.Rejected)-limit))
			break
		}
		e.Lines = append(e.Lines, fmt.Sprintf("not %s in %s: %s", r.Subnet.ID, r.Subnet.Zone, r.Why))
	}
	return e
}
