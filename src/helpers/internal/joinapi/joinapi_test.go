package joinapi

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"strings"
	"testing"
	"time"

	"kubernetes-release/internal/kubetest"
)

// TestSubjectsOfRequests has requests that NewCertificateRequest cannot make.
func TestSubjectsOfRequests(t *testing.T) {
	for name, test := range map[string]struct {
		template x509.CertificateRequest
		want     string
	}{
		"masters": {
			x509.CertificateRequest{Subject: pkix.Name{
				CommonName: "system:node:a", Organization: []string{"system:nodes", "system:masters"},
			}},
			"system:masters",
		},
		"no group": {x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:a"}}, "only"},
		"no node": {
			x509.CertificateRequest{Subject: pkix.Name{
				CommonName: "kubernetes-admin", Organization: []string{"system:nodes"},
			}},
			"system:node:NAME",
		},
		"empty name": {
			x509.CertificateRequest{Subject: pkix.Name{
				CommonName: "system:node:", Organization: []string{"system:nodes"},
			}},
			"system:node:NAME",
		},
		"alternative name": {
			x509.CertificateRequest{
				Subject:  pkix.Name{CommonName: "system:node:a", Organization: []string{"system:nodes"}},
				DNSNames: []string{"kubernetes"},
			},
			"alternative names",
		},
	} {
		if got, err := NodeOf(&test.template); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, test.want)
		}
	}
}

// TestLargeKeysAreNotUsed: before it has proved anything, a request costs no computation with a key that no kubelet
// has.
func TestLargeKeysAreNotUsed(t *testing.T) {
	subject := pkix.Name{CommonName: UserPrefix + "worker-0", Organization: []string{Group}}
	started := time.Now()
	_, err := ParseCertificateRequest(kubetest.RequestOfLargeKey(t, subject, 90_000))
	if err == nil || !strings.Contains(err.Error(), "RSA key of 90000 bits") {
		t.Errorf("after %s: %v", time.Since(started), err)
	}
	if _, err := ParseCertificateRequest(kubetest.RequestOfLargeKey(t, subject, 4096)); err == nil ||
		!strings.Contains(err.Error(), "not signed with its own key") {
		t.Errorf("a key of 4096 bits: %v", err)
	}
}
