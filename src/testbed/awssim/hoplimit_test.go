package awssim_test

import (
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/awssim/store"
)

// behindRouter is a client that drops packets with fewer than two hops left, like the router in front of a container.
func behindRouter(source netip.Addr) *http.Client {
	dialer := &net.Dialer{
		LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(source, 0)),
		Control: func(_, _ string, c syscall.RawConn) error {
			var err error
			control := c.Control(
				func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MINTTL, 2) },
			)
			if control != nil {
				return control
			}
			return err
		},
	}
	return &http.Client{
		Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true},
		Timeout:   300 * time.Millisecond,
	}
}

func TestHopLimit(t *testing.T) {
	b := start(t, testWorld(t), awssim.Options{})
	address := b.sim.World().Instances[1].Address
	ask := func(client *http.Client, method, path string) string {
		t.Helper()
		req, err := http.NewRequest(method, b.metadata+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-aws-ec2-metadata-token-ttl-seconds", "60")
		resp, err := client.Do(req)
		if err != nil {
			return "no answer"
		}
		resp.Body.Close()
		return resp.Status
	}
	const token, id = "/latest/api/token", "/latest/meta-data/instance-id"
	for _, tc := range []struct {
		limit           int
		host, container string
	}{
		{1, "200 OK", "no answer"},
		{2, "200 OK", "200 OK"},
	} {
		update(t, b, func(w *store.World) {
			w.Instances[1].Metadata.HopLimit = tc.limit
			w.Instances[1].Metadata.HTTPTokens = "optional"
		})
		if got := ask(fromAddress(address), "PUT", token); got != tc.host {
			t.Errorf("limit %d, token for the host: %s, want %s", tc.limit, got, tc.host)
		}
		if got := ask(behindRouter(address), "PUT", token); got != tc.container {
			t.Errorf("limit %d, token for a container: %s, want %s", tc.limit, got, tc.container)
		}
		if got := ask(behindRouter(address), "GET", id); got != "200 OK" {
			t.Errorf("limit %d: a container's GET got %s, but the limit is for tokens only", tc.limit, got)
		}
	}
}
