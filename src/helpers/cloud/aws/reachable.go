package aws

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"

	"golang.org/x/net/http/httpproxy"
)

// registryEndpoint is the URL of the region's container registry API, or of its replacement in the SDK's environment
// variables.
func registryEndpoint(region string) *url.URL {
	for _, name := range []string{"AWS_ENDPOINT_URL_ECR", "AWS_ENDPOINT_URL"} {
		if u, err := url.Parse(os.Getenv(name)); err == nil && u.Host != "" {
			return &url.URL{Scheme: u.Scheme, Host: u.Host}
		}
	}
	return &url.URL{Scheme: "https", Host: fmt.Sprintf("api.ecr.%s.%s", region, partitionOf(region).domain)}
}

// hostPort is the address that a URL stands for.
func hostPort(u *url.URL) string {
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "http":
		port = "80"
	default:
		port = "443"
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// reachable opens and closes a connection to an endpoint, through the proxy that the environment names for it.
func (p *Provider) reachable(ctx context.Context, endpoint *url.URL) error {
	if p.Reachable != nil {
		return p.Reachable(hostPort(endpoint))
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	proxy, err := httpproxy.FromEnvironment().ProxyFunc()(endpoint)
	if err != nil {
		return fmt.Errorf("proxy for %s: %w", endpoint, err)
	}
	if proxy != nil {
		return reachableThrough(ctx, proxy, endpoint)
	}
	connection, err := new(net.Dialer).DialContext(ctx, "tcp", hostPort(endpoint))
	if err != nil {
		return err
	}
	return connection.Close()
}

func reachableThrough(ctx context.Context, proxy, endpoint *url.URL) error {
	connected := false
	transport := &http.Transport{
		Proxy: http.ProxyURL(proxy),
		OnProxyConnectResponse: func(_ context.Context, _ *url.URL, _ *http.Request, response *http.Response) error {
			connected = response.StatusCode == http.StatusOK
			return nil
		},
	}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodHead, endpoint.String(), nil)
	if err != nil {
		return err
	}
	response, err := transport.RoundTrip(request)
	switch {
	case err == nil:
		_ = response.Body.Close()
	case connected: // the endpoint's answer does not matter
		return nil
	default:
		return fmt.Errorf("through the proxy %s: %w", proxy.Redacted(), err)
	}
	if response.StatusCode >= http.StatusBadGateway && endpoint.Scheme == "http" {
		return fmt.Errorf("the proxy %s answered HTTP %d", proxy.Redacted(), response.StatusCode)
	}
	return nil
}
