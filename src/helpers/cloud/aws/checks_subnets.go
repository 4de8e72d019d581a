package aws

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/cloud/aws/clustertags"
	"kubernetes-release/preflight"
)

func (f *facts) subnetsMissing() preflight.Outcome {
	switch {
	case f.metadataErr != nil:
		return skipped(noMetadata)
	case awserr.IsNotAsked(f.subnetsErr):
		return skipped("%v", f.subnetsErr)
	}
	return skipped("the subnets could not be described")
}

func checkNodeSubnet(f *facts) preflight.Outcome {
	if f.metadataErr != nil || f.subnetsErr != nil && awserr.Classify(f.subnetsErr) != awserr.UnknownID {
		return f.subnetsMissing()
	}
	id := f.subnetID()
	s := f.subnet(id)
	if s == nil {
		seen := "an answer without it"
		if f.subnetsErr != nil {
			seen = awserr.Describe(f.subnetsErr)
		}
		return found(preflight.Finding{
			Resource: cmp.Or(id, "the node's subnet"),
			Wanted:   "EC2 to describe the subnet that the instance is in",
			Found:    seen,
			Why:      "Load balancers cannot be connected to nodes in a subnet that is not visible.",
			Eventual: true,
			Fix: []preflight.Fix{
				byCommand(
					"make sure that VPC in the cloud controller's configuration, if set, is that of the instance's "+
						"subnet, which this shows",
					f.query("Subnets[0].VpcId", "ec2", "describe-subnets", "--subnet-ids", word(id, "subnet")),
				),
			},
		})
	}
	if s.Tags.BelongTo(f.cluster()) {
		return passed("%s", id)
	}
	return found(preflight.Finding{
		Resource: id,
		Wanted:   fmt.Sprintf("tag %s with the value shared or owned", f.tagKey()),
		Found:    s.Tags.Found(),
		Why: "The tag distinguishes clusters that share a VPC; without it any cluster uses the nodes' subnet, " +
			"and this one no longer does once another cluster tags it.",
		Eventual: true,
		Fix:      []preflight.Fix{f.tagForCluster(id)},
	})
}

// whyNoChoice is the reason why the cloud controller's choice of subnets cannot be predicted; "" if it can.
func (f *facts) whyNoChoice() string {
	switch {
	case f.metadataErr != nil:
		return noMetadata
	case f.subnetsErr != nil:
		return whyMissing("subnets", f.subnetsErr)
	case f.tablesErr != nil:
		return whyMissing("route tables", f.tablesErr)
	case len(f.subnets) == 0:
		return "EC2 describes no subnet of the VPC"
	}
	return "" // without zones, all are treated as regular ones, as the cloud controller does
}

func whyMissing(what string, err error) string {
	if awserr.IsNotAsked(err) {
		return err.Error()
	}
	return "the " + what + " could not be described"
}

// onChoice runs a check of the subnets that the cloud controller would choose for one kind of load balancer.
func onChoice(internal bool, check func(*facts, subnetChoice) preflight.Outcome) func(*facts) preflight.Outcome {
	return func(f *facts) preflight.Outcome {
		if why := f.whyNoChoice(); why != "" {
			return skipped("%s", why)
		}
		return check(f, f.vpc().choose(internal))
	}
}

