package sts

import (
	"net/url"
	"slices"
	"strings"
	"time"

	"kubernetes-release/testbed/awssim/api"
	"kubernetes-release/testbed/awssim/iam"
	"kubernetes-release/testbed/awssim/store"
	"kubernetes-release/testbed/awssim/wire"
)

// assumeRoleOperation is STS's AssumeRole.
var assumeRoleOperation = api.Operation{Run: func(c *api.Call, form url.Values) (any, error) {
	var in assumeRoleInput
	if err := wire.Decode(form, wire.Query, &in); err != nil {
		return nil, err
	}
	return assumeRole(c, in)
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

// assumeRole returns credentials of another role of the account, if its trust policy and, unless that names the
// caller's role itself, the caller's policies allow it. Whether the role exists is not revealed.
func assumeRole(c *api.Call, in assumeRoleInput) (*assumeRoleOutput, error) {
	if in.RoleSessionName == "" {
		return nil, api.Errorf(
			"ValidationError",
			"1 validation error detected: Value null at 'roleSessionName' failed to satisfy constraint: Member must "+
				"not be null",
		)
	}
	i := slices.IndexFunc(c.Roles, func(r store.Role) bool { return c.RoleARN(r) == in.RoleArn })
	allowed := c.Allow(api.Target{ARN: in.RoleArn})
	if i < 0 || !trusts(c, c.Roles[i], allowed == nil) {
		return nil, c.DeniedError("sts:AssumeRole", in.RoleArn, iam.ImplicitDeny)
	}
	lifetime := time.Hour
	if in.DurationSeconds != 0 {
		lifetime = time.Duration(in.DurationSeconds) * time.Second
	}
	expires := c.Now.Add(lifetime).Truncate(time.Second)
	role := c.Roles[i].Name
	token := c.Seal(
		store.Sealed{
			Purpose:  "session",
			Instance: c.Principal.Instance,
			Role:     role,
			Session:  in.RoleSessionName,
			Issued:   c.Now.Unix(),
			Expires:  expires.Unix(),
		},
	)
	id, secret := c.SessionKey(token)
	return &assumeRoleOutput{
		stsCredentials{id, secret, token, expires.Format(time.RFC3339)},
		assumedRoleUser{
			c.ARN("sts", "", "assumed-role/"+role+"/"+in.RoleSessionName),
			c.UniqueID("AROA", role) + ":" + in.RoleSessionName,
		},
	}, nil
}

// trusts reports whether a role's trust policy allows the caller to assume it.
func trusts(c *api.Call, role store.Role, permitted bool) bool {
	for _, trusted := range role.TrustedBy {
		if strings.HasSuffix(trusted, ":"+c.Account+":root") && permitted {
			return true
		}
		if caller := store.Find(c.Roles, c.Principal.Role); caller != nil && trusted == c.RoleARN(*caller) {
			return true
		}
	}
	return false
}
