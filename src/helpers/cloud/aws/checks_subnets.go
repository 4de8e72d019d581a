package aws

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"

	"kubernetes-release/helpers/preflight"
)

func (f *facts) subnetsMissing() preflight.Outcome {
	switch {
	case f.metadataErr != nil:
		return skipped("instance metadata does not answer")
	case isNotAsked(f.subnetsErr):
		return skipped("%v", f.subnetsErr)
	}
	return skipped("the subnets could not be described")
}

func checkNodeSubnet(f *facts) preflight.Outcome {
	if f.metadataErr != nil || f.subnetsErr != nil && classify(f.subnetsErr) != classUnknownID {
		return f.subnetsMissing()
	}
	id := f.subnetID()
	s := f.subnet(id)
	if s == nil {
		seen := "an answer without it"
		if f.subnetsErr != nil {
			seen = describe(f.subnetsErr)
		}
		return found(preflight.Finding{
			Resource: cmp.Or(id, "the node's subnet"), Wanted: "EC2 to describe the subnet that the instance is in", Found: seen,
			Why: "Load balancers cannot be connected to nodes in a subnet that is not visible.", Eventual: true,
			Mend: []string{fmt.Sprintf("aws ec2 describe-subnets --region %s --subnet-ids %s; and see that VPC in the cloud controller's configuration, if set, is the instance's own", f.region(), cmp.Or(id, "SUBNET"))},
		})
	}
	if belongsTo(s.Tags, f.cluster()) {
		return passed("%s", id)
	}
	return found(preflight.Finding{
		Resource: id, Wanted: fmt.Sprintf("tag %s with the value shared or owned", f.tagKey()), Found: foundTags(s.Tags),
		Why:      "Clusters that share a VPC are told apart by this tag; without it the nodes' subnet is anybody's, and left out once another cluster claims it.",
		Eventual: true, Mend: []string{f.tagCommand("shared", id)},
	})
}

// canChoose says why the cloud controller's choice of subnets cannot be foretold; "" if it can.
func (f *facts) canChoose() string {
	switch {
	case f.metadataErr != nil:
		return "instance metadata does not answer"
	case f.subnetsErr != nil:
		return whyMissing("subnets", f.subnetsErr)
	case f.tablesErr != nil:
		return whyMissing("route tables", f.tablesErr)
	case len(f.subnets) == 0:
		return "the VPC has no subnets that EC2 would tell of"
	}
	return "" // without zones, all are taken for regular ones, as the cloud controller does
}

func whyMissing(what string, err error) string {
	if isNotAsked(err) {
		return err.Error()
	}
	return "the " + what + " could not be described"
}

func checkPublicRoute(f *facts) preflight.Outcome {
	if why := f.canChoose(); why != "" {
		return skipped("%s", why)
	}
	choice := f.vpc().choose(false)
	if len(choice.Unrouted) > 0 {
		return found(preflight.Finding{
			Resource: strings.Join(choice.Unrouted, ", "), Wanted: "a route table of its own, or a main one in the VPC", Found: "no route table applies",
			Why:  "The cloud controller gives up on every load balancer when one subnet has no route table.",
			Mend: []string{fmt.Sprintf("aws ec2 associate-route-table --region %s --subnet-id %s --route-table-id TABLE", f.region(), choice.Unrouted[0])},
		})
	}
	// A subnet that is tagged for load balancers and has no route was meant to have one.
	var meant []string
	for _, p := range choice.Left {
		if _, ok := tag(p.Subnet.Tags, publicRoleTag); ok && strings.HasPrefix(p.Why, "no route") {
			meant = append(meant, p.id())
		}
	}
	if len(choice.Zones) > 0 && len(meant) == 0 {
		return passed("%s", strings.Join(choice.ids(), ", "))
	}
	if len(choice.Zones) == 0 && len(f.foreignPublic(choice)) > 0 {
		return skipped("the public subnets are tagged only for other clusters (see public-subnet-cluster-tag)")
	}
	resource, seen := f.vpcID(), fmt.Sprintf("none of %d subnets can be used", len(f.subnets))
	mend := []string{}
	if len(meant) > 0 {
		resource, seen = strings.Join(meant, ", "), fmt.Sprintf("tag %s, but no route to an internet gateway", publicRoleTag)
		if t := routeTable(f.tables, meant[0]); t != nil {
			mend = append(mend, fmt.Sprintf("aws ec2 create-route --region %s --route-table-id %s --destination-cidr-block 0.0.0.0/0 --gateway-id igw-ID", f.region(), awssdk.ToString(t.RouteTableId)))
		}
	}
	if len(mend) == 0 {
		mend = append(mend, fmt.Sprintf("aws ec2 create-route --region %s --route-table-id TABLE --destination-cidr-block 0.0.0.0/0 --gateway-id igw-ID, for the table of the subnets that are meant to be public", f.region()))
	}
	mend = append(mend, "for a cluster with internal load balancers only, set the job cloud-provider's property preflight.checks: {public-subnet-route: off}")
	return found(preflight.Finding{
		Resource: resource, Wanted: "a subnet, the cluster's or nobody's, whose route table has a route to an internet gateway", Found: seen,
		Why: "The cloud controller would not find any suitable subnets for creating an internet-facing load balancer.", Mend: mend,
		Advisory: len(choice.Zones) > 0,
	})
}

