package cpi

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/aws/smithy-go"
)

// AWS is a Cloud that talks to EC2 and Elastic Load Balancing.
type AWS struct {
	client    *ec2.Client
	balancers *elb.Client
}

// NewAWS returns a client of the APIs at endpoint with an operator's static key.
func NewAWS(endpoint, region, keyID, secret string) *AWS {
	key := credentials.NewStaticCredentialsProvider(keyID, secret, "")
	return &AWS{
		client:    ec2.New(ec2.Options{BaseEndpoint: &endpoint, Region: region, Credentials: key}),
		balancers: elb.New(elb.Options{BaseEndpoint: &endpoint, Region: region, Credentials: key}),
	}
}

// Launch implements Cloud. Tags are set by the launch itself, so that the instance never exists without them.
func (a *AWS) Launch(ctx context.Context, l Launch) (string, error) {
	if err := a.checkZone(ctx, l); err != nil {
		return "", err
	}
	one := int32(1)
	image := "ami-0123456789abcdef0"
	input := &ec2.RunInstancesInput{
		MinCount: &one, MaxCount: &one, ImageId: &image, InstanceType: types.InstanceType(l.InstanceType),
		SubnetId: &l.Subnet, PrivateIpAddress: &l.Address, SecurityGroupIds: l.SecurityGroups,
		TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypeInstance, Tags: tagList(l.Tags)}},
		MetadataOptions: &types.InstanceMetadataOptionsRequest{
			HttpTokens:           types.HttpTokensStateOptional,
			InstanceMetadataTags: types.InstanceMetadataTagsState(l.MetadataTags),
		},
	}
	if l.TokensRequired {
		input.MetadataOptions.HttpTokens = types.HttpTokensStateRequired
	}
	if l.HopLimit > 0 {
		limit := int32(l.HopLimit)
		input.MetadataOptions.HttpPutResponseHopLimit = &limit
	}
	if l.InstanceProfile != "" {
		input.IamInstanceProfile = &types.IamInstanceProfileSpecification{Name: &l.InstanceProfile}
	}
	output, err := a.client.RunInstances(ctx, input)
	if err != nil {
		return "", err
	}
	if len(output.Instances) != 1 {
		return "", fmt.Errorf("RunInstances returned %d instances; expected 1", len(output.Instances))
	}
	return aws.ToString(output.Instances[0].InstanceId), nil
}

// checkZone refuses a subnet in another zone than that of the az, as BOSH's CPI does (common_availability_zone in
// availability_zone_selector.rb of bosh-aws-cpi-release). A zone is optional: the subnet has one.
func (a *AWS) checkZone(ctx context.Context, l Launch) error {
	if l.AvailabilityZone == "" {
		return nil
	}
	output, err := a.client.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{SubnetIds: []string{l.Subnet}})
	if err != nil {
		return err
	}
	if zone := aws.ToString(output.Subnets[0].AvailabilityZone); zone != l.AvailabilityZone {
		return fmt.Errorf("can't use multiple availability zones: subnet in %s, VM in %s", zone, l.AvailabilityZone)
	}
	return nil
}

// Register implements Cloud. The port is that of the target group.
func (a *AWS) Register(ctx context.Context, id, targetGroup string) error {
	output, err := a.balancers.DescribeTargetGroups(ctx, &elb.DescribeTargetGroupsInput{Names: []string{targetGroup}})
	if err != nil {
		return err
	}
	_, err = a.balancers.RegisterTargets(ctx, &elb.RegisterTargetsInput{
		TargetGroupArn: output.TargetGroups[0].TargetGroupArn, Targets: []elbtypes.TargetDescription{{Id: &id}},
	})
	return err
}

// Terminate implements Cloud.
func (a *AWS) Terminate(ctx context.Context, id string) error {
	_, err := a.client.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{id}})
	var known smithy.APIError
	if errors.As(err, &known) && known.ErrorCode() == "InvalidInstanceID.NotFound" {
		return nil
	}
	return err
}

// Tag implements Cloud. As BOSH's CPI does, it also tags the volumes that are attached to the instance, those of claims
// included (set_vm_metadata in cloud_v1.rb of bosh-aws-cpi-release).
func (a *AWS) Tag(ctx context.Context, id string, tags map[string]string) error {
	if err := a.setTags(ctx, id, tags); err != nil {
		return err
	}
	output, err := a.client.DescribeVolumes(ctx, &ec2.DescribeVolumesInput{Filters: []types.Filter{
		{Name: aws.String("attachment.instance-id"), Values: []string{id}},
	}})
	if err != nil {
		return err
	}
	for _, volume := range output.Volumes {
		err := a.setTags(ctx, aws.ToString(volume.VolumeId), tags)
		var known smithy.APIError
		if errors.As(err, &known) && known.ErrorCode() == "InvalidVolume.NotFound" {
			continue // detached and deleted in the meantime
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (a *AWS) setTags(ctx context.Context, id string, tags map[string]string) error {
	_, err := a.client.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{id}, Tags: tagList(tags)})
	return err
}

// FindByAddress implements Cloud.
func (a *AWS) FindByAddress(ctx context.Context, address string) ([]string, error) {
	output, err := a.client.DescribeInstances(ctx, &ec2.DescribeInstancesInput{Filters: []types.Filter{
		{Name: aws.String("private-ip-address"), Values: []string{address}},
		{Name: aws.String("instance-state-name"), Values: []string{"pending", "running", "stopping", "stopped"}},
	}})
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, reservation := range output.Reservations {
		for _, instance := range reservation.Instances {
			ids = append(ids, aws.ToString(instance.InstanceId))
		}
	}
	return ids, nil
}

func tagList(tags map[string]string) []types.Tag {
	list := make([]types.Tag, 0, len(tags))
	for key, value := range tags {
		list = append(list, types.Tag{Key: aws.String(key), Value: aws.String(value)})
	}
	return list
}
