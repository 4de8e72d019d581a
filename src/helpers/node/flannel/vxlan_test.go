package flannel

import (
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// inNetwork runs the rest of a test in a network namespace of its own, with one interface that has this address.
func inNetwork(t *testing.T, address string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can create a network namespace")
	}
	runtime.LockOSThread() // the thread ends with the test: it is not unlocked
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0", MTU: 9001}, PeerName: "peer"}
	if err := netlink.LinkAdd(link); err != nil {
		t.Fatal(err)
	}
	parsed, err := netlink.ParseAddr(address)
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.AddrAdd(link, parsed); err != nil {
		t.Fatal(err)
	}
}

func TestTheMACAddressIsOfTheVM(t *testing.T) {
	inNetwork(t, "10.0.31.4/24")
	address := netip.MustParseAddr("10.0.31.4")
	config := Config{Backend: Backend{Type: "vxlan", VNI: 1, Port: 8472}}
	expect := func(what string) net.HardwareAddr {
		t.Helper()
		link, err := netlink.LinkByName("flannel.1")
		if err != nil {
			t.Fatal(err)
		}
		device, ok := link.(*netlink.Vxlan)
		if !ok || !strings.HasSuffix(device.HardwareAddr.String(), ":0a:00:1f:04") ||
			device.HardwareAddr[0]&3 != 2 || device.MTU != 8951 || device.Port != 8472 ||
			device.VxlanId != 1 ||
			device.Learning ||
			device.SrcAddr.String() != "10.0.31.4" {
			t.Errorf("%s: the device is %+v", what, link)
		}
		return link.Attrs().HardwareAddr
	}
	if err := Prepare(config, address, true); err != nil {
		t.Fatal(err)
	}
	mac := expect("new")
	if err := Prepare(config, address, true); err != nil {
		t.Fatal(err)
	}
	if again := expect("after a restart"); again.String() != mac.String() {
		t.Errorf("the MAC address is %s after a restart, and was %s", again, mac)
	}
	link, err := netlink.LinkByName("flannel.1")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetHardwareAddr(link, []byte{2, 1, 2, 3, 4, 5}); err != nil {
		t.Fatal(err)
	}
	if err := Prepare(config, address, true); err != nil {
		t.Fatal(err)
	}
	expect("of an earlier flannel")
}

func TestOtherBackendsNeedNoDevice(t *testing.T) {
	if err := Prepare(Config{Backend: Backend{Type: "alloc"}}, netip.MustParseAddr("10.0.31.4"), true); err != nil {
		t.Error(err)
	}
}

func TestAnAddressThatNoInterfaceHas(t *testing.T) {
	inNetwork(t, "10.0.31.5/24")
	err := Prepare(Config{Backend: Backend{Type: "vxlan", VNI: 1, Port: 8472}}, netip.MustParseAddr("10.0.31.4"), true)
	if err == nil || err.Error() != "no interface of the VM has the instance's address 10.0.31.4" {
		t.Errorf("got %v", err)
	}
}
