package awssim_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	cloudaws "kubernetes-release/cloud/aws"
	"kubernetes-release/preflight"
	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/awssim/store"
)

// withPolicy starts testWorld with the generated policy of the control VMs, after the change of its text.
func withPolicy(t *testing.T, change func(policy string) string, prepare func(*store.World)) *bed {
	t.Helper()
	policy, err := cloudaws.NewPolicy(
		cloudaws.PolicyOptions{Role: preflight.Control, Cluster: cluster, VPC: awssim.LabVPC, CloudRoutes: true},
	)
	if err != nil {
		t.Fatal(err)
	}
	content, err := policy.JSON()
	if err != nil {
		t.Fatal(err)
	}
	world := testWorld(t)
	if err := world.SetPolicy("kubernetes-control", []byte(change(string(content)))); err != nil {
		t.Fatal(err)
	}
	prepare(world)
	return start(t, world, awssim.Options{})
}

func unchanged(policy string) string { return policy }

// TestGeneratedPolicyStopsAttacks makes, with the credentials of a control VM, calls that change what is not the
// cluster's.
func TestGeneratedPolicyStopsAttacks(t *testing.T) {
	const balancer, foreignVPC = "sg-0a0b0c0d0e0f00009", "vpc-0a0b0c0d0e0f00009"
	b := withPolicy(t, unchanged, func(w *store.World) {
		w.SecurityGroups[0].Tags[clusterTag] = "shared"
		w.SecurityGroups = append(
			w.SecurityGroups,
			store.SecurityGroup{
				ID:   balancer,
				Name: "k8s-elb-a",
				VPC:  awssim.LabVPC,
				Tags: store.Tags{clusterTag: "owned"},
			},
		)
		other := w.VPCs[0]
		other.ID = foreignVPC
		w.VPCs = append(w.VPCs, other)
	})
	client := ec2.NewFromConfig(b.instanceRole(controlID))
	ctx := t.Context()
	tagged := []ec2types.TagSpecification{
		{
			ResourceType: ec2types.ResourceTypeSecurityGroup,
			Tags:         []ec2types.Tag{{Key: aws.String(clusterTag), Value: aws.String("owned")}},
		},
	}
	modify := func(in ec2.ModifyInstanceAttributeInput) func() error {
		return func() error {
			in.InstanceId = aws.String(workerID)
			_, err := client.ModifyInstanceAttribute(ctx, &in)
			return err
		}
	}
	create := func(vpc string, tags []ec2types.TagSpecification) func() error {
		return func() error {
			_, err := client.CreateSecurityGroup(
				ctx,
				&ec2.CreateSecurityGroupInput{
					GroupName:         aws.String("x"),
					Description:       aws.String("x"),
					VpcId:             aws.String(vpc),
					TagSpecifications: tags,
				},
			)
			return err
		}
	}
	remove := func(id string) func() error {
		return func() error {
			_, err := client.DeleteSecurityGroup(ctx, &ec2.DeleteSecurityGroupInput{GroupId: aws.String(id)})
			return err
		}
	}
	for _, step := range []struct {
		name   string
		denied bool
		call   func() error
	}{
		{
			"source/destination check off", false,
			modify(
				ec2.ModifyInstanceAttributeInput{
					SourceDestCheck: &ec2types.AttributeBooleanValue{Value: aws.Bool(false)},
				},
			),
		},
		{
			"source/destination check on", true,
			modify(
				ec2.ModifyInstanceAttributeInput{
					SourceDestCheck: &ec2types.AttributeBooleanValue{Value: aws.Bool(true)},
				},
			),
		},
		{
			"another security group for a worker", true,
			modify(ec2.ModifyInstanceAttributeInput{Groups: []string{balancer}}),
		},
		{
			"another attribute", true,
			modify(
				ec2.ModifyInstanceAttributeInput{
					Attribute: ec2types.InstanceAttributeNameUserData, Value: aws.String("eA=="),
				},
			),
		},
		{"security group in the cluster's VPC", false, create(awssim.LabVPC, tagged)},
		{"security group in another VPC", true, create(foreignVPC, tagged)},
		{"security group without the tag", true, create(awssim.LabVPC, nil)},
		{"delete the nodes' security group", true, remove(awssim.LabSecurityGroup)},
		{"delete a load balancer's security group", false, remove(balancer)},
	} {
		if got := code(step.call()); (got == "UnauthorizedOperation") != step.denied || !step.denied && got != "" {
			t.Errorf("%s: %q", step.name, got)
		}
	}
}

