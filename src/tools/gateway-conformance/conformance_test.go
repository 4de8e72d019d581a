// Package conformance runs the conformance tests of Gateway API against the load balancers of the simulator. make
// gateway-conformance builds it; the release does not ship it.
package conformance

import (
	"context"
	"net"
	"os"
	"testing"

	"sigs.k8s.io/gateway-api/conformance"
)

// TestConformance takes the flags of the suite. DNS_SERVER (IP:PORT) resolves the names of load balancers.
func TestConformance(t *testing.T) {
	net.DefaultResolver = &net.Resolver{
		PreferGo: true,
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, os.Getenv("DNS_SERVER"))
		},
	}
	conformance.RunConformance(t)
}
