package signer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const year = 365 * 24 * time.Hour

// newCA writes a CA that is valid until a time, and loads it.
func newCA(t *testing.T, notAfter time.Time, duration time.Duration) *Authority {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubelets"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: notAfter, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, private := filepath.Join(t.TempDir(), "ca.pem"), filepath.Join(t.TempDir(), "ca.key")
	for path, block := range map[string]*pem.Block{
		certificate: {Type: "CERTIFICATE", Bytes: der}, private: {Type: "PRIVATE KEY", Bytes: encoded},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	authority, err := LoadAuthority(certificate, private, duration)
	if err != nil {
		t.Fatal(err)
	}
	return authority
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// request is what a kubelet sends, approved; change makes something else of it.
func request(
	t *testing.T, signer string, change func(*certificatesv1.CertificateSigningRequest, *x509.CertificateRequest),
) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	template := &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:a", Organization: []string{"system:nodes"}},
	}
	csr := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "csr-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: signer,
			Username:   "system:node:a", Groups: []string{"system:nodes", "system:authenticated"},
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
		Status: certificatesv1.CertificateSigningRequestStatus{
			Conditions: []certificatesv1.CertificateSigningRequestCondition{
				{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue},
			},
		},
	}
	if signer == certificatesv1.KubeletServingSignerName {
		template.DNSNames, template.IPAddresses = []string{"a"}, []net.IP{net.IPv4(10, 0, 0, 1)}
		csr.Spec.Usages[1] = certificatesv1.UsageServerAuth
	}
	if change != nil {
		change(csr, template)
	}
	if csr.Spec.Request == nil {
		der, err := x509.CreateCertificateRequest(rand.Reader, template, newKey(t))
		if err != nil {
			t.Fatal(err)
		}
		csr.Spec.Request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	}
	return csr
}

func parse(t *testing.T, certificate []byte) *x509.Certificate {
	t.Helper()
	block, rest := pem.Decode(certificate)
	if block == nil || len(rest) > 0 {
		t.Fatalf("not one certificate: %s", certificate)
	}
	parsed, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// TestSignsWhatKubeletsRequest: what matters to kubelet and to the API server is as kube-controller-manager signs it.
func TestSignsWhatKubeletsRequest(t *testing.T) {
	now := time.Now()
	authority := newCA(t, now.Add(10*year), year)
	roots := x509.NewCertPool()
	roots.AddCert(authority.certificate)
	seconds := func(n int32) *int32 { return &n }
	for name, test := range map[string]struct {
		signer    string
		change    func(*certificatesv1.CertificateSigningRequest, *x509.CertificateRequest)
		usage     x509.ExtKeyUsage
		keyUsage  x509.KeyUsage
		wantUntil time.Duration
	}{
		"client": {
			signer: certificatesv1.KubeAPIServerClientKubeletSignerName, usage: x509.ExtKeyUsageClientAuth,
			keyUsage: x509.KeyUsageDigitalSignature, wantUntil: year - backdate,
		},
		"first client, by join": {
			signer: certificatesv1.KubeAPIServerClientKubeletSignerName, usage: x509.ExtKeyUsageClientAuth,
			change: func(csr *certificatesv1.CertificateSigningRequest, _ *x509.CertificateRequest) {
				csr.Spec.Username, csr.Spec.Groups = joinUser, []string{"system:authenticated"}
			},
			keyUsage: x509.KeyUsageDigitalSignature, wantUntil: year - backdate,
		},
		"serving": {
			signer: certificatesv1.KubeletServingSignerName, usage: x509.ExtKeyUsageServerAuth,
			keyUsage: x509.KeyUsageDigitalSignature, wantUntil: year - backdate,
		},
		"RSA": {
			signer: certificatesv1.KubeletServingSignerName, usage: x509.ExtKeyUsageServerAuth,
			change: func(csr *certificatesv1.CertificateSigningRequest, _ *x509.CertificateRequest) {
				csr.Spec.Usages = append(csr.Spec.Usages, certificatesv1.UsageKeyEncipherment)
			},
			keyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment, wantUntil: year - backdate,
		},
		"one hour": {
			signer: certificatesv1.KubeletServingSignerName, usage: x509.ExtKeyUsageServerAuth,
			change: func(csr *certificatesv1.CertificateSigningRequest, _ *x509.CertificateRequest) {
				csr.Spec.ExpirationSeconds = seconds(3600)
			},
			keyUsage: x509.KeyUsageDigitalSignature, wantUntil: time.Hour,
		},
		"too short": {
			signer: certificatesv1.KubeletServingSignerName, usage: x509.ExtKeyUsageServerAuth,
			change: func(csr *certificatesv1.CertificateSigningRequest, _ *x509.CertificateRequest) {
				csr.Spec.ExpirationSeconds = seconds(1)
			},
			keyUsage: x509.KeyUsageDigitalSignature, wantUntil: minDuration,
		},
		"too long": {
			signer: certificatesv1.KubeletServingSignerName, usage: x509.ExtKeyUsageServerAuth,
			change: func(csr *certificatesv1.CertificateSigningRequest, _ *x509.CertificateRequest) {
				csr.Spec.ExpirationSeconds = seconds(1<<31 - 1)
			},
			keyUsage: x509.KeyUsageDigitalSignature, wantUntil: year - backdate,
		},
	} {
		t.Run(name, func(t *testing.T) {
			encoded, err := authority.Sign(request(t, test.signer, test.change), now)
			if err != nil {
				t.Fatal(err)
			}
			signed := parse(t, encoded)
			if _, err := signed.Verify(
				x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{test.usage}},
			); err != nil {
				t.Error(err)
			}
			if got := signed.Subject.String(); got != "CN=system:node:a,O=system:nodes" {
				t.Errorf("subject is %s", got)
			}
			if len(signed.ExtKeyUsage) != 1 || signed.KeyUsage != test.keyUsage || signed.IsCA {
				t.Errorf("usages are %v and %v, CA: %t", signed.KeyUsage, signed.ExtKeyUsage, signed.IsCA)
			}
			if serving := test.usage == x509.ExtKeyUsageServerAuth; serving != (len(signed.DNSNames) == 1) ||
				serving != (len(signed.IPAddresses) == 1) {
				t.Errorf("names are %v and %v", signed.DNSNames, signed.IPAddresses)
			}
			if got := now.Sub(signed.NotBefore).Round(time.Minute); got != backdate {
				t.Errorf("valid since %s ago", got)
			}
			if got := signed.NotAfter.Sub(now).Round(time.Minute); got != test.wantUntil {
				t.Errorf("valid for %s, want %s", got, test.wantUntil)
			}
		})
	}
}

