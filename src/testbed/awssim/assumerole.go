package awssim

import (
	"net/url"
	"slices"
	"strings"
	"time"

	"kubernetes-release/testbed/awssim/iam"
	"kubernetes-release/testbed/awssim/wire"
)

// assumeRoleOperation is STS's AssumeRole.
var assumeRoleOperation = operation{run: func(c *call, form url.Values) (any, error) {
	var in assumeRoleInput
	if err := wire.Decode(form, wire.Query, &in); err != nil {
		return nil, err
	}
	return c.assumeRole(in)
}}

type assumeRoleInput struct {
	RoleArn         string
	RoleSessionName string
	DurationSeconds int
}

type assumeRoleOutput struct {
	Credentials     stsCredentials
	AssumedRoleUser assumedRoleUser
}

type stsCredentials struct{ AccessKeyId, SecretAccessKey, SessionToken, Expiration string }

type assumedRoleUser struct{ Arn, AssumedRoleId string }

// assumeRole returns credentials of another role of the account, if its trust policy and, unless that names the caller's role itself,
// the caller's policies allow it. Whether the role exists is not revealed.
func (c *call) assumeRole(in assumeRoleInput) (*assumeRoleOutput, error) {
	if in.RoleSessionName == "" {
		return nil, errorf("ValidationError", "1 validation error detected: Value null at 'roleSessionName' failed to satisfy constraint: Member must not be null")
	}
	i := slices.IndexFunc(c.Roles, func(r Role) bool { return c.roleARN(r) == in.RoleArn })
	allowed := c.allow(target{arn: in.RoleArn})
	if i < 0 || !c.trusts(c.Roles[i], allowed == nil) {
		return nil, c.deniedError("sts:AssumeRole", in.RoleArn, iam.ImplicitDeny)
	}
	lifetime := time.Hour
	if in.DurationSeconds != 0 {
		lifetime = time.Duration(in.DurationSeconds) * time.Second
	}
	expires := c.now.Add(lifetime).Truncate(time.Second)
	role := c.Roles[i].Name
	token := c.seal(sealed{Purpose: "session", Instance: c.principal.Instance, Role: role, Session: in.RoleSessionName, Issued: c.now.Unix(), Expires: expires.Unix()})
	id, secret := c.sessionKey(token)
	return &assumeRoleOutput{
		stsCredentials{id, secret, token, expires.Format(time.RFC3339)},
		assumedRoleUser{c.arn("sts", "", "assumed-role/"+role+"/"+in.RoleSessionName), c.uniqueID("AROA", role) + ":" + in.RoleSessionName},
	}, nil
}

// trusts reports whether a role's trust policy allows the caller to assume it.
func (c *call) trusts(role Role, permitted bool) bool {
	for _, trusted := range role.TrustedBy {
		if strings.HasSuffix(trusted, ":"+c.Account+":root") && permitted {
			return true
		}
		if caller := find(c.Roles, c.principal.Role); caller != nil && trusted == c.roleARN(*caller) {
			return true
		}
	}
	return false
}