func checkPublicRoute(f *facts, choice subnetChoice) preflight.Outcome {
	if len(choice.Unrouted) > 0 {
		return found(preflight.Finding{
			Resource: strings.Join(choice.Unrouted, ", "),
			Wanted:   "a route table of its own, or a main one in the VPC",
			Found:    "no route table applies",
			Why:      "The cloud controller cannot create any load balancer if one subnet has no route table.",
			Fix:      []preflight.Fix{f.routeWithinVPC(choice.Unrouted)},
		})
	}
	// A subnet that is tagged for load balancers and has no public route was meant to have one.
	var intended []string
	for _, r := range choice.Rejected {
		if r.Subnet.Tags.Has(clustertags.PublicRole) && r.Why == noPublicRoute {
			intended = append(intended, r.Subnet.ID)
		}
	}
	if len(choice.Zones) > 0 && len(intended) == 0 {
		return passed("%s", strings.Join(choice.ids(), ", "))
	}
	if len(choice.Zones) == 0 && len(f.foreignPublic(choice)) > 0 {
		return skipped("the public subnets are tagged only for other clusters (see public-subnet-cluster-tag)")
	}
	return found(preflight.Finding{
		Resource: cmp.Or(strings.Join(intended, ", "), f.vpcID()),
		Wanted:   "a subnet tagged for the cluster or for none, whose route table has a route to an internet gateway",
		Found:    f.routesFound(intended),
		Why:      "The cloud controller would not find any suitable subnet for an internet-facing load balancer.",
		Fix:      f.fixPublicRoute(intended, len(choice.Zones) > 0),
		Advisory: len(choice.Zones) > 0,
	})
}

// routeWithinVPC gives subnets without any route table one that only has routes within the VPC.
func (f *facts) routeWithinVPC(subnets []string) preflight.Fix {
	lines := []string{f.newTable()}
	for _, id := range subnets {
		lines = append(lines, f.associate(id, expand("table")))
	}
	return byCommand("create a route table for these subnets, which only has routes within the VPC", lines...)
}

// tagForInternal makes a subnet eligible for internal load balancers: the instance's own if that is in a regular zone.
func (f *facts) tagForInternal() preflight.Fix {
	best := ""
	for _, s := range f.subnets {
		if f.vpc().isRegular(s.Zone) && (best == "" || s.ID == f.subnetID() || s.ID < best && best != f.subnetID()) {
			best = s.ID
		}
	}
	if best == "" {
		return byHand(
			"create a subnet in a zone of the type %s, and tag it: internal load balancers cannot be in other zones",
			regularZone,
		)
	}
	return f.tagForCluster(best)
}

// fixRouteTable leaves the cluster's tag on the route table of this instance's subnet, which pod routes belong to. It
// never tags another cluster's table.
func (f *facts) fixRouteTable() preflight.Fix {
	all := map[string]clustertags.Tags{}
	for _, t := range f.routeTables {
		all[t.ID] = t.Tags
	}
	kept := ""
	if t := f.vpc().tableOf(f.subnetID()); t != nil {
		kept = t.ID
		if t.Tags.OnlyForeign(f.cluster()) {
			return byHand(
				"give the nodes of this cluster subnets with a route table of their own, and tag it with %s: "+
					"%s, the one of %s, is %s",
				f.tagKey(), t.ID, f.subnetID(), t.Tags.Found(),
			)
		}
	}
	if len(all) == 0 {
		return byCommand(
			"add the cluster's tag to the route table of the nodes' subnet", f.tagCommand(word(kept, "table")),
		)
	}
	if f.conf.RouteTableID != "" {
		return byHand("correct RouteTableID in the property config of the job cloud-provider: %s is the table of %s",
			word(kept, "table"), f.subnetID())
	}
	if kept == "" {
		kept = sortedIDs(all)[0]
	}
	return f.keepTagOn(kept, all)
}

// routesFound describes what is there instead of a public route for the subnets that should have one.
func (f *facts) routesFound(intended []string) string {
	if len(intended) > 0 {
		return fmt.Sprintf("tag %s, but no route to an internet gateway", clustertags.PublicRole)
	}
	return fmt.Sprintf("none of %d subnets can be used", len(f.subnets))
}

