package awssim_test

import (
	"context"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
)

// checkRoles creates and deletes a role with its instance profile, and a policy of a user.
func checkRoles(t *testing.T, covered map[string]bool, c clients) {
	name, policy, user := aws.String("kubernetes-new"), aws.String("kubernetes"), aws.String("operator")
	trust := aws.String(
		`{"Statement":[{"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},"Action":"sts:AssumeRole"}]}`,
	)
	document := aws.String(
		`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Resource":"*","Action":"ec2:DescribeInstances"}]}`,
	)
	createRole := func(ctx context.Context) (any, error) {
		out, err := c.iam.CreateRole(ctx, &iam.CreateRoleInput{RoleName: name, AssumeRolePolicyDocument: trust})
		if err != nil {
			return nil, err
		}
		return *out.Role.Arn, nil
	}
	deleteRole := func(ctx context.Context) (any, error) {
		return none(c.iam.DeleteRole(ctx, &iam.DeleteRoleInput{RoleName: name}))
	}
	createProfile := func(ctx context.Context) (any, error) {
		return none(c.iam.CreateInstanceProfile(ctx, &iam.CreateInstanceProfileInput{InstanceProfileName: name}))
	}
	deleteProfile := func(ctx context.Context) (any, error) {
		return none(c.iam.DeleteInstanceProfile(ctx, &iam.DeleteInstanceProfileInput{InstanceProfileName: name}))
	}
	add := func(ctx context.Context) (any, error) {
		return none(
			c.iam.AddRoleToInstanceProfile(
				ctx, &iam.AddRoleToInstanceProfileInput{InstanceProfileName: name, RoleName: name},
			),
		)
	}
	remove := func(ctx context.Context) (any, error) {
		return none(
			c.iam.RemoveRoleFromInstanceProfile(
				ctx, &iam.RemoveRoleFromInstanceProfileInput{InstanceProfileName: name, RoleName: name},
			),
		)
	}
	put := func(ctx context.Context) (any, error) {
		return none(
			c.iam.PutRolePolicy(
				ctx, &iam.PutRolePolicyInput{RoleName: name, PolicyName: policy, PolicyDocument: document},
			),
		)
	}
	get := func(ctx context.Context) (any, error) {
		out, err := c.iam.GetRolePolicy(ctx, &iam.GetRolePolicyInput{RoleName: name, PolicyName: policy})
		if err != nil {
			return nil, err
		}
		return strings.Contains(*out.PolicyDocument, "ec2%3ADescribeInstances"), nil
	}
	deletePolicy := func(ctx context.Context) (any, error) {
		return none(c.iam.DeleteRolePolicy(ctx, &iam.DeleteRolePolicyInput{RoleName: name, PolicyName: policy}))
	}
	putUser := func(ctx context.Context) (any, error) {
		return none(
			c.iam.PutUserPolicy(
				ctx, &iam.PutUserPolicyInput{UserName: user, PolicyName: policy, PolicyDocument: document},
			),
		)
	}
	getUser := func(ctx context.Context) (any, error) {
		out, err := c.iam.GetUserPolicy(ctx, &iam.GetUserPolicyInput{UserName: user, PolicyName: policy})
		if err != nil {
			return nil, err
		}
		return strings.Contains(*out.PolicyDocument, "ec2%3ADescribeInstances"), nil
	}
	deleteUser := func(ctx context.Context) (any, error) {
		return none(c.iam.DeleteUserPolicy(ctx, &iam.DeleteUserPolicyInput{UserName: user, PolicyName: policy}))
	}
	run(t, covered, []step{
		{action: "iam:CreateRole", call: createRole, want: "arn:aws:iam::123456789012:role/kubernetes-new"},
		{action: "iam:CreateRole", call: createRole, code: "EntityAlreadyExists"},
		{action: "iam:CreateInstanceProfile", call: createProfile, want: "<nil>"},
		{action: "iam:CreateInstanceProfile", call: createProfile, code: "EntityAlreadyExists"},
		{action: "iam:AddRoleToInstanceProfile", call: add, want: "<nil>"},
		{action: "iam:GetInstanceProfile", call: func(ctx context.Context) (any, error) {
			out, err := c.iam.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: name})
			if err != nil {
				return nil, err
			}
			return *out.InstanceProfile.Roles[0].RoleName, nil
		}, want: "kubernetes-new"},
		{action: "iam:GetRolePolicy", call: get, code: "NoSuchEntity"},
		{action: "iam:PutRolePolicy", call: put, want: "<nil>"},
		{action: "iam:GetRolePolicy", call: get, want: true},
		{action: "iam:DeleteRole", call: deleteRole, code: "DeleteConflict"},
		{action: "iam:DeleteRolePolicy", call: deletePolicy, want: "<nil>"},
		{action: "iam:DeleteRolePolicy", call: deletePolicy, code: "NoSuchEntity"},
		{action: "iam:DeleteRole", call: deleteRole, code: "DeleteConflict"}, // it is in the instance profile
		{action: "iam:DeleteInstanceProfile", call: deleteProfile, code: "DeleteConflict"},
		{action: "iam:RemoveRoleFromInstanceProfile", call: remove, want: "<nil>"},
		{action: "iam:RemoveRoleFromInstanceProfile", call: remove, code: "NoSuchEntity"},
		{action: "iam:DeleteInstanceProfile", call: deleteProfile, want: "<nil>"},
		{action: "iam:DeleteInstanceProfile", call: deleteProfile, code: "NoSuchEntity"},
		{action: "iam:DeleteRole", call: deleteRole, want: "<nil>"},
		{action: "iam:DeleteRole", call: deleteRole, code: "NoSuchEntity"},
		{action: "iam:PutUserPolicy", call: putUser, want: "<nil>"},
		{action: "iam:GetUserPolicy", call: getUser, want: true},
		{action: "iam:DeleteUserPolicy", call: deleteUser, want: "<nil>"},
		{action: "iam:DeleteUserPolicy", call: deleteUser, code: "NoSuchEntity"},
	})
}
