package awsapi

import (
	"context"
	"slices"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing"
	elbv2 "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"

	"kubernetes-release/cloud/aws/awsclient"
	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/cloud/aws/clustertags"
	"kubernetes-release/cloud/aws/leftbehind"
)

// Page sizes of the load balancer APIs, and of how many resources one call describes the tags.
const (
	balancerPageSize = 400
	groupPageSize    = 1000
	tagsPageSize     = 20
)

// LoadBalancing returns all load balancers, target groups and security groups of a VPC. Errors name the action.
func (a *Client) LoadBalancing(ctx context.Context, vpc string) (leftbehind.Account, error) {
	var account leftbehind.Account
	var classic, others []leftbehind.Balancer
	err := awsclient.InParallel(
		func() (err error) { classic, err = a.classicBalancers(ctx, vpc); return err },
		func() (err error) { others, err = a.balancers(ctx, vpc); return err },
		func() (err error) { account.TargetGroups, err = a.targetGroups(ctx, vpc); return err },
		func() (err error) { account.Groups, err = a.groupsOf(ctx, vpc); return err },
	)
	account.Balancers = slices.Concat(classic, others)
	return account, err
}

// describe makes a call whose error names the action.
func describe[T any](ctx context.Context, a *Client, action string, f func(context.Context) (T, error)) (T, error) {
	out, err := Call(ctx, a, action, f)
	if err != nil {
		err = &leftbehind.CallError{Action: action, Err: err}
	}
	return out, err
}

func (a *Client) classicBalancers(ctx context.Context, vpc string) ([]leftbehind.Balancer, error) {
	var list []leftbehind.Balancer
	input := &elb.DescribeLoadBalancersInput{PageSize: awssdk.Int32(balancerPageSize)}
	for {
		out, err := describe(
			ctx, a, "elasticloadbalancing:DescribeLoadBalancers",
			func(ctx context.Context) (*elb.DescribeLoadBalancersOutput, error) {
				return a.elb.DescribeLoadBalancers(ctx, input)
			},
		)
		if err != nil {
			return nil, err
		}
		for _, b := range out.LoadBalancerDescriptions {
			if awssdk.ToString(b.VPCId) == vpc {
				list = append(list, leftbehind.Balancer{
					Name: awssdk.ToString(b.LoadBalancerName), DNSName: awssdk.ToString(b.DNSName),
					Kind:   leftbehind.Classic,
					Scheme: awssdk.ToString(b.Scheme), Groups: b.SecurityGroups,
					Created: awssdk.ToTime(b.CreatedTime),
				})
			}
		}
		if input.Marker = out.NextMarker; awssdk.ToString(input.Marker) == "" {
			break
		}
	}
	names := make([]string, len(list))
	for i, b := range list {
		names[i] = b.Name
	}
	tags, err := tagsOf(ctx, a, names, a.classicTags)
	for i, b := range list {
		list[i].Tags = tags[b.Name]
	}
	return list, err
}

func (a *Client) balancers(ctx context.Context, vpc string) ([]leftbehind.Balancer, error) {
	var list []leftbehind.Balancer
	input := &elbv2.DescribeLoadBalancersInput{PageSize: awssdk.Int32(balancerPageSize)}
	for {
		out, err := describe(
			ctx, a, "elasticloadbalancing:DescribeLoadBalancers",
			func(ctx context.Context) (*elbv2.DescribeLoadBalancersOutput, error) {
				return a.elbv2.DescribeLoadBalancers(ctx, input)
			},
		)
		if err != nil {
			return nil, err
		}
		for _, b := range out.LoadBalancers {
			if awssdk.ToString(b.VpcId) == vpc {
				list = append(list, leftbehind.Balancer{
					Name: awssdk.ToString(b.LoadBalancerName), ARN: awssdk.ToString(b.LoadBalancerArn),
					DNSName: awssdk.ToString(b.DNSName),
					Kind:    string(b.Type), Scheme: string(b.Scheme), Groups: b.SecurityGroups,
					Created: awssdk.ToTime(b.CreatedTime),
				})
			}
		}
		if input.Marker = out.NextMarker; awssdk.ToString(input.Marker) == "" {
			break
		}
	}
	arns := make([]string, len(list))
	for i, b := range list {
		arns[i] = b.ARN
	}
	tags, err := tagsOf(ctx, a, arns, a.tags)
	for i, b := range list {
		list[i].Tags = tags[b.ARN]
	}
	return list, err
}

