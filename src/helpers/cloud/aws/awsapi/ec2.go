package awsapi

import (
	"context"
	"maps"
	"net/netip"
	"slices"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"kubernetes-release/cloud/aws/awsclient"
	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/cloud/aws/clustertags"
	"kubernetes-release/cloud/aws/resource"
)

// Page sizes are the maximum number of resources that one call returns. With more resources there are additional calls.
const (
	subnetPageSize     = 1000
	routeTablePageSize = 100
)

// DescribeInstance returns an instance, or an awserr.EmptyAnswer if EC2 answers without it.
func (a *Client) DescribeInstance(ctx context.Context, id string) (*resource.Instance, error) {
	out, err := Call(ctx, a, "ec2:DescribeInstances", func(ctx context.Context) (*ec2.DescribeInstancesOutput, error) {
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

func newInstance(i types.Instance) *resource.Instance {
	result := &resource.Instance{
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
		converted := resource.Interface{
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
		result.MetadataV1 = i.MetadataOptions.HttpTokens == types.HttpTokensStateOptional
	}
	return result
}

// DescribeSubnets returns the subnets with the given ids.
func (a *Client) DescribeSubnets(ctx context.Context, ids ...string) ([]resource.Subnet, error) {
	return a.describeSubnets(ctx, &ec2.DescribeSubnetsInput{SubnetIds: ids})
}

// DescribeSubnetsOf returns all subnets of a VPC.
func (a *Client) DescribeSubnetsOf(ctx context.Context, vpc string) ([]resource.Subnet, error) {
	return a.describeSubnets(
		ctx,
		&ec2.DescribeSubnetsInput{
			Filters:    []types.Filter{awsclient.Filter("vpc-id", vpc)},
			MaxResults: awssdk.Int32(subnetPageSize),
		},
	)
}

func (a *Client) describeSubnets(ctx context.Context, input *ec2.DescribeSubnetsInput) ([]resource.Subnet, error) {
	all, err := list(
		ctx, a, "ec2:DescribeSubnets", func(ctx context.Context, token *string) (p page[types.Subnet], err error) {
			input.NextToken = token
			out, err := a.ec2.DescribeSubnets(ctx, input)
			if err == nil {
				p.items, p.next = out.Subnets, out.NextToken
			}
			return p, err
		},
	)
	var subnets []resource.Subnet
	for _, s := range all {
		subnet := resource.Subnet{
			ID:   awssdk.ToString(s.SubnetId),
			Zone: awssdk.ToString(s.AvailabilityZone),
			VPC:  awssdk.ToString(s.VpcId),
			Tags: clustertags.FromEC2(s.Tags),
			Free: int(awssdk.ToInt32(s.AvailableIpAddressCount)),
		}
		if network, err := netip.ParsePrefix(awssdk.ToString(s.CidrBlock)); err == nil {
			subnet.Network = network
		}
		subnets = append(subnets, subnet)
	}
	return subnets, err
}

// DescribeRouteTables returns the route tables that a filter selects.
func (a *Client) DescribeRouteTables(ctx context.Context, filterName, value string) (resource.RouteTables, error) {
	all, err := list(
		ctx, a, "ec2:DescribeRouteTables",
		func(ctx context.Context, token *string) (p page[types.RouteTable], err error) {
			out, err := a.ec2.DescribeRouteTables(ctx, &ec2.DescribeRouteTablesInput{
				Filters:    []types.Filter{awsclient.Filter(filterName, value)},
				MaxResults: awssdk.Int32(routeTablePageSize), NextToken: token,
			})
			if err == nil {
				p.items, p.next = out.RouteTables, out.NextToken
			}
			return p, err
		},
	)
	var tables resource.RouteTables
	for _, t := range all {
		tables = append(tables, newRouteTable(t))
	}
	return tables, err
}

func newRouteTable(t types.RouteTable) resource.RouteTable {
	result := resource.RouteTable{
		ID:           awssdk.ToString(t.RouteTableId),
		VPC:          awssdk.ToString(t.VpcId),
		Owner:        awssdk.ToString(t.OwnerId),
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
	for _, r := range t.Routes {
		route := resource.Route{
			List: r.DestinationPrefixListId != nil, Target: target(r), Blackhole: r.State == types.RouteStateBlackhole,
		}
		if network, err := netip.ParsePrefix(awssdk.ToString(r.DestinationCidrBlock)); err == nil {
			route.Destination = network
		}
		result.Routes = append(result.Routes, route)
	}
	return result
}

// target is the id that a route leads to.
func target(r types.Route) string {
	for _, id := range []*string{
		r.NatGatewayId, r.TransitGatewayId, r.GatewayId, r.VpcPeeringConnectionId, r.InstanceId, r.NetworkInterfaceId,
		r.LocalGatewayId, r.CarrierGatewayId, r.CoreNetworkArn,
	} {
		if id := awssdk.ToString(id); id != "" {
			return id
		}
	}
	return ""
}

// DescribeZones returns the zones of the region.
func (a *Client) DescribeZones(ctx context.Context) ([]resource.Zone, error) {
	out, err := Call(
		ctx, a, "ec2:DescribeAvailabilityZones",
		func(ctx context.Context) (*ec2.DescribeAvailabilityZonesOutput, error) {
			return a.ec2.DescribeAvailabilityZones(ctx, &ec2.DescribeAvailabilityZonesInput{})
		},
	)
	if err != nil {
		return nil, err
	}
	var zones []resource.Zone
	for _, z := range out.AvailabilityZones {
		zones = append(zones, resource.Zone{Name: awssdk.ToString(z.ZoneName), Type: awssdk.ToString(z.ZoneType)})
	}
	return zones, nil
}

// DescribeTags returns the tags of resources by their ids.
func (a *Client) DescribeTags(ctx context.Context, ids []string) (map[string]clustertags.Tags, error) {
	tags := map[string]clustertags.Tags{}
	input := &ec2.DescribeTagsInput{Filters: []types.Filter{awsclient.Filter("resource-id", ids...)}}
	for {
		out, err := Call(ctx, a, "ec2:DescribeTags", func(ctx context.Context) (*ec2.DescribeTagsOutput, error) {
			return a.ec2.DescribeTags(ctx, input)
		})
		if err != nil {
			return nil, err
		}
		for _, t := range out.Tags {
			id := awssdk.ToString(t.ResourceId)
			if tags[id] == nil {
				tags[id] = clustertags.Tags{}
			}
			tags[id][awssdk.ToString(t.Key)] = awssdk.ToString(t.Value)
		}
		if awssdk.ToString(out.NextToken) == "" {
			return tags, nil
		}
		input.NextToken = out.NextToken
	}
}

// DescribeGroups returns the security groups with the given ids, and an error if one of them is missing.
func (a *Client) DescribeGroups(ctx context.Context, ids []string) ([]resource.SecurityGroup, error) {
	out, err := Call(
		ctx, a, "ec2:DescribeSecurityGroups",
		func(ctx context.Context) (*ec2.DescribeSecurityGroupsOutput, error) {
			return a.ec2.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{GroupIds: ids})
		},
	)
	if err != nil {
		return nil, err
	}
	var groups []resource.SecurityGroup
	for _, g := range out.SecurityGroups {
		groups = append(groups, newSecurityGroup(g))
	}
	for _, id := range ids {
		if !slices.ContainsFunc(groups, func(g resource.SecurityGroup) bool { return g.ID == id }) {
			return nil, awserr.WrongAnswer("an answer without " + id)
		}
	}
	return groups, nil
}

func newSecurityGroup(g types.SecurityGroup) resource.SecurityGroup {
	return resource.SecurityGroup{
		ID:      awssdk.ToString(g.GroupId),
		VPC:     awssdk.ToString(g.VpcId),
		Tags:    clustertags.FromEC2(g.Tags),
		Ingress: newRules(g.IpPermissions),
		Egress:  newRules(g.IpPermissionsEgress),
	}
}

// newRules are those for TCP and UDP.
func newRules(permissions []types.IpPermission) resource.Rules {
	var rules resource.Rules
	for _, p := range permissions {
		rule := resource.Rule{
			From: int(awssdk.ToInt32(p.FromPort)),
			To:   int(awssdk.ToInt32(p.ToPort)),
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
			rule.Descriptions = append(rule.Descriptions, awssdk.ToString(pair.Description))
		}
		rules = append(rules, rule)
	}
	return rules
}

// Encryption returns the account's settings for new volumes.
func (a *Client) Encryption(ctx context.Context) (resource.Encryption, error) {
	out, err := Call(
		ctx, a, "ec2:GetEbsEncryptionByDefault",
		func(ctx context.Context) (*ec2.GetEbsEncryptionByDefaultOutput, error) {
			return a.ec2.GetEbsEncryptionByDefault(ctx, &ec2.GetEbsEncryptionByDefaultInput{})
		},
	)
	if err != nil || !awssdk.ToBool(out.EbsEncryptionByDefault) {
		return resource.Encryption{}, err
	}
	key, err := Call(
		ctx, a, "ec2:GetEbsDefaultKmsKeyId",
		func(ctx context.Context) (*ec2.GetEbsDefaultKmsKeyIdOutput, error) {
			return a.ec2.GetEbsDefaultKmsKeyId(ctx, &ec2.GetEbsDefaultKmsKeyIdInput{})
		},
	)
	if err != nil {
		return resource.Encryption{}, err
	}
	return resource.Encryption{ByDefault: true, Key: awssdk.ToString(key.KmsKeyId)}, nil
}

// DescribeMachines returns the instances with the cluster's tag that are not terminated, and if limits is set with the
// limits of their types.
func (a *Client) DescribeMachines(ctx context.Context, tagKey string, limits bool) ([]resource.Machine, error) {
	input := &ec2.DescribeInstancesInput{
		Filters: []types.Filter{
			awsclient.Filter("tag-key", tagKey),
			awsclient.Filter("instance-state-name", "pending", "running", "stopping", "stopped"),
		},
		MaxResults: awssdk.Int32(1000),
	}
	var list []resource.Machine
	kinds := map[types.InstanceType]bool{}
	for {
		out, err := Call(
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
				machine := resource.Machine{
					ID:         awssdk.ToString(i.InstanceId),
					VPC:        awssdk.ToString(i.VpcId),
					Tags:       clustertags.FromEC2(i.Tags),
					Kind:       string(i.InstanceType),
					Volumes:    len(i.BlockDeviceMappings),
					Interfaces: len(i.NetworkInterfaces),
				}
				if i.State != nil {
					machine.State = string(i.State.Name)
				}
				list = append(list, machine)
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

func (a *Client) addLimits(ctx context.Context, list []resource.Machine, kinds []types.InstanceType) error {
	for names := range slices.Chunk(kinds, typePageSize) {
		out, err := Call(
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
				if list[i].Kind == string(t.InstanceType) && t.EbsInfo != nil {
					list[i].Limit = int(awssdk.ToInt32(t.EbsInfo.MaximumEbsAttachments))
					list[i].Shared = t.EbsInfo.AttachmentLimitType == types.AttachmentLimitTypeShared
				}
			}
		}
	}
	return nil
}
