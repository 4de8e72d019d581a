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
	credentials, user := newSession(
		c, c.Roles[i].Name, store.Sealed{Instance: c.Principal.Instance, Session: in.RoleSessionName},
		in.DurationSeconds,
	)
	return &assumeRoleOutput{credentials, user}, nil
}

// newSession is a session of a role that lasts so many seconds, by default an hour.
func newSession(c *api.Call, role string, sealed store.Sealed, seconds int) (stsCredentials, assumedRoleUser) {
	lifetime := time.Hour
	if seconds != 0 {
		lifetime = time.Duration(seconds) * time.Second
	}
	expires := c.Now.Add(lifetime).Truncate(time.Second)
	sealed.Purpose, sealed.Role, sealed.Issued, sealed.Expires = "session", role, c.Now.Unix(), expires.Unix()
	token := c.Seal(sealed)
	id, secret := c.SessionKey(token)
	return stsCredentials{id, secret, token, expires.Format(time.RFC3339)}, assumedRoleUser{
		c.ARN("sts", "", "assumed-role/"+role+"/"+sealed.Session), c.UniqueID("AROA", role) + ":" + sealed.Session,
	}
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
