package signer

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	"kubernetes-release/control/nodes/approver"
	"kubernetes-release/internal/joinapi"
)

const (
	// joinUser requests first client certificates, see package join. All others are requested by the node itself.
	joinUser       = "system:node-controller"
	nodeUserPrefix = "system:node:"
	nodesGroup     = "system:nodes"

	// backdate lets a certificate be valid on VMs whose clocks are late. minDuration is the shortest that a requester
	// gets, and a certificate that is shorter than short is not shortened by backdate: all as in Kubernetes
	// (pkg/controller/certificates/signer/signer.go).
	backdate    = 5 * time.Minute
	minDuration = 10 * time.Minute
	short       = 8 * time.Hour
	// serialBits is the size of serial numbers, which are random (CA/Browser Forum, at least 64 bits).
	serialBits = 128
)

// Authority signs certificates of kubelets.
type Authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
	duration    time.Duration
}

// LoadAuthority reads the certificate and the private key (PEM) of the CA. No certificate is valid for longer than
// duration, or than the CA itself. The error names the files.
func LoadAuthority(certificate, key string, duration time.Duration) (*Authority, error) {
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("CA %s with private key %s: %w", certificate, key, err)
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if !ok || !pair.Leaf.IsCA {
		return nil, fmt.Errorf("CA %s with private key %s: it cannot sign certificates", certificate, key)
	}
	if duration < minDuration {
		return nil, fmt.Errorf("certificates are valid for %s: set at least %s", duration, minDuration)
	}
	return &Authority{certificate: pair.Leaf, key: signer, duration: duration}, nil
}

// Refusal is why a request is never signed.
type Refusal struct{ Reason string }

func (r *Refusal) Error() string { return r.Reason }

// Due reports whether a request waits for its certificate.
func Due(request *certificatesv1.CertificateSigningRequest) bool {
	if !slices.Contains([]string{
		certificatesv1.KubeletServingSignerName, certificatesv1.KubeAPIServerClientKubeletSignerName,
	}, request.Spec.SignerName) || len(request.Status.Certificate) > 0 {
		return false
	}
	approved := false
	for _, condition := range request.Status.Conditions {
		switch condition.Type {
		case certificatesv1.CertificateDenied, certificatesv1.CertificateFailed:
			return false
		case certificatesv1.CertificateApproved:
			approved = approved || condition.Status == corev1.ConditionTrue
		}
	}
	return approved
}

// Sign returns the certificate (PEM) for an approved request. It believes nothing in it because it was approved: what
// no kubelet would send is refused with a Refusal. Other errors may pass.
func (a *Authority) Sign(request *certificatesv1.CertificateSigningRequest, now time.Time) ([]byte, error) {
	if !Due(request) {
		return nil, &Refusal{"it is not approved, or has been decided otherwise"}
	}
	parsed, err := joinapi.ParseCertificateRequest(request.Spec.Request)
	if err != nil {
		return nil, &Refusal{err.Error()}
	}
	user, err := userOf(request, parsed)
	if err != nil {
		return nil, err
	}
	if problem := approver.Forged(request, parsed, user); problem != "" {
		return nil, &Refusal{problem}
	}
	if !now.Before(a.certificate.NotAfter) {
		return nil, fmt.Errorf("the CA has expired at %s: rotate it", a.certificate.NotAfter.Format(time.RFC3339))
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), serialBits))
	if err != nil {
		return nil, err
	}
	// The certificate is built here, and not copied from the request: nothing gets in that is not named.
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: user, Organization: []string{nodesGroup}},
		DNSNames:              parsed.DNSNames,
		IPAddresses:           parsed.IPAddresses,
		NotBefore:             now.Add(-backdate),
		NotAfter:              a.notAfter(request.Spec.ExpirationSeconds, now),
		BasicConstraintsValid: true,
	}
	for _, usage := range request.Spec.Usages {
		switch usage {
		case certificatesv1.UsageDigitalSignature:
			template.KeyUsage |= x509.KeyUsageDigitalSignature
		case certificatesv1.UsageKeyEncipherment:
			template.KeyUsage |= x509.KeyUsageKeyEncipherment
		}
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if request.Spec.SignerName == certificatesv1.KubeletServingSignerName {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, parsed.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	var encoded bytes.Buffer
	err = pem.Encode(&encoded, &pem.Block{Type: "CERTIFICATE", Bytes: der})
	return encoded.Bytes(), err
}

// userOf returns the node user for whom the request's sender can get a certificate: a node for itself, and the endpoint
// where VMs join for the node that a VM has proved to be.
func userOf(
	request *certificatesv1.CertificateSigningRequest, parsed *x509.CertificateRequest,
) (string, error) {
	sender := request.Spec.Username
	if sender == joinUser && request.Spec.SignerName == certificatesv1.KubeAPIServerClientKubeletSignerName {
		if _, err := joinapi.NodeOf(parsed); err != nil {
			return "", &Refusal{err.Error()}
		}
		return parsed.Subject.CommonName, nil
	}
	name, isNode := strings.CutPrefix(sender, nodeUserPrefix)
	if !isNode || name == "" || !slices.Contains(request.Spec.Groups, nodesGroup) {
		return "", &Refusal{fmt.Sprintf("requested by user %q with groups %q, which is not a node", sender,
			request.Spec.Groups)}
	}
	return sender, nil
}

// notAfter is when a certificate that is signed now expires.
func (a *Authority) notAfter(seconds *int32, now time.Time) time.Time {
	duration := a.duration
	if seconds != nil {
		duration = min(max(time.Duration(*seconds)*time.Second, minDuration), a.duration)
	}
	end := now.Add(duration)
	if duration >= short {
		end = end.Add(-backdate)
	}
	if end.After(a.certificate.NotAfter) {
		return a.certificate.NotAfter
	}
	return end
}
