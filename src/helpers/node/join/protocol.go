// Package join lets VMs join the cluster as nodes: as the node that they are, and no other.
//
// A VM creates its key, and sends a certificate request with a proof of which machine it is to a control VM. There, an
// authority (node.Authority) determines from the proof the machine, and with it the only name that it can have as a
// node. The certificate request is approved by this package alone, and signed by kubelet-signer. From then on,
// the kubelet renews its certificate with the one that it has; see package approver.
package join

import (
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
)

const (
	// Path is the path of the endpoint.
	Path = "/v1/join"
	// maxRequest and maxResponse limit bodies, in bytes. A request has about 3 KB, most of it a session token.
	maxRequest  = 32 << 10
	maxResponse = 64 << 10

	// maxKey limits RSA keys, in bits, as crypto/tls does: the time for a signature grows with the square of it, and
	// crypto/rsa takes a key of any size. kubelets have ECDSA keys.
	maxKey = 8192

	// maxName is the limit of Kubernetes for names of nodes.
	maxName = 253

	nodeUserPrefix = "system:node:"
	nodesGroup     = "system:nodes"
)

// request is the body of a request.
type request struct {
	// CertificateRequest is PEM.
	CertificateRequest string          `json:"certificate_request"`
	Proof              json.RawMessage `json:"proof"`
}

// response is the body of a response: a certificate or an error.
type response struct {
	// Certificate is PEM.
	Certificate string `json:"certificate,omitempty"`
	Error       string `json:"error,omitempty"`
}

// ParseRequest decodes a certificate request, PEM, and checks that it is signed with its own key.
func ParseRequest(content []byte) (*x509.CertificateRequest, error) {
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
	name, isNode := strings.CutPrefix(parsed.Subject.CommonName, nodeUserPrefix)
	switch {
	case !isNode || name == "":
		return "", fmt.Errorf(
			"common name is %q; it must be %sNAME", clip(parsed.Subject.CommonName, maxName), nodeUserPrefix,
		)
	case len(name) > maxName:
		return "", fmt.Errorf(
			"the name of the node, %q, has %d characters; it can have %d", clip(name, 64), len(name), maxName,
		)
	case !slices.Equal(parsed.Subject.Organization, []string{nodesGroup}):
		return "", fmt.Errorf("organizations are %q; only %q is allowed", parsed.Subject.Organization, nodesGroup)
	case len(parsed.DNSNames)+len(parsed.IPAddresses)+len(parsed.URIs)+len(parsed.EmailAddresses) > 0:
		return "", errors.New("it contains alternative names, which the client certificate of a node does not have")
	}
	return name, nil
}
