package iampolicy

import (
	"slices"
	"strings"
	"testing"

	"kubernetes-release/preflight"
)

func TestPolicies(t *testing.T) {
	for _, role := range allMachines {
		for _, partition := range []string{"aws", "aws-cn", "aws-us-gov", "aws-eusc"} {
			p, err := New(
				Options{
					Role:                   role,
					Cluster:                "prod",
					Partition:              partition,
					CloudRoutes:            true,
					Storage:                true,
					LoadBalancerController: true,
					Keys:                   []string{"arn:" + partition + ":kms:x:123456789012:key/y"},
					Published:              []string{"issuer/prod/openid/v1/jwks"},
				},
			)
			if err != nil {
				t.Fatal(err)
			}
			var actions, sids []string
			for _, s := range p.Statement {
				actions = append(actions, s.Action...)
				if slices.Contains(sids, s.Sid) {
					t.Errorf("%s: statement %s twice", role, s.Sid)
				}
				sids = append(sids, s.Sid)
				for _, r := range s.Resource {
					if r != "*" && !strings.HasPrefix(r, "arn:"+partition+":") {
						t.Errorf("resource %s in %s", r, partition)
					}
				}
				for _, a := range s.Action {
					name := a[strings.Index(a, ":")+1:]
					reads := strings.HasPrefix(name, "Describe") || strings.HasPrefix(name, "GetEbs") ||
						strings.HasPrefix(name, "List") || name == "GetSecurityGroupsForVpc" ||
						strings.HasPrefix(a, "ecr") ||
						s.Sid == "Ec2CreateInVpc" || s.Sid == "S3PublishIssuer" || s.Sid == "IamFindProviders" ||
						s.Sid == "IamAskAboutItself"
					if !reads && len(s.Condition) == 0 {
						t.Errorf("%s: %s has no condition", role, a)
					}
				}
			}
			slices.Sort(actions)
			want := slices.DeleteFunc(
				Needs{
					Role: role, Routes: true, Storage: true, Keys: []string{"key"}, LoadBalancerController: true,
					Published: []string{"object"},
				}.Actions(),
				func(a string) bool {
					return partition != "aws" &&
						(strings.HasPrefix(a, "ecr-public:") || a == "sts:GetServiceBearerToken")
				},
			)
			if got := slices.Compact(actions); !slices.Equal(got, want) {
				t.Errorf("%s: the policy has %v, the table %v", role, got, want)
			}
		}
	}
	if slices.Contains(Actions(preflight.Control, false), "ec2:CreateRoute") ||
		slices.Contains(Actions(preflight.Worker, true), "elasticloadbalancing:CreateLoadBalancer") {
		t.Errorf("a role has more permissions than it requires")
	}
	for _, o := range []Options{
		{Role: "x", Cluster: "prod"},
		{Role: preflight.Worker},
		{Role: preflight.Worker, Cluster: "prod", Partition: "moon"},
		{Role: preflight.Worker, Cluster: "prod", RoleName: "a*"},
		{Role: preflight.Control, Cluster: "prod", Published: []string{"issuer"}},
		{Role: preflight.Control, Cluster: "prod", Published: []string{"issuer/*"}},
		{Role: preflight.Control, Cluster: "prod", Published: []string{"arn:aws:s3:::issuer/prod"}},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("accepted %+v", o)
		}
	}
	named, err := New(Options{Role: preflight.Worker, Cluster: "prod", RoleName: "mine"})
	if last := named.Statement[len(named.Statement)-1]; err != nil || last.Resource[0] != "arn:aws:iam::*:role/mine" {
		t.Errorf("%+v, %v", named, err)
	}
	wide, err := New(Options{Role: preflight.Control, WideOpen: true})
	if err != nil || wide.Statement[0].Sid != "WideOpenNotForProduction" {
		t.Errorf("%+v, %v", wide, err)
	}
}

// TestPolicyFitsIntoARole: with everything that this release can be told to do, and a long name of the cluster, the
// policy of control VMs is one inline policy of a role.
func TestPolicyFitsIntoARole(t *testing.T) {
	const key = "arn:aws-us-gov:kms:us-gov-west-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
	policy, err := New(Options{
		Role: preflight.Control, Cluster: "production-1", Partition: "aws-us-gov", VPC: "vpc-0123456789abcdef0",
		CloudRoutes: true, Storage: true, Keys: []string{key}, Secrets: []string{key}, LoadBalancerController: true,
		Published: []string{"issuer/prod/.well-known/openid-configuration", "issuer/prod/openid/v1/jwks"},
	})
	if err != nil {
		t.Fatal(err)
	}
	size := len(policy.Compact())
	t.Logf("%d characters", size)
	if size > InlineLimit {
		t.Errorf("the policy has %d characters, of %d", size, InlineLimit)
	}
}
