package awssim

import (
	"net/url"

	"kubernetes-release/awssim/iam"
	"kubernetes-release/awssim/wire"
)

// iamOperations is the table of IAM's actions.
var iamOperations = map[string]operation{
	// It only looks, but unlike Describe actions it knows the role that it looks at as a resource.
	"SimulatePrincipalPolicy": {run: func(c *call, form url.Values) (any, error) {
		var in simulatePrincipalPolicyInput
		if err := wire.Decode(form, wire.Query, &in); err != nil {
			return nil, err
		}
		return c.simulatePrincipalPolicy(in)
	}},
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

// simulatePrincipalPolicy evaluates each action on each resource under a role's policies. As with AWS, the context is
// what the request says and nothing else.
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
		if c.arn("iam", "", "role/"+role.Name) == in.PolicySourceArn {
			known = true
			for _, p := range role.Policies {
				policies = append(policies, p)
			}
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
