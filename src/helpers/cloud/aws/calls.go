package aws

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing"
	elbv2 "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"

	"kubernetes-release/cloud/aws/awsclient"
	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/cloud/aws/clustertags"
	"kubernetes-release/internal/poll"
	"kubernetes-release/preflight"
)

// Page sizes are the maximum number of resources that one call returns. With more resources there are additional calls.
const (
	subnetPageSize     = 1000
	routeTablePageSize = 100
)

func (a *api) describeInstance(ctx context.Context, id string) (*instance, error) {
	out, err := call(ctx, a, "ec2:DescribeInstances", func(ctx context.Context) (*ec2.DescribeInstancesOutput, error) {
		return a.ec2.DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{id}})
	})
	if err != nil {
		return nil, err
	}
	for _, reservation := range out.Reservations {
		for _, i := range reservation.Instances {
			if awssdk.ToString(i.InstanceId) == id {
				return newInstance(i), nil
			}
		}
	}
	return nil, awserr.EmptyAnswer("an answer without the instance")
}

func newInstance(i types.Instance) *instance {
	result := &instance{
		ID:              awssdk.ToString(i.InstanceId),
		PrivateDNSName:  awssdk.ToString(i.PrivateDnsName),
		Address:         awssdk.ToString(i.PrivateIpAddress),
		Subnet:          awssdk.ToString(i.SubnetId),
		VPC:             awssdk.ToString(i.VpcId),
		Tags:            clustertags.FromEC2(i.Tags),
		SourceDestCheck: awssdk.ToBool(i.SourceDestCheck),
	}
	for _, g := range i.SecurityGroups {
		if id := awssdk.ToString(g.GroupId); id != "" {
			result.Groups = append(result.Groups, id)
		}
	}
	for _, n := range i.NetworkInterfaces {
		converted := networkInterface{
			ID:              awssdk.ToString(n.NetworkInterfaceId),
			SourceDestCheck: awssdk.ToBool(n.SourceDestCheck),
		}
		for _, a := range n.PrivateIpAddresses {
			converted.Addresses = append(converted.Addresses, awssdk.ToString(a.PrivateIpAddress))
		}
		for _, a := range n.Ipv6Addresses {
			converted.IPv6 = append(converted.IPv6, awssdk.ToString(a.Ipv6Address))
		}
		result.Interfaces = append(result.Interfaces, converted)
	}
	if i.MetadataOptions != nil {
		result.MetadataHopLimit = int(awssdk.ToInt32(i.MetadataOptions.HttpPutResponseHopLimit))
	}
	return result
}

// describeSubnet returns the subnet with the given id, or none.
func (a *api) describeSubnet(ctx context.Context, id string) ([]subnet, error) {
	return a.describeSubnets(ctx, &ec2.DescribeSubnetsInput{SubnetIds: []string{id}})
}

// describeSubnetsOf returns all subnets of a VPC.
func (a *api) describeSubnetsOf(ctx context.Context, vpc string) ([]subnet, error) {
	return a.describeSubnets(
		ctx,
		&ec2.DescribeSubnetsInput{
			Filters:    []types.Filter{awsclient.Filter("vpc-id", vpc)},
			MaxResults: awssdk.Int32(subnetPageSize),
		},
	)
}

func (a *api) describeSubnets(ctx context.Context, input *ec2.DescribeSubnetsInput) ([]subnet, error) {
	var subnets []subnet
	for {
		out, err := call(ctx, a, "ec2:DescribeSubnets", func(ctx context.Context) (*ec2.DescribeSubnetsOutput, error) {
			return a.ec2.DescribeSubnets(ctx, input)
		})
		if err != nil {
			return nil, err
		}
		for _, s := range out.Subnets {
			subnets = append(
				subnets,
				subnet{
					ID:   awssdk.ToString(s.SubnetId),
					Zone: awssdk.ToString(s.AvailabilityZone),
					Tags: clustertags.FromEC2(s.Tags),
				},
			)
		}
		if awssdk.ToString(out.NextToken) == "" {
			return subnets, nil
		}
		input.NextToken = out.NextToken
	}
}

