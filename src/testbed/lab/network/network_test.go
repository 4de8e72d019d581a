package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func requireRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("creating network namespaces requires root")
	}
}

// testNetwork chooses a free network, which is released when the test ends.
func testNetwork(t *testing.T) Network {
	t.Helper()
	requireRoot(t)
	n, err := Choose()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Destroy() })
	return n
}

func TestChooseReservesTheNetwork(t *testing.T) {
	one, two := testNetwork(t), testNetwork(t)
	if one == two {
		t.Errorf("network %d was chosen twice", one.Number)
	}
	if err := one.Destroy(); err != nil {
		t.Fatal(err)
	}
	if left, err := Leftovers(one, ""); err != nil || len(left) != 0 {
		t.Errorf("left after Destroy: %q, %v", left, err)
	}
}

func TestChooseSkipsNetworksWithControlGroupsLeft(t *testing.T) {
	killed := testNetwork(t)
	hierarchy := "/sys/fs/cgroup" // version 2 has one
	if _, err := os.Stat("/sys/fs/cgroup/pids"); err == nil {
		hierarchy = "/sys/fs/cgroup/pids"
	}
	group := filepath.Join(hierarchy, CgroupName(killed))
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(group) })
	if err := killed.Destroy(); err != nil {
		t.Fatal(err)
	}
	if n := testNetwork(t); n == killed {
		t.Errorf("network %d was chosen although %s exists", n.Number, group)
	}
}

func TestNamesAndAddresses(t *testing.T) {
	n := Network{Number: 42}
	for _, c := range []struct{ what, got, want string }{
		{"namespace", n.Namespace(), "klab42-cloud"},
		{"interface", n.HostInterface(), "klab42"},
		{"prefix", n.Prefix().String(), "10.42.0.0/16"},
		{"gateway", n.Gateway().String(), "10.42.0.1"},
		{"host address", n.HostAddress().String(), "10.42.255.254"},
		{"port", PortName(netip.MustParseAddr("10.42.16.4")), "v16-4"},
		{"longest port fits an interface name", PortName(netip.MustParseAddr("10.42.255.255")), "v255-255"},
		{"hardware address", HardwareAddress(netip.MustParseAddr("10.42.16.4")).String(), "06:4c:0a:2a:10:04"},
	} {
		if c.got != c.want {
			t.Errorf("%s: got %s, want %s", c.what, c.got, c.want)
		}
	}
}

func TestCheckRefusesNumbersOutOfRange(t *testing.T) {
	for number, valid := range map[int]bool{
		-1: false, 0: false, 19: false, 20: true, 250: true, 251: false, 300: false,
	} {
		if err := (Network{Number: number}).Check(); (err == nil) != valid {
			t.Errorf("number %d: got error %v, want valid %v", number, err, valid)
		}
	}
}

func TestChooseAvoidsAddressesOfTheHost(t *testing.T) {
	n := testNetwork(t)
	dummy := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: fmt.Sprintf("klabtest%d", n.Number)}}
	if err := netlink.LinkAdd(dummy); err != nil {
		t.Skipf("this kernel has no dummy interface: %v", err)
	}
	t.Cleanup(func() { _ = netlink.LinkDel(dummy) })
	if conflict, err := n.conflict(); err != nil || conflict != "" {
		t.Fatalf("before: %q, %v", conflict, err)
	}
	if err := addAddress(dummy.Name, netip.PrefixFrom(n.Prefix().Addr().Next(), 24)); err != nil {
		t.Fatal(err)
	}
	if err := up(dummy.Name); err != nil {
		t.Fatal(err)
	}
	if free, err := n.free(); err != nil || free {
		t.Errorf("free %v, %v although the host has an address in %s", free, err, n.Prefix())
	}
	if err := n.Create(); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), "route 10.") {
		t.Errorf("Create: got %v, want ErrInUse with the route", err)
	}
}