func checkPublicSubnetTags(f *facts) preflight.Outcome {
	if why := f.canChoose(); why != "" {
		return skipped("%s", why)
	}
	choice := f.vpc().choose(false)
	var untagged []string
	for _, z := range choice.Zones {
		if !belongsTo(z.Subnet.Tags, f.cluster()) {
			untagged = append(untagged, z.id())
		}
	}
	seen := "no tag that begins with " + TagPrefix
	if len(choice.Zones) == 0 {
		// Where every public subnet is another cluster's, the tag is what is missing.
		for _, p := range f.foreignPublic(choice) {
			untagged, seen = append(untagged, p.id()), p.Why
		}
		if len(untagged) == 0 {
			return skipped("there is no public subnet (see public-subnet-route)")
		}
	}
	if len(untagged) == 0 {
		return passed("%s", strings.Join(choice.ids(), ", "))
	}
	return found(preflight.Finding{
		Resource: strings.Join(untagged, ", "), Wanted: fmt.Sprintf("tag %s with the value shared or owned", f.tagKey()), Found: seen,
		Why:      "Internet-facing load balancers go into the public subnets tagged for the cluster; an untagged one is used by chance, and no longer once another cluster claims it.",
		Eventual: true, Mend: []string{f.tagCommand("shared", untagged...)},
	})
}

func checkInternalSubnets(f *facts) preflight.Outcome {
	if why := f.canChoose(); why != "" {
		return skipped("%s", why)
	}
	choice := f.vpc().choose(true)
	if len(choice.Zones) > 0 {
		return passed("%s", strings.Join(choice.ids(), ", "))
	}
	return found(preflight.Finding{
		Resource: f.vpcID(), Wanted: "a subnet that is the cluster's or nobody's, in a zone of the type " + regularZone, Found: fmt.Sprintf("none of %d subnets", len(f.subnets)),
		Why:      "The cloud controller would not find any suitable subnets for creating an internal load balancer.",
		Eventual: true, Mend: []string{f.tagCommand("shared", cmp.Or(f.subnetID(), "SUBNET"))},
	})
}

// foreignPublic are the public subnets that are left out because they are tagged for other clusters only.
func (f *facts) foreignPublic(choice subnetChoice) []passedOver {
	var list []passedOver
	for _, p := range choice.Left {
		if public, _ := isPublic(f.tables, p.id()); public && onlyForeign(p.Subnet.Tags, f.cluster()) {
			list = append(list, p)
		}
	}
	return list
}

func checkForeignSubnets(f *facts) preflight.Outcome {
	if why := f.canChoose(); why != "" {
		return skipped("%s", why)
	}
	choice := f.vpc().choose(false)
	served := map[string]bool{}
	for _, z := range choice.Zones {
		served[z.Zone] = true
	}
	if len(served) == 0 {
		return skipped("there is no public subnet for the cluster at all (see public-subnet-cluster-tag)")
	}
	var lost []string
	for _, p := range f.foreignPublic(choice) {
		if !served[awssdk.ToString(p.Subnet.AvailabilityZone)] {
			lost = append(lost, p.id())
		}
	}
	if len(lost) == 0 {
		return passed("")
	}
	return found(preflight.Finding{
		Resource: strings.Join(lost, ", "), Wanted: fmt.Sprintf("tag %s, or another public subnet in the zone", f.tagKey()), Found: "tagged only for other clusters",
		Why:  "Internet-facing load balancers of this cluster have no leg in these zones.",
		Mend: []string{f.tagCommand("shared", lost...)},
	})
}

func checkPublicChoice(f *facts) preflight.Outcome   { return f.checkChoice(false, publicRoleTag) }
func checkInternalChoice(f *facts) preflight.Outcome { return f.checkChoice(true, internalRoleTag) }

func (f *facts) checkChoice(internal bool, role string) preflight.Outcome {
	if why := f.canChoose(); why != "" {
		return skipped("%s", why)
	}
	var zones, chosen []string
	for _, z := range f.vpc().choose(internal).Zones {
		if z.Ambiguous {
			zones = append(zones, z.Zone)
			chosen = append(chosen, z.id())
		}
	}
	if len(zones) == 0 {
		return passed("")
	}
	return found(preflight.Finding{
		Resource: strings.Join(zones, ", "), Wanted: "one subnet in each zone with the tag " + role, Found: "several subnets alike; the lowest ids are taken: " + strings.Join(chosen, ", "),
		Why:  "A subnet made later with a lower id would silently take new load balancers.",
		Mend: []string{tagCommand(f.region(), role, "1", chosen...)},
	})
}

func checkRouteTable(f *facts) preflight.Outcome {
	if !f.request.ConfigureCloudRoutes {
		return skipped("the cloud controller writes no pod routes (configure_cloud_routes is false)")
	}
	if f.metadataErr != nil || f.routesErr != nil {
		return skipped("%s", whyMissing("route tables", errors.Join(f.metadataErr, f.routesErr)))
	}
	var ids []string
	for _, t := range f.routeTables {
		ids = append(ids, awssdk.ToString(t.RouteTableId))
	}
	slices.Sort(ids)
	if len(ids) == 1 {
		return passed("%s", ids[0])
	}
	seen := "none"
	mend := []string{f.tagCommand("shared", "TABLE")}
	if len(ids) > 1 {
		seen = strings.Join(ids, ", ")
		mend = []string{f.keepTagOnFirst(ids)}
	}
	return found(preflight.Finding{
		Resource: "route tables", Wanted: "exactly one with the tag " + f.tagKey() + ", in all VPCs of the region", Found: seen,
		Why:      "The cloud controller cannot tell which table to write pod routes into.",
		Eventual: true, Mend: append(mend, "name it with RouteTableID in the property config of the job cloud-provider"),
	})
}
