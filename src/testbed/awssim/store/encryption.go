package store

import (
	"cmp"
	"slices"
)

// Encryption are the account's settings of EBS in the region.
type Encryption struct {
	ByDefault  bool   `json:"by_default,omitempty"`
	DefaultKey string `json:"default_key,omitempty"` // ARN; default the key of AWS
}

// KeyState is the state of a key, as KMS names it.
type KeyState string

// States of keys that the simulator has.
const (
	KeyEnabled         KeyState = "Enabled"
	KeyDisabled        KeyState = "Disabled"
	KeyPendingDeletion KeyState = "PendingDeletion"
)

// symmetric is the kind of keys that EBS can use.
const symmetric = "SYMMETRIC_DEFAULT"

// KMSKey is a customer managed key. Its key policy leaves the decision to IAM policies, unless it excludes them.
type KMSKey struct {
	ARN         string   `json:"arn"`
	Alias       string   `json:"alias,omitempty"` // alias/NAME
	State       KeyState `json:"state,omitempty"` // default KeyEnabled
	Spec        string   `json:"spec,omitempty"`  // default symmetric
	ExcludesIAM bool     `json:"excludes_iam,omitempty"`
	Granted     []Grant  `json:"granted,omitempty"`
}

// Grant lets a role use a key, whatever policies say.
type Grant struct {
	Grantee    string   `json:"grantee"` // ARN
	Operations []string `json:"operations"`
}

// Grants reports whether a role has a grant for an operation.
func (k KMSKey) Grants(role, operation string) bool {
	return slices.ContainsFunc(k.Granted, func(g Grant) bool {
		return g.Grantee == role && slices.Contains(g.Operations, operation)
	})
}

// CurrentState is the key's state.
func (k KMSKey) CurrentState() KeyState { return cmp.Or(k.State, KeyEnabled) }

// CurrentSpec is the kind of the key's material.
func (k KMSKey) CurrentSpec() string { return cmp.Or(k.Spec, symmetric) }

// Usage is what the key is for.
func (k KMSKey) Usage() string {
	if k.CurrentSpec() == symmetric {
		return "ENCRYPT_DECRYPT"
	}
	return "SIGN_VERIFY"
}
