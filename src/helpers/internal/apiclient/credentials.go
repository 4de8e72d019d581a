package apiclient

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"time"
)

// requestTimeout limits one request, to leave time for others if a server accepts it and never answers.
const requestTimeout = 10 * time.Second

// Credentials are the paths of the PEM files by which client and server authenticate to each other. Each can be empty.
type Credentials struct {
	// CA is the bundle that the server's certificate must chain to; defaults to the VM's own CAs.
	CA string
	// Certificate and PrivateKey are the client certificate.
	Certificate, PrivateKey string
}

// New returns a client that uses no proxy and follows no redirect. A CA or a certificate that cannot be read is an
// error.
func New(server string, credentials Credentials) (*Client, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if credentials.CA != "" {
		bundle, err := os.ReadFile(credentials.CA)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(bundle) {
			return nil, fmt.Errorf("CA %s: the file contains no certificate", credentials.CA)
		}
	}
	if credentials.Certificate != "" {
		pair, err := tls.LoadX509KeyPair(credentials.Certificate, credentials.PrivateKey)
		if err != nil {
			return nil, fmt.Errorf(
				"certificate %s with private key %s: %w", credentials.Certificate, credentials.PrivateKey, err,
			)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return &Client{Server: server, credentials: credentials, HTTP: &http.Client{
		Transport:     &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true},
		Timeout:       requestTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// explain adds to a refusal of the credentials which ones they are.
func (c Credentials) explain(refusal *StatusError) error {
	switch {
	case refusal.StatusCode != http.StatusUnauthorized:
		return refusal
	case c.Certificate != "":
		return fmt.Errorf("the server does not accept the client certificate %s: %w", c.Certificate, refusal)
	}
	return refusal
}
