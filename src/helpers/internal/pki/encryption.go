package pki

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
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

// readEncryption returns the keys and resources of an EncryptionConfiguration (k8s.io/apiserver/pkg/apis/apiserver/v1)
// that a template of kube-apiserver has rendered. The first key encrypts.
func readEncryption(path string) (recorded, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return recorded{}, err
	}
	var configuration struct {
		Resources []struct {
			Resources []string
			Providers []struct {
				Secretbox struct {
					Keys []struct{ Name, Secret string }
				}
				KMS struct{ Name string }
			}
		}
	}
	if err := json.Unmarshal(content, &configuration); err != nil {
		return recorded{}, fmt.Errorf("%s: %w", path, err)
	}
	var found recorded
	for _, resource := range configuration.Resources {
		found.EncryptionResources = append(found.EncryptionResources, resource.Resources...)
		for _, provider := range resource.Providers {
			for _, key := range provider.Secretbox.Keys {
				digest := sha256.Sum256([]byte(key.Secret))
				found.EncryptionKeys = append(
					found.EncryptionKeys, encryptionKey{Name: key.Name, Digest: hex.EncodeToString(digest[:])},
				)
			}
			if provider.KMS.Name != "" {
				found.EncryptionKeys = append(found.EncryptionKeys, encryptionKey{Name: provider.KMS.Name})
			}
		}
	}
	return found, nil
}

// checkEncryption compares the keys and resources of what is encrypted in etcd with those of the last deploy.
func (d Deployed) checkEncryption(last recorded) error {
	if d.Encryption == "" || len(last.EncryptionKeys) == 0 {
		return nil
	}
	current, err := readEncryption(d.Encryption)
	if err != nil || len(current.EncryptionKeys) == 0 {
		return err
	}
	problems := []error{
		checkEncryptionKeys(current.EncryptionKeys, last.EncryptionKeys),
		checkEncryptionResources(current.EncryptionResources, last.EncryptionResources),
	}
	for _, started := range last.Started {
		problems = append(problems, checkEncryptionResources(current.EncryptionResources, started.EncryptionResources))
		for _, key := range started.EncryptionKeys {
			problems = append(problems, checkStartedKey(current.EncryptionKeys, key))
		}
	}
	return errors.Join(problems...)
}

// checkStartedKey refuses to leave out a key that was active in a deploy that stopped. Like every key, it may go once a
// deploy with another active one has reached post-deploy.
func checkStartedKey(keys []encryptionKey, started encryptionKey) error {
	if slices.Contains(keys, started) {
		return nil
	}
	return fmt.Errorf(
		"property encryption.keys: the key %s, with which this VM has encrypted in a later deploy that stopped, is "+
			"missing or has another secret, so what it has encrypted in etcd could not be read any more: add it with "+
			"its secret, deploy with the previous active_key, write all objects again, and remove it then; the keys "+
			"are now %s; %s",
		started.Name, encryptionNames(keys), rotationHelp,
	)
}

// checkEncryptionResources refuses to leave one out: what is in no list is read with identity, which refuses what is
// encrypted (transformerFromOverrides in k8s.io/apiserver/pkg/server/options/encryptionconfig/config.go). The record of
// an older release has none.
func checkEncryptionResources(resources, last []string) error {
	missing := slices.DeleteFunc(
		slices.Clone(last), func(resource string) bool { return slices.Contains(resources, resource) },
	)
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf(
		"property encryption.resources lacks %s, which the last deploy encrypted, so these objects in etcd could "+
			"not be read any more: add it again; the resources are now %s (compared as they are written); %s",
		strings.Join(missing, ", "), strings.Join(resources, ", "), rotationHelp,
	)
}

func checkEncryptionKeys(keys, last []encryptionKey) error {
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