// TestFirstLoadBalancer: the first load balancer of an account requires permissions that later ones do not.
func TestFirstLoadBalancer(t *testing.T) {
	create := func(b *bed) error {
		_, err := elb.NewFromConfig(b.instanceRole(controlID)).
			CreateLoadBalancer(context.Background(), &elb.CreateLoadBalancerInput{
				LoadBalancerName: aws.String("first"),
				Subnets:          []string{awssim.LabPublicSubnet(1)},
				SecurityGroups:   []string{awssim.LabSecurityGroup},
				Listeners: []elbtypes.Listener{
					{Protocol: aws.String("TCP"), LoadBalancerPort: 80, InstancePort: aws.Int32(30080)},
				},
				Tags: []elbtypes.Tag{{Key: aws.String(clusterTag), Value: aws.String("owned")}},
			})
		return err
	}
	first := func(w *store.World) { w.Settings.NoServiceLinkedRole = true }
	for _, action := range []string{
		"ec2:DescribeAccountAttributes", "ec2:DescribeInternetGateways", "iam:CreateServiceLinkedRole",
	} {
		without := func(policy string) string { return strings.ReplaceAll(policy, `"`+action+`"`, `"ec2:None"`) }
		if err := create(withPolicy(t, without, first)); code(err) != "AccessDenied" ||
			!strings.Contains(err.Error(), action) {
			t.Errorf("without %s: %v", action, err)
		}
		if err := create(withPolicy(t, without, func(*store.World) {})); err != nil {
			t.Errorf("without %s, a later load balancer: %v", action, err)
		}
	}
	b := withPolicy(t, unchanged, first)
	if err := create(b); err != nil || b.sim.World().Settings.NoServiceLinkedRole {
		t.Errorf("with the generated policy: %v", err)
	}
}

// TestAssumeRole: both the trust policy and the caller's policies decide.
func TestAssumeRole(t *testing.T) {
	const arn = "arn:aws:iam::" + awssim.LabAccount + ":role/"
	for name, test := range map[string]struct {
		trusted []string
		allowed bool
		want    string
	}{
		"nobody trusted":              {nil, true, "AccessDenied"},
		"account trusted, denied":     {[]string{"arn:aws:iam::" + awssim.LabAccount + ":root"}, false, "AccessDenied"},
		"account trusted, allowed":    {[]string{"arn:aws:iam::" + awssim.LabAccount + ":root"}, true, ""},
		"the role itself is trusted":  {[]string{arn + "kubernetes-control"}, false, ""},
		"another account is trusted":  {[]string{"arn:aws:iam::999999999999:root"}, true, "AccessDenied"},
		"another role is trusted":     {[]string{arn + "kubernetes-worker"}, true, "AccessDenied"},
		"another role of the account": {[]string{arn + "x"}, false, "AccessDenied"},
	} {
		t.Run(name, func(t *testing.T) {
			world := testWorld(t)
			world.Roles = append(world.Roles, store.Role{Name: "ccm", TrustedBy: test.trusted})
			action := "ec2:None"
			if test.allowed {
				action = "sts:AssumeRole"
			}
			allow := func(action string) []byte {
				document, _ := json.Marshal(
					map[string]any{
						"Version":   "2012-10-17",
						"Statement": []any{map[string]any{"Effect": "Allow", "Action": action, "Resource": "*"}},
					},
				)
				return document
			}
			if err := world.SetPolicy("kubernetes-control", allow(action)); err != nil {
				t.Fatal(err)
			}
			if err := world.SetPolicy("ccm", allow("ec2:DescribeVpcs")); err != nil {
				t.Fatal(err)
			}
			b := start(t, world, awssim.Options{})
			assumed := b.withKeys(
				stscreds.NewAssumeRoleProvider(sts.NewFromConfig(b.instanceRole(controlID)), arn+"ccm"),
			)
			_, err := ec2.NewFromConfig(assumed).DescribeVpcs(t.Context(), &ec2.DescribeVpcsInput{})
			if got := code(err); got != test.want {
				t.Errorf("%q, want %q: %v", got, test.want, err)
			}
			if _, err := ec2.NewFromConfig(assumed).
				DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{}); err == nil {
				t.Error("the assumed role has a permission of another role")
			}
		})
	}
}
