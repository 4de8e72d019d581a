package network

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// cloudPort is the bridge's end of the interface pair whose other end is the host's.
const cloudPort = "host0"

// ErrInUse is wrapped by errors of Create that mean that the number's addresses or names are taken by something else.
var ErrInUse = errors.New("network number in use")

// Choose returns a network whose names and addresses nothing on this host uses, and reserves it by an empty file in the namespace's place, so
// that of two processes that choose at the same time each gets its own. The caller keeps the number; Destroy gives it back, created
// or not.
func Choose() (Network, error) {
	if err := os.MkdirAll(namespaceDir, 0o755); err != nil {
		return Network{}, fmt.Errorf("making %s: %w", namespaceDir, err)
	}
	for number := lowestNumber; number <= highestNumber; number++ {
		n := Network{Number: number}
		free, err := n.free()
		if err != nil {
			return Network{}, err
		}
		if !free {
			continue
		}
		file, err := os.OpenFile(n.NamespacePath(), os.O_CREATE|os.O_EXCL|os.O_RDONLY, 0o444)
		if errors.Is(err, fs.ErrExist) {
			continue // taken this very moment
		}
		if err != nil {
			return Network{}, fmt.Errorf("reserving network %d: %w", number, err)
		}
		return n, file.Close()
	}
	return Network{}, fmt.Errorf("no free network: every 10.N.0.0/16 with N from %d to %d overlaps a route or interface of this machine (see `ip route`, `ip addr`)", lowestNumber, highestNumber)
}

// free tells whether no interface, namespace or specific route of the host collides with the network.
func (n Network) free() (bool, error) {
	if _, err := os.Lstat(n.NamespacePath()); err == nil {
		return false, nil
	}
	if _, err := netlink.LinkByName(n.HostInterface()); err == nil {
		return false, nil
	}
	taken, err := n.collision()
	return taken == "" && err == nil, err
}

// collision describes a route or address of the host, other than our own interface's, that overlaps the prefix.
func (n Network) collision() (string, error) {
	own := -1
	if link, err := netlink.LinkByName(n.HostInterface()); err == nil {
		own = link.Attrs().Index
	}
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return "", fmt.Errorf("listing the host's routes: %w", err)
	}
	for _, r := range routes {
		if r.Dst == nil || r.LinkIndex == own {
			continue
		}
		ones, _ := r.Dst.Mask.Size()
		address, ok := netip.AddrFromSlice(r.Dst.IP.To4())
		if !ok || ones == 0 {
			continue
		}
		if prefix := netip.PrefixFrom(address, ones); prefix.Overlaps(n.Prefix()) {
			return fmt.Sprintf("route %s", r.Dst), nil
		}
	}
	return "", nil
}

// Create makes the cloud namespace, its bridge with the gateway and metadata addresses, and the host's interface. What exists
// already is kept, so that it can be called again after an interruption.
func (n Network) Create() error {
	if err := n.Check(); err != nil {
		return err
	}
	taken, err := n.collision()
	if err != nil {
		return err
	}
	if taken != "" {
		return fmt.Errorf("network %d: %w: the host's %s overlaps %s; choose another network number", n.Number, ErrInUse, taken, n.Prefix())
	}
	if err := makeNamespace(n.Namespace()); err != nil {
		return err
	}
	if err := n.Do(n.createBridge); err != nil {
		return fmt.Errorf("network %d: %w", n.Number, err)
	}
	if err := n.connectHost(); err != nil {
		return fmt.Errorf("network %d: %w", n.Number, err)
	}
	return nil
}

