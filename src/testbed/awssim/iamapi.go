package awssim

import (
	"cmp"
	"net/url"

	"kubernetes-release/testbed/awssim/iam"
	"kubernetes-release/testbed/awssim/wire"
)

// iamOperations is the table of IAM's actions.
var iamOperations = map[string]operation{
	// It changes nothing, but unlike Describe actions it has resource-level permissions, on the role.
	"SimulatePrincipalPolicy": {run: func(c *call, form url.Values) (any, error) {
		var in simulatePrincipalPolicyInput
		if err := wire.Decode(form, wire.Query, &in); err != nil {
			return nil, err
		}
		return c.simulatePrincipalPolicy(in)
	}},
	"AddRoleToInstanceProfile":      changing((*call).addRoleToInstanceProfile),
	"AttachRolePolicy":              changing((*call).attachRolePolicy),
	"CreateInstanceProfile":         changing((*call).createInstanceProfile),
	"CreatePolicy":                  changing((*call).createPolicy),
	"CreateRole":                    changing((*call).createRole),
	"DeleteInstanceProfile":         changing((*call).deleteInstanceProfile),
	"DeleteRole":                    changing((*call).deleteRole),
	"DeleteRolePolicy":              changing((*call).deleteRolePolicy),
	"DeleteUserPolicy":              changing((*call).deleteUserPolicy),
	"GetInstanceProfile":            changing((*call).getInstanceProfile),
	"GetRolePolicy":                 changing((*call).getRolePolicy),
	"GetUserPolicy":                 changing((*call).getUserPolicy),
	"ListAttachedRolePolicies":      listing((*call).listAttachedRolePolicies),
	"ListRolePolicies":              listing((*call).listRolePolicies),
	"PutRolePolicy":                 changing((*call).putRolePolicy),
	"PutUserPolicy":                 changing((*call).putUserPolicy),
	"RemoveRoleFromInstanceProfile": changing((*call).removeRoleFromInstanceProfile),
	"UpdateAssumeRolePolicy":        changing((*call).updateAssumeRolePolicy),
	"GetRole": {run: func(c *call, form url.Values) (any, error) {
		var in struct{ RoleName string }
		if err := wire.Decode(form, wire.Query, &in); err != nil {
			return nil, err
		}
		return c.getRole(in.RoleName)
	}},
}

type getRoleOutput struct{ Role roleDescription }

type roleDescription struct {
	Path, RoleName, RoleId, Arn string
	AssumeRolePolicyDocument    string // URL-encoded
}

// getRole describes a role. As on AWS, a principal without permission does not learn whether the role exists.
func (c *call) getRole(name string) (*getRoleOutput, error) {
	role := find(c.Roles, name)
	arn := c.arn("iam", "", "role/"+name)
	if role != nil {
		arn = c.roleARN(*role)
	}
	if err := c.allow(target{arn: arn}); err != nil {
		return nil, err
	}
	if role == nil {
		return nil, errorf("NoSuchEntity", "The role with name %s cannot be found.", name)
	}
	return c.describeRole(role), nil
}

func (c *call) describeRole(role *Role) *getRoleOutput {
	return &getRoleOutput{roleDescription{
		cmp.Or(role.Path, "/"), role.Name, c.uniqueID("AROA", role.Name), c.roleARN(*role), url.QueryEscape(c.trustPolicy(role)),
	}}
}

// roleARN is the ARN of a role with its path.
func (w *World) roleARN(r Role) string {
	return w.arn("iam", "", "role"+cmp.Or(r.Path, "/")+r.Name)
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

var decisionNames = map[iam.Decision]string{iam.Allowed: "allowed", iam.ImplicitDeny: "implicitDeny", iam.ExplicitDeny: "explicitDeny"}

// simulatePrincipalPolicy evaluates each action on each resource with a role's policies. As on AWS, the context is only what the
// request specifies.
func (c *call) simulatePrincipalPolicy(in simulatePrincipalPolicyInput) (*simulatePrincipalPolicyOutput, error) {
	if err := c.allow(target{arn: in.PolicySourceArn}); err != nil {
		return nil, err
	}
	if len(in.ActionNames) == 0 {
		return nil, errorf("ValidationError", "1 validation error detected: Value null at 'actionNames' failed to satisfy constraint: Member must not be null")
	}
	var policies []iam.Policy
	known := false
	for _, role := range c.Roles {
		if c.roleARN(role) == in.PolicySourceArn {
			known = true
			policies = append(policies, c.policiesOf(&role)...)
		}
	}
	for _, key := range c.StaticKeys {
		if c.arn("iam", "", "user/"+key.User) == in.PolicySourceArn {
			known = true
			policies = append(policies, key.policies()...)
		}
	}
	if !known {
		return nil, errorf("NoSuchEntity", "%s does not exist", in.PolicySourceArn)
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
			out.EvaluationResults = append(out.EvaluationResults, evaluationResult{action, decisionNames[decision], resource})
		}
	}
	return out, nil
}
