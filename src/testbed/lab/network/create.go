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

// ErrInUse is wrapped by errors of Create if something else uses the network's addresses.
var ErrInUse = errors.New("network number in use")

// Choose returns a network whose names and addresses nothing on this host uses. It reserves the network by an empty
// file at the path of the namespace, so that processes that choose at the same time get different ones. Destroy
// releases it, whether it was created or not.
func Choose() (Network, error) {
	if err := os.MkdirAll(namespaceDir, 0o755); err != nil {
		return Network{}, fmt.Errorf("creating %s: %w", namespaceDir, err)
	}
	for number := minNumber; number <= maxNumber; number++ {
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
			continue // reserved by another process just now
		}
		if err != nil {
			return Network{}, fmt.Errorf("reserving network %d: %w", number, err)
		}
		return n, file.Close()
	}
	return Network{}, fmt.Errorf(
		"no free network: every 10.N.0.0/16 with N from %d to %d overlaps a route or interface of this machine (see "+
			"`ip route`, `ip addr`)",
		minNumber,
		maxNumber,
	)
}

// free reports whether no interface, namespace or route of the host, except the default route, conflicts with the
// network, and no control group is left of a lab with this number that was killed.
func (n Network) free() (bool, error) {
	if _, err := os.Lstat(n.NamespacePath()); err == nil {
		return false, nil
	}
	if _, err := netlink.LinkByName(n.HostInterface()); err == nil {
		return false, nil
	}
	groups, err := CgroupDirs(n)
	if err != nil || len(groups) > 0 {
		return false, err
	}
	conflict, err := n.conflict()
	return conflict == "" && err == nil, err
}

// conflict describes a route of the host that overlaps the prefix, other than that of the lab's interface. It is empty
// if there is none.
func (n Network) conflict() (string, error) {
	own := -1
	if link, err := netlink.LinkByName(n.HostInterface()); err == nil {
		own = link.Attrs().Index
	}
	routes, err := netlink.RouteListFiltered(
		netlink.FAMILY_V4, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE,
	)
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

// Create creates the cloud namespace, its bridge with the gateway and metadata addresses, and the host's interface. It
// keeps what exists, so that it can be repeated after an interruption.
func (n Network) Create() error {
	if err := n.Check(); err != nil {
		return err
	}
	conflict, err := n.conflict()
	if err != nil {
		return err
	}
	if conflict != "" {
		return fmt.Errorf(
			"network %d: %w: the host's %s overlaps %s; choose another network number", n.Number, ErrInUse, conflict,
			n.Prefix(),
		)
	}
	if err := createNamespace(n.Namespace()); err != nil {
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

// createBridge must run in the cloud namespace.
func (n Network) createBridge() error {
	// With forwarding, the gateway answers packets to other networks with "network unreachable", since it has no other
	// route. Without it they are dropped, and the sender has to wait for a timeout. VPCs send no redirects; by one, VMs
	// would learn to bypass routes to pods.
	for name, value := range map[string]string{
		"net/ipv4/ip_forward":                  "1",
		"net/ipv4/conf/all/send_redirects":     "0",
		"net/ipv4/conf/default/send_redirects": "0",
		"net/ipv6/conf/all/disable_ipv6":       "1",
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
		return fmt.Errorf("creating bridge %s: %w", Bridge, err)
	}
	for _, address := range []netip.Prefix{
		netip.PrefixFrom(n.Gateway(), n.Prefix().Bits()), netip.PrefixFrom(Metadata, 32),
	} {
		if err := addAddress(Bridge, address); err != nil {
			return err
		}
	}
	return up(Bridge)
}

// connectHost connects the host to the bridge and adds the host's address, with which the kernel adds the only route.
func (n Network) connectHost() error {
	if _, err := netlink.LinkByName(n.HostInterface()); err != nil {
		if err := n.plug(
			n.HostInterface(), cloudPort, HardwareAddress(n.HostAddress()), "/proc/thread-self/ns/net",
		); err != nil {
			return fmt.Errorf("connecting the host: %w", err)
		}
	}
	if err := addAddress(n.HostInterface(), netip.PrefixFrom(n.HostAddress(), n.Prefix().Bits())); err != nil {
		return err
	}
	return up(n.HostInterface())
}

// plug creates a pair of interfaces: port on the bridge in the cloud namespace, and name in the namespace at path.
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
		pair := &netlink.Veth{
			LinkAttrs:        attributes,
			PeerName:         name,
			PeerHardwareAddr: mac,
			PeerNamespace:    netlink.NsFd(target),
		}
		if err := netlink.LinkAdd(pair); errors.Is(err, unix.EEXIST) {
			// Left by an attempt that was interrupted: its peer is in a namespace that has been removed or will be.
			if old, err := netlink.LinkByName(port); err == nil {
				if err := netlink.LinkDel(old); err != nil {
					return fmt.Errorf("removing stale interface %s: %w", port, err)
				}
			}
			if err := netlink.LinkAdd(pair); err != nil {
				return fmt.Errorf("creating interfaces %s and %s: %w", port, name, err)
			}
		} else if err != nil {
			return fmt.Errorf("creating interfaces %s and %s: %w", port, name, err)
		}
		return up(port)
	})
}

