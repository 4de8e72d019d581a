// Package iamapi has the actions of IAM on roles, policies and instance profiles. Package iam evaluates the policies.
package iamapi

import (
	"cmp"
	"net/url"
	"slices"
	"strings"

	"kubernetes-release/testbed/awssim/api"
	"kubernetes-release/testbed/awssim/iam"
	"kubernetes-release/testbed/awssim/store"
)

type getRoleOutput struct{ Role roleDescription }

type roleDescription struct {
	Path, RoleName, RoleId, Arn string
	AssumeRolePolicyDocument    string       // URL-encoded
	Tags                        []store.Pair `xml:"Tags>member"`
}

func getRole(c *api.Call, name string) (*getRoleOutput, error) {
	role, err := role(c, name)
	if err != nil {
		return nil, err
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
			pairs(role.Tags),
		},
	}
}

func pairs(tags store.Tags) []store.Pair {
	var list []store.Pair
	for _, tag := range tags.List() {
		list = append(list, store.Pair(tag))
	}
	return list
}

type listRolesInput struct{ MaxItems int }

type listRolesOutput struct {
	IsTruncated bool
	Roles       []roleDescription `xml:"Roles>member"`
}

// listRoles describes all roles: it has no pages.
func listRoles(c *api.Call, _ listRolesInput) (*listRolesOutput, error) {
	if err := c.Allow(api.Target{ARN: "*"}); err != nil {
		return nil, err
	}
	out := &listRolesOutput{}
	for i := range c.Roles {
		out.Roles = append(out.Roles, describeRole(c, &c.Roles[i]).Role)
	}
	return out, nil
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
	EvalActionName       string
	EvalDecision         string
	EvalResourceName     string
	MissingContextValues []string `xml:"MissingContextValues>member"`
}

var decisionNames = map[iam.Decision]string{
	iam.Allowed:      "allowed",
	iam.ImplicitDeny: "implicitDeny",
	iam.ExplicitDeny: "explicitDeny",
}

// simulatePrincipalPolicy evaluates each action on each resource with a role's policies. As on AWS, the context is only
// what the request specifies, and each result lists the keys that the request lacks of all statements.
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
	missing := slices.DeleteFunc(iam.ConditionKeys(policies), func(key string) bool {
		return slices.ContainsFunc(
			in.ContextEntries, func(e contextEntry) bool { return strings.EqualFold(e.ContextKeyName, key) },
		)
	})
	out := &simulatePrincipalPolicyOutput{}
	for _, action := range in.ActionNames {
		for _, resource := range resources {
			decision := iam.Evaluate(policies, iam.Request{Action: action, Resource: resource, Context: context})
			out.EvaluationResults = append(
				out.EvaluationResults, evaluationResult{action, decisionNames[decision], resource, missing},
			)
		}
	}
	return out, nil
}

// Policies are all policies of the key's user.
func Policies(k store.StaticKey) []iam.Policy {
	policies := slices.Clone(k.Policies)
	for _, name := range store.SortedKeys(k.Inline) {
		policies = append(policies, k.Inline[name])
	}
	return policies
}
