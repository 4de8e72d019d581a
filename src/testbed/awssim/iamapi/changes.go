package iamapi

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"kubernetes-release/testbed/awssim/api"
	"kubernetes-release/testbed/awssim/iam"
	"kubernetes-release/testbed/awssim/store"
	"kubernetes-release/testbed/awssim/wire"
)

// IAM's limits on characters of policies without whitespace.
const (
	maxInlinePolicies = 10240 // all inline policies of a role
	maxUserPolicies   = 2048  // all inline policies of a user
	maxManagedPolicy  = 6144
)

// listing is an action that changes nothing and has resource-level permissions, on a role.
func listing[Out any](fn func(*api.Call, *store.Role) (Out, error)) api.Operation {
	return api.Operation{Run: func(c *api.Call, form url.Values) (any, error) {
		var in struct {
			RoleName string
			MaxItems int
		}
		if err := wire.Decode(form, wire.Query, &in); err != nil {
			return nil, err
		}
		role, err := role(c, in.RoleName)
		if err != nil {
			return nil, err
		}
		return fn(c, role)
	}}
}

// parsePolicy reads a document of a request.
func parsePolicy(document string) (iam.Policy, error) {
	var p iam.Policy
	if err := json.Unmarshal([]byte(document), &p); err != nil {
		return p, api.Errorf("MalformedPolicyDocument", "Syntax errors in policy.")
	}
	if err := p.Validate(); err != nil {
		return p, api.Errorf("MalformedPolicyDocument", "%v", err)
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

// total counts the characters of inline policies with one that is added or replaced.
func total(policies map[string]iam.Policy, name, document string) int {
	sum := characters(document)
	for other, policy := range policies {
		if content, err := json.Marshal(policy); err == nil && other != name {
			sum += characters(string(content))
		}
	}
	return sum
}

type putRolePolicyInput struct{ RoleName, PolicyName, PolicyDocument string }

func putRolePolicy(c *api.Call, in putRolePolicyInput) (*api.Nothing, error) {
	role, err := role(c, in.RoleName)
	if err != nil {
		return nil, err
	}
	policy, err := parsePolicy(in.PolicyDocument)
	if err != nil {
		return nil, err
	}
	if total(role.Policies, in.PolicyName, in.PolicyDocument) > maxInlinePolicies {
		return nil, conflict("LimitExceeded", "Maximum policy size of %d bytes exceeded for role %s", maxInlinePolicies,
			role.Name)
	}
	if role.Policies == nil {
		role.Policies = map[string]iam.Policy{}
	}
	role.Policies[in.PolicyName] = policy
	return &api.Nothing{}, nil
}

type createPolicyInput struct{ PolicyName, PolicyDocument string }

type createPolicyOutput struct {
	Policy struct{ PolicyName, PolicyId, Arn string }
}

func createPolicy(c *api.Call, in createPolicyInput) (*createPolicyOutput, error) {
	arn := c.ARN("iam", "", "policy/"+in.PolicyName)
	if err := c.Allow(api.Target{ARN: arn}); err != nil {
		return nil, err
	}
	policy, err := parseManagedPolicy(in.PolicyDocument)
	if err != nil {
		return nil, err
	}
	if store.Find(c.ManagedPolicies, arn) != nil {
		return nil, &wire.Error{
			Code:    "EntityAlreadyExists",
			Message: "A policy called " + in.PolicyName + " already exists. Duplicate names are not allowed.",
			Status:  409,
		}
	}
	c.ManagedPolicies = append(c.ManagedPolicies, store.ManagedPolicy{ARN: arn, Document: policy})
	out := &createPolicyOutput{}
	out.Policy.PolicyName, out.Policy.PolicyId, out.Policy.Arn = in.PolicyName, c.UniqueID("ANPA", in.PolicyName), arn
	return out, nil
}

func parseManagedPolicy(document string) (iam.Policy, error) {
	if characters(document) > maxManagedPolicy {
		return iam.Policy{}, &wire.Error{
			Code: "LimitExceeded", Message: "Cannot exceed quota for PolicySize: 6144", Status: 409,
		}
	}
	return parsePolicy(document)
}

// maxPolicyVersions is how many versions IAM keeps of a managed policy.
const maxPolicyVersions = 5

type createPolicyVersionInput struct {
	PolicyArn, PolicyDocument string
	SetAsDefault              bool
}

type createPolicyVersionOutput struct {
	PolicyVersion struct {
		VersionId        string
		IsDefaultVersion bool
	}
}

func createPolicyVersion(c *api.Call, in createPolicyVersionInput) (*createPolicyVersionOutput, error) {
	if err := c.Allow(api.Target{ARN: in.PolicyArn}); err != nil {
		return nil, err
	}
	policy := store.Find(c.ManagedPolicies, in.PolicyArn)
	if policy == nil {
		return nil, &wire.Error{
			Code: "NoSuchEntity", Status: 404,
			Message: "Policy " + in.PolicyArn + " does not exist or is not attachable.",
		}
	}
	document, err := parseManagedPolicy(in.PolicyDocument)
	if err != nil {
		return nil, err
	}
	if policy.Versions+1 == maxPolicyVersions {
		return nil, &wire.Error{
			Code: "LimitExceeded", Status: 409,
			Message: "A managed policy can have up to 5 versions. Before you create a new version, you must delete " +
				"an existing version.",
		}
	}
	policy.Versions++
	if in.SetAsDefault {
		policy.Document = document
	}
	out := &createPolicyVersionOutput{}
	out.PolicyVersion.VersionId = fmt.Sprintf("v%d", policy.Versions+1)
	out.PolicyVersion.IsDefaultVersion = in.SetAsDefault
	return out, nil
}

type attachRolePolicyInput struct{ RoleName, PolicyArn string }

func attachRolePolicy(c *api.Call, in attachRolePolicyInput) (*api.Nothing, error) {
	role, err := role(c, in.RoleName)
	if err != nil {
		return nil, err
	}
	if store.Find(c.ManagedPolicies, in.PolicyArn) == nil {
		return nil, api.Errorf("NoSuchEntity", "Policy %s does not exist or is not attachable.", in.PolicyArn)
	}
	if !slices.Contains(role.Attached, in.PolicyArn) {
		role.Attached = append(role.Attached, in.PolicyArn)
	}
	return &api.Nothing{}, nil
}

type listRolePoliciesOutput struct {
	IsTruncated bool
	PolicyNames []string `xml:"PolicyNames>member"`
}

func listRolePolicies(_ *api.Call, role *store.Role) (*listRolePoliciesOutput, error) {
	return &listRolePoliciesOutput{PolicyNames: store.SortedKeys(role.Policies)}, nil
}

type attachedPolicy struct{ PolicyName, PolicyArn string }

type listAttachedRolePoliciesOutput struct {
	IsTruncated      bool
	AttachedPolicies []attachedPolicy `xml:"AttachedPolicies>member"`
}

func listAttachedRolePolicies(_ *api.Call, role *store.Role) (*listAttachedRolePoliciesOutput, error) {
	out := &listAttachedRolePoliciesOutput{}
	for _, arn := range role.Attached {
		out.AttachedPolicies = append(out.AttachedPolicies, attachedPolicy{arn[strings.LastIndex(arn, "/")+1:], arn})
	}
	return out, nil
}

type addRoleInput struct{ InstanceProfileName, RoleName string }

func addRoleToInstanceProfile(c *api.Call, in addRoleInput) (*api.Nothing, error) {
	if err := c.Allow(api.Target{ARN: c.ProfileARN(in.InstanceProfileName)}); err != nil {
		return nil, err
	}
	profile := store.Find(c.InstanceProfiles, in.InstanceProfileName)
	switch {
	case profile == nil:
		return nil, api.Errorf("NoSuchEntity", "Instance Profile %s cannot be found.", in.InstanceProfileName)
	case store.Find(c.Roles, in.RoleName) == nil:
		return nil, api.Errorf("NoSuchEntity", "The role with name %s cannot be found.", in.RoleName)
	case profile.Role != "":
		return nil, &wire.Error{
			Code:    "LimitExceeded",
			Message: "Cannot exceed quota for InstanceSessionsPerInstanceProfile: 1",
			Status:  409,
		}
	}
	profile.Role = in.RoleName
	return &api.Nothing{}, nil
}
