// Package device gives a network interface the addresses that simulated load balancers listen on.
package device

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Addresses adds addresses as /32 to one interface of the network namespace that the process is in. It implements
// forward.Plumbing. CAP_NET_ADMIN is needed.
type Addresses struct {
	link netlink.Link
}

// Open finds the interface by its name.
func Open(name string) (*Addresses, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", name, err)
	}
	return &Addresses{link: link}, nil
}

func (d *Addresses) address(a netip.Addr) *netlink.Addr {
	return &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}}
}

// Add is done when the interface has the address already, as after an unclean end.
func (d *Addresses) Add(a netip.Addr) error {
	if err := netlink.AddrReplace(d.link, d.address(a)); err != nil {
		return fmt.Errorf("interface %s: %w", d.link.Attrs().Name, err)
	}
	return nil
}

// Remove is done when the interface does not have the address, or is gone itself.
func (d *Addresses) Remove(a netip.Addr) error {
	err := netlink.AddrDel(d.link, d.address(a))
	if err == nil || errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return fmt.Errorf("interface %s: %w", d.link.Attrs().Name, err)
}