// describeRouteTables returns the route tables that a filter selects.
func (a *api) describeRouteTables(ctx context.Context, filterName, value string) ([]routeTable, error) {
	input := &ec2.DescribeRouteTablesInput{
		Filters:    []types.Filter{awsclient.Filter(filterName, value)},
		MaxResults: awssdk.Int32(routeTablePageSize),
	}
	var tables []routeTable
	for {
		out, err := call(
			ctx, a, "ec2:DescribeRouteTables",
			func(ctx context.Context) (*ec2.DescribeRouteTablesOutput, error) {
				return a.ec2.DescribeRouteTables(ctx, input)
			},
		)
		if err != nil {
			return nil, err
		}
		for _, t := range out.RouteTables {
			tables = append(tables, newRouteTable(t))
		}
		if awssdk.ToString(out.NextToken) == "" {
			return tables, nil
		}
		input.NextToken = out.NextToken
	}
}

func newRouteTable(t types.RouteTable) routeTable {
	result := routeTable{
		ID:           awssdk.ToString(t.RouteTableId),
		VPC:          awssdk.ToString(t.VpcId),
		Tags:         clustertags.FromEC2(t.Tags),
		Associations: map[string]string{},
	}
	for _, association := range t.Associations {
		result.Main = result.Main || awssdk.ToBool(association.Main)
		if id := awssdk.ToString(association.SubnetId); id != "" {
			result.Subnets = append(result.Subnets, id)
			result.Associations[id] = awssdk.ToString(association.RouteTableAssociationId)
		}
	}
	for _, route := range t.Routes {
		result.HasDefault = result.HasDefault || awssdk.ToString(route.DestinationCidrBlock) == anyAddress
		if id := awssdk.ToString(route.GatewayId); id != "" {
			result.Gateways = append(result.Gateways, id)
		}
	}
	return result
}

func (a *api) describeZones(ctx context.Context) ([]zone, error) {
	out, err := call(
		ctx, a, "ec2:DescribeAvailabilityZones",
		func(ctx context.Context) (*ec2.DescribeAvailabilityZonesOutput, error) {
			return a.ec2.DescribeAvailabilityZones(ctx, &ec2.DescribeAvailabilityZonesInput{})
		},
	)
	if err != nil {
		return nil, err
	}
	var zones []zone
	for _, z := range out.AvailabilityZones {
		zones = append(zones, zone{Name: awssdk.ToString(z.ZoneName), Type: awssdk.ToString(z.ZoneType)})
	}
	return zones, nil
}

func (a *api) describeGroups(ctx context.Context, ids []string) ([]securityGroup, error) {
	out, err := call(
		ctx, a, "ec2:DescribeSecurityGroups",
		func(ctx context.Context) (*ec2.DescribeSecurityGroupsOutput, error) {
			return a.ec2.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{GroupIds: ids})
		},
	)
	if err != nil {
		return nil, err
	}
	var groups []securityGroup
	for _, g := range out.SecurityGroups {
		groups = append(groups, newSecurityGroup(g))
	}
	for _, id := range ids {
		if !slices.ContainsFunc(groups, func(g securityGroup) bool { return g.ID == id }) {
			return nil, awserr.WrongAnswer("an answer without " + id)
		}
	}
	return groups, nil
}

func newSecurityGroup(g types.SecurityGroup) securityGroup {
	result := securityGroup{
		ID:   awssdk.ToString(g.GroupId),
		VPC:  awssdk.ToString(g.VpcId),
		Tags: clustertags.FromEC2(g.Tags),
	}
	for _, p := range g.IpPermissions {
		rule := ingressRule{
			From:     int(awssdk.ToInt32(p.FromPort)),
			To:       int(awssdk.ToInt32(p.ToPort)),
			Anywhere: len(p.IpRanges)+len(p.Ipv6Ranges)+len(p.PrefixListIds) > 0,
		}
		switch awssdk.ToString(p.IpProtocol) {
		case "-1":
			rule.Protocols, rule.From, rule.To = []string{"tcp", "udp"}, 0, 65535
		case "tcp", "6":
			rule.Protocols = []string{"tcp"}
		case "udp", "17":
			rule.Protocols = []string{"udp"}
		default:
			continue
		}
		for _, r := range p.IpRanges {
			if network, err := netip.ParsePrefix(awssdk.ToString(r.CidrIp)); err == nil {
				rule.Networks = append(rule.Networks, network)
			}
		}
		for _, list := range p.PrefixListIds {
			rule.Lists = append(rule.Lists, awssdk.ToString(list.PrefixListId))
		}
		for _, pair := range p.UserIdGroupPairs {
			rule.Groups = append(rule.Groups, awssdk.ToString(pair.GroupId))
		}
		result.Ingress = append(result.Ingress, rule)
	}
	return result
}