func checkPublicSubnetTags(f *facts, choice subnetChoice) preflight.Outcome {
	var untagged []string
	for _, z := range choice.Zones {
		if !z.Subnet.Tags.BelongTo(f.cluster()) {
			untagged = append(untagged, z.Subnet.ID)
		}
	}
	seen := "no tag that starts with " + clustertags.Prefix
	if len(choice.Zones) == 0 {
		// If all public subnets are other clusters', the tag is what is missing.
		for _, r := range f.foreignPublic(choice) {
			untagged, seen = append(untagged, r.Subnet.ID), r.Why
		}
		if len(untagged) == 0 {
			return skipped("there is no public subnet (see public-subnet-route)")
		}
	}
	if len(untagged) == 0 {
		return passed("%s", strings.Join(choice.ids(), ", "))
	}
	return found(preflight.Finding{
		Resource: strings.Join(untagged, ", "),
		Wanted:   fmt.Sprintf("tag %s with the value shared or owned", f.tagKey()),
		Found:    seen,
		Why: "Internet-facing load balancers use the public subnets tagged for the cluster; an untagged one is " +
			"no longer used once another cluster tags it.",
		Eventual: true,
		Fix:      []preflight.Fix{f.tagForCluster(untagged...)},
	})
}

func checkInternalSubnets(f *facts, choice subnetChoice) preflight.Outcome {
	if len(choice.Zones) > 0 {
		return passed("%s", strings.Join(choice.ids(), ", "))
	}
	return found(preflight.Finding{
		Resource: f.vpcID(),
		Wanted:   "a subnet tagged for the cluster or for none, in a zone of the type " + regularZone,
		Found:    fmt.Sprintf("none of %d subnets", len(f.subnets)),
		Why:      "The cloud controller would not find any suitable subnet for an internal load balancer.",
		Eventual: true,
		Fix:      []preflight.Fix{f.tagForInternal()},
	})
}

// foreignPublic returns the public subnets that are ignored because they are tagged for other clusters only.
func (f *facts) foreignPublic(choice subnetChoice) []rejected {
	var list []rejected
	for _, r := range choice.Rejected {
		if f.vpc().isPublic(r.Subnet.ID) && r.Subnet.Tags.OnlyForeign(f.cluster()) {
			list = append(list, r)
		}
	}
	return list
}

func checkForeignSubnets(f *facts, choice subnetChoice) preflight.Outcome {
	if len(choice.Zones) == 0 {
		return skipped("there is no public subnet for the cluster at all (see public-subnet-cluster-tag)")
	}
	var lost []string
	for _, r := range f.foreignPublic(choice) {
		if !choice.has(r.Subnet.Zone) {
			lost = append(lost, r.Subnet.ID)
		}
	}
	if len(lost) == 0 {
		return passed("")
	}
	return found(preflight.Finding{
		Resource: strings.Join(lost, ", "),
		Wanted:   fmt.Sprintf("tag %s, or another public subnet in the zone", f.tagKey()),
		Found:    "tagged only for other clusters",
		Why:      "Internet-facing load balancers of this cluster are not attached to these zones.",
		Fix:      []preflight.Fix{f.tagForCluster(lost...)},
	})
}

// checkNodeZones compares the zones of the cluster's subnets, where its nodes are, with those of its public subnets.
func checkNodeZones(f *facts, choice subnetChoice) preflight.Outcome {
	if len(choice.Zones) == 0 {
		return skipped("there is no public subnet for the cluster at all (see public-subnet-route)")
	}
	reported := f.foreignPublic(choice)
	var zones []string
	for _, s := range f.subnets {
		isNodes := s.Tags.BelongTo(f.cluster()) || s.ID == f.subnetID()
		isReported := slices.ContainsFunc(
			reported, func(r rejected) bool { return r.Subnet.Zone == s.Zone },
		) // by foreign-public-subnets
		if isNodes && !isReported && f.vpc().isRegular(s.Zone) && !choice.has(s.Zone) {
			zones = append(zones, s.Zone)
		}
	}
	if len(zones) == 0 {
		return passed("")
	}
	slices.Sort(zones)
	zones = slices.Compact(zones)
	return found(preflight.Finding{
		Resource: strings.Join(zones, ", "),
		Wanted:   "a public subnet that the cluster can use",
		Found:    "only subnets without a route to an internet gateway",
		Why: "Internet-facing load balancers are not attached to the zone, so they send no traffic to nodes " +
			"there.",
		Fix: []preflight.Fix{
			f.newPublicSubnets(zones...),
			checkOff("for a cluster with internal load balancers only", "node-zone-public-subnet"),
		},
	})
}

