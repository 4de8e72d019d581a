package checks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"kubernetes-release/cloud/aws/clustertags"
	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/cloud/aws/fixes"
	"kubernetes-release/cloud/aws/resource"
	"kubernetes-release/cloud/aws/subnetchoice"
	"kubernetes-release/preflight"
)

var _ = register(Check{
	ID:       "public-subnet-cluster-tag",
	rank:     180,
	title:    "public subnets have the cluster's tag",
	severity: preflight.Fail,
	Roles:    controlOnly,
	section:  sectionTags,
	Needs:    fromVPC,
	run:      onChoice(false, checkPublicSubnetTags),
	fix:      "`aws ec2 create-tags --resources SUBNET …`.",
})

var _ = register(Check{
	ID:       "public-subnet-route",
	rank:     190,
	title:    "there is a subnet for internet-facing load balancers",
	severity: preflight.Fail,
	Roles:    controlOnly,
	section:  sectionSubnets,
	warnsIf: "there is one, but another subnet with `kubernetes.io/role/elb` has no public route, another zone's " +
		"leads to a gateway that is gone, or no route is for 0.0.0.0/0",
	Needs: fromVPC,
	run:   onChoice(false, checkPublicRoute),
	fix: "Route the public subnets to an internet gateway, in a route table that no private subnet uses; " +
		"for a cluster without internet-facing load balancers turn the check off.",
})

var _ = register(Check{
	ID:       "public-subnet-choice",
	rank:     470,
	title:    "the choice of public subnets does not depend on ids",
	severity: preflight.Warn,
	Roles:    controlOnly,
	section:  sectionSubnets,
	Needs:    fromVPC,
	run:      onChoice(false, checkSubnetChoice),
	fix:      "Tag one public subnet in each zone with `kubernetes.io/role/elb`.",
})

func checkPublicRoute(f *facts.Facts, choice subnetchoice.Choice) preflight.Outcome {
	if len(choice.Unrouted) > 0 {
		return found(preflight.Finding{
			Resource: strings.Join(choice.Unrouted, ", "),
			Wanted:   "a route table of its own, or a main one in the VPC",
			Found:    "no route table applies",
			Why:      "The cloud controller cannot create any load balancer if one subnet has no route table.",
			Fix:      fixes.RouteTable(f, choice.Unrouted),
		})
	}
	// A subnet that is tagged for load balancers and has no public route was meant to have one.
	var intended []string
	for _, r := range choice.Rejected {
		if r.Subnet.Tags.Has(clustertags.PublicRole) && r.Why == subnetchoice.NoPublicRoute {
			intended = append(intended, r.Subnet.ID)
		}
	}
	if len(choice.Zones) > 0 && len(intended) == 0 {
		return checkReturnRoutes(f, choice.IDs())
	}
	if len(choice.Zones) == 0 && len(foreignPublic(f, choice)) > 0 {
		return skipped("the public subnets are tagged only for other clusters (see public-subnet-cluster-tag)")
	}
	return found(preflight.Finding{
		Resource: cmp.Or(strings.Join(intended, ", "), f.VPCID()),
		Wanted:   "a subnet tagged for the cluster or for none, whose route table has a route to an internet gateway",
		Found:    routesFound(f, intended),
		Why:      "The cloud controller would not find any suitable subnet for an internet-facing load balancer.",
		Fix:      fixes.PublicRoute(f, intended, len(choice.Zones) > 0),
		Advisory: len(choice.Zones) > 0,
	})
}

// checkReturnRoutes checks that packets from the internet find their way back from the chosen subnets. The cloud
// controller only looks for a route to an internet gateway, whatever its destination and its state.
func checkReturnRoutes(f *facts.Facts, subnets []string) preflight.Outcome {
	var gone, partial, goneIn, partialIn []string
	for _, id := range subnets {
		table := f.Tables.Of(id)
		var ways, lost []string
		for _, r := range table.Routes {
			switch {
			case !r.ToInternet():
			case r.Blackhole:
				lost = append(lost, r.Target)
			default:
				ways = append(ways, destination(r))
			}
		}
		slices.Sort(ways)
		switch {
		case len(ways) == 0:
			gone = append(gone, id)
			goneIn = append(goneIn, table.ID+" leads to "+strings.Join(slices.Compact(lost), ", ")+" (blackhole)")
		case !table.LeadsAnywhere(resource.Route.ToOpenInternet):
			partial = append(partial, id)
			partialIn = append(partialIn, table.ID+" only for "+strings.Join(ways, ", "))
		}
	}
	var findings []preflight.Finding
	if len(gone) > 0 {
		findings = append(findings, preflight.Finding{
			Resource: strings.Join(gone, ", "),
			Wanted:   "a route for 0.0.0.0/0 to an internet gateway of the VPC",
			Found:    strings.Join(slices.Compact(goneIn), "; "),
			Why:      "The cloud controller would choose the subnet, and no client would get an answer from there.",
			Fix:      fixes.DefaultRoute(f, gone),
			Advisory: len(gone) < len(subnets),
		})
	}
	if len(partial) > 0 {
		findings = append(findings, preflight.Finding{
			Resource: strings.Join(partial, ", "),
			Wanted:   "a route for 0.0.0.0/0 to an internet gateway",
			Found:    strings.Join(slices.Compact(partialIn), "; "),
			Why:      "Clients elsewhere would get no answer from a load balancer in the subnet.",
			Fix:      fixes.DefaultRoute(f, partial),
			Advisory: true,
		})
	}
	if len(findings) > 0 {
		return found(findings...)
	}
	return passed("%s", strings.Join(subnets, ", "))
}

