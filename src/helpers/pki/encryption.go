package pki

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// encryptionKey is a key of an API server's encryption configuration. Its name is a part of what is in etcd.
type encryptionKey struct {
	Name string `json:"name"`
	// Digest is that of the secret, which is random and as long as the digest; the key of a KMS has none.
	Digest string `json:"digest,omitempty"`
}

// readEncryptionKeys are those of an EncryptionConfiguration (k8s.io/apiserver/pkg/apis/apiserver/v1) that a template
// of kube-apiserver has rendered. The first one encrypts.
func readEncryptionKeys(path string) ([]encryptionKey, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var configuration struct {
		Resources []struct {
			Providers []struct {
				Secretbox struct {
					Keys []struct{ Name, Secret string }
				}
				KMS struct{ Name string }
			}
		}
	}
	if err := json.Unmarshal(content, &configuration); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var keys []encryptionKey
	for _, resource := range configuration.Resources {
		for _, provider := range resource.Providers {
			for _, key := range provider.Secretbox.Keys {
				digest := sha256.Sum256([]byte(key.Secret))
				keys = append(keys, encryptionKey{Name: key.Name, Digest: hex.EncodeToString(digest[:])})
			}
			if provider.KMS.Name != "" {
				keys = append(keys, encryptionKey{Name: provider.KMS.Name})
			}
		}
	}
	return keys, nil
}

// checkEncryption compares the keys of what is encrypted in etcd with those of the last deploy.
func (d Deployed) checkEncryption(last []encryptionKey) error {
	if d.Encryption == "" || len(last) == 0 {
		return nil
	}
	keys, err := readEncryptionKeys(d.Encryption)
	if err != nil || len(keys) == 0 {
		return err
	}
	switch {
	case !slices.Contains(keys, last[0]):
		return fmt.Errorf(
			"property encryption.keys: the key %s, with which the last deploy encrypted, is missing or has another "+
				"secret, so what it has encrypted in etcd could not be read any more: add it with its previous "+
				"secret, and remove it once another key is active and all objects are written again; the keys are "+
				"now %s; %s",
			last[0].Name, encryptionNames(keys), rotationHelp,
		)
	case !slices.Contains(last, keys[0]):
		return fmt.Errorf(
			"property encryption.active_key is %s, a key that the last deploy did not have (%s), so VMs that are not "+
				"updated yet could not read what it encrypts: first deploy with the new key and the previous "+
				"active_key, %s; %s",
			keys[0].Name, encryptionNames(last), last[0].Name, rotationHelp,
		)
	}
	return nil
}

func encryptionNames(keys []encryptionKey) string {
	names := make([]string, len(keys))
	for i, key := range keys {
		names[i] = key.Name
	}
	return strings.Join(names, ", ")
}