// encryption returns the account's settings for new volumes.
func (a *api) encryption(ctx context.Context) (encryption, error) {
	out, err := call(
		ctx, a, "ec2:GetEbsEncryptionByDefault",
		func(ctx context.Context) (*ec2.GetEbsEncryptionByDefaultOutput, error) {
			return a.ec2.GetEbsEncryptionByDefault(ctx, &ec2.GetEbsEncryptionByDefaultInput{})
		},
	)
	if err != nil || !awssdk.ToBool(out.EbsEncryptionByDefault) {
		return encryption{}, err
	}
	key, err := call(
		ctx, a, "ec2:GetEbsDefaultKmsKeyId",
		func(ctx context.Context) (*ec2.GetEbsDefaultKmsKeyIdOutput, error) {
			return a.ec2.GetEbsDefaultKmsKeyId(ctx, &ec2.GetEbsDefaultKmsKeyIdInput{})
		},
	)
	if err != nil {
		return encryption{}, err
	}
	return encryption{byDefault: true, key: awssdk.ToString(key.KmsKeyId)}, nil
}

// describeMachines returns the running instances with the cluster's tag, and if limits is set with the limits of their
// types.
func (a *api) describeMachines(ctx context.Context, tagKey string, limits bool) ([]machine, error) {
	input := &ec2.DescribeInstancesInput{
		Filters: []types.Filter{
			awsclient.Filter("tag-key", tagKey),
			awsclient.Filter("instance-state-name", "running"),
		},
		MaxResults: awssdk.Int32(1000),
	}
	var list []machine
	kinds := map[types.InstanceType]bool{}
	for {
		out, err := call(
			ctx, a, "ec2:DescribeInstances",
			func(ctx context.Context) (*ec2.DescribeInstancesOutput, error) {
				return a.ec2.DescribeInstances(ctx, input)
			},
		)
		if err != nil {
			return nil, err
		}
		for _, reservation := range out.Reservations {
			for _, i := range reservation.Instances {
				list = append(list, machine{
					id:         awssdk.ToString(i.InstanceId),
					vpc:        awssdk.ToString(i.VpcId),
					tags:       clustertags.FromEC2(i.Tags),
					kind:       string(i.InstanceType),
					volumes:    len(i.BlockDeviceMappings),
					interfaces: len(i.NetworkInterfaces),
				})
				kinds[i.InstanceType] = true
			}
		}
		if awssdk.ToString(out.NextToken) == "" {
			break
		}
		input.NextToken = out.NextToken
	}
	delete(kinds, "")
	if len(kinds) == 0 || !limits {
		return list, nil
	}
	return list, a.addLimits(ctx, list, slices.Sorted(maps.Keys(kinds)))
}

// typePageSize is how many instance types one call can describe.
const typePageSize = 100

func (a *api) addLimits(ctx context.Context, list []machine, kinds []types.InstanceType) error {
	for names := range slices.Chunk(kinds, typePageSize) {
		out, err := call(
			ctx, a, "ec2:DescribeInstanceTypes",
			func(ctx context.Context) (*ec2.DescribeInstanceTypesOutput, error) {
				return a.ec2.DescribeInstanceTypes(ctx, &ec2.DescribeInstanceTypesInput{InstanceTypes: names})
			},
		)
		if err != nil {
			return err
		}
		for _, t := range out.InstanceTypes {
			for i := range list {
				if list[i].kind == string(t.InstanceType) && t.EbsInfo != nil {
					list[i].limit, list[i].shared = int(
						awssdk.ToInt32(t.EbsInfo.MaximumEbsAttachments),
					), t.EbsInfo.AttachmentLimitType == types.AttachmentLimitTypeShared
				}
			}
		}
	}
	return nil
}