// PortName returns the name of the bridge's port for a VM's address, such as v16-4 for 10.N.16.4.
func PortName(address netip.Addr) string {
	b := address.As4()
	return fmt.Sprintf("v%d-%d", b[2], b[3])
}

// HardwareAddress derives a locally administered Ethernet address from an IPv4 address, so that ARP entries stay valid
// when a VM is recreated with the same address.
func HardwareAddress(address netip.Addr) net.HardwareAddr {
	b := address.As4()
	return net.HardwareAddr{0x06, 0x4c, b[0], b[1], b[2], b[3]}
}

// ContainerStub is an address of the loopback interface at which containers reach a stemcell's systemd-resolved
// (bosh-linux-stemcell-builder, stages/bosh_systemd_resolved/assets).
var ContainerStub = netip.MustParseAddr("169.254.0.53")

// Attach connects a process's network namespace to the bridge: eth0 with address, loopback up, default route via the
// gateway.
func (n Network) Attach(pid int, address netip.Addr) error {
	if !n.Prefix().Contains(address) {
		return fmt.Errorf("address %s: must be inside the lab's network %s", address, n.Prefix())
	}
	namespace := fmt.Sprintf("/proc/%d/ns/net", pid)
	if err := n.plug("eth0", PortName(address), HardwareAddress(address), namespace); err != nil {
		return err
	}
	return Do(namespace, func() error {
		if err := up("lo"); err != nil {
			return err
		}
		if err := addAddress("lo", netip.PrefixFrom(ContainerStub, 32)); err != nil {
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
			return fmt.Errorf("adding the default route via %s: %w", n.Gateway(), err)
		}
		return nil
	})
}

// Detach removes a VM's port from the bridge, if it exists.
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

// AddAddress adds an address, such as a load balancer's, to the bridge, unless it exists.
func (n Network) AddAddress(address netip.Addr) error {
	return n.Do(func() error { return addAddress(Bridge, netip.PrefixFrom(address, 32)) })
}

// RemoveAddress removes an address from the bridge, if it exists.
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

// SetRoutes makes the gateway deliver packets to each network via the VM with that address, and to no other network.
func (n Network) SetRoutes(want map[netip.Prefix]netip.Addr) error {
	return n.Do(func() error {
		var problems []error
		for network, via := range want {
			if err := netlink.RouteReplace(&netlink.Route{Dst: ipNet(network), Gw: via.AsSlice()}); err != nil {
				problems = append(problems, fmt.Errorf("adding the route to %s via %s: %w", network, via, err))
			}
		}
		routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
		if err != nil {
			return errors.Join(append(problems, fmt.Errorf("listing routes of %s: %w", n.Namespace(), err))...)
		}
		for _, route := range routes {
			if route.Gw == nil || route.Dst == nil {
				continue // the lab's own network
			}
			ones, _ := route.Dst.Mask.Size()
			address, _ := netip.AddrFromSlice(route.Dst.IP.To4())
			if _, wanted := want[netip.PrefixFrom(address, ones)]; wanted {
				continue
			}
			if err := netlink.RouteDel(&route); err != nil && !errors.Is(err, unix.ESRCH) {
				problems = append(problems, fmt.Errorf("removing the route to %s: %w", route.Dst, err))
			}
		}
		return errors.Join(problems...)
	})
}

// Destroy removes the host's interface and the cloud namespace with everything in it, as far as they exist. Processes
// that run in the namespace keep it alive without a name; Leftovers reports them.
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
		// The kernel frees a namespace some time after its last user; removing the bridge frees addresses and ports
		// immediately.
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

// Exists reports whether the cloud namespace and the host's interface both exist.
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
	// The kernel returns EBUSY for a moment while an interface is moved from another namespace.
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
	return errors.As(err, &missing) || errors.Is(err, unix.ENODEV) ||
		(err != nil && strings.Contains(err.Error(), "Link not found"))
}
