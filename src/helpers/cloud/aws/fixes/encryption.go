package fixes

import (
	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/cloud/aws/iampolicy"
	"kubernetes-release/preflight"
)

// OtherEncryptionKey has Secrets encrypted with another key.
func OtherEncryptionKey() preflight.Fix {
	return ByHand("or set encryption.kms_key of job kube-apiserver to another key; no API server can read what is " +
		"already encrypted with this one")
}

// EncryptionGrant lets the machine's role encrypt Secrets without a change of the key's policy.
func EncryptionGrant(f *facts.Facts, name string) preflight.Fix {
	return grant(f, name, iampolicy.EncryptAction, iampolicy.DecryptAction)
}