// The load balancer APIs do not support DryRun: these two calls only show whether they answer and whether the role may
// describe load balancers.

func (a *api) describeClassicLoadBalancers(ctx context.Context) error {
	_, err := call(
		ctx, a, "elasticloadbalancing:DescribeLoadBalancers",
		func(ctx context.Context) (*elb.DescribeLoadBalancersOutput, error) {
			return a.elb.DescribeLoadBalancers(ctx, &elb.DescribeLoadBalancersInput{PageSize: awssdk.Int32(1)})
		},
	)
	return err
}

func (a *api) describeNetworkLoadBalancers(ctx context.Context) error {
	_, err := call(
		ctx, a, "elasticloadbalancing:DescribeLoadBalancers (v2)",
		func(ctx context.Context) (*elbv2.DescribeLoadBalancersOutput, error) {
			return a.elbv2.DescribeLoadBalancers(ctx, &elbv2.DescribeLoadBalancersInput{PageSize: awssdk.Int32(1)})
		},
	)
	return err
}

// dryRun makes a call with DryRun set, which changes nothing. The error is nil if the role has the permission.
func (a *api) dryRun(ctx context.Context, action string, request func(context.Context) error) error {
	_, err := call(
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

func (a *api) tryCreateSecurityGroup(ctx context.Context, vpc, tagKey string) error {
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

func (a *api) tryAuthorizeIngress(ctx context.Context, group string) error {
	return a.dryRun(ctx, "ec2:AuthorizeSecurityGroupIngress", func(ctx context.Context) error {
		_, err := a.ec2.AuthorizeSecurityGroupIngress(ctx, &ec2.AuthorizeSecurityGroupIngressInput{
			DryRun: awssdk.Bool(true), GroupId: awssdk.String(group), IpPermissions: allTrafficWithin(group)})
		return err
	})
}

func (a *api) tryRevokeIngress(ctx context.Context, group string) error {
	return a.dryRun(ctx, "ec2:RevokeSecurityGroupIngress", func(ctx context.Context) error {
		_, err := a.ec2.RevokeSecurityGroupIngress(ctx, &ec2.RevokeSecurityGroupIngressInput{
			DryRun: awssdk.Bool(true), GroupId: awssdk.String(group), IpPermissions: allTrafficWithin(group)})
		return err
	})
}

func (a *api) tryDescribeTopology(ctx context.Context, instance string) error {
	return a.dryRun(ctx, "ec2:DescribeInstanceTopology", func(ctx context.Context) error {
		_, err := a.ec2.DescribeInstanceTopology(
			ctx, &ec2.DescribeInstanceTopologyInput{DryRun: awssdk.Bool(true), InstanceIds: []string{instance}},
		)
		return err
	})
}

func (a *api) tryDisableSourceDestCheck(ctx context.Context, instance string) error {
	return a.dryRun(ctx, "ec2:ModifyInstanceAttribute", func(ctx context.Context) error {
		_, err := a.ec2.ModifyInstanceAttribute(ctx, &ec2.ModifyInstanceAttributeInput{
			DryRun:          awssdk.Bool(true),
			InstanceId:      awssdk.String(instance),
			SourceDestCheck: &types.AttributeBooleanValue{Value: awssdk.Bool(false)},
		})
		return err
	})
}

// tryCreateRoute tests writing to a route table. The destination is a documentation network (RFC 5737), which no table
// routes.
func (a *api) tryCreateRoute(ctx context.Context, table, instance string) error {
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

func (a *api) tryCreateVolume(ctx context.Context, zone, tagKey string) error {
	return a.dryRun(ctx, "ec2:CreateVolume", func(ctx context.Context) error {
		_, err := a.ec2.CreateVolume(ctx, &ec2.CreateVolumeInput{
			DryRun:           awssdk.Bool(true),
			AvailabilityZone: awssdk.String(zone),
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

// policyTimeout limits one attempt to ask IAM. IAM has one endpoint per partition, which a private subnet may not
// reach; then a longer wait is not worthwhile.
const policyTimeout = 3 * time.Second

// policyAttempts is how often a question is asked that IAM answers with an error of its own.
const policyAttempts = 3

// roleARN looks up the ARN of a role by its name; "" if that is not possible.
func (a *api) roleARN(ctx context.Context, name string) string {
	ctx, cancel := context.WithTimeout(ctx, policyTimeout)
	defer cancel()
	out, err := a.iam.GetRole(ctx, &iam.GetRoleInput{RoleName: awssdk.String(name)})
	if err != nil || out.Role == nil {
		return ""
	}
	return awssdk.ToString(out.Role.Arn)
}

// simulatePolicy asks IAM what the policies of a role allow.
func (a *api) simulatePolicy(ctx context.Context, roleARN string, q question) ([]evaluation, error) {
	input := &iam.SimulatePrincipalPolicyInput{
		PolicySourceArn: awssdk.String(roleARN),
		ActionNames:     q.actions,
		ResourceArns:    q.resources,
		MaxItems:        awssdk.Int32(1000),
	}
	for _, key := range slices.Sorted(maps.Keys(q.context)) {
		kind := iamtypes.ContextKeyTypeEnumString
		if key == "aws:TagKeys" {
			kind = iamtypes.ContextKeyTypeEnumStringList
		}
		input.ContextEntries = append(input.ContextEntries, iamtypes.ContextEntry{
			ContextKeyName: awssdk.String(key), ContextKeyType: kind, ContextKeyValues: []string{q.context[key]}})
	}
	var evaluations []evaluation
	for {
		out, err := a.askIAM(ctx, input)
		if err != nil {
			return nil, err
		}
		for _, r := range out.EvaluationResults {
			evaluations = append(evaluations, newEvaluations(r)...)
		}
		if !out.IsTruncated || awssdk.ToString(out.Marker) == "" {
			return evaluations, nil
		}
		input.Marker = out.Marker
	}
}

// newEvaluations returns the results for the single resources if IAM has them, or else the one for all. Missing
// condition keys stand in either.
func newEvaluations(r iamtypes.EvaluationResult) []evaluation {
	decided := func(resource *string, decision iamtypes.PolicyEvaluationDecisionType, missing []string) evaluation {
		return evaluation{
			Action: awssdk.ToString(r.EvalActionName), Resource: awssdk.ToString(resource), Missing: missing,
			Allowed:  decision == iamtypes.PolicyEvaluationDecisionTypeAllowed,
			Explicit: decision == iamtypes.PolicyEvaluationDecisionTypeExplicitDeny,
		}
	}
	if len(r.ResourceSpecificResults) == 0 {
		return []evaluation{decided(r.EvalResourceName, r.EvalDecision, r.MissingContextValues)}
	}
	var list []evaluation
	for _, s := range r.ResourceSpecificResults {
		missing := slices.Concat(r.MissingContextValues, s.MissingContextValues)
		list = append(list, decided(s.EvalResourceName, s.EvalResourceDecision, missing))
	}
	return list
}

// askIAM sends one request. Throttled requests are retried as those to EC2, and those that IAM fails on a few times.
func (a *api) askIAM(
	ctx context.Context, input *iam.SimulatePrincipalPolicyInput,
) (*iam.SimulatePrincipalPolicyOutput, error) {
	backoff := preflight.Backoff{First: 100 * time.Millisecond, Limit: time.Second}
	for attempt := 1; ; attempt++ {
		out, err := call(ctx, a, simulateAction, func(ctx context.Context) (*iam.SimulatePrincipalPolicyOutput, error) {
			ctx, cancel := context.WithTimeout(ctx, policyTimeout)
			defer cancel()
			return a.iam.SimulatePrincipalPolicy(ctx, input)
		})
		if awserr.Classify(err) != awserr.Server || attempt == policyAttempts ||
			poll.Sleep(ctx, backoff.Next()) != nil {
			return out, err
		}
	}
}
