package iamapi

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"

	"kubernetes-release/testbed/awssim/api"
	"kubernetes-release/testbed/awssim/iam"
	"kubernetes-release/testbed/awssim/store"
	"kubernetes-release/testbed/awssim/wire"
)

func conflict(code, format string, arguments ...any) error {
	return &wire.Error{Code: code, Message: fmt.Sprintf(format, arguments...), Status: 409}
}

type createRoleInput struct {
	RoleName, Path, AssumeRolePolicyDocument string
	Tags                                     []store.Pair
}

func createRole(c *api.Call, in createRoleInput) (*getRoleOutput, error) {
	target := api.Target{ARN: c.RoleARN(store.Role{Name: in.RoleName, Path: in.Path})}
	if err := c.Allow(target); err != nil {
		return nil, err
	}
	if len(in.Tags) > 0 {
		if err := c.AllowAction("iam:TagRole", target); err != nil {
			return nil, err
		}
	}
	if store.Find(c.Roles, in.RoleName) != nil {
		return nil, conflict("EntityAlreadyExists", "Role with name %s already exists.", in.RoleName)
	}
	created := store.Role{Name: in.RoleName, Path: in.Path, Tags: store.Tags{}}
	for _, tag := range in.Tags {
		created.Tags[tag.Key] = tag.Value
	}
	if err := setTrust(c.World, &created, in.AssumeRolePolicyDocument); err != nil {
		return nil, err
	}
	c.Roles = append(c.Roles, created)
	return describeRole(c, store.Find(c.Roles, in.RoleName)), nil
}

type roleInput struct{ RoleName string }

func deleteRole(c *api.Call, in roleInput) (*api.Nothing, error) {
	role, err := role(c, in.RoleName)
	if err != nil {
		return nil, err
	}
	used := slices.ContainsFunc(c.InstanceProfiles, func(p store.InstanceProfile) bool { return p.Role == role.Name })
	switch {
	case len(role.Policies)+len(role.Attached) > 0:
		return nil, conflict("DeleteConflict", "Cannot delete entity, must delete policies first.")
	case used:
		return nil, conflict("DeleteConflict", "Cannot delete entity, must remove roles from instance profile first.")
	}
	c.Roles = slices.DeleteFunc(c.Roles, func(r store.Role) bool { return r.Name == in.RoleName })
	return &api.Nothing{}, nil
}

type rolePolicyInput struct{ RoleName, PolicyName string }

type rolePolicyOutput struct{ RoleName, PolicyName, PolicyDocument string }

// inlinePolicy is the document of an inline policy, URL-encoded as IAM returns it.
func inlinePolicy(policies map[string]iam.Policy, name, kind, owner string) (string, error) {
	policy, ok := policies[name]
	if !ok {
		return "", api.Errorf("NoSuchEntity", "The %s policy with name %s cannot be found.", kind, name)
	}
	text, err := json.Marshal(policy)
	if err != nil {
		return "", fmt.Errorf("policy %s of %s: %w", name, owner, err)
	}
	return url.QueryEscape(string(text)), nil
}

func getRolePolicy(c *api.Call, in rolePolicyInput) (*rolePolicyOutput, error) {
	role, err := role(c, in.RoleName)
	if err != nil {
		return nil, err
	}
	document, err := inlinePolicy(role.Policies, in.PolicyName, "role", in.RoleName)
	return &rolePolicyOutput{in.RoleName, in.PolicyName, document}, err
}

func deleteRolePolicy(c *api.Call, in rolePolicyInput) (*api.Nothing, error) {
	role, err := role(c, in.RoleName)
	if err != nil {
		return nil, err
	}
	if _, err := inlinePolicy(role.Policies, in.PolicyName, "role", in.RoleName); err != nil {
		return nil, err
	}
	delete(role.Policies, in.PolicyName)
	return &api.Nothing{}, nil
}

type profileInput struct{ InstanceProfileName string }

type createProfileInput struct {
	InstanceProfileName string
	Tags                []store.Pair
}

type profileOutput struct{ InstanceProfile profileDescription }

type profileDescription struct {
	Path, InstanceProfileName, InstanceProfileId, Arn string
	Roles                                             []roleDescription `xml:"Roles>member"`
	Tags                                              []store.Pair      `xml:"Tags>member"`
}

func describeProfile(c *api.Call, p *store.InstanceProfile) *profileOutput {
	out := &profileOutput{
		profileDescription{
			Path:                "/",
			InstanceProfileName: p.Name,
			InstanceProfileId:   c.UniqueID("AIPA", p.Name),
			Arn:                 c.ProfileARN(p.Name),
			Tags:                pairs(p.Tags),
		},
	}
	if role := store.Find(c.Roles, p.Role); role != nil {
		out.InstanceProfile.Roles = []roleDescription{describeRole(c, role).Role}
	}
	return out
}

// namedProfile finds an instance profile and checks the permission.
func namedProfile(c *api.Call, name string) (*store.InstanceProfile, error) {
	if err := c.Allow(api.Target{ARN: c.ProfileARN(name)}); err != nil {
		return nil, err
	}
	profile := store.Find(c.InstanceProfiles, name)
	if profile == nil {
		return nil, api.Errorf("NoSuchEntity", "Instance Profile %s cannot be found.", name)
	}
	return profile, nil
}

