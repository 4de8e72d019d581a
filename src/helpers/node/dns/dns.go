// Package dns makes the DNS server of a node answer the queries that its pods send by UDP to the address of the
// cluster's DNS.
//
// The address is one of the node while the job runs, and a table of nftables keeps such queries to it from connection
// tracking. So they are not translated to the address of a CoreDNS pod by kube-proxy, whose rules belong to connection
// tracking in each of its modes (nf_nat_inet_fn in net/netfilter/nf_nat_core.c), and arrive at the node's server. The
// server's own queries to the same address are left alone, which its user tells: kube-proxy sends them to the pods.
// Nothing but the table decides this, and it is there only while the server answers. Pods notice neither.
package dns

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/dns/dnsmessage"
	"k8s.io/utils/clock"
	"sigs.k8s.io/knftables"

	"kubernetes-release/internal/exposition"
	"kubernetes-release/internal/rootfile"
	"kubernetes-release/internal/strictjson"
)

const (
	// Table is the name of the table, of the family ip.
	Table = "node-local-dns"
	// answersTable is the name of another, for what holds as long as the node has the address.
	answersTable = Table + "-answers"
	// isolated is the set of the pods to which network policies apply that select their egress.
	isolated = "isolated"
	// interval is how often the server is asked, and patience how many answers in turn may be late. A server that has
	// ended is noticed at once.
	interval, patience = 500 * time.Millisecond, 4
	answerTimeout      = time.Second
	// reconnect is how often a connection to a server is tried that has ended.
	reconnect = 20 * time.Millisecond
	// rewrite is how often the table is written in any case, since others can remove it.
	rewrite = 30 * time.Second
	// applyTimeout limits one run of nft.
	applyTimeout = 15 * time.Second
	// unprivileged is the first port on which every user can listen (ip_unprivileged_port_start in the kernel's
	// ip-sysctl).
	unprivileged = 1024
	// healthName is the name that the server answers itself.
	healthName = "health.node-local-dns."
)

// Config is config/interception/interception.json of the job node-local-dns.
type Config struct {
	// Address is that of the cluster's DNS.
	Address netip.Addr `json:"address"`
	// UserID is the user of the node's server.
	UserID int `json:"user_id"`
	// Health is where the node's server answers whatever the rules are.
	Health netip.AddrPort `json:"health"`
	// NetworkPolicy is the folder of the job that enforces network policies, if it is on this VM.
	NetworkPolicy string `json:"network_policy"`
	// Isolated is the file with the addresses of the pods to which policies for egress apply, which that job writes.
	Isolated string `json:"isolated"`
}

// Load reads a configuration. Errors name the file.
func Load(path string) (Config, error) {
	var c Config
	if err := strictjson.ReadFile(path, &c); err != nil {
		return c, err
	}
	if !c.Address.Is4() {
		return c, fmt.Errorf("%s: address is %s: it must be an IPv4 address", path, c.Address)
	}
	if c.Health.Port() >= unprivileged {
		return c, fmt.Errorf("%s: health is %s: it must have a port below %d, so that no other user of the VM can "+
			"answer in place of the server", path, c.Health, unprivileged)
	}
	return c, nil
}

// AddAddress gives the node the address of the cluster's DNS, after the rules that belong to it.
func (c Config) AddAddress(ctx context.Context) error {
	answers, err := knftables.New(knftables.IPv4Family, answersTable)
	if err != nil {
		return fmt.Errorf("nftables: %w", err)
	}
	return c.writeAnswers(ctx, answers)
}

// writeAnswers writes the table of answers, and then adds the address.
func (c Config) writeAnswers(ctx context.Context, answers knftables.Interface) error {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	tx := answers.NewTransaction()
	c.answersTransaction(tx)
	if err := answers.Run(ctx, tx); err != nil {
		return fmt.Errorf("write the table %s of nftables: %w", answersTable, err)
	}
	return c.addAddress()
}

// addAddress adds the address, if the node does not have it. Nothing is sent from it to other destinations, since its
// scope is the host.
func (c Config) addAddress() error {
	loopback, address, err := c.link()
	if err != nil {
		return err
	}
	if err := netlink.AddrAdd(loopback, address); err != nil && !errors.Is(err, syscall.EEXIST) {
		return fmt.Errorf("add the address %s to the loopback interface: %w", c.Address, err)
	}
	return nil
}

