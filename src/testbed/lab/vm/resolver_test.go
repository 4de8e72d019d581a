package vm

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	dnsclient "github.com/miekg/dns"

	"kubernetes-release/testbed/lab/dns"
	"kubernetes-release/testbed/lab/network"
)

// TestResolverIsAsOnAStemcell resolves a name in a VM, by its resolv.conf and at the address for containers, also from
// a container, which does not reach the loopback address.
func TestResolverIsAsOnAStemcell(t *testing.T) {
	n, state := lab(t)
	server := &dns.Server{
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Lookups: []dns.Lookup{func(name string) ([]netip.Addr, bool) {
			return []netip.Addr{netip.MustParseAddr("192.0.2.7")}, name == "api.kubernetes.internal"
		}},
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	served := make(chan error, 1)
	go func() {
		served <- n.Do(
			func() error { return server.ListenAndServe(ctx, netip.AddrPortFrom(n.Gateway(), dnsPort).String()) },
		)
	}()

	v := create(t, Spec{Name: "one", StateDir: state, Network: n, Address: address(n, 16, 4)})
	if err := v.SetSearchDomains([]string{"bosh", "kubernetes.internal"}); err != nil {
		t.Fatal(err)
	}
	sh(t, v, `ip netns add pod; ip link add v0 type veth peer name eth0 netns pod
ip addr add 10.244.0.1/24 dev v0; ip link set v0 up
ip -n pod addr add 10.244.0.2/24 dev eth0; ip -n pod link set eth0 up; ip -n pod link set lo up
ip -n pod route add default via 10.244.0.1`)
	for _, c := range []struct{ what, script, want string }{
		{"file", "cat /etc/resolv.conf", "nameserver 127.0.0.53\noptions edns0 trust-ad timeout:2 attempts:3\nsearch " +
			"bosh kubernetes.internal"},
		{"by the file", "getent ahostsv4 api.kubernetes.internal | awk '{print $1; exit}'", "192.0.2.7"},
		{"by a search domain", "getent ahostsv4 api | awk '{print $1; exit}'", "192.0.2.7"},
		{"no such name", "getent hosts other.kubernetes.internal || echo none", "none"},
	} {
		if got := sh(t, v, c.script); got != c.want {
			t.Errorf("%s: got %q, want %q", c.what, got, c.want)
		}
	}
	for _, c := range []struct {
		namespace, address string
		answers            bool
	}{
		{"net", "127.0.0.53", true}, {"net", "169.254.0.53", true},
		{"pod", "127.0.0.53", false}, {"pod", "169.254.0.53", true},
	} {
		path := fmt.Sprintf("/proc/%d/ns/net", v.PID())
		if c.namespace == "pod" {
			path = fmt.Sprintf("/proc/%d/root/run/netns/pod", v.PID())
		}
		for _, protocol := range []string{"udp", "tcp"} {
			var answer *dnsclient.Msg
			err := network.Do(path, func() (err error) {
				client := dnsclient.Client{Net: protocol, Timeout: 3 * time.Second}
				answer, _, err = client.Exchange(
					new(dnsclient.Msg).SetQuestion("api.kubernetes.internal.", dnsclient.TypeA), c.address+":53",
				)
				return err
			})
			if c.answers != (err == nil && len(answer.Answer) == 1) {
				t.Errorf(
					"%s over %s in %s: got %v, %v; want an answer: %t", c.address, protocol, c.namespace, answer, err,
					c.answers,
				)
			}
		}
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
