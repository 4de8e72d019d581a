// Package joinapi is what a VM that joins (package node/join) and a control VM (package control/nodes/join) tell each
// other: the request with the proof of which machine the VM is, and the response with the certificate of its node.
package joinapi

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	// Path is the path of the endpoint.
	Path = "/v1/join"
	// MaxRequest limits the body of a request, in bytes. It has about 3 KB, most of it a session token.
	MaxRequest = 32 << 10
	// MaxResponse limits the body of a response, in bytes.
	MaxResponse = 64 << 10

	// Timeout limits one request.
	Timeout = time.Minute

	// UserPrefix and the name of a node are the node's user name at the API.
	UserPrefix = "system:node:"
	// Group is the group that nodes have as users of the API.
	Group = "system:nodes"

	// maxKey limits RSA keys, in bits, as crypto/tls does: the time for a signature grows with the square of it, and
	// crypto/rsa takes a key of any size. kubelets have ECDSA keys.
	maxKey = 8192

	// maxName is the limit of Kubernetes for names of nodes.
	maxName = 253
)

// Request is the body of a request.
type Request struct {
	// CertificateRequest is PEM.
	CertificateRequest string          `json:"certificate_request"`
	Proof              json.RawMessage `json:"proof"`
}

// Response is the body of a response: a certificate or an error.
type Response struct {
	// Certificate is PEM.
	Certificate string `json:"certificate,omitempty"`
	Error       string `json:"error,omitempty"`
}

// NewCertificateRequest creates the key of a node and a certificate request, both PEM.
func NewCertificateRequest(name string) (key, certificateRequest []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	encoded, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: UserPrefix + name, Organization: []string{Group}},
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, private)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(
		&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded},
	), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), nil
}

// ParseCertificateRequest decodes a certificate request, PEM, and checks that it is signed with its own key.
func ParseCertificateRequest(content []byte) (*x509.CertificateRequest, error) {
	block, rest := pem.Decode(content)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("the request is not a PEM block of type CERTIFICATE REQUEST")
	}
	if len(strings.TrimSpace(string(rest))) > 0 {
		return nil, errors.New("the request has data after its PEM block")
	}
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("the request cannot be parsed: %w", err)
	}
	if key, ok := parsed.PublicKey.(*rsa.PublicKey); ok && key.N.BitLen() > maxKey {
		return nil, fmt.Errorf("the request has an RSA key of %d bits; it can have %d", key.N.BitLen(), maxKey)
	}
	if err := parsed.CheckSignature(); err != nil {
		return nil, fmt.Errorf("the request is not signed with its own key: %w", err)
	}
	return parsed, nil
}

// NodeOf returns the name of the node for which a request asks a client certificate, or why it asks for something else.
func NodeOf(parsed *x509.CertificateRequest) (string, error) {
	name, isNode := strings.CutPrefix(parsed.Subject.CommonName, UserPrefix)
	switch {
	case !isNode || name == "":
		return "", fmt.Errorf(
			"common name is %q; it must be %sNAME", Clip(parsed.Subject.CommonName, maxName), UserPrefix,
		)
	case len(name) > maxName:
		return "", fmt.Errorf(
			"the name of the node, %q, has %d characters; it can have %d", Clip(name, 64), len(name), maxName,
		)
	case !slices.Equal(parsed.Subject.Organization, []string{Group}):
		return "", fmt.Errorf("organizations are %q; only %q is allowed", parsed.Subject.Organization, Group)
	case len(parsed.DNSNames)+len(parsed.IPAddresses)+len(parsed.URIs)+len(parsed.EmailAddresses) > 0:
		return "", errors.New("it contains alternative names, which the client certificate of a node does not have")
	}
	return name, nil
}

// Clip shortens a text that the client chose.
func Clip(text string, length int) string {
	if len(text) <= length {
		return text
	}
	return strings.ToValidUTF8(text[:length], "") + "…"
}

// CheckPath refuses a path of a configuration that is not absolute.
func CheckPath(key, path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("%s is %q: set an absolute path", key, path)
	}
	return nil
}
