package aws

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"kubernetes-release/helpers/preflight"
)

// regularZone is the type of the zones that can hold load balancers; local and wavelength zones cannot.
const regularZone = "availability-zone"

// passedOver is a subnet that the cloud controller does not take, and why.
type passedOver struct {
	Subnet types.Subnet
	Why    string
}

func (p passedOver) id() string { return awssdk.ToString(p.Subnet.SubnetId) }

// zoneChoice is the subnet that the cloud controller takes in one zone.
type zoneChoice struct {
	Zone   string
	Subnet types.Subnet
	By     string // what decided
	Others []passedOver
	// Ambiguous: another subnet lost only because its id is the higher one.
	Ambiguous bool
}

func (z zoneChoice) id() string { return awssdk.ToString(z.Subnet.SubnetId) }

// subnetChoice is what the cloud controller makes of the subnets of a VPC for one kind of load balancer.
type subnetChoice struct {
	Internal bool
	Zones    []zoneChoice // sorted by zone; regular zones only
	Left     []passedOver // never considered
	// Unrouted are the subnets that no route table applies to; with even one of them the cloud controller fails.
	Unrouted []string
}

// ids of the chosen subnets, in the order of their zones.
func (c subnetChoice) ids() []string {
	ids := make([]string, 0, len(c.Zones))
	for _, z := range c.Zones {
		ids = append(ids, z.id())
	}
	return ids
}

// vpc is what the choice depends on.
type vpc struct {
	cluster   string
	ownSubnet string // of this instance
	subnets   []types.Subnet
	tables    []types.RouteTable
	zones     []types.AvailabilityZone
}

// choose foretells which subnets the cloud controller manager would put a load balancer into. In every zone it
// takes one of the subnets that are the cluster's or nobody's: one with the tag for this kind of load balancer
// before one without, then one with the cluster's tag, then the one with the lowest id. An internet-facing load
// balancer needs a route to an internet gateway. When no subnet is the cluster's or nobody's, the instance's own
// is all that is left to it. The rules are those of findELBSubnets in cloud-provider-aws.
func (v vpc) choose(internal bool) subnetChoice {
	choice := subnetChoice{Internal: internal}
	candidates := map[string][]types.Subnet{}
	for _, s := range v.eligible(&choice) {
		id, zone := awssdk.ToString(s.SubnetId), awssdk.ToString(s.AvailabilityZone)
		if id == "" || zone == "" {
			continue
		}
		public, routed := isPublic(v.tables, id)
		switch {
		case !routed:
			choice.Unrouted = append(choice.Unrouted, id)
		case !internal && !public:
			choice.Left = append(choice.Left, passedOver{s, "no route to an internet gateway"})
		case !v.isRegular(zone):
			choice.Left = append(choice.Left, passedOver{s, "zone " + zone + " is not of the type " + regularZone})
		default:
			candidates[zone] = append(candidates[zone], s)
		}
	}
	for zone, subnets := range candidates {
		choice.Zones = append(choice.Zones, v.best(zone, subnets, internal))
	}
	sort.Slice(choice.Zones, func(i, j int) bool { return choice.Zones[i].Zone < choice.Zones[j].Zone })
	sort.Slice(choice.Left, func(i, j int) bool { return choice.Left[i].id() < choice.Left[j].id() })
	sort.Strings(choice.Unrouted)
	return choice
}

func (v vpc) eligible(choice *subnetChoice) []types.Subnet {
	var eligible []types.Subnet
	for _, s := range v.subnets {
		if onlyForeign(s.Tags, v.cluster) {
			choice.Left = append(choice.Left, passedOver{s, "tagged only for " + quoteAll("cluster", clusterIDs(s.Tags))})
			continue
		}
		eligible = append(eligible, s)
	}
	if len(eligible) > 0 {
		return eligible
	}
	for i, s := range v.subnets {
		if awssdk.ToString(s.SubnetId) == v.ownSubnet {
			choice.Left = slices.Delete(choice.Left, i, i+1) // it holds them all, in the same order
			return []types.Subnet{s}
		}
	}
	return nil
}