// createBridge runs inside the cloud namespace.
func (n Network) createBridge() error {
	// With forwarding on, the gateway answers packets to anywhere else with "network unreachable" at once, as it has no other
	// route, instead of dropping them, which would cost the sender a timeout.
	for name, value := range map[string]string{
		"net/ipv4/ip_forward":            "1",
		"net/ipv6/conf/all/disable_ipv6": "1",
	} {
		// /proc/sys/net shows the namespace of the thread that opens it.
		if err := os.WriteFile("/proc/sys/"+name, []byte(value), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("setting %s: %w", name, err)
		}
	}
	if err := up("lo"); err != nil {
		return err
	}
	attributes := netlink.NewLinkAttrs()
	attributes.Name = Bridge
	attributes.HardwareAddr = HardwareAddress(n.Gateway())
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attributes}); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("making bridge %s: %w", Bridge, err)
	}
	for _, address := range []netip.Prefix{netip.PrefixFrom(n.Gateway(), n.Prefix().Bits()), netip.PrefixFrom(Metadata, 32)} {
		if err := addAddress(Bridge, address); err != nil {
			return err
		}
	}
	return up(Bridge)
}

// connectHost makes the pair host <-> bridge and gives the host its address, which brings the only route with it.
func (n Network) connectHost() error {
	if _, err := netlink.LinkByName(n.HostInterface()); err != nil {
		if err := n.plug(n.HostInterface(), cloudPort, HardwareAddress(n.HostAddress()), "/proc/thread-self/ns/net"); err != nil {
			return fmt.Errorf("connecting the host: %w", err)
		}
	}
	if err := addAddress(n.HostInterface(), netip.PrefixFrom(n.HostAddress(), n.Prefix().Bits())); err != nil {
		return err
	}
	return up(n.HostInterface())
}

// plug makes an interface pair in the cloud namespace: port stays there on the bridge, name goes to the namespace at path.
func (n Network) plug(name, port string, mac net.HardwareAddr, path string) error {
	target, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening network namespace %s: %w", path, err)
	}
	defer func() { _ = unix.Close(target) }()
	return n.Do(func() error {
		bridge, err := netlink.LinkByName(Bridge)
		if err != nil {
			return fmt.Errorf("finding bridge %s of %s: %w", Bridge, n.Namespace(), err)
		}
		attributes := netlink.NewLinkAttrs()
		attributes.Name = port
		attributes.MasterIndex = bridge.Attrs().Index
		pair := &netlink.Veth{LinkAttrs: attributes, PeerName: name, PeerHardwareAddr: mac, PeerNamespace: netlink.NsFd(target)}
		if err := netlink.LinkAdd(pair); errors.Is(err, unix.EEXIST) {
			// Left by an attempt that was interrupted: its other end is in a namespace that is gone or going.
			if old, err := netlink.LinkByName(port); err == nil {
				if err := netlink.LinkDel(old); err != nil {
					return fmt.Errorf("removing stale interface %s: %w", port, err)
				}
			}
			if err := netlink.LinkAdd(pair); err != nil {
				return fmt.Errorf("making interfaces %s and %s: %w", port, name, err)
			}
		} else if err != nil {
			return fmt.Errorf("making interfaces %s and %s: %w", port, name, err)
		}
		return up(port)
	})
}

// PortName returns the name of the bridge's port for a VM's address, such as v16-4 for 10.N.16.4.
func PortName(address netip.Addr) string {
	b := address.As4()
	return fmt.Sprintf("v%d-%d", b[2], b[3])
}

// HardwareAddress derives a locally administered Ethernet address from an IPv4 address, so that a VM that comes back at the same
// address is found under it without waiting for ARP entries to age.
func HardwareAddress(address netip.Addr) net.HardwareAddr {
	b := address.As4()
	return net.HardwareAddr{0x06, 0x4c, b[0], b[1], b[2], b[3]}
}

// Attach plugs a process's network namespace into the bridge: eth0 with address (and mac, if not nil), loopback up, default route
// through the gateway.
func (n Network) Attach(pid int, address netip.Addr, mac net.HardwareAddr) error {
	if !n.Prefix().Contains(address) {
		return fmt.Errorf("address %s: must be inside the lab's network %s", address, n.Prefix())
	}
	if mac == nil {
		mac = HardwareAddress(address)
	}
	namespace := fmt.Sprintf("/proc/%d/ns/net", pid)
	if err := n.plug("eth0", PortName(address), mac, namespace); err != nil {
		return err
	}
	return Do(namespace, func() error {
		if err := up("lo"); err != nil {
			return err
		}
		if err := addAddress("eth0", netip.PrefixFrom(address, n.Prefix().Bits())); err != nil {
			return err
		}
		if err := up("eth0"); err != nil {
			return err
		}
		gateway := &netlink.Route{Gw: n.Gateway().AsSlice()}
		if err := netlink.RouteReplace(gateway); err != nil {
			return fmt.Errorf("adding the default route by %s: %w", n.Gateway(), err)
		}
		return nil
	})
}

