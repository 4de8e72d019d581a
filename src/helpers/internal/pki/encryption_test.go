package pki

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
)

// encryptionOf is an encryption configuration as kube-apiserver has it: with local keys, NAME=SECRET, and kms.
func encryptionOf(keys ...string) string {
	var providers []string
	for _, key := range keys {
		provider := `{"kms": {"apiVersion": "v2", "name": "kms", "timeout": "5s"}}`
		if name, secret, local := strings.Cut(key, "="); local {
			provider = fmt.Sprintf(`{"secretbox": {"keys": [{"name": %q, "secret": %q}]}}`, name, secret)
		}
		providers = append(providers, provider)
	}
	return `{"kind": "EncryptionConfiguration", "resources": [{"resources": ["secrets"], "providers": [` +
		strings.Join(append(providers, `{"identity": {}}`), ", ") + `]}]}`
}

// TestRotationOfEncryptionKeys simulates deploys: the first key of each encrypts.
func TestRotationOfEncryptionKeys(t *testing.T) {
	const first, second, kms = "key1=a", "key2=b", "kms"
	const lost, early = "the key key1, with which the last deploy encrypted, is missing or has another secret",
		"a key that the last deploy did not have (key1)"
	for name, test := range map[string]struct {
		deploys [][]string
		want    string // of the last deploy; the others pass
	}{
		"three deploys":        {[][]string{{first}, {first, second}, {second, first}, {second}}, ""},
		"to KMS":               {[][]string{{first}, {first, kms}, {kms, first}, {kms}}, ""},
		"back from KMS":        {[][]string{{kms}, {kms, first}, {first, kms}, {first}}, ""},
		"back":                 {[][]string{{first}, {first, second}, {first}}, ""},
		"regenerated":          {[][]string{{first}, {"key1=c"}}, lost},
		"renamed":              {[][]string{{first}, {"key3=a"}}, lost},
		"first step left out":  {[][]string{{first}, {second, first}}, early},
		"KMS at once":          {[][]string{{first}, {kms, first}}, early},
		"second step left out": {[][]string{{first}, {first, second}, {second}}, lost},
		// The record of an older release has no keys.
		"after an update": {[][]string{nil, {second}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			record := filepath.Join(dir, "certificates.json")
			checkDeploys(t, record, len(test.deploys), func(i int) Deployed {
				if test.deploys[i] == nil {
					return Deployed{}
				}
				return Deployed{Encryption: write(t, dir, "encryption.json", encryptionOf(test.deploys[i]...))}
			}, test.want)
		})
	}
}

// TestStoppedRotationOfEncryptionKeys: the first control VM has started with the new key when a deploy stops at the
// second one. There are objects in etcd that only the new key decrypts.
func TestStoppedRotationOfEncryptionKeys(t *testing.T) {
	const first, second, kms = "key1=a", "key2=b", "kms"
	dir := t.TempDir()
	record := filepath.Join(dir, "certificates.json")
	deployed := func(keys ...string) Deployed {
		return Deployed{Encryption: write(t, dir, "encryption.json", encryptionOf(keys...))}
	}
	start := func(d Deployed) {
		t.Helper()
		if err := errors.Join(d.CheckRotation(record, now), d.Start(record)); err != nil {
			t.Fatal(err)
		}
	}
	keep := func(d Deployed) {
		t.Helper()
		start(d)
		if err := d.Keep(record, now, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
	}
	start(deployed(first)) // of the first deploy, which has no record yet
	keep(deployed(first, second, kms))
	for _, active := range [][]string{{second, first, kms}, {second, first, kms}, {kms, first, second}} {
		start(deployed(active...))
	}
	start(deployed(first, second, kms))
	for _, test := range []struct {
		keys []string
		lost string
	}{
		{[]string{first}, "key2"}, {[]string{first, second}, "kms"}, {[]string{first, kms}, "key2"},
		{[]string{first, "key2=c", kms}, "key2"},
	} {
		want := "the key " + test.lost + ", with which this VM has encrypted in a later deploy that stopped"
		d := deployed(test.keys...)
		if err := d.CheckRotation(record, now); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want %q", test.keys, err, want)
		}
		if err := d.Keep(record, now, slog.New(slog.DiscardHandler)); err != nil { // after a resurrection
			t.Fatal(err)
		}
	}
	keep(deployed(first, second, kms))
	keep(deployed(first))
}

// TestRemovedEncryptionResource: what is encrypted of it in etcd could not be read.
func TestRemovedEncryptionResource(t *testing.T) {
	for name, test := range map[string]struct {
		deploys [][]string // the resources of each
		want    string     // of the last deploy; the others pass
	}{
		"added":        {[][]string{{"secrets"}, {"configmaps", "secrets"}}, ""},
		"removed":      {[][]string{{"secrets", "configmaps"}, {"configmaps"}}, "lacks secrets, which"},
		"all replaced": {[][]string{{"secrets", "configmaps"}, {"*."}}, "lacks secrets, configmaps, which"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			record := filepath.Join(dir, "certificates.json")
			checkDeploys(t, record, len(test.deploys), func(i int) Deployed {
				list := `"` + strings.Join(test.deploys[i], `", "`) + `"`
				content := strings.Replace(encryptionOf("key1=a"), `"secrets"`, list, 1)
				return Deployed{Encryption: write(t, dir, "encryption.json", content)}
			}, test.want, "property encryption.resources", "add it again", record)
		})
	}
	dir := t.TempDir()
	stopped := write(t, dir, "stopped.json", `{"encryption": {
		"encryption_keys": [{"name": "kms"}], "encryption_resources": ["secrets"],
		"started": [{"encryption_keys": [{"name": "kms"}], "encryption_resources": ["secrets", "configmaps"]}]
	}}`)
	back := Deployed{Encryption: write(t, dir, "encryption.json", encryptionOf("kms"))}
	if err := back.CheckRotation(stopped, now); err == nil || !strings.Contains(err.Error(), "lacks configmaps") {
		t.Errorf("a resource of a deploy that stopped: %v", err)
	}
	older := Deployed{Encryption: write(t, dir, "encryption.json", encryptionOf("kms"))}
	record := write(t, dir, "certificates.json", `{"encryption": {"encryption_keys": [{"name": "kms"}]}}`)
	if err := older.CheckRotation(record, now); err != nil {
		t.Errorf("a record without resources: %v", err)
	}
}
