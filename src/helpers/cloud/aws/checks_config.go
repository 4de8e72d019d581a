package aws

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/preflight"
)

// checkConfigScope compares the region, the VPC and the endpoints that the cloud controller takes from its
// configuration with this instance's, and reports keys that it silently ignores.
func checkConfigScope(f *facts) preflight.Outcome {
	if f.metadataErr != nil {
		return skipped(noMetadata)
	}
	var findings []preflight.Finding
	add := func(advisory bool, key, wanted, seen, why, fix string) {
		findings = append(findings, preflight.Finding{
			Resource: cmp.Or(f.request.CloudConfigFile, "the configuration") + ": " + key,
			Wanted:   wanted,
			Found:    seen,
			Why:      why,
			Advisory: advisory,
			Fix:      []preflight.Fix{byHand("%s in the property config of the job cloud-provider", fix)},
		})
	}
	c, region := f.conf, f.metadata.Region
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
	own := f.ownVPC()
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
	case c.SubnetID != "" && f.subnetsErr == nil && len(f.subnets) > 0 && f.subnet(c.SubnetID) == nil:
		add(
			true, "SubnetID", "a subnet of "+c.VPC, c.SubnetID,
			"The cloud controller uses it for load balancers if all other subnets belong to other clusters.",
			"set SubnetID: "+cmp.Or(f.subnetID(), "SUBNET"),
		)
	}
	for _, o := range c.Overrides {
		if o.Service != "ec2imds" && o.Region != "" && o.Region != f.region() {
			add(false, "ServiceOverride for "+o.Service, "the region "+f.region(), "Region = "+awserr.Clip(o.Region),
				"The cloud controller would ignore it, and call the default endpoint.", "correct Region")
		}
	}
	if len(findings) > 0 {
		return preflight.Outcome{Findings: findings}
	}
	return passed("%s, %s", f.region(), f.vpcID())
}

// checkIPFamilies: the addresses of a node are those of the configured families, one of which must be kubelet's
// --node-ip, which is an IPv4 address; a family without an address fails the node's initialization
// (getInstanceNodeAddress in cloud-provider-aws).
func checkIPFamilies(f *facts) preflight.Outcome {
	families := f.conf.NodeIPFamilies
	if len(families) == 0 {
		return passed("ipv4")
	}
	finding := preflight.Finding{
		Resource: f.instanceID(),
		Why:      "The node would keep the taint uninitialized.",
		Fix: []preflight.Fix{
			byHand(
				"correct NodeIPFamilies in the property config of the job cloud-provider; without it nodes have IPv4 " +
					"addresses",
			),
		},
	}
	if !slices.Contains(families, "ipv4") {
		finding.Wanted, finding.Found = "NodeIPFamilies with ipv4, because kubelet registers with the IPv4 address "+f.metadata.Address, strings.Join(
			families,
			", ",
		)
		return found(finding)
	}
	if !slices.Contains(families, "ipv6") {
		return passed("ipv4")
	}
	if f.instance == nil {
		return f.instanceMissing()
	}
	for _, i := range f.instance.Interfaces {
		if len(i.IPv6) > 0 {
			return passed("%s", strings.Join(families, ", "))
		}
	}
	finding.Wanted, finding.Found = "an IPv6 address, because NodeIPFamilies has ipv6", "none on its interfaces"
	return found(finding)
}

func checkAssumedRole(f *facts) preflight.Outcome {
	switch {
	case !f.assumesRole():
		return passed("the role of the instance profile is used")
	case f.metadataErr != nil:
		return skipped(noMetadata)
	case f.credentialsErr != nil:
		return skipped("there are no credentials")
	case f.assumeErr == nil:
		return passed("%s", f.conf.RoleARN)
	}
	own := f.credentials.Role
	return found(preflight.Finding{
		Resource: f.conf.RoleARN,
		Wanted:   fmt.Sprintf("a role that %s may assume", own),
		Found:    awserr.Describe(f.assumeErr),
		Eventual: true,
		Why:      "The cloud controller makes all its calls as this role, and does not start without it.",
		Fix: append(
			f.fixMachinePolicy(),
			byCommand(
				fmt.Sprintf(
					"make sure that the trust policy of the role allows %s the action %s; to show it:", own,
					assumeAction,
				),
				f.aws("iam", "get-role", "--role-name", f.conf.RoleName(), "--query", "Role.AssumeRolePolicyDocument"),
			),
		),
	})
}

