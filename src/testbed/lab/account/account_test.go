package account

import (
	"testing"

	"kubernetes-release/testbed/awssim/iam"
)

// TestRolesHaveTheOperatorsPolicies: a cluster in the lab has the permissions that operators are told to attach, and no
// others.
func TestRolesHaveTheOperatorsPolicies(t *testing.T) {
	for _, test := range []struct {
		role, action string
		settings     Settings
		want         iam.Decision
	}{
		{"kubernetes-control", "ec2:DescribeRouteTables", Settings{}, iam.Allowed},
		{"kubernetes-control", "ec2:RunInstances", Settings{}, iam.ImplicitDeny},
		{"kubernetes-control", "ec2:CreateRoute", Settings{}, iam.ImplicitDeny},
		{"kubernetes-control", "ec2:CreateRoute", Settings{PodNetwork: "10.244.0.0/16"}, iam.Allowed},
		{"kubernetes-control", "acm:ListCertificates", Settings{}, iam.ImplicitDeny},
		{"kubernetes-control", "acm:ListCertificates", Settings{LoadBalancerController: true}, iam.Allowed},
		{"kubernetes-worker", "ec2:DescribeInstances", Settings{}, iam.Allowed},
		{"kubernetes-worker", "ec2:DescribeRouteTables", Settings{}, iam.ImplicitDeny},
	} {
		test.settings.Cluster = "prod"
		world, err := test.settings.world(3)
		if err != nil {
			t.Fatal(err)
		}
		var policies []iam.Policy
		for _, role := range world.Roles {
			if role.Name != test.role {
				continue
			}
			for _, policy := range role.Policies {
				policies = append(policies, policy)
			}
		}
		request := iam.Request{Action: test.action, Resource: "arn:aws:ec2:us-east-1:123456789012:route-table/rtb-1",
			Context: map[string][]string{"aws:ResourceTag/kubernetes.io/cluster/prod": {"shared"}}}
		if got := iam.Evaluate(policies, request); got != test.want {
			t.Errorf("%s %s in an account for %+v: %v, want %v", test.role, test.action, test.settings, got, test.want)
		}
	}
	if _, err := (Settings{}).world(3); err == nil {
		t.Error("a cloud without a cluster name was created")
	}
}
