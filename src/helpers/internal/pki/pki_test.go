package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// now is the time of all tests.
var now = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// pair is a certificate with its key.
type pair struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

// issue creates a certificate, valid for a year from a day before now unless change sets other dates; with a nil parent
// it is self-signed.
func issue(t *testing.T, name string, parent *pair, change func(*x509.Certificate)) *pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: name}, BasicConstraintsValid: true,
		NotBefore: now.Add(-24 * time.Hour), NotAfter: now.AddDate(1, 0, 0),
	}
	if change != nil {
		change(template)
	}
	signer := &pair{template, key}
	if parent != nil {
		signer = parent
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer.certificate, key.Public(), signer.key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &pair{certificate, key}
}

func ca(c *x509.Certificate) { c.IsCA, c.KeyUsage = true, x509.KeyUsageCertSign }

func server(c *x509.Certificate) {
	c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	c.DNSNames, c.IPAddresses = []string{"api.example", "*.etcd.example"}, []net.IP{net.ParseIP("127.0.0.1")}
}

func certificates(pairs ...*pair) string {
	var text strings.Builder
	for _, p := range pairs {
		_ = pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: p.certificate.Raw})
	}
	return text.String()
}

func keyPEM(t *testing.T, key crypto.Signer) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return block("PRIVATE KEY", der)
}

func block(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// checkCase is a certificate with its files, and what Check says of them.
type checkCase struct {
	usage                Usage
	ca, certificate, key string
	names                []string
	// want are parts of the one problem; nil if there is none. warning is a part of the one warning.
	want    []string
	warning string
}

func checkAll(t *testing.T, cases map[string]checkCase) {
	t.Helper()
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			request := Certificate{
				Property:    "tls.x",
				Usage:       test.usage,
				Names:       test.names,
				Certificate: write(t, dir, "certificate.pem", test.certificate),
			}
			if test.ca != "" {
				request.CA = write(t, dir, "ca.pem", test.ca)
			}
			if test.key != "" {
				request.PrivateKey = write(t, dir, "key.pem", test.key)
			}
			if err := request.Validate(); err != nil {
				t.Fatal(err)
			}
			report := request.Check(now)
			compare(t, "problems", report.Problems, test.want)
			var warning []string
			if test.warning != "" {
				warning = []string{test.warning}
			}
			compare(t, "warnings", report.Warnings, warning)
		})
	}
}