func getInstanceProfile(c *api.Call, in profileInput) (*profileOutput, error) {
	profile, err := namedProfile(c, in.InstanceProfileName)
	if err != nil {
		return nil, err
	}
	return describeProfile(c, profile), nil
}

func createInstanceProfile(c *api.Call, in createProfileInput) (*profileOutput, error) {
	target := api.Target{ARN: c.ProfileARN(in.InstanceProfileName)}
	if err := c.Allow(target); err != nil {
		return nil, err
	}
	if len(in.Tags) > 0 {
		if err := c.AllowAction("iam:TagInstanceProfile", target); err != nil {
			return nil, err
		}
	}
	if store.Find(c.InstanceProfiles, in.InstanceProfileName) != nil {
		return nil, conflict("EntityAlreadyExists", "Instance Profile %s already exists.", in.InstanceProfileName)
	}
	created := store.InstanceProfile{Name: in.InstanceProfileName, Tags: store.Tags{}}
	for _, tag := range in.Tags {
		created.Tags[tag.Key] = tag.Value
	}
	c.InstanceProfiles = append(c.InstanceProfiles, created)
	return describeProfile(c, store.Find(c.InstanceProfiles, in.InstanceProfileName)), nil
}

func deleteInstanceProfile(c *api.Call, in profileInput) (*api.Nothing, error) {
	profile, err := namedProfile(c, in.InstanceProfileName)
	if err != nil {
		return nil, err
	}
	if profile.Role != "" {
		return nil, conflict("DeleteConflict", "Cannot delete entity, must remove roles from instance profile first.")
	}
	c.InstanceProfiles = slices.DeleteFunc(
		c.InstanceProfiles, func(p store.InstanceProfile) bool { return p.Name == in.InstanceProfileName },
	)
	return &api.Nothing{}, nil
}

func removeRoleFromInstanceProfile(c *api.Call, in addRoleInput) (*api.Nothing, error) {
	profile, err := namedProfile(c, in.InstanceProfileName)
	if err != nil {
		return nil, err
	}
	if profile.Role != in.RoleName {
		return nil, api.Errorf(
			"NoSuchEntity", "Role %s in instance profile %s cannot be found.", in.RoleName, in.InstanceProfileName,
		)
	}
	profile.Role = ""
	return &api.Nothing{}, nil
}

type userPolicyInput struct{ UserName, PolicyName, PolicyDocument string }

type userPolicyOutput struct{ UserName, PolicyName, PolicyDocument string }

// user finds the key of an IAM user and checks the permission.
func user(c *api.Call, name string) (*store.StaticKey, error) {
	if err := c.Allow(api.Target{ARN: c.ARN("iam", "", "user/"+name)}); err != nil {
		return nil, err
	}
	for i := range c.StaticKeys {
		if c.StaticKeys[i].User == name {
			return &c.StaticKeys[i], nil
		}
	}
	return nil, api.Errorf("NoSuchEntity", "The user with name %s cannot be found.", name)
}

type userInput struct{ UserName string }

type userOutput struct {
	User struct{ Path, UserName, UserId, Arn string }
}

func getUser(c *api.Call, in userInput) (*userOutput, error) {
	key, err := user(c, in.UserName)
	if err != nil {
		return nil, err
	}
	out := &userOutput{}
	out.User.Path, out.User.UserName = "/", key.User
	out.User.UserId, out.User.Arn = c.UniqueID("AIDA", key.User), c.ARN("iam", "", "user/"+key.User)
	return out, nil
}

func putUserPolicy(c *api.Call, in userPolicyInput) (*api.Nothing, error) {
	user, err := user(c, in.UserName)
	if err != nil {
		return nil, err
	}
	policy, err := parsePolicy(in.PolicyDocument)
	if err != nil {
		return nil, err
	}
	if total(user.Inline, in.PolicyName, in.PolicyDocument) > maxUserPolicies {
		return nil, conflict("LimitExceeded", "Maximum policy size of %d bytes exceeded for user %s", maxUserPolicies,
			in.UserName)
	}
	if user.Inline == nil {
		user.Inline = map[string]iam.Policy{}
	}
	user.Inline[in.PolicyName] = policy
	return &api.Nothing{}, nil
}

func getUserPolicy(c *api.Call, in userPolicyInput) (*userPolicyOutput, error) {
	user, err := user(c, in.UserName)
	if err != nil {
		return nil, err
	}
	document, err := inlinePolicy(user.Inline, in.PolicyName, "user", in.UserName)
	return &userPolicyOutput{in.UserName, in.PolicyName, document}, err
}

func deleteUserPolicy(c *api.Call, in userPolicyInput) (*api.Nothing, error) {
	user, err := user(c, in.UserName)
	if err != nil {
		return nil, err
	}
	if _, err := inlinePolicy(user.Inline, in.PolicyName, "user", in.UserName); err != nil {
		return nil, err
	}
	delete(user.Inline, in.PolicyName)
	return &api.Nothing{}, nil
}