func checkSubnetChoice(f *facts, choice subnetChoice) preflight.Outcome {
	role := clustertags.PublicRole
	if choice.Internal {
		role = clustertags.InternalRole
	}
	var zones, chosen []string
	for _, z := range choice.Zones {
		if z.Ambiguous {
			zones = append(zones, z.Zone)
			chosen = append(chosen, z.Subnet.ID)
		}
	}
	if len(zones) == 0 {
		return passed("")
	}
	return found(preflight.Finding{
		Resource: strings.Join(zones, ", "),
		Wanted:   "one subnet in each zone with the tag " + role,
		Found:    "several equivalent subnets; the lowest ids are chosen: " + strings.Join(chosen, ", "),
		Why:      "A new subnet with a lower id would silently be used for new load balancers.",
		Fix:      []preflight.Fix{byCommand("reserve these subnets", f.addTag(role, "1", chosen...))},
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
		ids = append(ids, t.ID)
	}
	slices.Sort(ids)
	if len(ids) == 1 {
		return f.judgeRouteTable(f.routeTables[0])
	}
	seen := "none"
	if len(ids) > 1 {
		seen = strings.Join(ids, ", ")
	}
	return found(preflight.Finding{
		Resource: "route tables",
		Wanted:   "exactly one with the tag " + f.tagKey() + ", in all VPCs of the region",
		Found:    seen,
		Why:      "The cloud controller does not know which table to write pod routes to.",
		Eventual: true,
		Fix: []preflight.Fix{
			f.fixRouteTable(),
			byHand("or set RouteTableID in the property config of the job cloud-provider"),
		},
	})
}

// judgeRouteTable checks the one table that pod routes are written to.
func (f *facts) judgeRouteTable(t routeTable) preflight.Outcome {
	finding := preflight.Finding{Resource: t.ID, Eventual: true, Fix: []preflight.Fix{f.fixRouteTable()}}
	own := f.vpc().tableOf(f.subnetID())
	switch {
	case t.VPC != "" && t.VPC != f.ownVPC():
		finding.Wanted, finding.Found = "a route table of the nodes' VPC, "+f.ownVPC(), "a table of "+t.VPC
		finding.Why = "The cloud controller writes pod routes to it, and no packet of a node is routed by it."
	case f.tablesErr == nil && own != nil && own.ID != t.ID:
		finding.Wanted = "the route table of the node's subnet, " + own.ID
		finding.Found = "a table that " + f.subnetID() + " does not use"
		finding.Why = "The cloud controller writes pod routes to it, and no packet of this node is routed by it."
		if f.routesOtherNodes(t) {
			finding.Fix = []preflight.Fix{
				byHand("use one route table for all subnets with nodes, because the cloud controller writes pod "+
					"routes to one only: associate %s with %s, or use an encapsulated pod network", f.subnetID(), t.ID),
			}
		}
	case len(t.Tags.Clusters()) > 1:
		finding.Wanted = "a route table that is tagged for this cluster only"
		finding.Found = "tags of the " + clustertags.Quote(t.Tags.Clusters())
		finding.Why = "The cloud controllers of all these clusters write pod routes to it, and each deletes the " +
			"others' where pod networks overlap."
		finding.Advisory, finding.Eventual = true, false
		finding.Fix = []preflight.Fix{
			byHand("give the nodes of this cluster subnets with a route table of their own, tag it with %s, "+
				"then remove the tag from %s", f.tagKey(), t.ID),
		}
	default:
		return passed("%s", t.ID)
	}
	return found(finding)
}

// routesOtherNodes reports whether a route table is that of another private subnet of the cluster, where nodes may be.
func (f *facts) routesOtherNodes(t routeTable) bool {
	return slices.ContainsFunc(f.subnets, func(s subnet) bool {
		table := f.vpc().tableOf(s.ID)
		return s.ID != f.subnetID() && s.Tags.BelongTo(f.cluster()) && table != nil && table.ID == t.ID &&
			!table.isPublic()
	})
}