func TestGoodCertificates(t *testing.T) {
	root := issue(t, "root", nil, ca)
	otherRoot := issue(t, "other", nil, ca)
	expiredRoot := issue(t, "old root", nil, func(c *x509.Certificate) { ca(c); c.NotAfter = now.Add(-time.Hour) })
	intermediate := issue(t, "between", root, ca)
	good := issue(t, "api", root, server)
	deep := issue(t, "deep", intermediate, server)
	anyUsage := issue(t, "any", root, nil)
	soon := issue(t, "soon", root, func(c *x509.Certificate) { server(c); c.NotAfter = now.Add(73 * time.Hour) })
	rootSoon := issue(t, "root", nil, func(c *x509.Certificate) { ca(c); c.NotAfter = now.Add(73 * time.Hour) })
	ofRootSoon := issue(t, "api", rootSoon, server)
	ecDER, err := x509.MarshalECPrivateKey(good.key.(*ecdsa.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	checkAll(t, map[string]checkCase{
		"good": {
			UsageServer, certificates(root), certificates(good), keyPEM(t, good.key),
			[]string{"api.example", "127.0.0.1", "a.etcd.example"}, nil, "",
		},
		"SEC 1 key": {
			UsageServer, "", certificates(good),
			block("EC PARAMETERS", []byte{6, 0}) + block("EC PRIVATE KEY", ecDER), nil, nil, "",
		},
		"intermediate": {
			UsageServer, certificates(root), certificates(deep, intermediate), keyPEM(t, deep.key), nil, nil, "",
		},
		"bundle":           {UsageServer, certificates(otherRoot, root), certificates(good), "", nil, nil, ""},
		"any usage":        {UsagePeer, certificates(root), certificates(anyUsage), "", nil, nil, ""},
		"CA with key":      {UsageCA, "", certificates(root), keyPEM(t, root.key), nil, nil, ""},
		"expired CA in it": {UsageCA, "", certificates(expiredRoot, root), "", nil, nil, `the CA "CN=old root"`},
		"expires soon": {
			UsageServer, certificates(root), certificates(soon), "", nil, nil,
			"expires in 3 days: issue it again (with CredHub: credhub regenerate -n NAME) and deploy before that",
		},
		"CA expires soon": {
			UsageServer, certificates(rootSoon), certificates(ofRootSoon), "", nil, nil,
			"expires in 3 days: replace it before that in three deploys",
		},
	})
}

func TestWrongIssuersAndTimes(t *testing.T) {
	root := issue(t, "root", nil, ca)
	otherRoot := issue(t, "other", nil, ca)
	rootRegenerated := issue(t, "root", nil, ca)
	expiredRoot := issue(t, "old root", nil, func(c *x509.Certificate) { ca(c); c.NotAfter = now.Add(-time.Hour) })
	weakRoot := issue(t, "weak", nil, func(c *x509.Certificate) { ca(c); c.KeyUsage = x509.KeyUsageDigitalSignature })
	intermediate := issue(t, "between", root, ca)
	good := issue(t, "api", root, server)
	deep := issue(t, "deep", intermediate, server)
	expired := issue(t, "late", root, func(c *x509.Certificate) { server(c); c.NotAfter = now.Add(-time.Hour) })
	early := issue(t, "early", root, func(c *x509.Certificate) { server(c); c.NotBefore = now.Add(time.Hour) })
	checkAll(t, map[string]checkCase{
		"no intermediate": {
			UsageServer, certificates(root), certificates(deep), "", nil,
			[]string{`issued by "CN=between"`, `contains "CN=root"`}, "",
		},
		"other CA": {
			UsageServer, certificates(otherRoot), certificates(good), "", nil,
			[]string{`"CN=api"`, `issued by "CN=root"`, `contains "CN=other"`, "the CA that signed the certificate"},
			"",
		},
		"CA regenerated": {
			UsageServer, certificates(rootRegenerated), certificates(good), "", nil,
			[]string{"same name but another key", "issue the certificate again"}, "",
		},
		"CA is not a CA": {
			UsageServer, certificates(good), certificates(good), "", nil,
			[]string{"ca.pem", `"CN=api"`, "is not a CA", "is_ca: true"}, "",
		},
		"usage CA": {
			UsageCA, "", certificates(good), "", nil, []string{"certificate.pem", "is not a CA"}, "",
		},
		"CA cannot sign": {UsageCA, "", certificates(weakRoot), "", nil, []string{"keyCertSign"}, ""},
		"CA expired": {
			UsageCA, "", certificates(expiredRoot), "", nil,
			[]string{`"CN=old root"`, "expired 1h0m0s ago", "bulk-regenerate", `"CAs" in docs/operations.md`}, "",
		},
		"expired": {
			UsageServer, certificates(root), certificates(expired), "", nil,
			[]string{`"CN=late"`, "to 2026-06-01T11:00:00Z", "expired 1h0m0s ago", "credhub regenerate"}, "",
		},
		"not yet valid": {
			UsageServer, certificates(root), certificates(early), "", nil,
			[]string{`"CN=early"`, "valid 2026-06-01T13:00:00Z", "not valid yet", "clock"}, "",
		},
	})
}

func TestWrongKeysNamesAndUsages(t *testing.T) {
	root := issue(t, "root", nil, ca)
	good := issue(t, "api", root, server)
	client := issue(
		t, "admin", root, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} },
	)
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	pkcs1 := block("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(rsaKey))
	checkAll(t, map[string]checkCase{
		"key of another": {
			UsageServer, "", certificates(good), keyPEM(t, client.key), nil,
			[]string{"key.pem", "ECDSA, P-256", "does not match", `"CN=api"`, "same variable"}, "",
		},
		"key of another type": {
			UsageServer, "", certificates(good), pkcs1, nil, []string{"RSA, 2048 bits", "does not match"}, "",
		},
		"names": {
			UsageServer, "", certificates(good), "", []string{"api.example", "10.0.0.1", "etcd.example"},
			[]string{
				"does not cover 10.0.0.1, etcd.example", "covers api.example, *.etcd.example, 127.0.0.1",
				"alternative_names",
			},
			"",
		},
		"wrong usage": {
			UsageClient, "", certificates(good), "", nil,
			[]string{"is for server_auth", "used as a client certificate", "[server_auth, client_auth]"}, "",
		},
		"peer of a client": {
			UsagePeer, "", certificates(client), "", nil,
			[]string{"used as a peer certificate", "[client_auth, server_auth]"}, "",
		},
	})
}

func TestUnreadableFiles(t *testing.T) {
	root := issue(t, "root", nil, ca)
	client := issue(
		t, "admin", root, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} },
	)
	checkAll(t, map[string]checkCase{
		"empty file": {UsageClient, "", "\n", "", nil, []string{"certificate.pem: the file is empty"}, ""},
		"no PEM":     {UsageClient, "", "hello", "", nil, []string{"no PEM block"}, ""},
		"key for cert": {
			UsageClient, "", keyPEM(t, client.key), "", nil, []string{`"PRIVATE KEY", expected only CERTIFICATE`}, "",
		},
		"broken cert": {
			UsageClient, "", block("CERTIFICATE", []byte("x")), "", nil,
			[]string{"certificate 1 of the file cannot be read"}, "",
		},
		"cert for key": {
			UsageClient, "", certificates(client), certificates(client), nil,
			[]string{"key.pem", `"CERTIFICATE"`, "unencrypted private key"}, "",
		},
		"encrypted key": {
			UsageClient, "", certificates(client), block("ENCRYPTED PRIVATE KEY", []byte("x")), nil,
			[]string{"is encrypted"}, "",
		},
		"broken key": {
			UsageClient, "", certificates(client), block("PRIVATE KEY", []byte("x")), nil,
			[]string{"private key cannot be read"}, "",
		},
	})
}

