// Package device adds the addresses of simulated load balancers to a network interface.
package device

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Addresses adds addresses as /32 to an interface of the process's network namespace. It implements forward.Plumbing
// and requires CAP_NET_ADMIN.
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

// Add succeeds if the interface already has the address, as after a crash.
func (d *Addresses) Add(a netip.Addr) error {
	if err := netlink.AddrReplace(d.link, d.address(a)); err != nil {
		return fmt.Errorf("interface %s: %w", d.link.Attrs().Name, err)
	}
	return nil
}

// Remove succeeds if the interface does not have the address or does not exist.
func (d *Addresses) Remove(a netip.Addr) error {
	err := netlink.AddrDel(d.link, d.address(a))
	if err == nil || errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return fmt.Errorf("interface %s: %w", d.link.Attrs().Name, err)
}
