package awssim

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"

	"kubernetes-release/testbed/awssim/iam"
	"kubernetes-release/testbed/awssim/wire"
)

// policies are all policies of the key's user.
func (k StaticKey) policies() []iam.Policy {
	policies := slices.Clone(k.Policies)
	for _, name := range sortedKeys(k.Inline) {
		policies = append(policies, k.Inline[name])
	}
	return policies
}

func conflict(code, format string, arguments ...any) error {
	return &wire.Error{Code: code, Message: fmt.Sprintf(format, arguments...), Status: 409}
}

type createRoleInput struct{ RoleName, Path, AssumeRolePolicyDocument string }

func (c *call) createRole(in createRoleInput) (*getRoleOutput, error) {
	if err := c.allow(target{arn: c.roleARN(Role{Name: in.RoleName, Path: in.Path})}); err != nil {
		return nil, err
	}
	if find(c.Roles, in.RoleName) != nil {
		return nil, conflict("EntityAlreadyExists", "Role with name %s already exists.", in.RoleName)
	}
	untrusted, err := c.untrusted(in.AssumeRolePolicyDocument)
	if err != nil {
		return nil, err
	}
	c.Roles = append(c.Roles, Role{Name: in.RoleName, Path: in.Path, Untrusted: untrusted})
	return c.describeRole(find(c.Roles, in.RoleName)), nil
}

type roleInput struct{ RoleName string }

func (c *call) deleteRole(in roleInput) (*nothing, error) {
	role, err := c.role(in.RoleName)
	if err != nil {
		return nil, err
	}
	used := slices.ContainsFunc(c.InstanceProfiles, func(p InstanceProfile) bool { return p.Role == role.Name })
	switch {
	case len(role.Policies)+len(role.Attached) > 0:
		return nil, conflict("DeleteConflict", "Cannot delete entity, must delete policies first.")
	case used:
		return nil, conflict("DeleteConflict", "Cannot delete entity, must remove roles from instance profile first.")
	}
	c.Roles = slices.DeleteFunc(c.Roles, func(r Role) bool { return r.Name == in.RoleName })
	return &nothing{}, nil
}

type rolePolicyInput struct{ RoleName, PolicyName string }

type rolePolicyOutput struct{ RoleName, PolicyName, PolicyDocument string }

// inlinePolicy is the document of an inline policy, URL-encoded as IAM returns it.
func inlinePolicy(policies map[string]iam.Policy, name, kind, owner string) (string, error) {
	policy, ok := policies[name]
	if !ok {
		return "", errorf("NoSuchEntity", "The %s policy with name %s cannot be found.", kind, name)
	}
	text, err := json.Marshal(policy)
	if err != nil {
		return "", fmt.Errorf("policy %s of %s: %w", name, owner, err)
	}
	return url.QueryEscape(string(text)), nil
}

func (c *call) getRolePolicy(in rolePolicyInput) (*rolePolicyOutput, error) {
	role, err := c.role(in.RoleName)
	if err != nil {
		return nil, err
	}
	document, err := inlinePolicy(role.Policies, in.PolicyName, "role", in.RoleName)
	return &rolePolicyOutput{in.RoleName, in.PolicyName, document}, err
}

func (c *call) deleteRolePolicy(in rolePolicyInput) (*nothing, error) {
	role, err := c.role(in.RoleName)
	if err != nil {
		return nil, err
	}
	if _, err := inlinePolicy(role.Policies, in.PolicyName, "role", in.RoleName); err != nil {
		return nil, err
	}
	delete(role.Policies, in.PolicyName)
	return &nothing{}, nil
}

type profileInput struct{ InstanceProfileName string }

type profileOutput struct{ InstanceProfile profileDescription }

type profileDescription struct {
	Path, InstanceProfileName, InstanceProfileId, Arn string
	Roles                                             []roleDescription `xml:"Roles>member"`
}

func (c *call) describeProfile(p *InstanceProfile) *profileOutput {
	out := &profileOutput{profileDescription{Path: "/", InstanceProfileName: p.Name, InstanceProfileId: c.uniqueID("AIPA", p.Name), Arn: c.profileARN(p.Name)}}
	if role := find(c.Roles, p.Role); role != nil {
		out.InstanceProfile.Roles = []roleDescription{c.describeRole(role).Role}
	}
	return out
}