// removeAddress undoes addAddress.
func (c Config) removeAddress() error {
	loopback, address, err := c.link()
	if err != nil {
		return err
	}
	if err := netlink.AddrDel(loopback, address); err != nil && !errors.Is(err, syscall.EADDRNOTAVAIL) {
		return fmt.Errorf("remove the address %s from the loopback interface: %w", c.Address, err)
	}
	return nil
}

func (c Config) link() (netlink.Link, *netlink.Addr, error) {
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return nil, nil, fmt.Errorf("find the loopback interface: %w", err)
	}
	bits := c.Address.BitLen()
	network := &net.IPNet{IP: c.Address.AsSlice(), Mask: net.CIDRMask(bits, bits)}
	return loopback, &netlink.Addr{IPNet: network, Scope: int(netlink.SCOPE_HOST)}, nil
}

// deleteTable deletes the table, whether there is one or not.
func deleteTable(tx *knftables.Transaction) {
	tx.Add(&knftables.Table{}) // so that there is one to delete
	tx.Delete(&knftables.Table{})
}

// transaction replaces the whole table in one step.
func (c Config) transaction(tx *knftables.Transaction, pods []netip.Addr) {
	deleteTable(tx)
	tx.Add(&knftables.Table{Comment: knftables.PtrTo("rules of the BOSH job node-local-dns")})
	tx.Add(&knftables.Set{Name: isolated, Type: "ipv4_addr"})
	for _, pod := range pods {
		tx.Add(&knftables.Element{Set: isolated, Key: []string{pod.String()}})
	}
	// Queries by TCP, which are few, go to CoreDNS pods: a connection needs connection tracking.
	query := knftables.Concat("ip daddr", c.Address, "udp dport 53")
	anyQuery := knftables.Concat("ip daddr", c.Address, "meta l4proto { tcp, udp } th dport 53")
	user := strconv.Itoa(c.UserID)
	for _, chain := range []struct {
		name     string
		hook     knftables.BaseChainHook
		priority knftables.BaseChainPriority
		rules    []string
	}{
		{"prerouting", knftables.PreroutingHook, knftables.RawPriority, []string{
			// Of a pod's queries its policies decide, whose rules are those of forwarded packets to CoreDNS pods.
			knftables.Concat("ip saddr @"+isolated, "return"),
			knftables.Concat(query, "counter notrack"),
		}},
		{"output", knftables.OutputHook, knftables.RawPriority, []string{
			knftables.Concat(query, "meta skuid !=", user, "counter notrack"),
		}},
		{"loop", knftables.OutputHook, knftables.FilterPriority, []string{
			// Without kube-proxy's rules, the server would ask itself.
			knftables.Concat(anyQuery, "meta skuid", user, "counter reject"),
		}},
	} {
		tx.Add(&knftables.Chain{
			Name: chain.name, Type: knftables.PtrTo(knftables.FilterType), Hook: &chain.hook, Priority: &chain.priority,
		})
		for _, rule := range chain.rules {
			tx.Add(&knftables.Rule{Chain: chain.name, Rule: rule})
		}
	}
}

// answersTransaction replaces the table of answers. To connection tracking, an answer after the table of queries has
// been removed would be a new connection, to which the next query of the same socket belongs: kube-proxy's rules would
// not see that one.
//
// At its address the node accepts intercepted queries, which are untracked, and answers to its own connections. All
// else would reach any server of the node, past the policies of pods: kube-router's first rule for packets to the node
// accepts all addresses of Services, and kube-proxy refuses ports that they do not have only where packets are
// forwarded or sent (nftablesJumpChains in pkg/proxy/nftables/proxier.go). Queries would too without kube-proxy's
// rules.
func (c Config) answersTransaction(tx *knftables.Transaction) {
	deleteTable(tx)
	tx.Add(&knftables.Table{Comment: knftables.PtrTo("rules of the BOSH job node-local-dns")})
	for _, chain := range []struct {
		name     string
		hook     knftables.BaseChainHook
		priority knftables.BaseChainPriority
		rule     string
	}{
		{
			"output", knftables.OutputHook, knftables.RawPriority,
			knftables.Concat("ip saddr", c.Address, "udp sport 53 notrack"),
		},
		{
			"input", knftables.InputHook, knftables.FilterPriority,
			knftables.Concat("ip daddr", c.Address, "ct state new counter reject"),
		},
	} {
		tx.Add(&knftables.Chain{
			Name: chain.name, Type: knftables.PtrTo(knftables.FilterType), Hook: &chain.hook, Priority: &chain.priority,
		})
		tx.Add(&knftables.Rule{Chain: chain.name, Rule: chain.rule})
	}
}