func TestCreateServeDestroy(t *testing.T) {
	n := testNetwork(t)
	for range 2 { // the second time everything exists
		if err := n.Create(); err != nil {
			t.Fatal(err)
		}
	}
	if !n.Exists() {
		t.Fatal("the network does not exist after Create")
	}

	balancer := netip.AddrFrom4([4]byte{10, byte(n.Number), 101, 7})
	if err := n.AddAddress(balancer); err != nil {
		t.Fatal(err)
	}
	for _, address := range []netip.Addr{n.Gateway(), balancer} {
		if got := connectFromHost(t, n, address); got != n.HostAddress() {
			t.Errorf("listener on %s sees the host as %s, want %s", address, got, n.HostAddress())
		}
	}
	if err := n.RemoveAddress(balancer); err != nil {
		t.Fatal(err)
	}

	for range 2 {
		if err := n.Destroy(); err != nil {
			t.Fatal(err)
		}
	}
	left, err := Leftovers(n, "")
	if err != nil || len(left) != 0 {
		t.Errorf("after Destroy: left %q, error %v", left, err)
	}
}

// connectFromHost listens on address in the cloud namespace, connects from the host and returns the client address of
// the connection.
func connectFromHost(t *testing.T, n Network, address netip.Addr) netip.Addr {
	t.Helper()
	var listener net.Listener
	err := n.Do(func() (err error) {
		listener, err = net.Listen("tcp4", netip.AddrPortFrom(address, 0).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	seen := make(chan netip.Addr, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		seen <- conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr()
		_ = conn.Close()
	}()
	conn, err := net.DialTimeout("tcp4", listener.Addr().String(), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	select {
	case a := <-seen:
		return a
	case <-time.After(5 * time.Second):
		t.Fatal("the connection was not accepted within 5s")
	}
	return netip.Addr{}
}

func TestDestroyRemovesAPartialNetwork(t *testing.T) {
	n := testNetwork(t)
	if err := createNamespace(n.Namespace()); err != nil { // as if Create was killed right after it
		t.Fatal(err)
	}
	if left, err := Leftovers(n, ""); err != nil || len(left) != 1 {
		t.Errorf("partial network: left %q, error %v, want the namespace", left, err)
	}
	if err := n.Destroy(); err != nil {
		t.Fatal(err)
	}
	if left, err := Leftovers(n, ""); err != nil || len(left) != 0 {
		t.Errorf("after Destroy: left %q, error %v", left, err)
	}
}

func TestSetRoutes(t *testing.T) {
	n := testNetwork(t)
	if err := n.Create(); err != nil {
		t.Fatal(err)
	}
	vm := func(last byte) netip.Addr { return netip.AddrFrom4([4]byte{10, byte(n.Number), 16, last}) }
	one, two := netip.MustParsePrefix("10.244.1.0/24"), netip.MustParsePrefix("10.244.2.0/24")
	// via returns where the gateway sends a packet to the first address of a network.
	via := func(network netip.Prefix) (gateway string) {
		t.Helper()
		err := n.Do(func() error {
			routes, err := netlink.RouteGet(network.Addr().Next().AsSlice())
			if err == nil && len(routes) > 0 {
				gateway = routes[0].Gw.String()
			}
			if errors.Is(err, unix.ENETUNREACH) {
				gateway, err = "unreachable", nil
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return gateway
	}
	for _, step := range []struct {
		routes   map[netip.Prefix]netip.Addr
		one, two string
	}{
		{nil, "unreachable", "unreachable"},
		{map[netip.Prefix]netip.Addr{one: vm(4), two: vm(5)}, vm(4).String(), vm(5).String()},
		{map[netip.Prefix]netip.Addr{one: vm(4), two: vm(5)}, vm(4).String(), vm(5).String()},
		{map[netip.Prefix]netip.Addr{two: vm(6)}, "unreachable", vm(6).String()},
		{nil, "unreachable", "unreachable"},
	} {
		if err := n.SetRoutes(step.routes); err != nil {
			t.Fatal(err)
		}
		if got := []string{via(one), via(two)}; got[0] != step.one || got[1] != step.two {
			t.Errorf("with routes %v packets to %s and %s go to %q", step.routes, one, two, got)
		}
		if direct := via(netip.PrefixFrom(vm(4), 32)); direct != "<nil>" {
			t.Errorf("packets to VMs go to %s", direct)
		}
	}
}
