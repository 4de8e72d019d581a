package account

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	"kubernetes-release/internal/atomicfile"
	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/selfsigned"
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
		public, key, err := selfsigned.New("Simulated cloud", hosts...)
		if err != nil {
			return tls.Certificate{}, err
		}
		content = slices.Concat(public, key)
		if err := errors.Join(
			atomicfile.Write(a.TrustedCA(), public, 0o644), atomicfile.Write(file, content, 0o600),
		); err != nil {
			return tls.Certificate{}, err
		}
	} else if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(content, content)
}
