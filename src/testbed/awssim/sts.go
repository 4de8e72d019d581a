package awssim

import (
	"net/url"

	"kubernetes-release/testbed/awssim/wire"
)

// stsOperations is the table of STS's actions.
var stsOperations = map[string]operation{
	"AssumeRole": assumeRoleOperation,
	// It requires no permission, and no policy can deny it.
	"GetCallerIdentity": {run: func(c *call, form url.Values) (any, error) {
		var none struct{}
		if err := wire.Decode(form, wire.Query, &none); err != nil {
			return nil, err
		}
		return callerIdentity{c.principal.ARN, c.principal.UserID, c.Account}, nil
	}},
}

type callerIdentity struct {
	ARN     string `xml:"Arn"`
	UserID  string `xml:"UserId"`
	Account string `xml:"Account"`
}
