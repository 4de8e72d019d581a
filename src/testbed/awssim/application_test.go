package awssim_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	elbv2 "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbv2types "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	"kubernetes-release/testbed/awssim"
)

// Conditions of rules.
var (
	hostCondition = elbv2types.RuleCondition{
		Field:            aws.String("host-header"),
		HostHeaderConfig: &elbv2types.HostHeaderConditionConfig{Values: []string{"shop.example"}},
	}
	pathCondition = elbv2types.RuleCondition{
		Field:             aws.String("path-pattern"),
		PathPatternConfig: &elbv2types.PathPatternConditionConfig{Values: []string{"/api", "/api/*"}},
	}
	otherConditions = []elbv2types.RuleCondition{
		{Field: aws.String("http-header"), HttpHeaderConfig: &elbv2types.HttpHeaderConditionConfig{
			HttpHeaderName: aws.String("X-Canary"), Values: []string{"yes"},
		}},
		{
			Field:                   aws.String("http-request-method"),
			HttpRequestMethodConfig: &elbv2types.HttpRequestMethodConditionConfig{Values: []string{"GET"}},
		},
		{Field: aws.String("query-string"), QueryStringConfig: &elbv2types.QueryStringConditionConfig{
			Values: []elbv2types.QueryStringKeyValuePair{{Key: aws.String("size"), Value: aws.String("l*")}},
		}},
	}
)

