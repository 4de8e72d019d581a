// Package network makes the lab's network: a namespace that plays the cloud's part, with a bridge that all VMs are plugged into,
// and one pair of interfaces that lets the host reach it. Nothing of the host changes but that one interface and the route for
// the lab's prefix that comes with its address.
package network

import (
	"fmt"
	"net/netip"
)

// Network is a lab's network; all names and addresses follow from its number.
type Network struct {
	Number int `json:"number"` // 10.NUMBER.0.0/16
}

// Bridge is the name of the bridge in the cloud namespace that all VMs, load balancers and the gateway share.
const Bridge = "br0"

// Metadata is the address of the instance metadata service; it sits on the bridge and VMs reach it through their gateway.
var Metadata = netip.MustParseAddr("169.254.169.254")

// Namespace returns the name of the cloud namespace, as `ip netns` knows it.
func (n Network) Namespace() string { return fmt.Sprintf("klab%d-cloud", n.Number) }

// NamespacePath returns the file that keeps the cloud namespace, for nsenter --net=PATH.
func (n Network) NamespacePath() string { return namespaceDir + "/" + n.Namespace() }

// HostInterface returns the name of the host's interface to the network.
func (n Network) HostInterface() string { return fmt.Sprintf("klab%d", n.Number) }

// Prefix returns the network's prefix, 10.N.0.0/16.
func (n Network) Prefix() netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n.Number), 0, 0}), 16)
}

// Gateway returns the address of the cloud namespace on the bridge, 10.N.0.1: the VMs' default gateway and DNS server.
func (n Network) Gateway() netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(n.Number), 0, 1})
}

// HostAddress returns the host's own address in the network, 10.N.255.254.
func (n Network) HostAddress() netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(n.Number), 255, 254})
}

// Check reports whether the number can be a network of the lab.
func (n Network) Check() error {
	if n.Number < lowestNumber || n.Number > highestNumber {
		return fmt.Errorf("network number %d: must be between %d and %d, so that 10.NUMBER.0.0/16 is an address range", n.Number, lowestNumber, highestNumber)
	}
	return nil
}

const (
	namespaceDir  = "/run/netns"
	lowestNumber  = 20
	highestNumber = 250
)
