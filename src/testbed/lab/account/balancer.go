package account

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	"kubernetes-release/testbed/awssim"
)

// APITargetGroup is the name of the target group in the lab's cloud config, and of the load balancer that forwards to
// it.
const APITargetGroup = "lab-api"

// EnsureAPIBalancer creates the load balancer that docs/api-access.md tells operators to create, unless it exists.
// Other target groups do not exist, so that a deploy which names one fails, as on AWS.
func (a Account) EnsureAPIBalancer(ctx context.Context) error {
	client := elb.New(elb.Options{
		BaseEndpoint: aws.String(URL(a.Network)), Region: awssim.LabRegion,
		Credentials: credentials.NewStaticCredentialsProvider(awssim.LabAccessKeyID, awssim.LabSecretAccessKey, ""),
	})
	if err := createAPIBalancer(ctx, client); err != nil {
		return fmt.Errorf("creating the API's load balancer: %w", err)
	}
	return nil
}

// createAPIBalancer sends the requests of the commands in docs/api-access.md. It does nothing if the target group
// exists.
func createAPIBalancer(ctx context.Context, client *elb.Client) error {
	group, err := client.CreateTargetGroup(ctx, &elb.CreateTargetGroupInput{
		Name:                       aws.String(APITargetGroup),
		VpcId:                      aws.String(awssim.LabVPC),
		TargetType:                 types.TargetTypeEnumInstance,
		Protocol:                   types.ProtocolEnumTcp,
		Port:                       aws.Int32(6443),
		HealthCheckProtocol:        types.ProtocolEnumTcp,
		HealthCheckIntervalSeconds: aws.Int32(5),
		HealthCheckTimeoutSeconds:  aws.Int32(4),
		HealthyThresholdCount:      aws.Int32(2),
		UnhealthyThresholdCount:    aws.Int32(2),
	})
	if errors.As(err, new(*types.DuplicateTargetGroupNameException)) {
		return nil
	}
	if err != nil {
		return err
	}
	balancer, err := client.CreateLoadBalancer(ctx, &elb.CreateLoadBalancerInput{
		Name:    aws.String(APITargetGroup),
		Type:    types.LoadBalancerTypeEnumNetwork,
		Scheme:  types.LoadBalancerSchemeEnumInternal,
		Subnets: []string{awssim.LabNodeSubnet(1), awssim.LabNodeSubnet(2), awssim.LabNodeSubnet(3)},
	})
	if err != nil {
		return err
	}
	_, err = client.CreateListener(ctx, &elb.CreateListenerInput{
		LoadBalancerArn: balancer.LoadBalancers[0].LoadBalancerArn,
		Protocol:        types.ProtocolEnumTcp,
		Port:            aws.Int32(6443),
		DefaultActions: []types.Action{
			{Type: types.ActionTypeEnumForward, TargetGroupArn: group.TargetGroups[0].TargetGroupArn},
		},
	})
	return err
}