func checkApplicationBalancers(t *testing.T, covered map[string]bool, c clients) {
	var balancer, group, listener, rule string
	create := func(subnets ...string) func(context.Context) (any, error) {
		return func(ctx context.Context) (any, error) {
			out, err := c.elbv2.CreateLoadBalancer(ctx, &elbv2.CreateLoadBalancerInput{
				Name: aws.String("app"), Scheme: "internal", Subnets: subnets, // the type defaults to application
				SecurityGroups: []string{awssim.LabSecurityGroup},
			})
			if err != nil {
				return nil, err
			}
			balancer = *out.LoadBalancers[0].LoadBalancerArn
			return out.LoadBalancers[0].Type, nil
		}
	}
	listen := func(protocol elbv2types.ProtocolEnum, actions ...elbv2types.Action) func(context.Context) (any, error) {
		return func(ctx context.Context) (any, error) {
			out, err := c.elbv2.CreateListener(ctx, &elbv2.CreateListenerInput{
				LoadBalancerArn: &balancer, Port: aws.Int32(80), Protocol: protocol, DefaultActions: actions,
			})
			if err != nil {
				return nil, err
			}
			listener = *out.Listeners[0].ListenerArn
			return out.Listeners[0].DefaultActions[0].Type, nil
		}
	}
	missing := elbv2types.Action{
		Type:                "fixed-response",
		FixedResponseConfig: &elbv2types.FixedResponseActionConfig{StatusCode: aws.String("404")},
	}
	createRule := func(priority int32, conditions ...elbv2types.RuleCondition) func(context.Context) (any, error) {
		return func(ctx context.Context) (any, error) {
			out, err := c.elbv2.CreateRule(ctx, &elbv2.CreateRuleInput{
				ListenerArn: &listener, Priority: &priority, Conditions: conditions,
				Actions: []elbv2types.Action{{Type: "forward", TargetGroupArn: &group}},
			})
			if err != nil {
				return nil, err
			}
			rule = *out.Rules[0].RuleArn
			return *out.Rules[0].Priority, nil
		}
	}
	rules := func(ctx context.Context) (any, error) {
		out, err := c.elbv2.DescribeRules(ctx, &elbv2.DescribeRulesInput{ListenerArn: &listener})
		if err != nil {
			return nil, err
		}
		var list []string
		for _, r := range out.Rules {
			list = append(list, fmt.Sprint(*r.Priority, *r.IsDefault, len(r.Conditions), r.Actions[0].Type))
		}
		return list, nil
	}
	setPriority := func(arn *string, priority int32) func(context.Context) (any, error) {
		return func(ctx context.Context) (any, error) {
			return none(c.elbv2.SetRulePriorities(ctx, &elbv2.SetRulePrioritiesInput{
				RulePriorities: []elbv2types.RulePriorityPair{{RuleArn: arn, Priority: &priority}},
			}))
		}
	}
	deleteGroup := func(ctx context.Context) (any, error) {
		return none(c.elbv2.DeleteTargetGroup(ctx, &elbv2.DeleteTargetGroupInput{TargetGroupArn: &group}))
	}
	run(t, covered, []step{
		{
			action: "elbv2:CreateLoadBalancer", call: create(awssim.LabNodeSubnet(1)),
			code: "InvalidConfigurationRequest",
		},
		{
			action: "elbv2:CreateLoadBalancer", call: create(awssim.LabNodeSubnet(1), awssim.LabNodeSubnet(2)),
			want: "application",
		},
		{action: "elbv2:CreateTargetGroup", call: func(ctx context.Context) (any, error) {
			out, err := c.elbv2.CreateTargetGroup(ctx, &elbv2.CreateTargetGroupInput{
				Name: aws.String("web"), Port: aws.Int32(30080), Protocol: "HTTP", VpcId: aws.String(awssim.LabVPC),
			})
			if err != nil {
				return nil, err
			}
			group = *out.TargetGroups[0].TargetGroupArn
			return fmt.Sprint(out.TargetGroups[0].HealthCheckProtocol, *out.TargetGroups[0].Matcher.HttpCode), nil
		}, want: "HTTP" + "200"},
		{action: "elbv2:CreateListener", call: listen("HTTPS", missing), code: "CertificateNotFound"},
		{action: "elbv2:CreateListener", call: listen("TCP", missing), code: "UnsupportedProtocol"},
		{action: "elbv2:CreateListener", call: listen("HTTP", missing), want: "fixed-response"},
		{action: "elbv2:DescribeListenerAttributes", call: func(ctx context.Context) (any, error) {
			out, err := c.elbv2.DescribeListenerAttributes(
				ctx, &elbv2.DescribeListenerAttributesInput{ListenerArn: &listener},
			)
			if err != nil {
				return nil, err
			}
			return *out.Attributes[0].Key, nil
		}, want: "routing.http.response.server.enabled"},
		{action: "elbv2:ModifyListenerAttributes", call: func(ctx context.Context) (any, error) {
			return none(c.elbv2.ModifyListenerAttributes(ctx, &elbv2.ModifyListenerAttributesInput{
				ListenerArn: &listener,
				Attributes:  []elbv2types.ListenerAttribute{{Key: aws.String("tcp.x"), Value: aws.String("1")}},
			}))
		}, code: "ValidationError"},
		{action: "elbv2:CreateRule", call: createRule(1, hostCondition), want: "1"},
		{action: "elbv2:CreateRule", call: createRule(1, pathCondition), code: "PriorityInUse"},
		{
			action: "elbv2:CreateRule", call: createRule(2, elbv2types.RuleCondition{Field: aws.String("source-ip")}),
			code: "ValidationError",
		},
		{action: "elbv2:DescribeRules", call: rules, want: "[defaulttrue 0fixed-response 1false 1forward]"},
		{action: "elbv2:ModifyRule", call: func(ctx context.Context) (any, error) {
			out, err := c.elbv2.ModifyRule(ctx, &elbv2.ModifyRuleInput{
				RuleArn: &rule, Conditions: append(slices.Clone(otherConditions), hostCondition, pathCondition),
			})
			if err != nil {
				return nil, err
			}
			seen := out.Rules[0].Conditions
			return fmt.Sprint(
				len(seen), *seen[0].HttpHeaderConfig.HttpHeaderName, seen[1].HttpRequestMethodConfig.Values,
				*seen[2].QueryStringConfig.Values[0].Value,
			), nil
		}, want: "5X-Canary[GET]l*"},
		{action: "elbv2:SetRulePriorities", call: setPriority(&rule, 7), want: nil},
		{
			action: "elbv2:SetRulePriorities", code: "RuleNotFound",
			call: setPriority(aws.String("arn:aws:elasticloadbalancing:us-east-1:123456789012:listener-rule/app/x"), 7),
		},
		{action: "elbv2:DescribeRules", call: rules, want: "[defaulttrue 0fixed-response 7false 5forward]"},
		{action: "elbv2:DeleteTargetGroup", call: deleteGroup, code: "ResourceInUse"},
		{action: "elbv2:DeleteRule", call: func(ctx context.Context) (any, error) {
			return none(c.elbv2.DeleteRule(ctx, &elbv2.DeleteRuleInput{RuleArn: &rule}))
		}, want: nil},
		{action: "elbv2:DeleteTargetGroup", call: deleteGroup, want: nil},
		{action: "elbv2:DeleteLoadBalancer", call: func(ctx context.Context) (any, error) {
			return none(c.elbv2.DeleteLoadBalancer(ctx, &elbv2.DeleteLoadBalancerInput{LoadBalancerArn: &balancer}))
		}, want: nil},
		{action: "elbv2:DescribeRules", call: rules, code: "ListenerNotFound"},
	})
}
