package device

import (
	"net/netip"
	"os"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestAddresses uses its own network namespace, which the kernel removes when the test's thread exits.
func TestAddresses(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root for a network namespace")
	}
	runtime.LockOSThread() // never unlocked, so that the thread is not reused
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("needs a network namespace: %v", err)
	}
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}); err != nil {
		t.Skipf("needs a bridge: %v", err)
	}
	d, err := Open("br0")
	if err != nil {
		t.Fatal(err)
	}
	a := netip.MustParseAddr("10.7.101.254")
	for _, step := range []struct {
		name string
		do   func(netip.Addr) error
		want int
	}{
		{"add", d.Add, 1}, {"add again", d.Add, 1}, {"remove", d.Remove, 0}, {"remove again", d.Remove, 0},
	} {
		if err := step.do(a); err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
		addresses, err := netlink.AddrList(d.link, netlink.FAMILY_V4)
		if err != nil {
			t.Fatal(err)
		}
		if len(addresses) != step.want {
			t.Errorf("%s: %v, want %d addresses", step.name, addresses, step.want)
		}
	}
	if _, err := Open("br1"); err == nil {
		t.Error("a missing interface is not an error")
	}
}
