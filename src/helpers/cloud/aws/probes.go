package aws

import (
	"context"
)

// probe is a call that tests a permission, and its result.
type probe struct {
	check    string   // the id of the check that reports it
	action   string   // the call, such as ec2:CreateSecurityGroup
	covers   []string // the permissions that the call requires
	resource string
	err      error // nil: allowed

	try func(context.Context) error
}

func (p probe) run(ctx context.Context) probe {
	p.err = p.try(ctx)
	return p
}

// permissionProbes are the calls that test permissions without changing anything: DryRun for EC2, and describe calls
// for the load balancers, whose APIs do not support DryRun. With cloud routes, a deployment leaves
// ec2:RevokeSecurityGroupIngress to what IAM answers, to limit the number of calls. Deleting a security group is never
// tested: the policy only allows it for those of load balancers, which do not exist yet.
func (g *gatherer) permissionProbes(vpcID string, groupIDs []string) []probe {
	f := g.facts
	var probes []probe
	add := func(check, resource string, try func(context.Context) error, action string, alsoCovers ...string) {
		probes = append(
			probes,
			probe{
				check:    check,
				action:   action,
				covers:   append([]string{action}, alsoCovers...),
				resource: resource,
				try:      try,
			},
		)
	}
	add(
		"load-balancer-permissions", "classic load balancers", g.api.describeClassicLoadBalancers,
		"elasticloadbalancing:DescribeLoadBalancers",
	)
	add(
		"load-balancer-permissions", "network load balancers", g.api.describeNetworkLoadBalancers,
		"elasticloadbalancing:DescribeLoadBalancers",
	)
	if vpcID != "" && f.conf.ElbSecurityGroup == "" {
		add(
			"security-group-permissions", vpcID,
			func(ctx context.Context) error { return g.api.tryCreateSecurityGroup(ctx, vpcID, f.tagKey()) },
			"ec2:CreateSecurityGroup", "ec2:CreateTags",
		)
	}
	if group := f.managedGroup(groupIDs); group != "" {
		if !f.conf.NoIngressManagement {
			add(
				"security-group-permissions", group,
				func(ctx context.Context) error { return g.api.tryAuthorizeIngress(ctx, group) },
				"ec2:AuthorizeSecurityGroupIngress",
			)
		}
		if !f.conf.NoIngressManagement && (!f.request.ConfigureCloudRoutes || f.request.Thorough) {
			add(
				"security-group-permissions", group,
				func(ctx context.Context) error { return g.api.tryRevokeIngress(ctx, group) },
				"ec2:RevokeSecurityGroupIngress",
			)
		}
	}
	if table := f.clusterTable(); table != nil && f.request.ConfigureCloudRoutes {
		add(
			"other-permissions", table.ID,
			func(ctx context.Context) error { return g.api.tryCreateRoute(ctx, table.ID, f.instanceID()) },
			"ec2:CreateRoute",
		)
	}
	if f.storage() {
		zone := f.metadata.Zone
		add(
			"storage-permissions", "volumes in "+zone,
			func(ctx context.Context) error { return g.api.tryCreateVolume(ctx, zone, f.tagKey()) }, "ec2:CreateVolume",
		)
	}
	if f.request.Thorough {
		id := f.instanceID()
		add(
			"other-permissions", id, func(ctx context.Context) error { return g.api.tryDescribeTopology(ctx, id) },
			"ec2:DescribeInstanceTopology",
		)
		if f.request.ConfigureCloudRoutes {
			add(
				"other-permissions", id,
				func(ctx context.Context) error { return g.api.tryDisableSourceDestCheck(ctx, id) },
				"ec2:ModifyInstanceAttribute",
			)
		}
	}
	return probes
}

// managedGroup is the one of the instance's groups that the cloud controller adds rules to, or is to add them to: this
// cluster's, or else one that is no other cluster's. It is "" if there is none, or if it is unknown which one that is.
func (f *facts) managedGroup(ids []string) string {
	for _, g := range f.groups {
		if g.Tags.BelongTo(f.cluster()) {
			return g.ID
		}
	}
	if len(ids) > 1 && f.groupsErr != nil {
		return ""
	}
	return f.untaggedGroup(ids)
}