// TestRefusesWhatWasApprovedAllTheSame: who can approve, also with a stolen certificate of the approver, gets nothing
// but certificates of nodes.
func TestRefusesWhatWasApprovedAllTheSame(t *testing.T) {
	authority := newCA(t, time.Now().Add(10*year), year)
	type csr = certificatesv1.CertificateSigningRequest
	for name, test := range map[string]struct {
		change func(*csr, *x509.CertificateRequest)
		want   string
	}{
		"not approved": {
			func(c *csr, _ *x509.CertificateRequest) {
				c.Status.Conditions = nil
			}, "not approved",
		},
		"approval withdrawn": {
			func(c *csr, _ *x509.CertificateRequest) {
				c.Status.Conditions[0].Status = "False"
			}, "not approved",
		},
		"signer of people": {func(c *csr, _ *x509.CertificateRequest) {
			c.Spec.SignerName = certificatesv1.KubeAPIServerClientSignerName
		}, "not approved"},
		"another node": {
			func(_ *csr, r *x509.CertificateRequest) {
				r.Subject.CommonName = "system:node:b"
			}, `"system:node:b"`,
		},
		"administrators": {
			func(_ *csr, r *x509.CertificateRequest) {
				r.Subject.Organization = []string{"system:masters"}
			}, "system:masters",
		},
		"administrators too": {func(_ *csr, r *x509.CertificateRequest) {
			r.Subject.Organization = append(r.Subject.Organization, "system:masters")
		}, "system:masters"},
		"another attribute": {
			func(_ *csr, r *x509.CertificateRequest) {
				r.Subject.OrganizationalUnit = []string{"x"}
			}, "subject is",
		},
		"second common name": {func(_ *csr, r *x509.CertificateRequest) { secondName(t, r) }, "subject is"},
		"usage of a CA": {func(c *csr, _ *x509.CertificateRequest) {
			c.Spec.Usages = append(c.Spec.Usages, certificatesv1.UsageCertSign)
		}, "cert sign"},
		"any usage": {func(c *csr, _ *x509.CertificateRequest) {
			c.Spec.Usages = append(c.Spec.Usages, certificatesv1.UsageAny)
		}, `"any"`},
		"usage of servers": {func(c *csr, _ *x509.CertificateRequest) {
			c.Spec.Usages = append(c.Spec.Usages, certificatesv1.UsageServerAuth)
		}, "server auth"},
		"CA:true": {
			func(_ *csr, r *x509.CertificateRequest) {
				r.ExtraExtensions = []pkix.Extension{isCA(t)}
			}, "extension 2.5.29.19",
		},
		"names in a client's": {
			func(_ *csr, r *x509.CertificateRequest) {
				r.DNSNames = []string{"api"}
			}, `"api"`,
		},
		"URI": {
			func(_ *csr, r *x509.CertificateRequest) {
				r.URIs = []*url.URL{{Scheme: "spiffe", Host: "a"}}
			}, "spiffe",
		},
		"e-mail": {
			func(_ *csr, r *x509.CertificateRequest) {
				r.EmailAddresses = []string{"a@b"}
			}, "a@b",
		},
		"sent by a person": {func(c *csr, _ *x509.CertificateRequest) {
			c.Spec.Username, c.Spec.Groups = "admin", []string{"system:masters"}
		}, "not a node"},
		"join, administrators": {func(c *csr, r *x509.CertificateRequest) {
			c.Spec.Username, r.Subject.Organization = joinUser, []string{"system:masters"}
		}, "system:masters"},
		"join, not a node": {
			func(c *csr, r *x509.CertificateRequest) {
				c.Spec.Username, r.Subject.CommonName = joinUser, "admin"
			}, `"admin"`,
		},
		"garbage": {
			func(c *csr, _ *x509.CertificateRequest) {
				c.Spec.Request = []byte("x")
			}, "PEM",
		},
	} {
		t.Run(name, func(t *testing.T) {
			certificate, err := authority.Sign(
				request(t, certificatesv1.KubeAPIServerClientKubeletSignerName, test.change), time.Now(),
			)
			var refusal *Refusal
			if !errors.As(err, &refusal) || !strings.Contains(refusal.Reason, test.want) || certificate != nil {
				t.Errorf("got %s, %v; want it refused for %s", certificate, err, test.want)
			}
		})
	}
	// The endpoint where VMs join requests client certificates only.
	byJoin := func(c *csr, _ *x509.CertificateRequest) { c.Spec.Username = joinUser }
	_, err := authority.Sign(request(t, certificatesv1.KubeletServingSignerName, byJoin), time.Now())
	if err == nil || !strings.Contains(err.Error(), "not a node") {
		t.Errorf("serving certificate for the endpoint: %v", err)
	}
}

