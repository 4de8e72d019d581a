// Package sts has the actions of STS.
package sts

import (
	"net/url"

	"kubernetes-release/testbed/awssim/api"
	"kubernetes-release/testbed/awssim/wire"
)

// Operations is the table of STS's actions.
var Operations = map[string]api.Operation{
	"AssumeRole":                assumeRoleOperation,
	"AssumeRoleWithWebIdentity": webIdentityOperation,
	// It requires no permission, and no policy can deny it.
	"GetCallerIdentity": {Run: func(c *api.Call, form url.Values) (any, error) {
		var none struct{}
		if err := wire.Decode(form, wire.Query, &none); err != nil {
			return nil, err
		}
		return callerIdentity{c.Principal.ARN, c.Principal.UserID, c.Account}, nil
	}},
}

type callerIdentity struct {
	ARN     string `xml:"Arn"`
	UserID  string `xml:"UserId"`
	Account string `xml:"Account"`
}