// TestExpiringCAOfLeaf is the first step of a CA's rotation: the bundle has the new CA, which has signed nothing yet.
func TestExpiringCAOfLeaf(t *testing.T) {
	days := func(days int) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			ca(c)
			c.NotAfter = now.AddDate(0, 0, days)
		}
	}
	oldCA, newCA := issue(t, "old", nil, days(20)), issue(t, "new", nil, days(3650))
	const warning = "expires in 20 days: issue it again with the new CA"
	for name, test := range map[string]struct {
		signer *pair
		want   time.Time
		parts  []string
	}{
		"old CA": {oldCA, now.AddDate(0, 0, 20), []string{"certificate.pem", `"CN=old"`, warning}},
		"new CA": {newCA, now.AddDate(1, 0, 0), nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			report := Certificate{
				Property:    "tls.x",
				Usage:       UsageServer,
				Certificate: write(t, dir, "certificate.pem", certificates(issue(t, "leaf", test.signer, server))),
				CA:          write(t, dir, "ca.pem", certificates(oldCA, newCA)),
			}.Check(now)
			compare(t, "problems", report.Problems, nil)
			compare(t, "warnings", report.Warnings, test.parts)
			if !report.NotAfter.Equal(test.want) {
				t.Errorf("valid until %s, want %s", report.NotAfter, test.want)
			}
			if want := now.AddDate(0, 0, 3650); !report.CANotAfter.Equal(want) {
				t.Errorf("CAs are valid until %s, want %s", report.CANotAfter, want)
			}
		})
	}
}

// compare expects one finding with all the parts and the property, or none if there are no parts.
func compare(t *testing.T, what string, found, want []string) {
	t.Helper()
	if len(want) == 0 {
		if len(found) > 0 {
			t.Errorf("%s: %q, want none", what, found)
		}
		return
	}
	if len(found) != 1 {
		t.Fatalf("%s: %q, want one", what, found)
	}
	for _, part := range append(want, "property tls.x, file /") {
		if !strings.Contains(found[0], part) {
			t.Errorf("%s: %q, want %q", what, found[0], part)
		}
	}
}

func write(t *testing.T, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCheckUnreadable(t *testing.T) {
	dir := t.TempDir()
	for name, test := range map[string]struct{ path, want string }{
		"absent":    {filepath.Join(dir, "absent.pem"), "cannot be read: no such file"},
		"directory": {dir, "not a regular file"},
	} {
		t.Run(name, func(t *testing.T) {
			compare(
				t, "problems",
				Certificate{Property: "tls.x", Usage: UsageClient, Certificate: test.path}.Check(now).Problems,
				[]string{test.want, test.path},
			)
		})
	}
}

func TestReadableKeyWarns(t *testing.T) {
	dir := t.TempDir()
	client := issue(t, "admin", nil, nil)
	key := write(t, dir, "key.pem", keyPEM(t, client.key))
	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	report := Certificate{
		Property:    "tls.x",
		Usage:       UsageClient,
		Certificate: write(t, dir, "certificate.pem", certificates(client)),
		PrivateKey:  key,
	}.Check(now)
	compare(t, "warnings", report.Warnings, []string{"mode 0644"})
	compare(t, "problems", report.Problems, nil)
}

func TestValidate(t *testing.T) {
	err := Certificate{Usage: "sever", Names: []string{"a b"}}.Validate()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"property is empty", "certificate is empty", `usage is "sever": allowed are server, client, peer, ca`,
		`names has "a b"`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q, want %q", err, want)
		}
	}
	if err := (Certificate{
		Property: "x", Certificate: "/x", Usage: UsageCA, Names: []string{"a"},
	}).Validate(); err == nil {
		t.Error("a CA with names is accepted")
	}
}

// FuzzReadFiles makes sure that no content of a file makes the checks panic.
func FuzzReadFiles(f *testing.F) {
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"))
	f.Add([]byte("-----BEGIN EC PRIVATE KEY-----\nMAA=\n-----END EC PRIVATE KEY-----\n"))
	f.Add([]byte("-----BEGIN RSA PRIVATE KEY-----\nDEK-Info: AES\n\nMAA=\n-----END RSA PRIVATE KEY-----\n"))
	f.Add([]byte{0, 0xff})
	f.Fuzz(func(t *testing.T, content []byte) {
		path := filepath.Join(t.TempDir(), "x.pem")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		Certificate{
			Property:    "x",
			CA:          path,
			Certificate: path,
			PrivateKey:  path,
			Usage:       UsageServer,
			Names:       []string{"a"},
		}.Check(now)
	})
}
