package awsapi

import (
	"context"
	"errors"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"

	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/cloud/aws/iampolicy"
)

// dryRun makes a call with DryRun set, which changes nothing. The error is nil if the role has the permission.
func (a *Client) dryRun(ctx context.Context, action string, request func(context.Context) error) error {
	_, err := Call(
		ctx, a, action+" (DryRun)", func(ctx context.Context) (struct{}, error) { return struct{}{}, request(ctx) },
	)
	switch {
	case err == nil:
		return awserr.WrongAnswer("success instead of an answer to DryRun")
	case awserr.WouldBeAllowed(err):
		return nil
	}
	return err
}

// TryCreateSecurityGroup tests creating a security group with the cluster's tag in a VPC.
func (a *Client) TryCreateSecurityGroup(ctx context.Context, vpc, tagKey string) error {
	return a.dryRun(ctx, "ec2:CreateSecurityGroup", func(ctx context.Context) error {
		_, err := a.ec2.CreateSecurityGroup(ctx, &ec2.CreateSecurityGroupInput{
			DryRun:      awssdk.Bool(true),
			GroupName:   awssdk.String("k8s-elb-cloud-preflight"),
			Description: awssdk.String("never created: tests a permission"),
			VpcId:       awssdk.String(vpc),
			TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypeSecurityGroup,
				Tags: []types.Tag{{Key: awssdk.String(tagKey), Value: awssdk.String("owned")}}}},
		})
		return err
	})
}

// allTrafficWithin is a rule that a security group has for itself.
func allTrafficWithin(group string) []types.IpPermission {
	return []types.IpPermission{
		{IpProtocol: awssdk.String("-1"), UserIdGroupPairs: []types.UserIdGroupPair{{GroupId: awssdk.String(group)}}},
	}
}

// TryAuthorizeIngress tests adding a rule to a security group.
func (a *Client) TryAuthorizeIngress(ctx context.Context, group string) error {
	return a.dryRun(ctx, "ec2:AuthorizeSecurityGroupIngress", func(ctx context.Context) error {
		_, err := a.ec2.AuthorizeSecurityGroupIngress(ctx, &ec2.AuthorizeSecurityGroupIngressInput{
			DryRun: awssdk.Bool(true), GroupId: awssdk.String(group), IpPermissions: allTrafficWithin(group)})
		return err
	})
}

// TryRevokeIngress tests removing a rule from a security group.
func (a *Client) TryRevokeIngress(ctx context.Context, group string) error {
	return a.dryRun(ctx, "ec2:RevokeSecurityGroupIngress", func(ctx context.Context) error {
		_, err := a.ec2.RevokeSecurityGroupIngress(ctx, &ec2.RevokeSecurityGroupIngressInput{
			DryRun: awssdk.Bool(true), GroupId: awssdk.String(group), IpPermissions: allTrafficWithin(group)})
		return err
	})
}

// TryDescribeTopology tests describing where an instance is in the network.
func (a *Client) TryDescribeTopology(ctx context.Context, instance string) error {
	return a.dryRun(ctx, "ec2:DescribeInstanceTopology", func(ctx context.Context) error {
		_, err := a.ec2.DescribeInstanceTopology(
			ctx, &ec2.DescribeInstanceTopologyInput{DryRun: awssdk.Bool(true), InstanceIds: []string{instance}},
		)
		return err
	})
}

// TryDisableSourceDestCheck tests turning the source/destination check of an instance off.
func (a *Client) TryDisableSourceDestCheck(ctx context.Context, instance string) error {
	return a.dryRun(ctx, "ec2:ModifyInstanceAttribute", func(ctx context.Context) error {
		_, err := a.ec2.ModifyInstanceAttribute(ctx, &ec2.ModifyInstanceAttributeInput{
			DryRun:          awssdk.Bool(true),
			InstanceId:      awssdk.String(instance),
			SourceDestCheck: &types.AttributeBooleanValue{Value: awssdk.Bool(false)},
		})
		return err
	})
}

// TryCreateRoute tests writing to a route table. The destination is a documentation network (RFC 5737), which no table
// routes.
func (a *Client) TryCreateRoute(ctx context.Context, table, instance string) error {
	return a.dryRun(ctx, "ec2:CreateRoute", func(ctx context.Context) error {
		_, err := a.ec2.CreateRoute(ctx, &ec2.CreateRouteInput{
			DryRun:               awssdk.Bool(true),
			RouteTableId:         awssdk.String(table),
			InstanceId:           awssdk.String(instance),
			DestinationCidrBlock: awssdk.String("192.0.2.0/24"),
		})
		return err
	})
}

// TryCreateVolume tests creating a volume with the cluster's tag in a zone. Policies may forbid volumes that are not
// encrypted.
func (a *Client) TryCreateVolume(ctx context.Context, zone, tagKey string, encrypted bool) error {
	return a.dryRun(ctx, "ec2:CreateVolume", func(ctx context.Context) error {
		_, err := a.ec2.CreateVolume(ctx, &ec2.CreateVolumeInput{
			DryRun:           awssdk.Bool(true),
			AvailabilityZone: awssdk.String(zone),
			Encrypted:        awssdk.Bool(encrypted),
			Size:             awssdk.Int32(1),
			VolumeType:       types.VolumeTypeGp3,
			TagSpecifications: []types.TagSpecification{
				{
					ResourceType: types.ResourceTypeVolume,
					Tags:         []types.Tag{{Key: awssdk.String(tagKey), Value: awssdk.String("owned")}},
				},
			},
		})
		return err
	})
}

// TryVolumeLimits asks EC2 how many IOPS a volume can have, as the EBS CSI driver does (iampolicy.LimitsTag). EC2
// checks the number only after the permission.
func (a *Client) TryVolumeLimits(ctx context.Context, zone string) error {
	err := a.dryRun(ctx, "ec2:CreateVolume", func(ctx context.Context) error {
		_, err := a.ec2.CreateVolume(ctx, &ec2.CreateVolumeInput{
			DryRun:           awssdk.Bool(true),
			AvailabilityZone: awssdk.String(zone),
			Size:             awssdk.Int32(4),
			Iops:             awssdk.Int32(iampolicy.LimitsIOPS),
			VolumeType:       types.VolumeTypeGp3,
			TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypeVolume, Tags: []types.Tag{{
				Key: awssdk.String(iampolicy.LimitsTag), Value: awssdk.String(iampolicy.LimitsValue),
			}}}},
		})
		return err
	})
	var answer smithy.APIError
	if errors.As(err, &answer) && answer.ErrorCode() == "InvalidParameterValue" {
		return nil
	}
	return err
}
