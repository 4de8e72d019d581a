package awsapi

import (
	"context"
	"slices"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing/types"
	elbv2 "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbv2types "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

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

// named is an error that names the action.
func named(action string, err error) error {
	if err == nil {
		return nil
	}
	return &leftbehind.CallError{Action: action, Err: err}
}

// listNamed is list with an error that names the action.
func listNamed[T any](
	ctx context.Context, a *Client, action string, ask func(ctx context.Context, token *string) (page[T], error),
) ([]T, error) {
	all, err := list(ctx, a, action, ask)
	return all, named(action, err)
}

func (a *Client) classicBalancers(ctx context.Context, vpc string) ([]leftbehind.Balancer, error) {
	all, err := listNamed(
		ctx, a, "elasticloadbalancing:DescribeLoadBalancers",
		func(ctx context.Context, token *string) (p page[elbtypes.LoadBalancerDescription], err error) {
			out, err := a.elb.DescribeLoadBalancers(
				ctx, &elb.DescribeLoadBalancersInput{PageSize: awssdk.Int32(balancerPageSize), Marker: token},
			)
			if err == nil {
				p.items, p.next = out.LoadBalancerDescriptions, out.NextMarker
			}
			return p, err
		},
	)
	if err != nil {
		return nil, err
	}
	var balancers []leftbehind.Balancer
	for _, b := range all {
		if awssdk.ToString(b.VPCId) == vpc {
			balancers = append(balancers, leftbehind.Balancer{
				Name: awssdk.ToString(b.LoadBalancerName), DNSName: awssdk.ToString(b.DNSName),
				Kind:   leftbehind.Classic,
				Scheme: awssdk.ToString(b.Scheme), Groups: b.SecurityGroups,
				Created: awssdk.ToTime(b.CreatedTime),
			})
		}
	}
	err = setTags(ctx, a, balancers, a.classicTags, func(b *leftbehind.Balancer) (string, *clustertags.Tags) {
		return b.Name, &b.Tags
	})
	return balancers, err
}

func (a *Client) balancers(ctx context.Context, vpc string) ([]leftbehind.Balancer, error) {
	all, err := listNamed(
		ctx, a, "elasticloadbalancing:DescribeLoadBalancers",
		func(ctx context.Context, token *string) (p page[elbv2types.LoadBalancer], err error) {
			out, err := a.elbv2.DescribeLoadBalancers(
				ctx, &elbv2.DescribeLoadBalancersInput{PageSize: awssdk.Int32(balancerPageSize), Marker: token},
			)
			if err == nil {
				p.items, p.next = out.LoadBalancers, out.NextMarker
			}
			return p, err
		},
	)
	if err != nil {
		return nil, err
	}
	var balancers []leftbehind.Balancer
	for _, b := range all {
		if awssdk.ToString(b.VpcId) == vpc {
			balancers = append(balancers, leftbehind.Balancer{
				Name: awssdk.ToString(b.LoadBalancerName), ARN: awssdk.ToString(b.LoadBalancerArn),
				DNSName: awssdk.ToString(b.DNSName),
				Kind:    string(b.Type), Scheme: string(b.Scheme), Groups: b.SecurityGroups,
				Created: awssdk.ToTime(b.CreatedTime),
			})
		}
	}
	err = setTags(ctx, a, balancers, a.tags, func(b *leftbehind.Balancer) (string, *clustertags.Tags) {
		return b.ARN, &b.Tags
	})
	return balancers, err
}

func (a *Client) targetGroups(ctx context.Context, vpc string) ([]leftbehind.TargetGroup, error) {
	all, err := listNamed(
		ctx, a, "elasticloadbalancing:DescribeTargetGroups",
		func(ctx context.Context, token *string) (p page[elbv2types.TargetGroup], err error) {
			out, err := a.elbv2.DescribeTargetGroups(
				ctx, &elbv2.DescribeTargetGroupsInput{PageSize: awssdk.Int32(balancerPageSize), Marker: token},
			)
			if err == nil {
				p.items, p.next = out.TargetGroups, out.NextMarker
			}
			return p, err
		},
	)
	if err != nil {
		return nil, err
	}
	var groups []leftbehind.TargetGroup
	for _, g := range all {
		if awssdk.ToString(g.VpcId) == vpc {
			groups = append(groups, leftbehind.TargetGroup{
				Name: awssdk.ToString(g.TargetGroupName), ARN: awssdk.ToString(g.TargetGroupArn),
				Balancers: g.LoadBalancerArns,
			})
		}
	}
	err = setTags(ctx, a, groups, a.tags, func(g *leftbehind.TargetGroup) (string, *clustertags.Tags) {
		return g.ARN, &g.Tags
	})
	return groups, err
}

type tagsByID = map[string]clustertags.Tags

// setTags asks for the tags of items, of which field returns the id and where its tags belong.
func setTags[T any](
	ctx context.Context, a *Client, items []T, ask func(context.Context, []string, tagsByID) error,
	field func(*T) (id string, tags *clustertags.Tags),
) error {
	ids := make([]string, len(items))
	for i := range items {
		ids[i], _ = field(&items[i])
	}
	found, err := tagsOf(ctx, a, ids, ask)
	for i := range items {
		id, tags := field(&items[i])
		*tags = found[id]
	}
	return err
}

// tagsOf asks for the tags of resources, so many at a time as one call allows. If one of them is gone by then, AWS does
// not answer about the others either.
func tagsOf(
	ctx context.Context, a *Client, ids []string, ask func(context.Context, []string, tagsByID) error,
) (tagsByID, error) {
	tags := tagsByID{}
	for some := range slices.Chunk(ids, tagsPageSize) {
		call := func(some []string) error {
			const action = "elasticloadbalancing:DescribeTags"
			_, err := Call(ctx, a, action, func(ctx context.Context) (any, error) { return nil, ask(ctx, some, tags) })
			return named(action, err)
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
	all, err := listNamed(
		ctx, a, "ec2:DescribeSecurityGroups",
		func(ctx context.Context, token *string) (p page[types.SecurityGroup], err error) {
			out, err := a.ec2.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{
				Filters:    []types.Filter{awsclient.Filter("vpc-id", vpc)},
				MaxResults: awssdk.Int32(groupPageSize), NextToken: token,
			})
			if err == nil {
				p.items, p.next = out.SecurityGroups, out.NextToken
			}
			return p, err
		},
	)
	var groups []leftbehind.Group
	for _, g := range all {
		groups = append(groups, leftbehind.Group{
			ID: awssdk.ToString(g.GroupId), Name: awssdk.ToString(g.GroupName),
			Description: awssdk.ToString(g.Description), Tags: clustertags.FromEC2(g.Tags), Rules: singleRules(g),
		})
	}
	return groups, err
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
