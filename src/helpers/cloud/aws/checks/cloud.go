package checks

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/cloud/aws/clustertags"
	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/cloud/aws/fixes"
	"kubernetes-release/cloud/aws/resource"
	"kubernetes-release/preflight"
)

var _ = register(Check{
	ID:       "cloud-config",
	rank:     20,
	title:    "the cloud controller supports its configuration file",
	severity: preflight.Fail,
	Roles:    both,
	run:      checkCloudConfig,
	section:  sectionTags,
	fix:      "Correct the property `config` of the job cloud-provider; leave `KubernetesClusterID` out of it.",
})

var _ = register(Check{
	ID:       "cloud-config-scope",
	rank:     100,
	title:    "the configuration names this instance's region and VPC",
	severity: preflight.Fail,
	Roles:    controlOnly,
	section:  sectionConfig,
	warnsIf:  "the cloud controller ignores a key",
	Needs:    facts.FromMetadata | facts.FromInstance | facts.FromSubnets,
	run:      checkConfigScope,
	fix: "Remove `Zone`, `Region`, `VPC` and `SubnetID` from the property `config`: the cloud controller " +
		"takes them from its instance.",
})

var _ = register(Check{
	ID:       "cloud-routes-table",
	rank:     400,
	title:    "exactly one route table is the cluster's, for pod routes",
	severity: preflight.Fail,
	Roles:    controlOnly,
	section:  sectionSubnets,
	warnsIf:  "the table is tagged for another cluster too",
	Needs:    facts.FromRouteTables,
	run:      checkRouteTable,
	fix:      "Tag exactly one route table, or set `RouteTableID` in the property `config`.",
})

func checkCloudConfig(f *facts.Facts) preflight.Outcome {
	file := f.Request.CloudConfigFile
	if f.ConfErr != nil {
		return found(preflight.Finding{
			Resource: file,
			Wanted:   "only keys and values that the cloud controller manager supports",
			Found:    f.ConfErr.Error(),
			Why:      "The cloud controller ignores unknown keys, and fails to start with wrong values.",
			Fix:      []preflight.Fix{fixes.ByHand("correct the property config of the job cloud-provider")},
		})
	}
	if id := f.Conf.ClusterID; id != "" && id != f.Cluster() {
		return found(preflight.Finding{
			Resource: file,
			Wanted:   fmt.Sprintf("KubernetesClusterID = %s, or none", f.Cluster()),
			Found:    fmt.Sprintf("KubernetesClusterID = %s", awserr.Clip(id)),
			Why:      "The cloud controller would manage the resources of another cluster.",
			Fix: []preflight.Fix{
				fixes.ByHand(
					"remove KubernetesClusterID from the property config of the job cloud-provider; the name is set " +
						"by cluster.name only",
				),
			},
		})
	}
	if file == "" {
		return passed("no file is required")
	}
	return passed("%s", file)
}

// checkConfigScope compares the region, the VPC and the endpoints that the cloud controller takes from its
// configuration with this instance's, and reports keys that it silently ignores.
func checkConfigScope(f *facts.Facts) preflight.Outcome {
	if f.MetadataErr != nil {
		return skipped(facts.NoMetadata)
	}
	var findings []preflight.Finding
	add := func(advisory bool, key, wanted, seen, why, fix string) {
		findings = append(findings, preflight.Finding{
			Resource: cmp.Or(f.Request.CloudConfigFile, "the configuration") + ": " + key,
			Wanted:   wanted,
			Found:    seen,
			Why:      why,
			Advisory: advisory,
			Fix:      []preflight.Fix{fixes.ByHand("%s in the property config of the job cloud-provider", fix)},
		})
	}
	c, region := f.Conf, f.Metadata.Region
	regionKey := "Region"
	if c.Zone != "" {
		regionKey = "Zone"
	}
	if configured := c.ControllerRegion(); configured != "" && configured != region {
		add(
			false, regionKey, "the region of this instance, "+region, configured,
			"The cloud controller would call the APIs of another region, and find neither nodes nor subnets.",
			"remove "+regionKey,
		)
	}
	own := f.OwnVPC()
	switch {
	case c.VPC == "" && c.SubnetID != "":
		add(
			true, "SubnetID", "no SubnetID without VPC", c.SubnetID,
			"The cloud controller ignores it: it chooses subnets by their tags.", "remove SubnetID",
		)
	case c.VPC == "" || own == "":
	case !c.IsElsewhere() && c.VPC != own:
		add(
			false, "VPC", "the VPC of this instance, "+own+", or none",
			c.VPC+", which the cloud controller ignores without SubnetID (or RoleARN) and KubernetesClusterID",
			"The cloud controller would use "+own+".", "remove VPC",
		)
	case !c.IsElsewhere():
		add(
			true, "VPC", "no VPC, or one with SubnetID and KubernetesClusterID", c.VPC,
			"The cloud controller ignores it, and uses the VPC of its instance, which is the same.", "remove VPC",
		)
	case c.VPC != own:
		add(
			false, "VPC", "the VPC of the nodes, "+own, c.VPC,
			"The cloud controller would create load balancers in a VPC that has none of the nodes.", "set VPC: "+own,
		)
	case c.SubnetID != "" && f.SubnetsErr == nil && len(f.Subnets) > 0 && f.Subnet(c.SubnetID) == nil:
		add(
			true, "SubnetID", "a subnet of "+c.VPC, c.SubnetID,
			"The cloud controller uses it for load balancers if all other subnets belong to other clusters.",
			"set SubnetID: "+cmp.Or(f.SubnetID(), "SUBNET"),
		)
	}
	for _, o := range c.Overrides {
		if o.Service != "ec2imds" && o.Region != "" && o.Region != f.Region() {
			add(false, "ServiceOverride for "+o.Service, "the region "+f.Region(), "Region = "+awserr.Clip(o.Region),
				"The cloud controller would ignore it, and call the default endpoint.", "correct Region")
		}
	}
	if len(findings) > 0 {
		return preflight.Outcome{Findings: findings}
	}
	return passed("%s, %s", f.Region(), f.VPCID())
}

