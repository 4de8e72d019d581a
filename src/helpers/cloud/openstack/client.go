package openstack

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
)

// timeout limits one request.
const timeout = 30 * time.Second

// newClient returns a client that is not authenticated yet. It trusts the CA that the configuration in this file names;
// its requests go through what wrap returns.
func (c config) newClient(
	file string, wrap func(http.RoundTripper) http.RoundTripper,
) (*gophercloud.ProviderClient, error) {
	client, err := openstack.NewClient(c.get("Global", "auth-url"))
	if err != nil {
		return nil, err
	}
	tlsConfig := &tls.Config{MinVersion: tls.VersionTLS12}
	ca, err := c.ca(file)
	if err != nil {
		return nil, fmt.Errorf("ca-file: %w", err)
	}
	if ca != nil {
		tlsConfig.RootCAs = x509.NewCertPool()
		if !tlsConfig.RootCAs.AppendCertsFromPEM(ca) {
			return nil, errors.New("ca-file has no certificate in PEM")
		}
	}
	client.HTTPClient = http.Client{
		Timeout:   timeout,
		Transport: wrap(&http.Transport{TLSClientConfig: tlsConfig, Proxy: http.ProxyFromEnvironment}),
	}
	return client, nil
}