// Interception keeps the table while the node's server answers.
type Interception struct {
	config Config
	// nft is for the table of queries, and answers for that of answers.
	nft, answers knftables.Interface
	log          *slog.Logger
	clock        clock.PassiveClock
	// interval is how often the server is asked.
	interval time.Duration
	// active is whether this process has written a table, last with these pods.
	active  atomic.Bool
	written time.Time
	pods    []netip.Addr
	// removed is whether there is no table, not even that of an earlier process.
	removed bool
	// late is how many answers in turn were late.
	late int
	// reported is the last reason why there is no table.
	reported string
}

// New returns the interception of this VM. It changes nothing yet.
func New(config Config, log *slog.Logger) (*Interception, error) {
	nft, err := knftables.New(knftables.IPv4Family, Table)
	if err != nil {
		return nil, fmt.Errorf("nftables: %w", err)
	}
	answers, err := knftables.New(knftables.IPv4Family, answersTable)
	if err != nil {
		return nil, fmt.Errorf("nftables: %w", err)
	}
	return &Interception{
		config: config, nft: nft, answers: answers, log: log, clock: clock.RealClock{}, interval: interval,
	}, nil
}

// Keep writes the table while the server answers, and removes it otherwise and when ctx ends. An error means that a
// table could not be written or removed.
func (i *Interception) Keep(ctx context.Context) error {
	defer func() {
		if err := errors.Join(i.remove("the job stops"), i.removeAnswers()); err != nil {
			i.log.Error("cannot undo the interception", "error", err)
		}
	}()
	ticker := time.NewTicker(i.interval)
	defer ticker.Stop()
	ended := i.watch(ctx)
	for {
		if err := i.step(ctx); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ended:
		case <-ticker.C:
		}
	}
}

// watch sends when a connection to the server ends: at once when the server does, otherwise every few seconds.
func (i *Interception) watch(ctx context.Context) <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		dialer := net.Dialer{Timeout: answerTimeout}
		for ctx.Err() == nil {
			connection, err := dialer.DialContext(ctx, "tcp", i.config.Health.String())
			if err != nil {
				select {
				case <-ctx.Done():
				case <-time.After(reconnect):
				}
				continue
			}
			stop := context.AfterFunc(ctx, func() { _ = connection.Close() })
			_, _ = connection.Read(make([]byte, 1)) // the server sends nothing unasked
			stop()
			_ = connection.Close()
			select {
			case <-ctx.Done():
			case ended <- struct{}{}:
			}
		}
	}()
	return ended
}

// step looks at the server once, and writes or removes the table.
func (i *Interception) step(ctx context.Context) error {
	pods, err := i.config.isolatedPods()
	if err == nil {
		err = i.config.answers(ctx)
	}
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the answer was not waited for
	}
	var timeout net.Error
	if late := errors.As(err, &timeout) && timeout.Timeout(); late && i.late < patience {
		i.late++
		return nil
	}
	if err != nil {
		if i.reported != err.Error() {
			i.reported = err.Error()
			i.log.Warn("queries go to the cluster's DNS", "reason", err)
		}
		if i.removed {
			return nil
		}
		return i.remove(err.Error())
	}
	i.late, i.reported = 0, ""
	if i.active.Load() && slices.Equal(pods, i.pods) && i.clock.Since(i.written) < rewrite {
		return i.config.addAddress() // others can remove it
	}
	return i.write(ctx, pods)
}

