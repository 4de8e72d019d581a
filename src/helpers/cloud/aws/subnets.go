package aws

import (
	"cmp"
	"fmt"
	"slices"

	"kubernetes-release/cloud/aws/clustertags"
	"kubernetes-release/preflight"
)

// regularZone is the type of the zones that can have load balancers; local and wavelength zones cannot.
const regularZone = "availability-zone"

// rejected is a subnet that the cloud controller does not choose, and why.
type rejected struct {
	Subnet subnet
	Why    string
}

// zoneChoice is the subnet that the cloud controller chooses in one zone.
type zoneChoice struct {
	Zone   string
	Subnet subnet
	By     string // the rule that decided
	Others []rejected
	// Ambiguous: another subnet was rejected only because of its higher id.
	Ambiguous bool
}

// subnetChoice is what the cloud controller would choose among the subnets of a VPC for one kind of load balancer.
type subnetChoice struct {
	Internal bool
	Zones    []zoneChoice // sorted by zone; regular zones only
	Rejected []rejected   // never considered
	// Unrouted are the subnets that no route table applies to; the cloud controller fails if there is even one.
	Unrouted []string
}

// ids of the chosen subnets, in the order of their zones.
func (c subnetChoice) ids() []string {
	ids := make([]string, 0, len(c.Zones))
	for _, z := range c.Zones {
		ids = append(ids, z.Subnet.ID)
	}
	return ids
}

// has reports whether there is a subnet in the zone.
func (c subnetChoice) has(zone string) bool {
	return slices.ContainsFunc(c.Zones, func(z zoneChoice) bool { return z.Zone == zone })
}

// vpc is what the choice depends on.
type vpc struct {
	cluster   string
	ownSubnet string // of this instance
	subnets   []subnet
	tables    []routeTable
	zones     []zone
}

// choose predicts which subnets the cloud controller manager would attach a load balancer to. In every zone it chooses
// one of the subnets that have the cluster's tag or no cluster's tag: preferably one with the tag for this kind of load
// balancer, then one with the cluster's tag, then the one with the lowest id. An internet-facing load balancer requires
// a route to an internet gateway. If all subnets belong to other clusters, the cloud controller falls back to the
// instance's own. The rules are those of findELBSubnets in cloud-provider-aws.
func (v vpc) choose(internal bool) subnetChoice {
	choice := subnetChoice{Internal: internal}
	candidates := map[string][]subnet{}
	for _, s := range v.eligible(&choice) {
		if s.ID == "" || s.Zone == "" {
			continue
		}
		table := v.tableOf(s.ID)
		switch {
		case table == nil:
			choice.Unrouted = append(choice.Unrouted, s.ID)
		case !internal && !table.isPublic():
			choice.Rejected = append(choice.Rejected, rejected{s, noPublicRoute})
		case !v.isRegular(s.Zone):
			choice.Rejected = append(
				choice.Rejected, rejected{s, "zone " + s.Zone + " is not of the type " + regularZone},
			)
		default:
			candidates[s.Zone] = append(candidates[s.Zone], s)
		}
	}
	for zone, subnets := range candidates {
		choice.Zones = append(choice.Zones, v.best(zone, subnets, internal))
	}
	slices.SortFunc(choice.Zones, func(a, b zoneChoice) int { return cmp.Compare(a.Zone, b.Zone) })
	slices.SortFunc(choice.Rejected, func(a, b rejected) int { return cmp.Compare(a.Subnet.ID, b.Subnet.ID) })
	slices.Sort(choice.Unrouted)
	return choice
}

const noPublicRoute = "no route to an internet gateway"

func (v vpc) eligible(choice *subnetChoice) []subnet {
	var eligible []subnet
	for _, s := range v.subnets {
		if s.Tags.OnlyForeign(v.cluster) {
			choice.Rejected = append(
				choice.Rejected, rejected{s, "tagged only for " + clustertags.Quote(s.Tags.Clusters())},
			)
			continue
		}
		eligible = append(eligible, s)
	}
	if len(eligible) > 0 {
		return eligible
	}
	for i, s := range v.subnets {
		if s.ID == v.ownSubnet {
			choice.Rejected = slices.Delete(choice.Rejected, i, i+1) // it contains all subnets, in the same order
			return []subnet{s}
		}
	}
	return nil
}

func (v vpc) isRegular(name string) bool {
	for _, z := range v.zones {
		if z.Name == name {
			return z.Type == regularZone
		}
	}
	return true // the cloud controller accepts subnets in zones that EC2 did not describe
}

// best chooses one of the subnets of a zone and explains why not the others.
func (v vpc) best(zone string, subnets []subnet, internal bool) zoneChoice {
	role := clustertags.PublicRole
	if internal {
		role = clustertags.InternalRole
	}
	rank := func(s subnet) int {
		n := 0
		if !s.Tags.Has(role) {
			n += 2
		}
		if !s.Tags.BelongTo(v.cluster) {
			n++
		}
		return n
	}
	slices.SortFunc(
		subnets, func(a, b subnet) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.ID, b.ID)) },
	)
	chosen := zoneChoice{Zone: zone, Subnet: subnets[0], By: "the only one"}
	if subnets[0].Tags.OnlyForeign(v.cluster) {
		chosen.By = "this instance's own, because all others belong to other clusters"
	}
	won := rank(subnets[0])
	for i, s := range subnets[1:] {
		lost := rank(s)
		other := rejected{Subnet: s}
		var by string
		switch {
		case won < 2 && lost >= 2:
			by, other.Why = "tag "+role, "no tag "+role
		case won != lost:
			by, other.Why = "the cluster's tag", "not tagged for the cluster"
		default:
			by, other.Why = "the lowest id", "its id is higher"
			chosen.Ambiguous = true
		}
		if i == 0 {
			chosen.By = by
		}
		chosen.Others = append(chosen.Others, other)
	}
	return chosen
}

// tableOf returns the route table that applies to a subnet: its own or else the VPC's main one; nil if there is none.
func (v vpc) tableOf(subnet string) *routeTable {
	var main *routeTable
	for i := range v.tables {
		if subnet != "" && slices.Contains(v.tables[i].Subnets, subnet) {
			return &v.tables[i]
		}
		if v.tables[i].Main {
			main = &v.tables[i]
		}
	}
	return main
}

// isPublic reports whether the route table of a subnet has a route to an internet gateway.
func (v vpc) isPublic(subnet string) bool {
	table := v.tableOf(subnet)
	return table != nil && table.isPublic()
}

// explain describes the choice to an operator.
func (c subnetChoice) explain() preflight.Explanation {
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