// checkBalancersGroup checks the security group that all load balancers get.
func checkBalancersGroup(f *facts) preflight.Outcome {
	id := f.conf.ElbSecurityGroup
	switch {
	case id == "":
		return passed("the cloud controller creates one for each load balancer")
	case f.metadataErr != nil:
		return skipped(noMetadata)
	case f.balancersErr != nil && awserr.Classify(f.balancersErr) != awserr.UnknownID:
		return skipped("%s", whyMissing("security group", f.balancersErr))
	}
	finding := preflight.Finding{
		Resource: id,
		Wanted:   "a security group of " + f.vpcID(),
		Why:      "ElbSecurityGroup names it, so the cloud controller could not create any load balancer.",
		Eventual: true,
		Fix: []preflight.Fix{
			byHand(
				"correct ElbSecurityGroup in the property config of the job cloud-provider; without it the cloud " +
					"controller creates a group for each load balancer",
			),
		},
	}
	switch {
	case f.balancersErr != nil:
		finding.Found = awserr.Describe(f.balancersErr)
	case f.balancers != nil && f.balancers.VPC != "" && f.balancers.VPC != f.vpcID():
		finding.Found = "it belongs to " + f.balancers.VPC
	default:
		return passed("%s", id)
	}
	return found(finding)
}

// The default range of NodePorts, to which load balancers send.
const firstNodePort, lastNodePort = 30000, 32767

// checkNodePorts: with DisableSecurityGroupIngress the operator opens the nodes to load balancers.
func checkNodePorts(f *facts) preflight.Outcome {
	switch {
	case !f.conf.NoIngressManagement:
		return passed("the cloud controller opens them")
	case f.metadataErr != nil:
		return skipped(noMetadata)
	case f.groupsErr != nil:
		return skipped("%s", whyMissing("security groups", f.groupsErr))
	}
	var ids []string
	for _, g := range f.groups {
		if g.admits(f.conf.ElbSecurityGroup) {
			return passed("%s", g.ID)
		}
		ids = append(ids, g.ID)
	}
	if len(ids) == 0 {
		return f.instanceMissing()
	}
	source, text := []string{
		"--cidr", expand("cidr"),
	}, "allow the network of the load balancers' subnets to connect to them"
	if id := f.conf.ElbSecurityGroup; id != "" {
		source, text = []string{"--source-group", id}, "allow the load balancers' security group to connect to them"
	}
	allow := f.aws("ec2", "authorize-security-group-ingress", append([]string{
		"--group-id", word(f.managedGroup(ids), "group"), "--protocol", "tcp", "--port",
		fmt.Sprintf("%d-%d", firstNodePort, lastNodePort),
	}, source...)...)
	return found(preflight.Finding{
		Resource: strings.Join(ids, ", "),
		Wanted: fmt.Sprintf(
			"a rule that allows load balancers to connect to ports %d to %d", firstNodePort, lastNodePort,
		),
		Found: "none",
		Why: "DisableSecurityGroupIngress is set, so the cloud controller does not open the nodes, and load " +
			"balancers would reach none.",
		Eventual: true,
		Fix: []preflight.Fix{
			byCommand(text, allow),
			byHand("or remove DisableSecurityGroupIngress from the property config of the job cloud-provider"),
		},
	})
}

// admits reports whether a group has a rule for NodePorts from addresses, or from the load balancers' group.
func (g securityGroup) admits(balancers string) bool {
	return slices.ContainsFunc(g.Ingress, func(r ingressRule) bool {
		fromBalancers := r.Anywhere || balancers != "" && slices.Contains(r.Groups, balancers)
		return fromBalancers && slices.Contains(r.Protocols, "tcp") && r.From <= lastNodePort && r.To >= firstNodePort
	})
}
