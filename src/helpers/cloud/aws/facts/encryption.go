package facts

import (
	"kubernetes-release/cloud/aws/arn"
)

// SecretKeys are the keys that encrypt Secrets in etcd, which job kms-plugin uses with the role of the instance
// profile.
func (f *Facts) SecretKeys(assumed bool) []string {
	if f.Settings.EncryptionKey == "" || !f.IsControl() || assumed {
		return nil
	}
	return []string{f.Settings.EncryptionKey}
}

// AsksEncryptionKey reports whether there is a key that encrypts Secrets, and it can be one of the VM's region.
func (f *Facts) AsksEncryptionKey() bool {
	key, err := arn.ParseKey(f.Settings.EncryptionKey)
	return err == nil && key.Region == f.Metadata.Region
}
