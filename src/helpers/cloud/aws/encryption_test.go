package aws

import (
	"strings"

	"kubernetes-release/cloud/aws/awstest"
	"kubernetes-release/preflight"
)

func encryptedBy(key string) func(*awstest.Config) {
	return func(c *awstest.Config) { c.EncryptionKey = key }
}

const withoutResourcePolicy = `{"__type": "AccessDeniedException", "message": "User: x is not authorized to perform: ` +
	`kms:Encrypt because no resource-based policy allows the kms:Encrypt action"}`

var encryptionCases = map[string]mistake{
	"key of Secrets":    {config: encryptedBy(testStorageKey), check: "kms-key", status: preflight.Passed},
	"no key of Secrets": {check: "kms-key", status: preflight.Skipped},
	"Secrets by an alias": {
		config: encryptedBy("alias/secrets"), check: "kms-key", status: preflight.Failed, resource: "alias/secrets",
		fix: []string{"encryption.kms_key"},
	},
	"key of Secrets in another region": {
		config: encryptedBy(strings.Replace(testStorageKey, "us-east-1", "us-east-2", 1)),
		check:  "kms-key", status: preflight.Failed, found: []string{"a key of us-east-2"},
		fix: []string{"encryption.kms_key"},
	},
	"no such key of Secrets": {
		config: encryptedBy(testStorageKey),
		change: answers("kms:Encrypt", 400, `{"__type": "NotFoundException", "message": "Key does not exist"}`),
		check:  "kms-key", status: preflight.Failed, found: []string{"NotFoundException: Key does not exist"},
		fix: []string{"encryption.kms_key"},
	},
	"disabled key of Secrets": {
		config: encryptedBy(testStorageKey),
		change: answers("kms:Encrypt", 400, `{"__type": "DisabledException", "message": "x is disabled."}`),
		check:  "kms-key", status: preflight.Failed, found: []string{"DisabledException"},
		fix: []string{"aws kms enable-key --region us-east-1 --key-id " + testStorageKey},
	},
	"key of Secrets that will be deleted": {
		config: encryptedBy(testStorageKey),
		change: answers("kms:Encrypt", 400,
			`{"__type": "KMSInvalidStateException", "message": "x is pending deletion."}`),
		check: "kms-key", status: preflight.Failed, found: []string{"pending deletion"},
		fix: []string{"aws kms cancel-key-deletion --region us-east-1 --key-id " + testStorageKey, "enable-key"},
	},
	"key of Secrets without material": {
		config: encryptedBy(testStorageKey),
		change: answers("kms:Encrypt", 400,
			`{"__type": "KMSInvalidStateException", "message": "x is pending import."}`),
		check: "kms-key", status: preflight.Failed, found: []string{"pending import"},
		fix: []string{"encryption.kms_key"},
	},
	"key of Secrets for signatures": {
		config: encryptedBy(testStorageKey),
		change: answers("kms:Encrypt", 400, `{"__type": "InvalidKeyUsageException", "message": "x is SIGN_VERIFY"}`),
		check:  "kms-key", status: preflight.Failed, found: []string{"SIGN_VERIFY"},
		fix: []string{"encryption.kms_key"},
	},
	"the role may not encrypt Secrets": {
		config: encryptedBy(testStorageKey), change: denies("kms:Encrypt"),
		check: "kms-key", status: preflight.Failed, found: []string{"no identity-based policy allows the kms:Encrypt"},
		fix: []string{"put-role-policy", "kms:EncryptionContext:kubernetes.io/cluster", testStorageKey},
	},
	"the role may not decrypt Secrets": {
		config: encryptedBy(testStorageKey), change: denies("kms:Decrypt"),
		check: "kms-key", status: preflight.Failed, found: []string{"no identity-based policy allows the kms:Decrypt"},
		fix: []string{"put-role-policy"},
	},
	"the policy of the key of Secrets excludes the role": {
		config: encryptedBy(testStorageKey), change: answers("kms:Encrypt", 400, withoutResourcePolicy),
		check: "kms-key", status: preflight.Failed, found: []string{"no resource-based policy allows"},
		fix: []string{"aws kms create-grant --region us-east-1 --key-id " + testStorageKey +
			" --grantee-principal \"$role\" --operations Encrypt Decrypt"},
	},
	"KMS does not encrypt Secrets": {
		config: encryptedBy(testStorageKey), change: answers("kms:Encrypt", 500, `{"__type": "KMSInternalException"}`),
		check: "kms-key", status: preflight.Failed, fix: []string{"VPC endpoint for kms"},
	},
}