// fixRouteTable leaves the cluster's tag on the route table of this instance's subnet, which pod routes belong to. It
// never tags another cluster's table.
func fixRouteTable(f *facts.Facts) preflight.Fix {
	all := map[string]clustertags.Tags{}
	for _, t := range f.RouteTables {
		all[t.ID] = t.Tags
	}
	kept := ""
	if t := f.Tables.Of(f.SubnetID()); t != nil {
		kept = t.ID
		if t.Tags.OnlyForeign(f.Cluster()) {
			return fixes.ByHand(
				"give the nodes of this cluster subnets with a route table of their own, and tag it with %s: "+
					"%s, the one of %s, is %s",
				f.TagKey(), t.ID, f.SubnetID(), t.Tags.Found(f.TagKey()),
			)
		}
	}
	if len(all) == 0 {
		return fixes.ByCommand(
			"add the cluster's tag to the route table of the nodes' subnet",
			fixes.TagCommand(f, fixes.Word(kept, "table")),
		)
	}
	if f.Conf.RouteTableID != "" {
		return fixes.ByHand("correct RouteTableID in the property config of the job cloud-provider: %s is the "+
			"table of %s",
			fixes.Word(kept, "table"), f.SubnetID())
	}
	if kept == "" {
		kept = fixes.SortedIDs(all)[0]
	}
	return fixes.KeepTagOn(f, kept, all)
}

func checkRouteTable(f *facts.Facts) preflight.Outcome {
	if !f.Settings.ConfigureCloudRoutes {
		return skipped("the cloud controller writes no pod routes (configure_cloud_routes is false)")
	}
	if f.MetadataErr != nil || f.RoutesErr != nil {
		return skipped("%s", facts.WhyMissing("route tables", errors.Join(f.MetadataErr, f.RoutesErr)))
	}
	var ids []string
	for _, t := range f.RouteTables {
		ids = append(ids, t.ID)
	}
	slices.Sort(ids)
	if len(ids) == 1 {
		return checkTaggedTable(f, f.RouteTables[0])
	}
	seen := "none"
	if len(ids) > 1 {
		seen = strings.Join(ids, ", ")
	}
	return found(preflight.Finding{
		Resource: "route tables",
		Wanted:   "exactly one with the tag " + f.TagKey() + ", in all VPCs of the region",
		Found:    seen,
		Why:      "The cloud controller does not know which table to write pod routes to.",
		Eventual: true,
		Fix: []preflight.Fix{
			fixRouteTable(f),
			fixes.ByHand("or set RouteTableID in the property config of the job cloud-provider"),
		},
	})
}

// checkTaggedTable checks the one table that pod routes are written to.
func checkTaggedTable(f *facts.Facts, t resource.RouteTable) preflight.Outcome {
	finding := preflight.Finding{Resource: t.ID, Eventual: true, Fix: []preflight.Fix{fixRouteTable(f)}}
	own := f.Tables.Of(f.SubnetID())
	switch {
	case t.VPC != "" && t.VPC != f.OwnVPC():
		finding.Wanted, finding.Found = "a route table of the nodes' VPC, "+f.OwnVPC(), "a table of "+t.VPC
		finding.Why = "The cloud controller writes pod routes to it, and no packet of a node is routed by it."
	case f.TablesErr == nil && own != nil && own.ID != t.ID:
		finding.Wanted = "the route table of the node's subnet, " + own.ID
		finding.Found = "a table that " + f.SubnetID() + " does not use"
		finding.Why = "The cloud controller writes pod routes to it, and no packet of this node is routed by it."
		if routesOtherNodes(f, t) {
			finding.Fix = []preflight.Fix{
				fixes.ByHand("use one route table for all subnets with nodes, because the cloud controller writes pod "+
					"routes to one only: associate %s with %s, or use an encapsulated pod network", f.SubnetID(), t.ID),
			}
		}
	case len(t.Tags.Clusters()) > 1:
		finding.Wanted = "a route table that is tagged for this cluster only"
		finding.Found = "tags of the " + clustertags.Quote(t.Tags.Clusters())
		finding.Why = "The cloud controllers of all these clusters write pod routes to it, and each deletes the " +
			"others' where pod networks overlap."
		finding.Advisory, finding.Eventual = true, false
		finding.Fix = []preflight.Fix{
			fixes.ByHand("give the nodes of this cluster subnets with a route table of their own, tag it with %s, "+
				"then remove the tag from %s", f.TagKey(), t.ID),
		}
	default:
		return passed("%s", t.ID)
	}
	return found(finding)
}

// routesOtherNodes reports whether a route table is that of another private subnet of the cluster, where nodes may be.
// A subnet for public load balancers is not private, also while it lacks the route.
func routesOtherNodes(f *facts.Facts, t resource.RouteTable) bool {
	return slices.ContainsFunc(f.Subnets, func(s resource.Subnet) bool {
		table := f.Tables.Of(s.ID)
		return s.ID != f.SubnetID() && s.Tags.BelongTo(f.Cluster()) && table != nil && table.ID == t.ID &&
			!table.IsPublic() && !s.Tags.Has(clustertags.PublicRole)
	})
}
