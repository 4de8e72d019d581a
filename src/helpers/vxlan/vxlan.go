// Package vxlan prepares the device with which flannel joins the pod network.
//
// Other nodes send the packets of a pod subnet to the MAC address that the node has announced for its device, and look
// up by that MAC address where to send them. flannel would choose a random one, so that nobody could tell whose it is,
// and a node could announce that of another. Here the MAC address follows from the VM's address, and an admission
// policy accepts no other (jobs/kubernetes-addons, 10-nodes.yml).
package vxlan

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"

	"kubernetes-release/internal/strictjson"
)

// overhead is what flannel leaves for the headers of its packets, in bytes (pkg/backend/vxlan/device.go of flannel).
const overhead = 50

// Config is flannel's configuration, net-conf.json.
type Config struct {
	Network        string  `json:"Network"`
	EnableNFTables bool    `json:"EnableNFTables"`
	Backend        Backend `json:"Backend"`
}

// Backend is how packets get from node to node.
type Backend struct {
	Type string `json:"Type"`
	VNI  int    `json:"VNI"`
	Port int    `json:"Port"`
	// MTU is that of the VM's network in bytes; that of the VM's interface if it is 0.
	MTU int `json:"MTU"`
}

// Load reads flannel's configuration. Errors name the file.
func Load(path string) (Config, error) {
	var c Config
	err := strictjson.ReadFile(path, &c)
	return c, err
}

// MAC returns the MAC address of the device on the VM with an IPv4 address: a locally administered one that ends with
// it.
func MAC(address netip.Addr) (net.HardwareAddr, error) {
	if !address.Is4() {
		return nil, fmt.Errorf("the VM's address %s is no IPv4 address, which flannel's device requires", address)
	}
	ip := address.As4()
	return net.HardwareAddr{0x0a, 0x58, ip[0], ip[1], ip[2], ip[3]}, nil
}

// Prepare creates the device that flannel would create, with the MAC address of the VM's address, or gives it to the
// device that is there. flannel takes a device that has all the settings it wants (ensureLink in its device.go). Other
// backends need no device.
func Prepare(config Config, address netip.Addr) error {
	if config.Backend.Type != "vxlan" {
		return nil
	}
	mac, err := MAC(address)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("flannel.%d", config.Backend.VNI)
	if link, err := netlink.LinkByName(name); err == nil {
		return netlink.LinkSetHardwareAddr(link, mac)
	} else if !errors.As(err, &netlink.LinkNotFoundError{}) {
		return fmt.Errorf("find the device %s: %w", name, err)
	}
	parent, err := interfaceOf(address)
	if err != nil {
		return err
	}
	mtu := config.Backend.MTU
	if mtu == 0 {
		mtu = parent.Attrs().MTU
	}
	device := &netlink.Vxlan{
		LinkAttrs:    netlink.LinkAttrs{Name: name, HardwareAddr: mac, MTU: mtu - overhead},
		VxlanId:      config.Backend.VNI,
		VtepDevIndex: parent.Attrs().Index,
		SrcAddr:      address.AsSlice(),
		Port:         config.Backend.Port,
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
