package store

import (
	"cmp"
	"strings"
)

// AWSKey is the key that AWS manages for EBS, which everyone in the account may use.
const AWSKey = "alias/aws/ebs"

// AWSKeyARN is the ARN of the key that AWS manages for EBS.
func (w *World) AWSKeyARN() string { return w.ARN("kms", w.Region, AWSKey) }

// DefaultKey is the ARN of the key for volumes that name none.
func (w *World) DefaultKey() string { return cmp.Or(w.Encryption.DefaultKey, w.AWSKeyARN()) }

// FindKey finds a key by its ARN, id or alias.
func (w *World) FindKey(name string) *KMSKey {
	for i := range w.KMSKeys {
		k := &w.KMSKeys[i]
		if name == k.ARN || strings.HasSuffix(k.ARN, ":key/"+name) ||
			k.Alias != "" && (name == k.Alias || strings.HasSuffix(name, ":"+k.Alias)) {
			return k
		}
	}
	return nil
}
