package kms

import (
	"kubernetes-release/testbed/awssim/api"
)

// Operations is the table of KMS's actions.
var Operations = map[string]api.Operation{
	"CancelKeyDeletion": api.Changing(cancelKeyDeletion),
	"CreateGrant":       api.Changing(createGrant),
	"Decrypt":           api.Changing(decrypt),
	"DescribeKey":       api.Changing(describeKey),
	"EnableKey":         api.Changing(enableKey),
	"Encrypt":           api.Changing(encrypt),
}
