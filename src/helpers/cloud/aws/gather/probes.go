package gather

import (
	"context"

	"kubernetes-release/cloud/aws/facts"
)

// attempt is a call that tests a permission.
type attempt struct {
	probe facts.Probe
	try   func(context.Context) error
}

func (a attempt) run(ctx context.Context) facts.Probe {
	a.probe.Err = a.try(ctx)
	return a.probe
}

// permissionProbes are the calls that test permissions without changing anything: DryRun for EC2, and describe calls
// for the load balancers, whose APIs do not support DryRun. With cloud routes, a deployment leaves
// ec2:RevokeSecurityGroupIngress to what IAM answers, to limit the number of calls. Deleting a security group is never
// tested: the policy only allows it for those of load balancers, which do not exist yet.
func (g *Gatherer) permissionProbes(vpcID string, groupIDs []string) []attempt {
	f := g.Facts
	var probes []attempt
	add := func(resource string, try func(context.Context) error, action string, alsoCovers ...string) {
		probes = append(probes, attempt{
			probe: facts.Probe{Action: action, Covers: append([]string{action}, alsoCovers...), Resource: resource},
			try:   try,
		})
	}
	add(
		"classic load balancers", g.api.DescribeClassicLoadBalancers,
		"elasticloadbalancing:DescribeLoadBalancers",
	)
	add(
		"network load balancers", g.api.DescribeNetworkLoadBalancers,
		"elasticloadbalancing:DescribeLoadBalancers",
	)
	if vpcID != "" && f.Conf.ElbSecurityGroup == "" {
		add(
			vpcID,
			func(ctx context.Context) error { return g.api.TryCreateSecurityGroup(ctx, vpcID, f.TagKey()) },
			"ec2:CreateSecurityGroup", "ec2:CreateTags",
		)
	}
	if group := f.ManagedGroup(groupIDs); group != "" {
		if !f.Conf.NoIngressManagement {
			add(
				group,
				func(ctx context.Context) error { return g.api.TryAuthorizeIngress(ctx, group) },
				"ec2:AuthorizeSecurityGroupIngress",
			)
		}
		if !f.Conf.NoIngressManagement && (!f.Settings.ConfigureCloudRoutes || f.Request.Thorough) {
			add(
				group,
				func(ctx context.Context) error { return g.api.TryRevokeIngress(ctx, group) },
				"ec2:RevokeSecurityGroupIngress",
			)
		}
	}
	if table := f.ClusterTable(); table != nil && f.Settings.ConfigureCloudRoutes {
		add(
			table.ID,
			func(ctx context.Context) error { return g.api.TryCreateRoute(ctx, table.ID, f.InstanceID()) },
			"ec2:CreateRoute",
		)
	}
	if f.Storage() {
		zone, encrypted, volumes := f.Metadata.Zone, !f.Settings.StorageUnencrypted, "volumes in "
		if !encrypted {
			volumes = "unencrypted volumes in "
		}
		add(
			volumes+zone,
			func(ctx context.Context) error { return g.api.TryCreateVolume(ctx, zone, f.TagKey(), encrypted) },
			"ec2:CreateVolume",
		)
		add(
			"limits of volumes in "+zone,
			func(ctx context.Context) error { return g.api.TryVolumeLimits(ctx, zone) }, facts.VolumeLimits,
		)
	}
	if f.Request.Thorough {
		id := f.InstanceID()
		add(
			id, func(ctx context.Context) error { return g.api.TryDescribeTopology(ctx, id) },
			"ec2:DescribeInstanceTopology",
		)
		if f.Settings.ConfigureCloudRoutes {
			add(
				id,
				func(ctx context.Context) error { return g.api.TryDisableSourceDestCheck(ctx, id) },
				"ec2:ModifyInstanceAttribute",
			)
		}
	}
	return probes
}
