// Package iamapi has the actions of IAM on roles, policies and instance profiles. Package iam evaluates the policies.
package iamapi

import (
	"cmp"
	"net/url"

	"kubernetes-release/testbed/awssim/api"
	"kubernetes-release/testbed/awssim/iam"
	"kubernetes-release/testbed/awssim/store"
	"kubernetes-release/testbed/awssim/wire"
)

// Operations is the table of IAM's actions.
var Operations = map[string]api.Operation{
	// It changes nothing, but unlike Describe actions it has resource-level permissions, on the role.
	"SimulatePrincipalPolicy": {Run: func(c *api.Call, form url.Values) (any, error) {
		var in simulatePrincipalPolicyInput
		if err := wire.Decode(form, wire.Query, &in); err != nil {
			return nil, err
		}
		return simulatePrincipalPolicy(c, in)
	}},
	"AddRoleToInstanceProfile":           api.Changing(addRoleToInstanceProfile),
	"AttachRolePolicy":                   api.Changing(attachRolePolicy),
	"CreateInstanceProfile":              api.Changing(createInstanceProfile),
	"AddClientIDToOpenIDConnectProvider": api.Changing(addClientID),
	"CreateOpenIDConnectProvider":        api.Changing(createProvider),
	"DeleteOpenIDConnectProvider":        api.Changing(deleteProvider),
	"GetOpenIDConnectProvider":           api.Changing(getProvider),
	"CreatePolicy":                       api.Changing(createPolicy),
	"CreatePolicyVersion":                api.Changing(createPolicyVersion),
	"CreateRole":                         api.Changing(createRole),
	"DeleteInstanceProfile":              api.Changing(deleteInstanceProfile),
	"DeleteRole":                         api.Changing(deleteRole),
	"DeleteRolePolicy":                   api.Changing(deleteRolePolicy),
	"DeleteUserPolicy":                   api.Changing(deleteUserPolicy),
	"GetInstanceProfile":                 api.Changing(getInstanceProfile),
	"GetRolePolicy":                      api.Changing(getRolePolicy),
	"GetUserPolicy":                      api.Changing(getUserPolicy),
	"ListAttachedRolePolicies":           listing(listAttachedRolePolicies),
	"ListRolePolicies":                   listing(listRolePolicies),
	"PutRolePolicy":                      api.Changing(putRolePolicy),
	"PutUserPolicy":                      api.Changing(putUserPolicy),
	"RemoveRoleFromInstanceProfile":      api.Changing(removeRoleFromInstanceProfile),
	"UpdateAssumeRolePolicy":             api.Changing(updateAssumeRolePolicy),
	"GetRole": {Run: func(c *api.Call, form url.Values) (any, error) {
		var in struct{ RoleName string }
		if err := wire.Decode(form, wire.Query, &in); err != nil {
			return nil, err
		}
		return getRole(c, in.RoleName)
	}},
}

type getRoleOutput struct{ Role roleDescription }

type roleDescription struct {
	Path, RoleName, RoleId, Arn string
	AssumeRolePolicyDocument    string // URL-encoded
}

// getRole describes a role. As on AWS, a principal without permission does not learn whether the role exists.
func getRole(c *api.Call, name string) (*getRoleOutput, error) {
	role := store.Find(c.Roles, name)
	arn := c.ARN("iam", "", "role/"+name)
	if role != nil {
		arn = c.RoleARN(*role)
	}
	if err := c.Allow(api.Target{ARN: arn}); err != nil {
		return nil, err
	}
	if role == nil {
		return nil, api.Errorf("NoSuchEntity", "The role with name %s cannot be found.", name)
	}
	return describeRole(c, role), nil
}

func describeRole(c *api.Call, role *store.Role) *getRoleOutput {
	return &getRoleOutput{
		roleDescription{
			cmp.Or(role.Path, "/"),
			role.Name,
			c.UniqueID("AROA", role.Name),
			c.RoleARN(*role),
			url.QueryEscape(trustPolicy(c.World, role)),
		},
	}
}

type simulatePrincipalPolicyInput struct {
	ActionNames     []string
	PolicySourceArn string
	ResourceArns    []string
	ContextEntries  []contextEntry
	MaxItems        int
}

type contextEntry struct {
	ContextKeyName   string
	ContextKeyType   string
	ContextKeyValues []string
}

type simulatePrincipalPolicyOutput struct {
	IsTruncated       bool
	EvaluationResults []evaluationResult `xml:"EvaluationResults>member"`
}

type evaluationResult struct {
	EvalActionName   string
	EvalDecision     string
	EvalResourceName string
}

var decisionNames = map[iam.Decision]string{
	iam.Allowed:      "allowed",
	iam.ImplicitDeny: "implicitDeny",
	iam.ExplicitDeny: "explicitDeny",
}

// simulatePrincipalPolicy evaluates each action on each resource with a role's policies. As on AWS, the context is only
// what the request specifies.
func simulatePrincipalPolicy(c *api.Call, in simulatePrincipalPolicyInput) (*simulatePrincipalPolicyOutput, error) {
	if err := c.Allow(api.Target{ARN: in.PolicySourceArn}); err != nil {
		return nil, err
	}
	if len(in.ActionNames) == 0 {
		return nil, api.Errorf(
			"ValidationError",
			"1 validation error detected: Value null at 'actionNames' failed to satisfy constraint: Member must not "+
				"be null",
		)
	}
	var policies []iam.Policy
	known := false
	for _, role := range c.Roles {
		if c.RoleARN(role) == in.PolicySourceArn {
			known = true
			policies = append(policies, c.PoliciesOf(&role)...)
		}
	}
	for _, key := range c.StaticKeys {
		if c.ARN("iam", "", "user/"+key.User) == in.PolicySourceArn {
			known = true
			policies = append(policies, Policies(key)...)
		}
	}
	if !known {
		return nil, api.Errorf("NoSuchEntity", "%s does not exist", in.PolicySourceArn)
	}
	context := map[string][]string{}
	for _, e := range in.ContextEntries {
		context[e.ContextKeyName] = e.ContextKeyValues
	}
	resources := in.ResourceArns
	if len(resources) == 0 {
		resources = []string{"*"}
	}
	out := &simulatePrincipalPolicyOutput{}
	for _, action := range in.ActionNames {
		for _, resource := range resources {
			decision := iam.Evaluate(policies, iam.Request{Action: action, Resource: resource, Context: context})
			out.EvaluationResults = append(
				out.EvaluationResults, evaluationResult{action, decisionNames[decision], resource},
			)
		}
	}
	return out, nil
}
