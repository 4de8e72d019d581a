package awsclient

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"

	"golang.org/x/net/http/httpproxy"
)

// Reachable opens and closes a connection to an endpoint, through the proxy that the environment names for it.
func Reachable(ctx context.Context, endpoint *url.URL) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	proxy, err := httpproxy.FromEnvironment().ProxyFunc()(endpoint)
	if err != nil {
		return fmt.Errorf("proxy for %s: %w", endpoint, err)
	}
	if proxy != nil {
		return reachableThrough(ctx, proxy, endpoint)
	}
	connection, err := new(net.Dialer).DialContext(ctx, "tcp", HostPort(endpoint))
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