func (i *Interception) write(ctx context.Context, pods []netip.Addr) error {
	if err := i.config.writeAnswers(ctx, i.answers); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	tx := i.nft.NewTransaction()
	i.config.transaction(tx, pods)
	if err := i.nft.Run(ctx, tx); err != nil {
		return fmt.Errorf("write the table %s of nftables: %w", Table, err)
	}
	i.removed = false
	if !i.active.Swap(true) {
		i.log.Info("this node's server answers queries", "address", i.config.Address)
	}
	if !slices.Equal(pods, i.pods) {
		i.log.Info("queries of pods with egress policies go to the cluster's DNS", "pods", pods)
	}
	i.written, i.pods = i.clock.Now(), pods
	return nil
}

// remove removes the table of queries.
func (i *Interception) remove(reason string) error {
	if err := removeTable(i.nft, Table); err != nil {
		return err
	}
	i.removed = true
	if i.active.Swap(false) {
		i.log.Info("removed the table: queries go to the cluster's DNS", "reason", reason)
	}
	return nil
}

// removeAnswers removes the address, and then the table that belongs to it.
func (i *Interception) removeAnswers() error {
	if err := i.config.removeAddress(); err != nil {
		return err
	}
	return removeTable(i.answers, answersTable)
}

// removeTable removes a table, also when the process is about to end.
func removeTable(nft knftables.Interface, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), applyTimeout)
	defer cancel()
	tx := nft.NewTransaction()
	deleteTable(tx)
	if err := nft.Run(ctx, tx); err != nil {
		return fmt.Errorf("remove the table %s of nftables: %w", name, err)
	}
	return nil
}

// answers returns nil if the server answers a query that it forwards to nobody.
func (c Config) answers(ctx context.Context) error {
	name, err := dnsmessage.NewName(healthName)
	if err != nil {
		return err
	}
	query, err := (&dnsmessage.Message{
		Header:    dnsmessage.Header{ID: uint16(rand.Uint32())},
		Questions: []dnsmessage.Question{{Name: name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}},
	}).Pack()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	var dialer net.Dialer
	connection, err := dialer.DialContext(ctx, "udp", c.Health.String())
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	deadline, _ := ctx.Deadline()
	if err := connection.SetDeadline(deadline); err != nil {
		return err
	}
	if _, err := connection.Write(query); err != nil {
		return fmt.Errorf("ask the server at %s: %w", c.Health, err)
	}
	answer := make([]byte, 512)
	n, err := connection.Read(answer)
	if err != nil {
		return fmt.Errorf("no answer of the server at %s: %w", c.Health, err)
	}
	var parser dnsmessage.Parser
	header, err := parser.Start(answer[:n])
	if err != nil {
		return fmt.Errorf("answer of the server at %s: %w", c.Health, err)
	}
	if header.RCode != dnsmessage.RCodeSuccess {
		return fmt.Errorf("the server at %s answers %s with %s", c.Health, healthName, header.RCode)
	}
	return nil
}

// isolatedPods reads the addresses of the pods whose queries must not be intercepted, sorted. Without the job that
// enforces policies there are none; until it has written them, they are unknown.
func (c Config) isolatedPods() ([]netip.Addr, error) {
	if _, err := os.Stat(c.NetworkPolicy); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	content, err := rootfile.Read(c.Isolated) // after a reboot anybody can write one before the job does
	if err != nil {
		return nil, fmt.Errorf("the job network-policy has not yet written which pods have egress policies: %w", err)
	}
	var pods []netip.Addr
	for _, field := range strings.Fields(string(content)) {
		pod, err := netip.ParseAddr(field)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.Isolated, err)
		}
		if pod.Is4() {
			pods = append(pods, pod)
		}
	}
	slices.SortFunc(pods, netip.Addr.Compare)
	return slices.Compact(pods), nil
}

// Metrics writes whether queries are intercepted.
func (i *Interception) Metrics(text *exposition.Text) {
	text.Gauge(
		"kubernetes_bosh_node_dns_intercepts", "Whether the node's DNS server answers the queries of this node's pods.",
	).Add(exposition.Bool(i.active.Load()))
}
