package awsapi

import (
	"context"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing"
	elbv2 "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
)

// The load balancer APIs do not support DryRun: these two calls only show whether they answer and whether the role may
// describe load balancers.

// DescribeClassicLoadBalancers asks for one classic load balancer.
func (a *Client) DescribeClassicLoadBalancers(ctx context.Context) error {
	_, err := Call(
		ctx, a, "elasticloadbalancing:DescribeLoadBalancers",
		func(ctx context.Context) (*elb.DescribeLoadBalancersOutput, error) {
			return a.elb.DescribeLoadBalancers(ctx, &elb.DescribeLoadBalancersInput{PageSize: awssdk.Int32(1)})
		},
	)
	return err
}

// DescribeNetworkLoadBalancers asks for one load balancer of the second API.
func (a *Client) DescribeNetworkLoadBalancers(ctx context.Context) error {
	_, err := Call(
		ctx, a, "elasticloadbalancing:DescribeLoadBalancers (v2)",
		func(ctx context.Context) (*elbv2.DescribeLoadBalancersOutput, error) {
			return a.elbv2.DescribeLoadBalancers(ctx, &elbv2.DescribeLoadBalancersInput{PageSize: awssdk.Int32(1)})
		},
	)
	return err
}