// namedProfile finds an instance profile and checks the permission.
func (c *call) namedProfile(name string) (*InstanceProfile, error) {
	if err := c.allow(target{arn: c.profileARN(name)}); err != nil {
		return nil, err
	}
	profile := find(c.InstanceProfiles, name)
	if profile == nil {
		return nil, errorf("NoSuchEntity", "Instance Profile %s cannot be found.", name)
	}
	return profile, nil
}

func (c *call) getInstanceProfile(in profileInput) (*profileOutput, error) {
	profile, err := c.namedProfile(in.InstanceProfileName)
	if err != nil {
		return nil, err
	}
	return c.describeProfile(profile), nil
}

func (c *call) createInstanceProfile(in profileInput) (*profileOutput, error) {
	if err := c.allow(target{arn: c.profileARN(in.InstanceProfileName)}); err != nil {
		return nil, err
	}
	if find(c.InstanceProfiles, in.InstanceProfileName) != nil {
		return nil, conflict("EntityAlreadyExists", "Instance Profile %s already exists.", in.InstanceProfileName)
	}
	c.InstanceProfiles = append(c.InstanceProfiles, InstanceProfile{Name: in.InstanceProfileName})
	return c.describeProfile(find(c.InstanceProfiles, in.InstanceProfileName)), nil
}

func (c *call) deleteInstanceProfile(in profileInput) (*nothing, error) {
	profile, err := c.namedProfile(in.InstanceProfileName)
	if err != nil {
		return nil, err
	}
	if profile.Role != "" {
		return nil, conflict("DeleteConflict", "Cannot delete entity, must remove roles from instance profile first.")
	}
	c.InstanceProfiles = slices.DeleteFunc(c.InstanceProfiles, func(p InstanceProfile) bool { return p.Name == in.InstanceProfileName })
	return &nothing{}, nil
}

func (c *call) removeRoleFromInstanceProfile(in addRoleInput) (*nothing, error) {
	profile, err := c.namedProfile(in.InstanceProfileName)
	if err != nil {
		return nil, err
	}
	if profile.Role != in.RoleName {
		return nil, errorf("NoSuchEntity", "Role %s in instance profile %s cannot be found.", in.RoleName, in.InstanceProfileName)
	}
	profile.Role = ""
	return &nothing{}, nil
}

type userPolicyInput struct{ UserName, PolicyName, PolicyDocument string }

type userPolicyOutput struct{ UserName, PolicyName, PolicyDocument string }

// user finds the key of an IAM user and checks the permission.
func (c *call) user(name string) (*StaticKey, error) {
	if err := c.allow(target{arn: c.arn("iam", "", "user/"+name)}); err != nil {
		return nil, err
	}
	for i := range c.StaticKeys {
		if c.StaticKeys[i].User == name {
			return &c.StaticKeys[i], nil
		}
	}
	return nil, errorf("NoSuchEntity", "The user with name %s cannot be found.", name)
}

func (c *call) putUserPolicy(in userPolicyInput) (*nothing, error) {
	user, err := c.user(in.UserName)
	if err != nil {
		return nil, err
	}
	policy, err := parsePolicy(in.PolicyDocument)
	if err != nil {
		return nil, err
	}
	if user.Inline == nil {
		user.Inline = map[string]iam.Policy{}
	}
	user.Inline[in.PolicyName] = policy
	return &nothing{}, nil
}

func (c *call) getUserPolicy(in userPolicyInput) (*userPolicyOutput, error) {
	user, err := c.user(in.UserName)
	if err != nil {
		return nil, err
	}
	document, err := inlinePolicy(user.Inline, in.PolicyName, "user", in.UserName)
	return &userPolicyOutput{in.UserName, in.PolicyName, document}, err
}

func (c *call) deleteUserPolicy(in userPolicyInput) (*nothing, error) {
	user, err := c.user(in.UserName)
	if err != nil {
		return nil, err
	}
	if _, err := inlinePolicy(user.Inline, in.PolicyName, "user", in.UserName); err != nil {
		return nil, err
	}
	delete(user.Inline, in.PolicyName)
	return &nothing{}, nil
}
