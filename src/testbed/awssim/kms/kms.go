// Package kms has the actions of Key Management Service that operators and the preflight use on keys, and that the job
// kms-plugin encrypts with.
package kms

import (
	"fmt"
	"strings"

	"kubernetes-release/testbed/awssim/api"
	"kubernetes-release/testbed/awssim/store"
	"kubernetes-release/testbed/awssim/wire"
)

// AuthErrors are the responses to failed authentication.
var AuthErrors = map[error]*wire.Error{
	api.ErrNoAuthentication: {Code: "MissingAuthenticationTokenException", Message: "Missing Authentication Token"},
	api.ErrUnknownKey: {
		Code: "UnrecognizedClientException", Message: "The security token included in the request is invalid.",
	},
	api.ErrExpired: {
		Code: "ExpiredTokenException", Message: "The security token included in the request is expired",
	},
	api.ErrSignature: {
		Code:    "InvalidSignatureException",
		Message: "The request signature we calculated does not match the signature you provided.",
	},
	api.ErrPast:   {Code: "InvalidSignatureException", Message: "Signature expired"},
	api.ErrFuture: {Code: "InvalidSignatureException", Message: "Signature not yet current"},
}

type keyInput struct {
	KeyID string `param:"KeyId"`
}

type keyMetadata struct {
	ARN      string `json:"Arn"`
	ID       string `json:"KeyId"`
	Enabled  bool
	KeyState store.KeyState
	KeySpec  string
	KeyUsage string
}

type describeKeyOutput struct{ KeyMetadata keyMetadata }

func describeKey(c *api.Call, in keyInput) (out describeKeyOutput, err error) {
	k, err := permitted(c, in.KeyID, nil)
	if err != nil {
		return out, err
	}
	return describeKeyOutput{keyMetadata{
		ARN: k.ARN, ID: k.ARN[strings.LastIndex(k.ARN, "/")+1:], Enabled: k.CurrentState() == store.KeyEnabled,
		KeyState: k.CurrentState(), KeySpec: k.CurrentSpec(), KeyUsage: k.Usage(),
	}}, nil
}

// permitted returns a key, if policies or a grant allow the action on it. Everything else is said of keys only after
// that.
func permitted(c *api.Call, name string, context map[string][]string) (*store.KMSKey, error) {
	k := c.FindKey(name)
	if k == nil {
		if err := c.Allow(api.Target{ARN: name, Context: context}); err != nil {
			return nil, err
		}
		return nil, api.Errorf("NotFoundException", "Key '%s' does not exist", name)
	}
	return k, Allow(c, k, c.Service.Signing+":"+c.Action, context)
}

// Allow evaluates a key's policy, its grants and the principal's policies for an action on it ("Determining access to
// KMS keys" in the developer guide of KMS).
func Allow(c *api.Call, k *store.KMSKey, action string, context map[string][]string) error {
	err := c.AllowAction(action, api.Target{ARN: k.ARN, Context: context})
	role := store.Find(c.Roles, c.Principal.Role)
	switch {
	case role != nil && k.Grants(c.RoleARN(*role), strings.TrimPrefix(action, "kms:")):
		return nil
	case err == nil && k.ExcludesIAM && role != nil:
		return &wire.Error{Code: c.Service.Denied, Status: 400, Message: fmt.Sprintf(
			"User: %s is not authorized to perform: %s on resource: %s because no resource-based policy allows the %s "+
				"action", c.Principal.ARN, action, k.ARN, action,
		)}
	}
	return err
}

func createGrant(c *api.Call, in struct {
	KeyID            string `param:"KeyId"`
	GranteePrincipal string
	Operations       []string
}) (api.Nothing, error) {
	k, err := permitted(c, in.KeyID, nil)
	if err != nil {
		return api.Nothing{}, err
	}
	if err := c.Begin(); err != nil {
		return api.Nothing{}, err
	}
	k.Granted = append(k.Granted, store.Grant{Grantee: in.GranteePrincipal, Operations: in.Operations})
	return api.Nothing{}, nil
}

func enableKey(c *api.Call, in keyInput) (api.Nothing, error) {
	return change(c, in, store.KeyDisabled, store.KeyEnabled)
}

// cancelKeyDeletion leaves the key disabled, as KMS does.
func cancelKeyDeletion(c *api.Call, in keyInput) (api.Nothing, error) {
	return change(c, in, store.KeyPendingDeletion, store.KeyDisabled)
}

func change(c *api.Call, in keyInput, from, to store.KeyState) (api.Nothing, error) {
	k, err := permitted(c, in.KeyID, nil)
	if err != nil {
		return api.Nothing{}, err
	}
	if state := k.CurrentState(); state != from && state != to {
		return api.Nothing{}, api.Errorf("KMSInvalidStateException", "%s is %s", k.ARN, state)
	}
	if err := c.Begin(); err != nil {
		return api.Nothing{}, err
	}
	k.State = to
	return api.Nothing{}, nil
}