// destination describes where a route applies.
func destination(r resource.Route) string {
	if !r.Destination.IsValid() {
		return "IPv6 or a prefix list"
	}
	return r.Destination.String()
}

// routesFound describes what is there instead of a public route for the subnets that should have one.
func routesFound(f *facts.Facts, intended []string) string {
	if len(intended) > 0 {
		return fmt.Sprintf("tag %s, but no route to an internet gateway", clustertags.PublicRole)
	}
	return fmt.Sprintf("none of %d subnets can be used", len(f.Subnets))
}

func checkPublicSubnetTags(f *facts.Facts, choice subnetchoice.Choice) preflight.Outcome {
	var untagged []string
	for _, z := range choice.Zones {
		if !z.Subnet.Tags.BelongTo(f.Cluster()) {
			untagged = append(untagged, z.Subnet.ID)
		}
	}
	seen := "no tag that starts with " + clustertags.Prefix
	if len(choice.Zones) == 0 {
		// If all public subnets are other clusters', the tag is what is missing.
		for _, r := range foreignPublic(f, choice) {
			untagged, seen = append(untagged, r.Subnet.ID), r.Why
		}
		if len(untagged) == 0 {
			return skipped("there is no public subnet (see public-subnet-route)")
		}
	}
	if len(untagged) == 0 {
		return passed("%s", strings.Join(choice.IDs(), ", "))
	}
	return found(preflight.Finding{
		Resource: strings.Join(untagged, ", "),
		Wanted:   fmt.Sprintf("tag %s with the value shared or owned", f.TagKey()),
		Found:    seen,
		Why: "Internet-facing load balancers use the public subnets tagged for the cluster; an untagged one is " +
			"no longer used once another cluster tags it.",
		Eventual: true,
		Fix:      []preflight.Fix{fixes.TagForCluster(f, untagged...)},
	})
}

// foreignPublic returns the public subnets that are ignored because they are tagged for other clusters only.
func foreignPublic(f *facts.Facts, choice subnetchoice.Choice) []subnetchoice.Rejected {
	var list []subnetchoice.Rejected
	for _, r := range choice.Rejected {
		if f.Choices().IsPublic(r.Subnet.ID) && r.Subnet.Tags.OnlyForeign(f.Cluster()) {
			list = append(list, r)
		}
	}
	return list
}

func checkSubnetChoice(f *facts.Facts, choice subnetchoice.Choice) preflight.Outcome {
	role := clustertags.PublicRole
	if choice.Internal {
		role = clustertags.InternalRole
	}
	var zones, chosen, reserve, release []string
	for _, z := range choice.Zones {
		if !z.Ambiguous {
			continue
		}
		zones = append(zones, z.Zone)
		chosen = append(chosen, z.Subnet.ID)
		if z.Subnet.Tags.Has(role) { // so do its rivals
			release = append(release, z.Rivals()...)
		} else {
			reserve = append(reserve, z.Subnet.ID)
		}
	}
	if len(zones) == 0 {
		return passed("")
	}
	var remedies []preflight.Fix
	if len(reserve) > 0 {
		remedies = append(remedies, fixes.ByCommand("reserve these subnets", fixes.AddTag(f, role, "1", reserve...)))
	}
	if len(release) > 0 {
		remedies = append(remedies, fixes.ByCommand(
			"take the tag from the other subnets, unless another cluster needs it there",
			fixes.UntagCommand(f, release, role),
		))
	}
	return found(preflight.Finding{
		Resource: strings.Join(zones, ", "),
		Wanted:   "one subnet in each zone with the tag " + role,
		Found:    "several equivalent subnets; the lowest ids are chosen: " + strings.Join(chosen, ", "),
		Why:      "A new subnet with a lower id would silently be used for new load balancers.",
		Fix:      remedies,
	})
}
