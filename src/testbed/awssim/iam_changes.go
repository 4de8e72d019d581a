package awssim

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"kubernetes-release/testbed/awssim/iam"
	"kubernetes-release/testbed/awssim/wire"
)

// IAM's limits on characters of policies without whitespace.
const (
	maxInlinePolicies = 10240 // all inline policies of a role
	maxManagedPolicy  = 6144
)

// listing is an action that changes nothing and has resource-level permissions, on a role.
func listing[Out any](fn func(*call, *Role) (Out, error)) operation {
	return operation{run: func(c *call, form url.Values) (any, error) {
		var in struct {
			RoleName string
			MaxItems int
		}
		if err := wire.Decode(form, wire.Query, &in); err != nil {
			return nil, err
		}
		role, err := c.role(in.RoleName)
		if err != nil {
			return nil, err
		}
		return fn(c, role)
	}}
}

// role finds a role and checks the permission.
func (c *call) role(name string) (*Role, error) {
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
	return role, nil
}

// policiesOf are all policies of a role.
func (w *World) policiesOf(role *Role) []iam.Policy {
	var policies []iam.Policy
	for _, name := range sortedKeys(role.Policies) {
		policies = append(policies, role.Policies[name])
	}
	for _, arn := range role.Attached {
		if p := find(w.ManagedPolicies, arn); p != nil {
			policies = append(policies, p.Document)
		}
	}
	return policies
}

// parsePolicy reads a document of a request.
func parsePolicy(document string) (iam.Policy, error) {
	var p iam.Policy
	if err := json.Unmarshal([]byte(document), &p); err != nil {
		return p, errorf("MalformedPolicyDocument", "Syntax errors in policy.")
	}
	if err := p.Validate(); err != nil {
		return p, errorf("MalformedPolicyDocument", "%v", err)
	}
	return p, nil
}

// characters counts what IAM counts: everything but whitespace.
func characters(document string) int {
	return utf8.RuneCountInString(strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1
		}
		return r
	}, document))
}

type putRolePolicyInput struct{ RoleName, PolicyName, PolicyDocument string }

func (c *call) putRolePolicy(in putRolePolicyInput) (*nothing, error) {
	role, err := c.role(in.RoleName)
	if err != nil {
		return nil, err
	}
	policy, err := parsePolicy(in.PolicyDocument)
	if err != nil {
		return nil, err
	}
	total := characters(in.PolicyDocument)
	for name, other := range role.Policies {
		if content, err := json.Marshal(other); err == nil && name != in.PolicyName {
			total += characters(string(content))
		}
	}
	if total > maxInlinePolicies {
		return nil, &wire.Error{Code: "LimitExceeded", Message: "Maximum policy size of 10240 bytes exceeded for role " + role.Name, Status: 409}
	}
	if role.Policies == nil {
		role.Policies = map[string]iam.Policy{}
	}
	role.Policies[in.PolicyName] = policy
	return &nothing{}, nil
}

type createPolicyInput struct{ PolicyName, PolicyDocument string }

type createPolicyOutput struct {
	Policy struct{ PolicyName, PolicyId, Arn string }
}

func (c *call) createPolicy(in createPolicyInput) (*createPolicyOutput, error) {
	arn := c.arn("iam", "", "policy/"+in.PolicyName)
	if err := c.allow(target{arn: arn}); err != nil {
		return nil, err
	}
	if characters(in.PolicyDocument) > maxManagedPolicy {
		return nil, &wire.Error{Code: "LimitExceeded", Message: "Cannot exceed quota for PolicySize: 6144", Status: 409}
	}
	policy, err := parsePolicy(in.PolicyDocument)
	if err != nil {
		return nil, err
	}
	if find(c.ManagedPolicies, arn) != nil {
		return nil, &wire.Error{Code: "EntityAlreadyExists", Message: "A policy called " + in.PolicyName + " already exists. Duplicate names are not allowed.", Status: 409}
	}
	c.ManagedPolicies = append(c.ManagedPolicies, ManagedPolicy{arn, policy})
	out := &createPolicyOutput{}
	out.Policy.PolicyName, out.Policy.PolicyId, out.Policy.Arn = in.PolicyName, c.uniqueID("ANPA", in.PolicyName), arn
	return out, nil
}

