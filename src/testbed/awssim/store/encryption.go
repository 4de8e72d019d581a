package store

import (
	"cmp"
	"strings"
)

// Encryption are the account's settings of EBS in the region.
type Encryption struct {
	ByDefault  bool   `json:"by_default,omitempty"`
	DefaultKey string `json:"default_key,omitempty"` // ARN; default the key of AWS
}

// KMSKey is a customer managed key, whose key policy leaves the decision to IAM policies.
type KMSKey struct {
	ARN      string `json:"arn"`
	Alias    string `json:"alias,omitempty"` // alias/NAME
	Disabled bool   `json:"disabled,omitempty"`
}

func (k KMSKey) key() string { return k.ARN }

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
