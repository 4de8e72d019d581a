package flannel

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// overhead is what flannel leaves for the headers of its packets, in bytes (pkg/backend/vxlan/device.go of flannel).
const overhead = 50

// NewMAC returns a MAC address for the device on the VM with an IPv4 address: a locally administered one that ends with
// the address.
func NewMAC(address netip.Addr) (net.HardwareAddr, error) {
	if !address.Is4() {
		return nil, fmt.Errorf("the VM's address %s is no IPv4 address, which flannel's device requires", address)
	}
	mac := make(net.HardwareAddr, 2, 6)
	rand.Read(mac) // never fails
	mac[0] = mac[0]&^1 | 2
	return append(mac, address.AsSlice()...), nil
}

// fits reports whether a MAC address is one that NewMAC returns for the address.
func fits(mac net.HardwareAddr, address netip.Addr) bool {
	return len(mac) == 6 && mac[0]&3 == 2 && bytes.Equal(mac[2:], address.AsSlice())
}

// Prepare creates the device that flannel would create, with a MAC address for the VM's address, or gives one to the
// device that is there and has another. It switches the device's TX checksum offload on or off. flannel takes a device
// that has all the settings it wants (ensureLink in its device.go), and does not look at these. If somebody deletes the
// device, flannel ends (reCreateVxlan in its vxlan_network.go, which requires IPv6) and Prepare is called again. Other
// backends need no device.
func Prepare(config Config, address netip.Addr, checksumOffload bool) error {
	if config.Backend.Type != vxlan {
		return nil
	}
	name := fmt.Sprintf("flannel.%d", config.Backend.VNI)
	if err := prepareDevice(name, config.Backend, address); err != nil {
		return err
	}
	return setChecksumOffload(name, checksumOffload)
}

func prepareDevice(name string, backend Backend, address netip.Addr) error {
	mac, err := NewMAC(address)
	if err != nil {
		return err
	}
	if link, err := netlink.LinkByName(name); err == nil {
		if fits(link.Attrs().HardwareAddr, address) {
			return nil
		}
		return netlink.LinkSetHardwareAddr(link, mac)
	} else if !errors.As(err, &netlink.LinkNotFoundError{}) {
		return fmt.Errorf("find the device %s: %w", name, err)
	}
	parent, err := interfaceOf(address)
	if err != nil {
		return err
	}
	mtu := backend.MTU
	if mtu == 0 {
		mtu = parent.Attrs().MTU
	}
	device := &netlink.Vxlan{
		LinkAttrs:    netlink.LinkAttrs{Name: name, HardwareAddr: mac, MTU: mtu - overhead},
		VxlanId:      backend.VNI,
		VtepDevIndex: parent.Attrs().Index,
		SrcAddr:      address.AsSlice(),
		Port:         backend.Port,
	}
	if err := netlink.LinkAdd(device); err != nil {
		return fmt.Errorf("create the device %s: %w", name, err)
	}
	return nil
}

// interfaceOf returns the interface that has an address.
func interfaceOf(address netip.Addr) (netlink.Link, error) {
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list the VM's interfaces: %w", err)
	}
	for _, link := range links {
		addresses, err := netlink.AddrList(link, netlink.FAMILY_V4)
		if err != nil {
			return nil, fmt.Errorf("list the addresses of %s: %w", link.Attrs().Name, err)
		}
		for _, a := range addresses {
			if a.IP.Equal(address.AsSlice()) {
				return link, nil
			}
		}
	}
	return nil, fmt.Errorf("no interface of the VM has the instance's address %s", address)
}