func (v vpc) isRegular(zone string) bool {
	for _, z := range v.zones {
		if awssdk.ToString(z.ZoneName) == zone {
			return awssdk.ToString(z.ZoneType) == regularZone
		}
	}
	return true // the cloud controller takes subnets in zones that it knows nothing of
}

// best picks one of the subnets of a zone and says why not the others.
func (v vpc) best(zone string, subnets []types.Subnet, internal bool) zoneChoice {
	role := publicRoleTag
	if internal {
		role = internalRoleTag
	}
	rank := func(s types.Subnet) int {
		n := 0
		if _, ok := tag(s.Tags, role); !ok {
			n += 2
		}
		if !belongsTo(s.Tags, v.cluster) {
			n++
		}
		return n
	}
	sort.Slice(subnets, func(i, j int) bool {
		if a, b := rank(subnets[i]), rank(subnets[j]); a != b {
			return a < b
		}
		return awssdk.ToString(subnets[i].SubnetId) < awssdk.ToString(subnets[j].SubnetId)
	})
	chosen := zoneChoice{Zone: zone, Subnet: subnets[0], By: "the only one"}
	if onlyForeign(subnets[0].Tags, v.cluster) {
		chosen.By = "this instance's own, for want of any other"
	}
	won := rank(subnets[0])
	for i, s := range subnets[1:] {
		lost := rank(s)
		other := passedOver{Subnet: s}
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

// isPublic tells whether the subnet's route table, its own or else the VPC's main one, has a route to an internet
// gateway. routed is false when no table applies.
func isPublic(tables []types.RouteTable, subnet string) (public, routed bool) {
	table := routeTable(tables, subnet)
	if table == nil {
		return false, false
	}
	for _, route := range table.Routes {
		if strings.HasPrefix(awssdk.ToString(route.GatewayId), "igw") {
			return true, true
		}
	}
	return false, true
}

func routeTable(tables []types.RouteTable, subnet string) *types.RouteTable {
	var main *types.RouteTable
	for i := range tables {
		for _, association := range tables[i].Associations {
			if awssdk.ToString(association.SubnetId) == subnet && subnet != "" {
				return &tables[i]
			}
			if awssdk.ToBool(association.Main) {
				main = &tables[i]
			}
		}
	}
	return main
}

// explain tells an operator what choose found.
func (c subnetChoice) explain() preflight.Explanation {
	e := preflight.Explanation{Title: "An internet-facing load balancer would get:"}
	if c.Internal {
		e.Title = "An internal load balancer would get:"
	}
	for _, z := range c.Zones {
		line := fmt.Sprintf("%s  %s (%s)", z.Zone, z.id(), z.By)
		for _, o := range z.Others {
			line += fmt.Sprintf("; not %s: %s", o.id(), o.Why)
		}
		e.Lines = append(e.Lines, line)
	}
	if len(c.Zones) == 0 {
		e.Lines = append(e.Lines, "no subnet")
	}
	const most = 20 // a VPC may have hundreds that are none of the cluster's business
	for i, p := range c.Left {
		if i == most {
			e.Lines = append(e.Lines, fmt.Sprintf("and %d more are not considered", len(c.Left)-most))
			break
		}
		e.Lines = append(e.Lines, fmt.Sprintf("not %s in %s: %s", p.id(), awssdk.ToString(p.Subnet.AvailabilityZone), p.Why))
	}
	return e
}

// quoteAll writes `cluster "a"` or `clusters "a" and "b"`.
func quoteAll(noun string, names []string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = fmt.Sprintf("%q", clip(n))
	}
	if len(quoted) == 1 {
		return noun + " " + quoted[0]
	}
	return noun + "s " + strings.Join(quoted[:max(0, len(quoted)-1)], ", ") + " and " + quoted[len(quoted)-1]
}
