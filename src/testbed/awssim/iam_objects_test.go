package awssim_test

import (
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
	createRole := answers(
		c.iam.CreateRole, &iam.CreateRoleInput{RoleName: name, AssumeRolePolicyDocument: trust},
		func(out *iam.CreateRoleOutput) any { return *out.Role.Arn },
	)
	deleteRole := succeeds(c.iam.DeleteRole, &iam.DeleteRoleInput{RoleName: name})
	createProfile := succeeds(
		c.iam.CreateInstanceProfile, &iam.CreateInstanceProfileInput{InstanceProfileName: name},
	)
	deleteProfile := succeeds(
		c.iam.DeleteInstanceProfile, &iam.DeleteInstanceProfileInput{InstanceProfileName: name},
	)
	add := succeeds(
		c.iam.AddRoleToInstanceProfile, &iam.AddRoleToInstanceProfileInput{InstanceProfileName: name, RoleName: name},
	)
	remove := succeeds(
		c.iam.RemoveRoleFromInstanceProfile,
		&iam.RemoveRoleFromInstanceProfileInput{InstanceProfileName: name, RoleName: name},
	)
	put := succeeds(
		c.iam.PutRolePolicy, &iam.PutRolePolicyInput{RoleName: name, PolicyName: policy, PolicyDocument: document},
	)
	get := answers(
		c.iam.GetRolePolicy, &iam.GetRolePolicyInput{RoleName: name, PolicyName: policy},
		func(out *iam.GetRolePolicyOutput) any {
			return strings.Contains(*out.PolicyDocument, "ec2%3ADescribeInstances")
		},
	)
	deletePolicy := succeeds(c.iam.DeleteRolePolicy, &iam.DeleteRolePolicyInput{RoleName: name, PolicyName: policy})
	putUser := succeeds(
		c.iam.PutUserPolicy, &iam.PutUserPolicyInput{UserName: user, PolicyName: policy, PolicyDocument: document},
	)
	getUser := answers(
		c.iam.GetUserPolicy, &iam.GetUserPolicyInput{UserName: user, PolicyName: policy},
		func(out *iam.GetUserPolicyOutput) any {
			return strings.Contains(*out.PolicyDocument, "ec2%3ADescribeInstances")
		},
	)
	deleteUser := succeeds(c.iam.DeleteUserPolicy, &iam.DeleteUserPolicyInput{UserName: user, PolicyName: policy})
	run(t, covered, []step{
		{action: "iam:CreateRole", call: createRole, want: "arn:aws:iam::123456789012:role/kubernetes-new"},
		{action: "iam:CreateRole", call: createRole, code: "EntityAlreadyExists"},
		{action: "iam:CreateInstanceProfile", call: createProfile, want: "<nil>"},
		{action: "iam:CreateInstanceProfile", call: createProfile, code: "EntityAlreadyExists"},
		{action: "iam:AddRoleToInstanceProfile", call: add, want: "<nil>"},
		{action: "iam:GetInstanceProfile", call: answers(
			c.iam.GetInstanceProfile, &iam.GetInstanceProfileInput{InstanceProfileName: name},
			func(out *iam.GetInstanceProfileOutput) any {
				return *out.InstanceProfile.Roles[0].RoleName
			},
		), want: "kubernetes-new"},
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
		{action: "iam:GetUser", call: answers(
			c.iam.GetUser, &iam.GetUserInput{UserName: user},
			func(out *iam.GetUserOutput) any { return *out.User.Arn },
		), want: "arn:aws:iam::123456789012:user/" + *user},
		{action: "iam:PutUserPolicy", call: putUser, want: "<nil>"},
		{action: "iam:GetUserPolicy", call: getUser, want: true},
		{action: "iam:DeleteUserPolicy", call: deleteUser, want: "<nil>"},
		{action: "iam:DeleteUserPolicy", call: deleteUser, code: "NoSuchEntity"},
	})
}
