package awssim_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"kubernetes-release/testbed/awssim"
)

// checkNetworkACLs adds a rule to the network ACL of all subnets, and looks for VPC endpoints.
func checkNetworkACLs(t *testing.T, covered map[string]bool, c clients) {
	t.Helper()
	run(t, covered, []step{
		{action: "ec2:CreateNetworkAclEntry", call: func(ctx context.Context) (any, error) {
			_, err := c.ec2.CreateNetworkAclEntry(ctx, &ec2.CreateNetworkAclEntryInput{
				NetworkAclId: aws.String(awssim.LabNetworkACL), RuleNumber: aws.Int32(90), Protocol: aws.String("tcp"),
				RuleAction: types.RuleActionAllow, Egress: aws.Bool(true), CidrBlock: aws.String("10.0.0.0/8"),
				PortRange: &types.PortRange{From: aws.Int32(443), To: aws.Int32(443)},
			})
			return nil, err
		}},
		{action: "ec2:DescribeNetworkAcls", call: answers(c.ec2.DescribeNetworkAcls, &ec2.DescribeNetworkAclsInput{
			NetworkAclIds: []string{awssim.LabNetworkACL},
		}, func(out *ec2.DescribeNetworkAclsOutput) any {
			return fmt.Sprint(
				len(out.NetworkAcls[0].Entries), " entries, protocol ", *out.NetworkAcls[0].Entries[2].Protocol,
			)
		}), want: "5 entries, protocol 6"},
		{action: "ec2:DescribeVpcEndpoints", call: func(ctx context.Context) (any, error) {
			_, err := c.ec2.DescribeVpcEndpoints(ctx, &ec2.DescribeVpcEndpointsInput{})
			return nil, err
		}},
	})
}
