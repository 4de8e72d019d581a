package account

import (
	"context"
	"net/netip"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"kubernetes-release/cloud/aws/resource"
	"kubernetes-release/preflight"
)

// checkEgress looks for rules of the nodes' group that let them connect to AWS at port 443: anywhere, or to the VPC's
// endpoints.
func (a *Account) checkEgress(ctx context.Context) (preflight.Outcome, error) {
	group, err := a.describe(ctx, a.group)
	if err != nil || group == nil {
		return preflight.Outcome{Skip: "the nodes' security group does not exist yet"}, err
	}
	opening := openingPorts(group.IpPermissionsEgress, https)
	if resource.Cover(rangesOf(opening), resource.AnyAddress) {
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
	if len(opening.PrefixListIds) > 0 {
		finding.Found, finding.Advisory = "a rule with a prefix list, which is not read", true
	}
	if len(opening.IpRanges)+len(opening.UserIdGroupPairs) > 0 {
		subnets, err := a.ec2.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{Filters: inVPC(a.vpc)})
		if err != nil {
			return preflight.Outcome{}, err
		}
		reached := func(e types.VpcEndpoint) bool { return reaches(opening, e, subnets.Subnets) }
		missing, err := a.missingEndpoints(ctx, reached)
		if err != nil || len(missing) == 0 {
			return preflight.Outcome{Note: a.group + ", to VPC endpoints"}, err
		}
	}
	return preflight.Outcome{Findings: []preflight.Finding{finding}}, nil
}

// reaches reports whether rules lead to an endpoint: to one of its groups, or to all its subnets.
func reaches(opening types.IpPermission, e types.VpcEndpoint, subnets []types.Subnet) bool {
	for _, g := range e.Groups {
		if refersTo(opening, aws.ToString(g.GroupId)) {
			return true
		}
	}
	admitted := rangesOf(opening)
	return len(e.SubnetIds) > 0 && !slices.ContainsFunc(subnets, func(s types.Subnet) bool {
		network, err := netip.ParsePrefix(aws.ToString(s.CidrBlock))
		return slices.Contains(e.SubnetIds, aws.ToString(s.SubnetId)) &&
			(err != nil || !resource.Cover(admitted, network))
	})
}
