package account

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/http"
	"os"
	"time"

	"kubernetes-release/internal/atomicfile"
	"kubernetes-release/testbed/awssim"
)

// TrustedCA is the file with the certificate of the simulated cloud's own host names, which every VM trusts as it
// trusts the CAs of the real ones.
func (a Account) TrustedCA() string { return a.path("cloud-ca.pem") }

// publicKeyFile holds the certificate and its key.
const publicKeyFile = "cloud-ca-and-key.pem"

// registryServer serves the simulated cloud's registry on the port of HTTPS.
func (a Account) registryServer(simulator *awssim.Simulator) (*http.Server, error) {
	certificate, err := a.publicCertificate(simulator.RegistryHosts())
	if err != nil {
		return nil, fmt.Errorf("creating the certificate of the simulated registry: %w", err)
	}
	return &http.Server{
		Addr:              net.JoinHostPort(a.Network.Gateway().String(), "443"),
		Handler:           simulator.RegistryHandler(),
		ReadHeaderTimeout: 10 * time.Second,
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
	}, nil
}

// publicCertificate returns the lab's certificate for the hosts, and creates it the first time: the VMs that exist
// trust it.
func (a Account) publicCertificate(hosts []string) (tls.Certificate, error) {
	file := a.path(publicKeyFile)
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		var public []byte
		if public, content, err = selfSigned(hosts); err != nil {
			return tls.Certificate{}, err
		}
		err = errors.Join(atomicfile.Write(a.TrustedCA(), public, 0o644), atomicfile.Write(file, content, 0o600))
	}
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(content, content)
}

// selfSigned returns a certificate in PEM, alone and with its key.
func selfSigned(hosts []string) (public, withKey []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Simulated cloud"}, DNSNames: hosts,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	public = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
	return public, append(
		bytes.Clone(public),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...), nil
}