// Detach removes the bridge's port of a VM. A missing one is no error.
func (n Network) Detach(address netip.Addr) error {
	if !isNamespace(n.NamespacePath()) {
		return nil
	}
	return n.Do(func() error {
		link, err := netlink.LinkByName(PortName(address))
		if isNotFound(err) {
			return nil
		}
		if err == nil {
			err = netlink.LinkDel(link)
		}
		if err != nil && !isNotFound(err) {
			return fmt.Errorf("removing interface %s: %w", PortName(address), err)
		}
		return nil
	})
}

// AddAddress puts an address, such as a load balancer's, on the bridge. It may be there already.
func (n Network) AddAddress(address netip.Addr) error {
	return n.Do(func() error { return addAddress(Bridge, netip.PrefixFrom(address, 32)) })
}

// RemoveAddress takes an address off the bridge. A missing one is no error.
func (n Network) RemoveAddress(address netip.Addr) error {
	return n.Do(func() error {
		link, err := netlink.LinkByName(Bridge)
		if err != nil {
			return fmt.Errorf("finding %s: %w", Bridge, err)
		}
		err = netlink.AddrDel(link, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(address, 32))})
		if err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return fmt.Errorf("removing address %s from %s: %w", address, Bridge, err)
		}
		return nil
	})
}

// Destroy removes the host's interface and the cloud namespace with all that is in it. What is missing is no error. Processes
// that still run in the namespace keep it alive without a name; Leftovers reports them.
func (n Network) Destroy() error {
	if err := n.Check(); err != nil {
		return err
	}
	var problems []error
	if link, err := netlink.LinkByName(n.HostInterface()); err == nil {
		if err := netlink.LinkDel(link); err != nil && !isNotFound(err) {
			problems = append(problems, fmt.Errorf("removing interface %s: %w", n.HostInterface(), err))
		}
	}
	if isNamespace(n.NamespacePath()) {
		// The kernel frees a namespace some time after its last user; removing the bridge now frees addresses and ports at once.
		err := n.Do(func() error {
			link, err := netlink.LinkByName(Bridge)
			if err == nil {
				err = netlink.LinkDel(link)
			}
			if isNotFound(err) {
				return nil
			}
			return err
		})
		if err != nil {
			problems = append(problems, fmt.Errorf("removing bridge %s: %w", Bridge, err))
		}
	}
	if err := removeNamespace(n.Namespace()); err != nil {
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

// Exists tells whether the cloud namespace and the host's interface are both there.
func (n Network) Exists() bool {
	_, err := netlink.LinkByName(n.HostInterface())
	return err == nil && isNamespace(n.NamespacePath())
}

func up(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("finding interface %s: %w", name, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("bringing up interface %s: %w", name, err)
	}
	return nil
}

func addAddress(name string, address netip.Prefix) error {
	// The kernel answers "busy" for a moment while an interface arrives from another namespace.
	var err error
	for attempt := 0; attempt < 20; attempt++ {
		var link netlink.Link
		if link, err = netlink.LinkByName(name); err == nil {
			err = netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet(address)})
		}
		if err == nil || errors.Is(err, unix.EEXIST) {
			return nil
		}
		if !isNotFound(err) && !errors.Is(err, unix.EBUSY) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("adding address %s to %s: %w", address, name, err)
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func isNotFound(err error) bool {
	var missing netlink.LinkNotFoundError
	return errors.As(err, &missing) || errors.Is(err, unix.ENODEV) || (err != nil && strings.Contains(err.Error(), "Link not found"))
}
