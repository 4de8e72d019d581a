// Package network creates the lab's network: the cloud namespace with a bridge that all VMs are connected to, and a
// pair of interfaces by which the host reaches it. On the host it adds only that interface and the route for the lab's
// prefix.
package network

import (
	"fmt"
	"net/netip"
)

// Network is a lab's network. Its number determines all names and addresses.
type Network struct {
	Number int `json:"number"` // 10.NUMBER.0.0/16
}

// Bridge is the name of the bridge in the cloud namespace, which connects VMs, load balancers and the gateway.
const Bridge = "br0"

// Metadata is the address of the instance metadata service. It is on the bridge, and VMs reach it via their gateway.
var Metadata = netip.MustParseAddr("169.254.169.254")

// Namespace returns the name of the cloud namespace, as `ip netns` lists it.
func (n Network) Namespace() string { return fmt.Sprintf("klab%d-cloud", n.Number) }

// NamespacePath returns the file of the cloud namespace, for nsenter --net=PATH.
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

// HostAddress returns the host's address in the network, 10.N.255.254.
func (n Network) HostAddress() netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(n.Number), 255, 254})
}

// Check returns an error if the number is not allowed.
func (n Network) Check() error {
	if n.Number < minNumber || n.Number > maxNumber {
		return fmt.Errorf(
			"network number %d: must be between %d and %d, so that 10.NUMBER.0.0/16 is an address range", n.Number,
			minNumber, maxNumber,
		)
	}
	return nil
}

const (
	namespaceDir = "/run/netns"
	minNumber    = 20
	maxNumber    = 250
)
