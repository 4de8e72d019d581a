package account

import (
	"context"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"kubernetes-release/cloud/aws/resource"
	"kubernetes-release/preflight"
)

// checkEgress looks for rules of the nodes' group that let them connect to AWS at port 443: anywhere, or to the VPC's
// endpoints.
func (a *Account) checkEgress(ctx context.Context) (preflight.Outcome, error) {
	group, err := a.describe(ctx, a.group)
	if err != nil {
		return preflight.Outcome{}, err
	}
	if group == nil {
		return preflight.Outcome{Skip: "the nodes' security group does not exist yet"}, nil
	}
	opening := https.opening(group.Egress)
	if resource.Cover(opening.Networks(), resource.AnyAddress) {
		return preflight.Outcome{Note: a.group}, nil
	}
	finding := preflight.Finding{
		Resource: a.group, Wanted: "a rule for outgoing traffic to TCP 443", Found: "none to all addresses, and none " +
			"to VPC endpoints of all services that nodes require",
		Why: "nodes reach neither EC2 nor load balancing, STS or registries", Fix: []preflight.Fix{{
			Text: "Allow it:",
			Commands: []string{a.awsEC2("authorize-security-group-egress") + " --group-id " + a.group +
				" --ip-permissions 'IpProtocol=-1,IpRanges=[{CidrIp=0.0.0.0/0}]'"},
		}},
	}
	if len(opening.Lists()) > 0 {
		finding.Found, finding.Advisory = "a rule with a prefix list, which is not read", true
	}
	if len(opening) > 0 {
		subnets, err := a.allSubnets(ctx)
		if err != nil {
			return preflight.Outcome{}, err
		}
		reached := func(e types.VpcEndpoint) bool { return reaches(opening, e, subnets) }
		missing, err := a.missingEndpoints(ctx, reached)
		if err != nil || len(missing) == 0 {
			return preflight.Outcome{Note: a.group + ", to VPC endpoints"}, err
		}
	}
	return preflight.Outcome{Findings: []preflight.Finding{finding}}, nil
}

// reaches reports whether rules lead to an endpoint: to one of its groups, or to all its subnets.
func reaches(opening resource.Rules, e types.VpcEndpoint, subnets []resource.Subnet) bool {
	for _, g := range e.Groups {
		if opening.Admit(aws.ToString(g.GroupId)) {
			return true
		}
	}
	return len(e.SubnetIds) > 0 && !slices.ContainsFunc(subnets, func(s resource.Subnet) bool {
		return slices.Contains(e.SubnetIds, s.ID) && !resource.Cover(opening.Networks(), s.Network)
	})
}
