package pki

import (
	"bytes"
	"crypto/x509"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestRotation simulates deploys of one job: each has a CA bundle and a certificate.
func TestRotation(t *testing.T) {
	first, second := issue(t, "root", nil, ca), issue(t, "root", nil, ca)
	expired := issue(t, "root", nil, func(c *x509.Certificate) { ca(c); c.NotAfter = now.Add(-time.Hour) })
	old, renewed := issue(t, "api", first, server), issue(t, "api", first, server)
	next, late := issue(t, "api", second, server), issue(t, "api", expired, server)
	type deploy struct {
		bundle []*pair
		leaf   *pair
	}
	const notTrusted, noLongerTrusted = "a CA that the last deploy did not trust", "the CA that signed the " +
		"certificate of the last deploy"
	for name, test := range map[string]struct {
		deploys []deploy
		want    string // of the last deploy; the others pass
	}{
		"three deploys": {
			[]deploy{
				{[]*pair{first}, old}, {[]*pair{first, second}, old}, {[]*pair{second, first}, next},
				{[]*pair{second}, next},
			},
			"",
		},
		"certificate alone":   {[]deploy{{[]*pair{first}, old}, {[]*pair{first}, renewed}}, ""},
		"first deploy":        {[]deploy{{[]*pair{first}, old}}, ""},
		"all at once":         {[]deploy{{[]*pair{first}, old}, {[]*pair{second}, next}}, notTrusted},
		"first step left out": {[]deploy{{[]*pair{first}, old}, {[]*pair{second, first}, next}}, notTrusted},
		"second step left out": {
			[]deploy{{[]*pair{first, second}, old}, {[]*pair{second}, next}}, noLongerTrusted,
		},
		"back after the first step": {
			[]deploy{{[]*pair{first}, old}, {[]*pair{first, second}, old}, {[]*pair{first}, old}}, "",
		},
		"after the expiry": {[]deploy{{[]*pair{expired}, late}, {[]*pair{first}, old}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			record := filepath.Join(dir, "store", "certificates.json")
			for i, d := range test.deploys {
				list := []Certificate{
					{
						Property:    "tls.x",
						CA:          write(t, dir, "ca.pem", certificates(d.bundle...)),
						Certificate: write(t, dir, "certificate.pem", certificates(d.leaf)),
					},
					{
						Property:    "tls.bundle",
						Certificate: write(t, dir, "bundle.pem", certificates(d.bundle...)),
						Usage:       UsageCA,
					},
				}
				err := (Deployed{Certificates: list}).CheckRotation(record, now)
				if i == len(test.deploys)-1 && test.want != "" {
					if err == nil {
						t.Fatal("not refused")
					}
					for _, part := range []string{test.want, "property tls.x, file " + dir, "first deploy with both " +
						"CAs in tls.x.ca", "docs/operations.md", record + "; only if this VM was stopped during a " +
						"whole rotation of the others, remove this file"} {
						if !strings.Contains(err.Error(), part) {
							t.Errorf("%v\nwant %q", err, part)
						}
					}
					return
				}
				if err != nil {
					t.Fatalf("deploy %d: %v", i, err)
				}
				if err := (Deployed{Certificates: list}).Keep(record, now, slog.New(slog.DiscardHandler)); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestRotationOfSigningCA: a Director may already use the new CA to sign in the first deploy, in which all begin to
// trust it.
func TestRotationOfSigningCA(t *testing.T) {
	first, second := issue(t, "root", nil, ca), issue(t, "root", nil, ca)
	dir := t.TempDir()
	record := filepath.Join(dir, "certificates.json")
	deployed := func(signer *pair, bundle ...*pair) Deployed {
		return Deployed{Certificates: []Certificate{
			{
				Property:    "tls.kubelet_ca",
				Usage:       UsageCA,
				CA:          write(t, dir, "ca.pem", certificates(bundle...)),
				Certificate: write(t, dir, "certificate.pem", certificates(signer)),
			},
		}}
	}
	if err := deployed(first, first).Keep(record, now, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	for _, signer := range []*pair{first, second} {
		if err := deployed(signer, first, second).CheckRotation(record, now); err != nil {
			t.Error(err)
		}
	}
	if err := deployed(second, second).CheckRotation(record, now); err == nil ||
		!strings.Contains(err.Error(), "the CA that signed the certificate of the last deploy") {
		t.Errorf("the old CA is removed in the first deploy: %v", err)
	}
}

// TestRecreatedVMDuringRotation: post-deploy runs on a VM whose pre-start has refused the deploy when the Director
// recreates another one.
func TestRecreatedVMDuringRotation(t *testing.T) {
	first, second := issue(t, "root", nil, ca), issue(t, "root", nil, ca)
	dir := t.TempDir()
	record := filepath.Join(dir, "certificates.json")
	deployed := func(key string, root *pair) Deployed {
		leaf := issue(t, "api", root, server)
		der, err := x509.MarshalPKIXPublicKey(leaf.key.Public())
		if err != nil {
			t.Fatal(err)
		}
		return Deployed{
			Certificates: []Certificate{
				{
					Property:    "tls.x",
					CA:          write(t, dir, key+"-ca.pem", certificates(root)),
					Certificate: write(t, dir, key+".pem", certificates(leaf)),
				},
			},
			Keys: []SigningKey{
				{
					"service_account",
					write(t, dir, key+"-key.pem", keyPEM(t, leaf.key)),
					write(t, dir, key+"-public.pem", block("PUBLIC KEY", der)),
				},
			},
			Encryption: write(t, dir, key+"-encryption.json", encryptionOf(key+"=a")),
		}
	}
	before, refused := deployed("key1", first), deployed("key2", second)
	var log bytes.Buffer
	for _, d := range []Deployed{before, refused} {
		if err := d.Keep(record, now, slog.New(slog.NewTextHandler(&log, nil))); err != nil {
			t.Fatal(err)
		}
	}
	if err := before.CheckRotation(record, now); err != nil {
		t.Errorf("the previous variables are refused: %v", err)
	}
	for _, want := range []string{
		"a CA that the last deploy did not trust", "not among the public_keys of the last deploy", "the key key1",
	} {
		if err := refused.CheckRotation(record, now); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q: %s", want, log.String())
		}
	}
}

// TestDamagedRecord: a field of a later release, from which the deploy goes back, is no damage.
func TestDamagedRecord(t *testing.T) {
	root := issue(t, "root", nil, ca)
	dir := t.TempDir()
	record := filepath.Join(dir, "certificates.json")
	list := []Certificate{
		{
			Property:    "tls.x",
			CA:          write(t, dir, "ca.pem", certificates(root)),
			Certificate: write(t, dir, "certificate.pem", certificates(root)),
		},
	}
	for content, want := range map[string]string{
		"{": record, `{"tls.x": {"ca": "", "certificate": ""}}`: "tls.x: ca of the last deploy",
		`{"tls.x": {"ca": "", "certificate": "", "later": [{}]}}`: "tls.x: ca of the last deploy",
	} {
		if err := os.WriteFile(record, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := (Deployed{Certificates: list}).CheckRotation(record, now); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", content, err, want)
		}
	}
}

// TestRotationOfSigningKey simulates deploys with a private key and public keys.
func TestRotationOfSigningKey(t *testing.T) {
	first, second := issue(t, "first", nil, nil), issue(t, "second", nil, nil)
	type deploy struct {
		public  []*pair
		private *pair
	}
	for name, test := range map[string]struct {
		deploys []deploy
		want    string // of the last deploy; the others pass
	}{
		"three deploys": {
			[]deploy{
				{[]*pair{first}, first}, {[]*pair{first, second}, first}, {[]*pair{first, second}, second},
				{[]*pair{second}, second},
			},
			"",
		},
		"all at once": {
			[]deploy{{[]*pair{first}, first}, {[]*pair{second}, second}},
			"not among the public_keys of the last deploy",
		},
		"first step left out": {
			[]deploy{{[]*pair{first}, first}, {[]*pair{first, second}, second}},
			"not among the public_keys of the last deploy",
		},
		"second step left out": {
			[]deploy{{[]*pair{first, second}, first}, {[]*pair{second}, second}},
			"lacks the public key of the private_key of the last deploy",
		},
		"keys of two pairs": {
			[]deploy{{[]*pair{first}, first}, {[]*pair{first}, second}}, "lacks the public key of private_key",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			record := filepath.Join(dir, "store", "certificates.json")
			checkDeploys(t, record, len(test.deploys), func(i int) Deployed {
				d := test.deploys[i]
				var public strings.Builder
				for _, p := range d.public {
					der, err := x509.MarshalPKIXPublicKey(p.key.Public())
					if err != nil {
						t.Fatal(err)
					}
					public.WriteString(block("PUBLIC KEY", der))
				}
				return Deployed{
					Keys: []SigningKey{
						{
							"service_account",
							write(t, dir, "key.pem", keyPEM(t, d.private.key)),
							write(t, dir, "public.pem", public.String()),
						},
					},
				}
			}, test.want, "property service_account")
		})
	}
}

// checkDeploys simulates deploys one after another. Without want, the first of the texts, all pass; with it, the last
// one fails with an error that has all of them.
func checkDeploys(t *testing.T, record string, count int, deployed func(i int) Deployed, want string, more ...string) {
	t.Helper()
	for i := range count {
		d := deployed(i)
		err := d.CheckRotation(record, now)
		if i == count-1 && want != "" {
			for _, text := range append(more, want) {
				if err == nil || !strings.Contains(err.Error(), text) {
					t.Errorf("got %v, want %q", err, text)
				}
			}
			return
		}
		if err != nil {
			t.Fatalf("deploy %d: %v", i, err)
		}
		if err := d.Keep(record, now, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStoppedRotationOfSigningKey: tokens that a VM has signed in a deploy that stopped are in use.
func TestStoppedRotationOfSigningKey(t *testing.T) {
	const own, next = "https://kubernetes.default.svc", "https://next.example"
	first, second := issue(t, "first", nil, nil), issue(t, "second", nil, nil)
	dir := t.TempDir()
	record := filepath.Join(dir, "certificates.json")
	deployed := func(issuers []string, public ...*pair) Deployed {
		var keys strings.Builder
		for _, p := range public {
			der, err := x509.MarshalPKIXPublicKey(p.key.Public())
			if err != nil {
				t.Fatal(err)
			}
			keys.WriteString(block("PUBLIC KEY", der))
		}
		return Deployed{Issuers: issuers, Keys: []SigningKey{{
			"service_account", write(t, dir, "key.pem", keyPEM(t, public[0].key)),
			write(t, dir, "public.pem", keys.String()),
		}}}
	}
	d := deployed([]string{own, next}, first, second)
	if err := d.Keep(record, now, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	d = deployed([]string{next, own}, second, first)
	if err := errors.Join(d.CheckRotation(record, now), d.Start(record)); err != nil {
		t.Fatal(err)
	}
	err := deployed([]string{own}, first).CheckRotation(record, now)
	for _, want := range []string{
		"public_keys lacks the public key of the private_key of a later deploy that stopped", "lacks " + next,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if err := deployed([]string{own, next}, first, second).CheckRotation(record, now); err != nil {
		t.Errorf("the deploy before is refused: %v", err)
	}
}

func TestRotationOfIssuers(t *testing.T) {
	const own, next, other = "https://kubernetes.default.svc", "https://next.example", "https://other.example"
	for name, test := range map[string]struct {
		deploys [][]string
		want    string // of the last deploy; the others pass
	}{
		"three deploys":        {[][]string{{own}, {own, next}, {next, own}, {next}}, ""},
		"first deploy":         {[][]string{{next}}, ""},
		"all at once":          {[][]string{{own}, {next}}, "which the last deploy did not accept (" + own + ")"},
		"first step left out":  {[][]string{{own}, {next, own}}, "which the last deploy did not accept (" + own + ")"},
		"second step left out": {[][]string{{own}, {own, next}, {next}}, "lacks " + own},
		"back":                 {[][]string{{own}, {own, next}, {own}}, ""},
		"another one":          {[][]string{{own}, {own, next}, {other, own, next}}, other},
		// The record of an older release has no issuers.
		"after an update": {[][]string{nil, {own, next}, {next, own}}, ""},
		"together with the update": {
			[][]string{nil, {next, own}}, "which the last deploy did not accept (" + own + ")",
		},
	} {
		t.Run(name, func(t *testing.T) {
			record := filepath.Join(t.TempDir(), "certificates.json")
			checkDeploys(t, record, len(test.deploys), func(i int) Deployed {
				return Deployed{Issuers: test.deploys[i], DefaultIssuer: own}
			}, test.want)
		})
	}
}
