// Package firewall keeps a table of nftables that protects a node from the pods on it and from unprivileged
// users: who may send packets to the pod network's devices, to ports of the deployment's VMs, and to instance
// metadata.
//
// The table is one of its own beside those of kube-proxy, flannel, network-policy and the agent. It only ever drops or
// rejects, so a packet must pass all tables (nft(8): accept ends the evaluation of one chain, drop that of all). In
// what passes, it changes the marks of the tunnel's packets and the segment size of new connections of TCP.
package firewall

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/knftables"

	"kubernetes-release/internal/boshdns"
	"kubernetes-release/internal/strictjson"
)

const (
	// Table is the name of the table, of the family inet.
	Table = "node-firewall"
	// interval is how often the records are looked at, and tableInterval how often the table is.
	interval      = 2 * time.Second
	tableInterval = 30 * time.Second
	// applyTimeout limits one run of nft.
	applyTimeout = 15 * time.Second
	// instances is the set of the addresses of the deployment's VMs.
	instances = "instances"
	// tunnelMark is a bit of the mark that packets of the pod network's devices keep when the kernel has put them into
	// packets of VXLAN. kube-proxy uses 0x4000 (iptables.masqueradeBit) and network-policy 0x30000 (pod.go and
	// policy.go in pkg/controllers/netpol of kube-router); both leave the other bits as they are.
	tunnelMark = 0x00100000
	// podDevices are a node's ends of its pods' links, as the CNI plugin ptp names them (RandomVethName in pkg/ip of
	// containernetworking/plugins).
	podDevices = `"veth*"`
	// vxlanDevices are flannel's, one for each VNI.
	vxlanPrefix  = "flannel."
	vxlanDevices = `"` + vxlanPrefix + `*"`
)

// metadataAddresses are those of instance metadata: that which most clouds use, those of AWS, Google Cloud and, on each
// link, OpenStack (METADATA_V6_IP in neutron_lib/constants.py) by IPv6, and Azure's WireServer, which has the settings
// of the VM's extensions, and answers DNS too.
var metadataAddresses = []string{
	"ip daddr 169.254.169.254", "ip6 daddr fd00:ec2::254", "ip6 daddr fd20:ce::254", "ip6 daddr fe80::a9fe:a9fe",
	"ip daddr 168.63.129.16 tcp dport {80, 32526}",
}

// Config is config/firewall.json of the job node-firewall.
type Config struct {
	// PodCIDR is the network of all pods. Whatever has an address in it is a pod, or a node's end of the pod network.
	PodCIDR netip.Prefix `json:"pod_cidr"`
	// OverlayPorts are UDP ports of the pod network: only VMs of the deployment send to them.
	OverlayPorts []uint16 `json:"overlay_ports"`
	// BlockedPorts are TCP ports of VMs of the deployment to which pods cannot connect.
	BlockedPorts []uint16 `json:"blocked_ports"`
	// LocalPorts are TCP ports of the VM that only some of its users can connect to, and nobody else.
	LocalPorts []LocalPort `json:"local_ports"`
	// VerifySource is whether pods send from their own addresses only.
	VerifySource bool     `json:"verify_source"`
	Metadata     Metadata `json:"metadata"`
	// Deployment says which VMs belong to it.
	Deployment boshdns.Deployment `json:"deployment"`
	// tunnel is whether the VM has one of vxlanDevices: other CNIs have none.
	tunnel bool
}

// LocalPort is a port of the VM for clients on the VM.
type LocalPort struct {
	Port uint16 `json:"port"`
	// Users that can connect, by name or number.
	Users []string `json:"users"`
}

// Metadata says who reads instance metadata.
type Metadata struct {
	// Restricted is whether anybody is kept from it.
	Restricted bool `json:"restricted"`
	// Users of the VM, by name or number.
	Users []string `json:"users"`
	// Pods is whether pods that are not on the host network can connect.
	Pods bool `json:"pods"`
}

// Load reads a configuration. Errors name the file.
func Load(path string) (Config, error) {
	var c Config
	if err := strictjson.ReadFile(path, &c); err != nil {
		return c, err
	}
	if !c.PodCIDR.IsValid() || !c.PodCIDR.Addr().Is4() {
		return c, fmt.Errorf("%s: pod_cidr is %s: it must be an IPv4 network", path, c.PodCIDR)
	}
	return c, nil
}