type attachRolePolicyInput struct{ RoleName, PolicyArn string }

func (c *call) attachRolePolicy(in attachRolePolicyInput) (*nothing, error) {
	role, err := c.role(in.RoleName)
	if err != nil {
		return nil, err
	}
	if find(c.ManagedPolicies, in.PolicyArn) == nil {
		return nil, errorf("NoSuchEntity", "Policy %s does not exist or is not attachable.", in.PolicyArn)
	}
	if !slices.Contains(role.Attached, in.PolicyArn) {
		role.Attached = append(role.Attached, in.PolicyArn)
	}
	return &nothing{}, nil
}

type listRolePoliciesOutput struct {
	IsTruncated bool
	PolicyNames []string `xml:"PolicyNames>member"`
}

func (c *call) listRolePolicies(role *Role) (*listRolePoliciesOutput, error) {
	return &listRolePoliciesOutput{PolicyNames: sortedKeys(role.Policies)}, nil
}

type attachedPolicy struct{ PolicyName, PolicyArn string }

type listAttachedRolePoliciesOutput struct {
	IsTruncated      bool
	AttachedPolicies []attachedPolicy `xml:"AttachedPolicies>member"`
}

func (c *call) listAttachedRolePolicies(role *Role) (*listAttachedRolePoliciesOutput, error) {
	out := &listAttachedRolePoliciesOutput{}
	for _, arn := range role.Attached {
		out.AttachedPolicies = append(out.AttachedPolicies, attachedPolicy{arn[strings.LastIndex(arn, "/")+1:], arn})
	}
	return out, nil
}

type addRoleInput struct{ InstanceProfileName, RoleName string }

func (c *call) addRoleToInstanceProfile(in addRoleInput) (*nothing, error) {
	if err := c.allow(target{arn: c.profileARN(in.InstanceProfileName)}); err != nil {
		return nil, err
	}
	profile := find(c.InstanceProfiles, in.InstanceProfileName)
	switch {
	case profile == nil:
		return nil, errorf("NoSuchEntity", "Instance Profile %s cannot be found.", in.InstanceProfileName)
	case find(c.Roles, in.RoleName) == nil:
		return nil, errorf("NoSuchEntity", "The role with name %s cannot be found.", in.RoleName)
	case profile.Role != "":
		return nil, &wire.Error{Code: "LimitExceeded", Message: "Cannot exceed quota for InstanceSessionsPerInstanceProfile: 1", Status: 409}
	}
	profile.Role = in.RoleName
	return &nothing{}, nil
}

// trust is the part of a trust policy that matters here.
type trust struct {
	Version   string
	Statement []struct {
		Effect    string
		Principal struct{ Service iam.Strings }
		Action    iam.Strings
	}
}

// ec2Service is EC2's name in trust policies.
func (w *World) ec2Service() string {
	if w.Partition == "aws-cn" {
		return "ec2.amazonaws.com.cn"
	}
	return "ec2.amazonaws.com"
}

func (w *World) trustPolicy(role *Role) string {
	service := w.ec2Service()
	if role.Untrusted {
		service = "lambda.amazonaws.com"
	}
	return `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"` + service + `"},"Action":"sts:AssumeRole"}]}`
}

type updateAssumeRolePolicyInput struct{ RoleName, PolicyDocument string }

func (c *call) updateAssumeRolePolicy(in updateAssumeRolePolicyInput) (*nothing, error) {
	role, err := c.role(in.RoleName)
	if err != nil {
		return nil, err
	}
	untrusted, err := c.untrusted(in.PolicyDocument)
	if err != nil {
		return nil, err
	}
	role.Untrusted = untrusted
	return &nothing{}, nil
}

// untrusted reports whether a trust policy does not let EC2 assume the role.
func (w *World) untrusted(document string) (bool, error) {
	var t trust
	if err := json.Unmarshal([]byte(document), &t); err != nil || len(t.Statement) == 0 {
		return false, errorf("MalformedPolicyDocument", "This policy contains invalid Json")
	}
	for _, s := range t.Statement {
		if s.Effect == "Allow" && slices.Contains(s.Action, "sts:AssumeRole") && slices.Contains(s.Principal.Service, w.ec2Service()) {
			return false, nil
		}
	}
	return true, nil
}