// secondName adds a second common name, which crypto/x509 shows instead of the first.
func secondName(t *testing.T, r *x509.CertificateRequest) {
	t.Helper()
	r.Subject.ExtraNames = []pkix.AttributeTypeAndValue{
		{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: "system:node:b"},
		{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: "system:node:a"},
	}
}

func isCA(t *testing.T) pkix.Extension {
	t.Helper()
	value, err := asn1.Marshal(struct{ IsCA bool }{true})
	if err != nil {
		t.Fatal(err)
	}
	return pkix.Extension{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Critical: true, Value: value}
}

func TestCAThatExpires(t *testing.T) {
	now := time.Now()
	client := certificatesv1.KubeAPIServerClientKubeletSignerName
	soon := newCA(t, now.Add(time.Hour), year)
	certificate, err := soon.Sign(request(t, client, nil), now)
	if err != nil {
		t.Fatal(err)
	}
	if signed := parse(t, certificate); signed.NotAfter.After(soon.certificate.NotAfter) {
		t.Errorf("valid until %s, after the CA", signed.NotAfter)
	}
	_, err = soon.Sign(request(t, client, nil), now.Add(2*time.Hour))
	var refusal *Refusal
	if err == nil || errors.As(err, &refusal) {
		t.Errorf("an expired CA: %v; want an error that passes when the CA was rotated", err)
	}
}