// addresses returns the IPv4 addresses of the deployment's VMs, sorted. The pod network has no others.
//
// They are those of BOSH's records, which only the agent writes, and not those of Node objects, which nodes write.
func (c Config) addresses() ([]netip.Addr, error) {
	records, err := c.Deployment.Load()
	if err != nil {
		return nil, err
	}
	var addresses []netip.Addr
	for _, record := range records {
		if record.IP.Is4() {
			addresses = append(addresses, record.IP)
		}
	}
	if len(addresses) == 0 {
		return nil, fmt.Errorf(
			"%s has no instance of the deployment %s: wait until the Director has sent its records, or see the "+
				"Director's log for sync_dns", c.Deployment.Records, c.Deployment.Name,
		)
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	return slices.Compact(addresses), nil
}

// withUserIDs returns the configuration with the numbers of the users in it.
func (c Config) withUserIDs() (Config, error) {
	var err error
	if c.Metadata.Users, err = userIDs("metadata.users", c.Metadata.Users); err != nil {
		return c, err
	}
	c.LocalPorts = slices.Clone(c.LocalPorts)
	for i, local := range c.LocalPorts {
		property := fmt.Sprintf("local.ports, for port %d,", local.Port)
		if c.LocalPorts[i].Users, err = userIDs(property, local.Users); err != nil {
			return c, err
		}
	}
	return c, nil
}

// userIDs returns the numbers of users that a property names.
func userIDs(property string, users []string) ([]string, error) {
	var ids []string
	for _, name := range users {
		if _, err := strconv.ParseUint(name, 10, 32); err == nil {
			ids = append(ids, name)
			continue
		}
		found, err := user.Lookup(name)
		if err != nil {
			return nil, fmt.Errorf(
				"%s names %s: %w; name users that the VM has, or their numbers", property, name, err,
			)
		}
		ids = append(ids, found.Uid)
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// rules returns the rules by chain. The users in the configuration are numbers.
func (c Config) rules() map[string][]string {
	rules := map[string][]string{}
	add := func(chain string, parts ...any) {
		rules[chain] = append(rules[chain], knftables.Concat(parts...))
	}
	pods := c.PodCIDR.String()
	// Pods' links have an MTU of 1500, whatever the tunnel's device and the VM's interface have: where the network
	// drops the kernel's messages about it, long packets of TCP would be lost. rt mtu is the smaller one of both
	// directions (get_tcpmss in net/netfilter/nft_rt.c), and the kernel only lowers the option
	// (nft_exthdr_tcp_set_eval in net/netfilter/nft_exthdr.c).
	add("forward", "tcp flags & (syn | rst) == syn tcp option maxseg size set rt mtu")
	// Clients get an error at once, and not after a timeout.
	const reject = "counter reject with tcp reset"
	if ports := list(c.OverlayPorts); ports != "" {
		// Pods can send from any address (NET_RAW is a default capability of containers), so the address alone proves
		// nothing: the packet must also come from where the VM would answer.
		add("input", "udp dport", ports, "iifname lo counter drop")
		add("input", "udp dport", ports, "fib saddr . iif oif missing counter drop")
		add("input", "udp dport", ports, "ip saddr != @"+instances, "counter drop")
		add("input", "udp dport", ports, "meta nfproto ipv6 counter drop")
		if c.tunnel {
			// Only what comes from the tunnel's device has its mark: SO_MARK requires the capability NET_ADMIN or
			// NET_RAW (sk_setsockopt in net/core/sock.c), and a packet keeps its mark within its network namespace
			// (skb_scrub_packet in net/core/skbuff.c). The user would tell nothing: a rule sees that of the connection
			// inside. A rule of the hook output sees the interface before a Service's address is translated.
			add("postrouting", "oifname", vxlanDevices, fmt.Sprintf("meta mark set meta mark | %#x", tunnelMark))
			add("output", "udp dport", ports, fmt.Sprintf("meta mark & %#x == 0", tunnelMark), "counter drop")
		}
		// What a pod sends leaves the node with the node's address, and the other node could not tell. Pods have such
		// ports of their own. The source does not matter: Services forward packets of others too.
		add("forward", "udp dport", ports, "ip daddr !=", pods, "counter drop")
		// Whatever a Node has announced: packets of pods go to VMs of the deployment only.
		add("output", "udp dport", ports, "ip daddr != @"+instances, "counter drop")
		// And no address but that of a pod is reached by the pod network.
		for _, chain := range []string{"forward", "output"} {
			add(chain, "oifname", vxlanDevices, "ip daddr !=", pods, "counter drop")
		}
		// What comes out of the tunnel is from a pod, or a node's end, to a pod, and has passed the cloud's firewall as
		// a packet of VXLAN: nothing in it reaches a VM. This is about packets that answer nothing: an answer already
		// has the address of who asked, a VM that flannel's rules have given its tunnel's address (masqRules in
		// pkg/trafficmngr/iptables/iptables.go), or a client of a node port.
		const unasked = "ct state { invalid, new, untracked }"
		add("prerouting", "iifname", vxlanDevices, "meta nfproto ipv6 counter drop")
		for _, end := range []string{"ip saddr", "ip daddr"} {
			add("prerouting", "iifname", vxlanDevices, unasked, end, "!=", pods, "counter drop")
		}
		// The VM's own addresses in the pod network answer echo requests only. Packets of TCP that connection tracking
		// takes for invalid cannot open a connection, and may belong to one of the VM's.
		add("input", "iifname", vxlanDevices, "ct state { new, untracked } meta l4proto tcp", reject)
		add("input", "iifname", vxlanDevices, unasked, "meta l4proto != { tcp, icmp } counter drop")
	}
	if ports := list(c.BlockedPorts); ports != "" {
		add("input", "ip saddr", pods, "tcp dport", ports, reject)
		// From its link a pod reaches its node by IPv6 too, with addresses that the kernel gives both ends, and servers
		// in Go that listen on 0.0.0.0 accept it (favoriteAddrFamily in net/ipsock_posix.go).
		add("input", "iifname", podDevices, "tcp dport", ports, reject)
		add("forward", "ip saddr", pods, "ip daddr @"+instances, "tcp dport", ports, reject)
		// A node port leads pods of other nodes there, with their node's address. Answers are left alone: their port is
		// that of who asked, which can be any. So are the VM's own processes with Services, which come by lo.
		const translated = "ct direction original ct status dnat"
		add("input", "iifname != lo", translated, "tcp dport", ports, reject)
		add("forward", translated, "ip daddr @"+instances, "tcp dport", ports, reject)
	}
	for _, local := range c.LocalPorts {
		port := fmt.Sprintf("tcp dport %d", local.Port)
		add("input", "iifname != lo", port, reject)
		// By the address, since a Service that leads there changes it, and the interface that a rule sees stays that of
		// the Service's address.
		add("output", "fib daddr type local", port, notOf(local.Users), reject)
	}
	if c.VerifySource {
		// Pods have the capability NET_RAW, so an address proves something only together with the interface.
		const notTheWayBack = "fib saddr . iif oif missing counter drop"
		add("prerouting", "ip saddr", pods, notTheWayBack)
		add("prerouting", "iifname", podDevices, notTheWayBack)
	}
	if c.Metadata.Restricted {
		// It serves HTTP only. On Google Cloud and Oracle's, a VM has no DNS server but the one at the same address.
		const tcp = "tcp dport != 53"
		for _, address := range metadataAddresses {
			if !c.Metadata.Pods {
				add("forward", address, tcp, reject)
			}
			add("output", address, tcp, notOf(c.Metadata.Users), reject)
		}
	}
	return rules
}

// notOf matches packets of all users of the VM but these.
func notOf(users []string) string {
	if len(users) == 0 {
		return ""
	}
	return "meta skuid != { " + strings.Join(users, ", ") + " }"
}

// list writes ports as an anonymous set, or nothing.
func list(ports []uint16) string {
	if len(ports) == 0 {
		return ""
	}
	texts := make([]string, len(ports))
	for i, port := range ports {
		texts[i] = strconv.Itoa(int(port))
	}
	return "{ " + strings.Join(texts, ", ") + " }"
}

// hooks are the chains of the table.
var hooks = map[string]knftables.BaseChainHook{
	"prerouting": knftables.PreroutingHook,
	"input":      knftables.InputHook, "forward": knftables.ForwardHook, "output": knftables.OutputHook,
	"postrouting": knftables.PostroutingHook,
}

// transaction replaces the whole table in one step: packets meet the old rules or the new ones.
func (c Config) transaction(tx *knftables.Transaction, addresses []netip.Addr) {
	tx.Add(&knftables.Table{}) // so that there is one to delete
	tx.Delete(&knftables.Table{})
	tx.Add(&knftables.Table{Comment: knftables.PtrTo("rules of the BOSH job node-firewall")})
	tx.Add(&knftables.Set{Name: instances, Type: "ipv4_addr"})
	for _, address := range addresses {
		tx.Add(&knftables.Element{Set: instances, Key: []string{address.String()}})
	}
	rules := c.rules()
	for _, chain := range []string{"prerouting", "input", "forward", "output", "postrouting"} {
		tx.Add(&knftables.Chain{
			Name: chain, Type: knftables.PtrTo(knftables.FilterType), Hook: knftables.PtrTo(hooks[chain]),
			// After the translation of Services' addresses, before all others that filter.
			Priority: knftables.PtrTo(knftables.FilterPriority + "-10"),
		})
		for _, rule := range rules[chain] {
			tx.Add(&knftables.Rule{Chain: chain, Rule: rule})
		}
	}
}

// Firewall keeps the table.
type Firewall struct {
	// config has the numbers of users.
	config Config
	nft    knftables.Interface
	log    *slog.Logger
	clock  clock.PassiveClock
	// records is the file that was read last, without an error.
	records os.FileInfo
	// addresses are those that the table has, and written is when it was written or seen last.
	addresses []netip.Addr
	written   time.Time
	// reported is the last error about the records.
	reported string
}

// New returns the firewall of this VM. It changes nothing yet.
func New(config Config, log *slog.Logger) (*Firewall, error) {
	config, err := config.withUserIDs()
	if err != nil {
		return nil, err
	}
	nft, err := knftables.New(knftables.InetFamily, Table)
	if err != nil {
		return nil, fmt.Errorf("nftables: %w", err)
	}
	return &Firewall{config: config, nft: nft, log: log, clock: clock.RealClock{}}, nil
}

// Keep writes the table, and again whenever VMs of the deployment change or somebody has removed it, until ctx ends.
// The table stays then: a restart opens nothing. An error means that it could not be written.
func (f *Firewall) Keep(ctx context.Context) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		if err := f.Apply(ctx); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Apply writes the table if VMs have changed, or if it is not there. If the addresses of the VMs cannot be read, those
// that the table has are kept; the first table then trusts no VM.
func (f *Firewall) Apply(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	addresses := f.instances()
	same := slices.Equal(addresses, f.addresses)
	appeared, err := f.tunnelAppeared()
	if err != nil {
		return err
	}
	if !f.written.IsZero() && !appeared {
		if same && f.clock.Since(f.written) < tableInterval {
			return nil
		}
		there, err := f.there(ctx)
		if err != nil {
			return err
		}
		if there && same {
			f.written = f.clock.Now()
			return nil
		}
		if !there {
			f.warnOfOthers()
		}
	}
	tx := f.nft.NewTransaction()
	f.config.transaction(tx, addresses)
	if err := f.nft.Run(ctx, tx); err != nil {
		return fmt.Errorf("write the table %s of nftables: %w", Table, err)
	}
	f.log.Info("wrote the table", "table", Table, "instances", addresses)
	f.addresses, f.written = addresses, f.clock.Now()
	return nil
}

// warnOfOthers says that whoever has removed the table may have removed rules of others.
func (f *Firewall) warnOfOthers() {
	// flannel writes its rules when it starts (pkg/trafficmngr/nftables/nftables.go), and kube-proxy all of its own
	// once an hour (FullSyncPeriod in pkg/proxy/util/utils.go).
	f.log.Warn("another program has removed rules of nftables: writing this table again. Others may be missing, "+
		"by which pods reach Services and other networks: restart flannel, kube-proxy and network-policy with "+
		"/var/vcap/bosh/bin/monit restart NAME", "table", Table)
}

// tunnelAppeared reports whether the VM has the device of a tunnel for the first time since the process has started.
// Then the pod network is flannel's, and stays so.
func (f *Firewall) tunnelAppeared() (bool, error) {
	if f.config.tunnel {
		return false, nil
	}
	devices, err := net.Interfaces()
	if err != nil {
		return false, fmt.Errorf("list the network interfaces: %w", err)
	}
	f.config.tunnel = slices.ContainsFunc(devices, func(device net.Interface) bool {
		return strings.HasPrefix(device.Name, vxlanPrefix)
	})
	return f.config.tunnel, nil
}

// instances returns the addresses of the deployment's VMs, as far as they are known. It logs an error once.
func (f *Firewall) instances() []netip.Addr {
	info, err := os.Stat(f.config.Deployment.Records)
	// The agent writes a new file each time (bosh-agent, agent/action/state/sync_dns_state.go).
	if err == nil && f.records != nil && os.SameFile(info, f.records) && info.ModTime().Equal(f.records.ModTime()) {
		return f.addresses
	}
	addresses, err := f.config.addresses()
	if err == nil {
		f.records, f.reported = info, ""
		return addresses
	}
	if err.Error() != f.reported {
		f.log.Error("cannot learn the VMs of the deployment, keeping those that are known", "error", err)
		f.reported = err.Error()
	}
	return f.addresses
}

// there reports whether the table has its chains.
func (f *Firewall) there(ctx context.Context) (bool, error) {
	chains, err := f.nft.List(ctx, "chains")
	if knftables.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the table %s of nftables: %w", Table, err)
	}
	return len(chains) == len(hooks), nil
}