func (a *Client) targetGroups(ctx context.Context, vpc string) ([]leftbehind.TargetGroup, error) {
	var list []leftbehind.TargetGroup
	input := &elbv2.DescribeTargetGroupsInput{PageSize: awssdk.Int32(balancerPageSize)}
	for {
		out, err := describe(
			ctx, a, "elasticloadbalancing:DescribeTargetGroups",
			func(ctx context.Context) (*elbv2.DescribeTargetGroupsOutput, error) {
				return a.elbv2.DescribeTargetGroups(ctx, input)
			},
		)
		if err != nil {
			return nil, err
		}
		for _, g := range out.TargetGroups {
			if awssdk.ToString(g.VpcId) == vpc {
				list = append(list, leftbehind.TargetGroup{
					Name: awssdk.ToString(g.TargetGroupName), ARN: awssdk.ToString(g.TargetGroupArn),
					Balancers: g.LoadBalancerArns,
				})
			}
		}
		if input.Marker = out.NextMarker; awssdk.ToString(input.Marker) == "" {
			break
		}
	}
	arns := make([]string, len(list))
	for i, g := range list {
		arns[i] = g.ARN
	}
	tags, err := tagsOf(ctx, a, arns, a.tags)
	for i, g := range list {
		list[i].Tags = tags[g.ARN]
	}
	return list, err
}

type tagsByID = map[string]clustertags.Tags

// tagsOf asks for the tags of resources, so many at a time as one call allows. If one of them is gone by then, AWS does
// not answer about the others either.
func tagsOf(
	ctx context.Context, a *Client, ids []string, ask func(context.Context, []string, tagsByID) error,
) (tagsByID, error) {
	tags := tagsByID{}
	for some := range slices.Chunk(ids, tagsPageSize) {
		call := func(some []string) error {
			_, err := describe(
				ctx, a, "elasticloadbalancing:DescribeTags",
				func(ctx context.Context) (any, error) { return nil, ask(ctx, some, tags) },
			)
			return err
		}
		err := call(some)
		if awserr.Classify(err) == awserr.UnknownID {
			err = nil
			for _, id := range some {
				if one := call([]string{id}); awserr.Classify(one) != awserr.UnknownID && one != nil {
					err = one
				}
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return tags, nil
}

func (a *Client) classicTags(ctx context.Context, names []string, tags tagsByID) error {
	out, err := a.elb.DescribeTags(ctx, &elb.DescribeTagsInput{LoadBalancerNames: names})
	if err != nil {
		return err
	}
	for _, d := range out.TagDescriptions {
		own := clustertags.Tags{}
		for _, t := range d.Tags {
			own[awssdk.ToString(t.Key)] = awssdk.ToString(t.Value)
		}
		tags[awssdk.ToString(d.LoadBalancerName)] = own
	}
	return nil
}

func (a *Client) tags(ctx context.Context, arns []string, tags tagsByID) error {
	out, err := a.elbv2.DescribeTags(ctx, &elbv2.DescribeTagsInput{ResourceArns: arns})
	if err != nil {
		return err
	}
	for _, d := range out.TagDescriptions {
		own := clustertags.Tags{}
		for _, t := range d.Tags {
			own[awssdk.ToString(t.Key)] = awssdk.ToString(t.Value)
		}
		tags[awssdk.ToString(d.ResourceArn)] = own
	}
	return nil
}

func (a *Client) groupsOf(ctx context.Context, vpc string) ([]leftbehind.Group, error) {
	var list []leftbehind.Group
	input := &ec2.DescribeSecurityGroupsInput{
		Filters: []types.Filter{awsclient.Filter("vpc-id", vpc)}, MaxResults: awssdk.Int32(groupPageSize),
	}
	for {
		out, err := describe(
			ctx, a, "ec2:DescribeSecurityGroups",
			func(ctx context.Context) (*ec2.DescribeSecurityGroupsOutput, error) {
				return a.ec2.DescribeSecurityGroups(ctx, input)
			},
		)
		if err != nil {
			return nil, err
		}
		for _, g := range out.SecurityGroups {
			list = append(list, leftbehind.Group{
				ID: awssdk.ToString(g.GroupId), Name: awssdk.ToString(g.GroupName),
				Description: awssdk.ToString(g.Description), Tags: clustertags.FromEC2(g.Tags), Rules: singleRules(g),
			})
		}
		if input.NextToken = out.NextToken; awssdk.ToString(input.NextToken) == "" {
			return list, nil
		}
	}
}

// singleRules are the rules of a group for incoming traffic from groups and IPv4 networks, one for each.
func singleRules(g types.SecurityGroup) []leftbehind.Rule {
	var rules []leftbehind.Rule
	for _, p := range g.IpPermissions {
		rule := leftbehind.Rule{
			Group: awssdk.ToString(g.GroupId), Protocol: awssdk.ToString(p.IpProtocol), From: -1, To: -1,
		}
		if p.FromPort != nil && p.ToPort != nil {
			rule.From, rule.To = int(*p.FromPort), int(*p.ToPort)
		}
		for _, pair := range p.UserIdGroupPairs {
			r := rule
			r.Source, r.Description = awssdk.ToString(pair.GroupId), awssdk.ToString(pair.Description)
			rules = append(rules, r)
		}
		for _, network := range p.IpRanges {
			r := rule
			r.CIDR, r.Description = awssdk.ToString(network.CidrIp), awssdk.ToString(network.Description)
			rules = append(rules, r)
		}
	}
	return rules
}
