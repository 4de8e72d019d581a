package dns

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/exposition"
	"kubernetes-release/internal/nettest"
)

const (
	clusterDNS  = "10.96.0.10"
	podGateway  = "10.244.1.1"
	podAddress  = "10.244.1.7"
	corePod     = "10.244.1.8"
	serverUser  = 1_900_000_002
	healthPort  = "127.0.0.1:855"
	askVariable = "NODEDNS_ASK"
	// keepVariable makes the test's program keep an interception with this configuration.
	keepVariable = "NODEDNS_KEEP"
	// intervalVariable is how often it asks the server.
	intervalVariable = "NODEDNS_INTERVAL"
	// fromNode and fromPod say who has answered: the node's server, or the cluster's CoreDNS.
	fromNode, fromPod = "192.0.2.1", "192.0.2.2"
)

// TestMain lets the test's program ask for a name and exit, so that another user does; or keep an interception, so that
// all its threads are in the node's namespace.
func TestMain(m *testing.M) {
	if path := os.Getenv(keepVariable); path != "" {
		if err := keepUntilStopped(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	network := os.Getenv(askVariable)
	if network == "" {
		os.Exit(m.Run())
	}
	answer, err := lookUp(network)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Print(answer)
}

func keepUntilStopped(path string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	config, err := Load(path)
	if err != nil {
		return err
	}
	interception, err := New(config, slog.Default())
	if err != nil {
		return err
	}
	if interception.interval, err = time.ParseDuration(os.Getenv(intervalVariable)); err != nil {
		return err
	}
	return interception.Keep(ctx)
}

// lookUp asks the cluster's DNS for a name, by udp or tcp.
func lookUp(network string) (string, error) {
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, clusterDNS+":53")
	}}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	addresses, err := resolver.LookupHost(ctx, "name.example.")
	return strings.Join(addresses, ","), err
}

// answer writes the answer of a server to a query.
func answer(query []byte, address string) ([]byte, error) {
	var message dnsmessage.Message
	if err := message.Unpack(query); err != nil {
		return nil, err
	}
	message.Response, message.Additionals = true, nil
	question := message.Questions[0]
	if question.Type == dnsmessage.TypeA {
		message.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: question.Name, Class: question.Class, TTL: 1},
			Body:   &dnsmessage.AResource{A: netip.MustParseAddr(address).As4()},
		}}
	}
	return message.Pack()
}

// server is a DNS server whose answers say which one it is.
type server struct {
	lock    sync.Mutex
	closers []io.Closer
}

func (s *server) closeLater(closers ...io.Closer) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.closers = append(s.closers, closers...)
}

// serve starts a server at addresses in a namespace.
func serve(t *testing.T, n nettest.Namespace, says string, addresses ...string) *server {
	t.Helper()
	return serveAfter(t, n, 0, says, addresses...)
}

// serveAfter starts one whose answers by UDP are late.
func serveAfter(t *testing.T, n nettest.Namespace, delay time.Duration, says string, addresses ...string) *server {
	t.Helper()
	s := &server{}
	t.Cleanup(s.stop)
	for _, address := range addresses {
		var udp net.PacketConn
		var tcp net.Listener
		if err := n.Do(func() (err error) {
			if udp, err = net.ListenPacket("udp", address); err != nil {
				return err
			}
			tcp, err = net.Listen("tcp", address)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		s.closeLater(udp, tcp)
		go func() {
			for buffer := make([]byte, 512); ; {
				length, from, err := udp.ReadFrom(buffer)
				if err != nil {
					return
				}
				if reply, err := answer(buffer[:length], says); err == nil {
					time.AfterFunc(delay, func() { _, _ = udp.WriteTo(reply, from) })
				}
			}
		}()
		go func() {
			for {
				connection, err := tcp.Accept()
				if err != nil {
					return
				}
				s.closeLater(connection)
				go serveConnection(connection, says)
			}
		}()
	}
	return s
}

func serveConnection(connection net.Conn, says string) {
	for {
		length := make([]byte, 2)
		if _, err := io.ReadFull(connection, length); err != nil {
			return
		}
		query := make([]byte, int(length[0])<<8|int(length[1]))
		if _, err := io.ReadFull(connection, query); err != nil {
			return
		}
		reply, err := answer(query, says)
		if err != nil {
			return
		}
		_, _ = connection.Write(append([]byte{byte(len(reply) >> 8), byte(len(reply))}, reply...))
	}
}

// stop ends the server as the end of its process does.
func (s *server) stop() {
	s.lock.Lock()
	defer s.lock.Unlock()
	for _, closer := range s.closers {
		_ = closer.Close()
	}
}

// world is a node with a pod and a CoreDNS pod, and kube-proxy's rules for the cluster's DNS in its mode nftables.
type world struct {
	node, pod, core nettest.Namespace
	config          Config
	dir             string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	nettest.Requires(t, "nft")
	w := &world{node: nettest.New(t), pod: nettest.New(t), core: nettest.New(t), dir: t.TempDir()}
	w.config = Config{
		Address: netip.MustParseAddr(clusterDNS), UserID: serverUser, Health: netip.MustParseAddrPort(healthPort),
		NetworkPolicy: filepath.Join(w.dir, "jobs/network-policy"), Isolated: filepath.Join(w.dir, "isolated"),
	}
	w.node.Run(t, "ip link set lo up\nsysctl -qw net.ipv4.ip_forward=1")
	for address, pod := range map[string]nettest.Namespace{podAddress: w.pod, corePod: w.core} {
		name := "veth" + address[len(address)-1:]
		nettest.Connect(t, w.node, name, pod, "eth0")
		w.node.Run(t, fmt.Sprintf(`
			ip link set %[1]s up
			ip addr add %[2]s/32 dev %[1]s
			ip route add %[3]s dev %[1]s`, name, podGateway, address))
		pod.Run(t, fmt.Sprintf(`
			ip link set lo up
			ip link set eth0 up
			ip addr add %[1]s/32 dev eth0
			ip route add %[2]s dev eth0
			ip route add default via %[2]s`, address, podGateway))
	}
	// What kube-proxy writes for the Service (pkg/proxy/nftables/proxier.go).
	w.nft(t, `table ip kube-proxy {
		chain nat-prerouting { type nat hook prerouting priority dstnat; jump services; }
		chain nat-output { type nat hook output priority -100; jump services; }
		chain services { ip daddr `+clusterDNS+` meta l4proto { tcp, udp } th dport 53 jump service; }
		chain service {
			ip saddr != 10.244.0.0/16 mark set mark or 0x4000
			meta l4proto udp dnat to `+corePod+`:53
			meta l4proto tcp dnat to `+corePod+`:53
		}
		chain nat-postrouting { type nat hook postrouting priority srcnat; mark and 0x4000 != 0 masquerade; }
	}`)
	serve(t, w.core, fromPod, corePod+":53")
	return w
}

func (w *world) nft(t *testing.T, rules string) {
	t.Helper()
	if err := w.node.Do(func() error {
		command := exec.Command("nft", "-f", "-")
		command.Stdin = strings.NewReader(rules)
		output, err := command.CombinedOutput()
		return errors.Join(err, errors.New(string(output)))
	}); err != nil && strings.TrimSpace(err.Error()) != "" {
		t.Fatal(err)
	}
}

// serveNode starts the node's server. It needs the address, as CoreDNS does.
func (w *world) serveNode(t *testing.T) *server {
	t.Helper()
	if err := w.node.Do(func() error { return w.config.AddAddress(t.Context()) }); err != nil {
		t.Fatal(err)
	}
	return serve(t, w.node, fromNode, clusterDNS+":53", healthPort)
}

// keep runs the interception until the returned function is called.
func (w *world) keep(t *testing.T, interval time.Duration) (stop func()) {
	t.Helper()
	path := filepath.Join(w.dir, "interception.json")
	content, err := json.Marshal(w.config)
	if err == nil {
		err = os.WriteFile(path, content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), keepVariable+"="+path, intervalVariable+"="+interval.String())
	command.Stdout, command.Stderr = t.Output(), t.Output()
	if err := w.node.Do(command.Start); err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		if err := errors.Join(command.Process.Signal(syscall.SIGTERM), command.Wait()); err != nil {
			t.Errorf("the interception ends with %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// state is the node's tables and the addresses of its loopback interface.
func (w *world) state() (string, error) {
	var output []byte
	err := w.node.Do(func() (err error) {
		output, err = exec.Command("sh", "-c", "nft list tables; ip -4 addr show dev lo").CombinedOutput()
		return err
	})
	return string(output), err
}

// awaitActive waits until queries are intercepted, or not.
func (w *world) awaitActive(t *testing.T, want bool) {
	t.Helper()
	eventually.SucceedsEvery(t, 30*time.Second, 5*time.Millisecond, "interception", func() error {
		state, err := w.state()
		if got := strings.Contains(state, "table ip "+Table+"\n"); got != want {
			return fmt.Errorf("it is active: %t, want %t (%w)", got, want, err)
		}
		return nil
	})
}

// ask asks for a name as a user, and returns who has answered.
func ask(n nettest.Namespace, user uint32, network string) (who string, err error) {
	program, err := os.Executable()
	if err != nil {
		return "", err
	}
	err = n.Do(func() error {
		command := exec.Command(program)
		command.Env = []string{askVariable + "=" + network}
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
		command.Dir = "/"
		output, err := command.CombinedOutput()
		who = strings.TrimSpace(string(output))
		return err
	})
	return who, err
}

// expect expects an answer of a server to UDP, and one of the cluster's CoreDNS to TCP, whoever answers the other.
func expect(t *testing.T, what string, n nettest.Namespace, user uint32, want string) {
	t.Helper()
	for network, want := range map[string]string{"udp": want, "tcp": fromPod} {
		if got, err := ask(n, user, network); got != want || err != nil {
			t.Errorf("%s by %s: %q answers (%v), want %s", what, network, got, err, want)
		}
	}
}

// executable lets other users run the test's program.
func executable(t *testing.T) {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for dir := filepath.Dir(program); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // it holds the test's program only
			t.Fatal(err)
		}
	}
}

// TestPodsNoticeNothing: who answers before, while and after the node's server does, and after it has ended.
func TestPodsNoticeNothing(t *testing.T) {
	w := newWorld(t)
	executable(t)
	expect(t, "a pod without the job", w.pod, 0, fromPod)
	// Long, so that also on a busy machine it is no look in between that notices the end of the server.
	const interval = 3 * time.Second
	stop := w.keep(t, interval)
	expect(t, "a pod before the server", w.pod, 0, fromPod)
	server := w.serveNode(t)
	w.awaitActive(t, true)
	expect(t, "a pod", w.pod, 0, fromNode)
	expect(t, "a process of the node", w.node, 0, fromNode)
	expect(t, "the server itself", w.node, serverUser, fromPod)

	// Nothing of UDP is in the table of connections, which may be full.
	output := new(strings.Builder)
	if _, err := exec.LookPath("conntrack"); err == nil {
		w.node.Run(t, "conntrack -F")
		expect(t, "a pod again", w.pod, 0, fromNode)
		if err := w.node.Do(func() error {
			command := exec.Command("conntrack", "-L", "-p", "udp", "--orig-src", podAddress)
			command.Stdout = output
			return command.Run()
		}); err != nil {
			t.Error(err)
		}
		if output.String() != "" {
			t.Errorf("connections are tracked:\n%s", output)
		}
	}

	for range 3 {
		started := time.Now()
		server.stop()
		w.awaitActive(t, false)
		took := time.Since(started)
		t.Logf("noticed after %s that the server has ended", took)
		if took > interval/2 { // the next look is after the interval
			t.Errorf("it took %s to notice that the server has ended", took)
		}
		expect(t, "a pod after the server", w.pod, 0, fromPod)
		server = w.serveNode(t)
		w.awaitActive(t, true)
		expect(t, "a pod with a new server", w.pod, 0, fromNode)
	}
	w.node.Run(t, "nft delete table ip kube-proxy")
	if answer, err := ask(w.node, serverUser, "udp"); err == nil {
		t.Errorf("the server asks itself without kube-proxy's rules: %s", answer)
	}
	stop()
	if state, err := w.state(); err != nil || strings.Contains(state, Table) || strings.Contains(state, clusterDNS) {
		t.Errorf("after the end: %v\n%s", err, state)
	}
}

// TestAddressThatIsRemoved: without the address, queries would leave the node by its default route.
func TestAddressThatIsRemoved(t *testing.T) {
	w := newWorld(t)
	executable(t)
	w.serveNode(t)
	w.keep(t, interval)
	w.awaitActive(t, true)
	w.node.Run(t, "ip addr del "+clusterDNS+"/32 dev lo")
	eventually.SucceedsEvery(t, rewrite/2, 5*time.Millisecond, "the address", func() error {
		state, err := w.state()
		if err == nil && !strings.Contains(state, clusterDNS+"/32") {
			err = errors.New("the node does not have it")
		}
		return err
	})
	expect(t, "a pod", w.pod, 0, fromNode)
}

// TestLateAnswersBindNoSocket is a pod that asks again from the same port, after the node's server has been found
// unwell, and has answered the first query late.
func TestLateAnswersBindNoSocket(t *testing.T) {
	w := newWorld(t)
	if err := w.node.Do(func() error { return w.config.AddAddress(t.Context()) }); err != nil {
		t.Fatal(err)
	}
	serveAfter(t, w.node, time.Second, fromNode, clusterDNS+":53")
	health := serve(t, w.node, fromNode, healthPort)
	w.keep(t, interval)
	w.awaitActive(t, true)
	var socket net.Conn
	if err := w.pod.Do(func() (err error) {
		socket, err = net.DialTimeout("udp", clusterDNS+":53", time.Second)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	send := func() {
		t.Helper()
		query, err := (&dnsmessage.Message{Questions: []dnsmessage.Question{{
			Name: dnsmessage.MustNewName("name.example."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET,
		}}}).Pack()
		if err == nil {
			_, err = socket.Write(query)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	expect := func(what, want string) {
		t.Helper()
		if err := socket.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		packet := make([]byte, 512)
		length, err := socket.Read(packet)
		var message dnsmessage.Message
		if err == nil {
			err = message.Unpack(packet[:length])
		}
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		who := netip.AddrFrom4(message.Answers[0].Body.(*dnsmessage.AResource).A).String()
		if who != want {
			t.Errorf("%s: %s answers, want %s", what, who, want)
		}
	}
	send()
	health.stop()
	w.awaitActive(t, false)
	expect("the first query", fromNode)
	send()
	expect("the second query", fromPod)
}

// TestIsolatedPodsAskTheCluster: network policies decide about the queries of pods to which policies for egress apply,
// and until they are known, about all.
func TestIsolatedPodsAskTheCluster(t *testing.T) {
	w := newWorld(t)
	executable(t)
	if err := os.MkdirAll(w.config.NetworkPolicy, 0o755); err != nil { //nolint:gosec // as the agent's folders
		t.Fatal(err)
	}
	w.serveNode(t)
	w.keep(t, interval)
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(w.config.Isolated, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(2 * interval) //nolint:forbidigo // nothing must happen
	if state, err := w.state(); err != nil || strings.Contains(state, Table+"\n") {
		t.Error("queries are intercepted before the policies are known")
	}
	write("")
	w.awaitActive(t, true)
	expect(t, "a pod", w.pod, 0, fromNode)
	for text, want := range map[string]string{
		podAddress + "\n": fromPod, "10.244.1.99\n" + podAddress + "\nfd00::1\n": fromPod, "10.244.1.99\n": fromNode,
	} {
		write(text)
		eventually.Succeeds(t, 30*time.Second, "rules for "+text, func() error {
			if who, err := ask(w.pod, 0, "udp"); who != want || err != nil {
				return fmt.Errorf("%q answers (%w), want %s", who, err, want)
			}
			return nil
		})
	}
}

// TestPodsReachNothingElseAtTheAddress: the address is one of the node, where policies for egress do not apply.
func TestPodsReachNothingElseAtTheAddress(t *testing.T) {
	w := newWorld(t)
	executable(t)
	if err := errors.Join(
		os.MkdirAll(w.config.NetworkPolicy, 0o755), //nolint:gosec // as the agent's folders
		os.WriteFile(w.config.Isolated, []byte(podAddress+"\n"), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	if err := w.node.Do(func() error {
		listener, err := net.Listen("tcp", "0.0.0.0:22")
		if err == nil {
			t.Cleanup(func() { _ = listener.Close() })
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	dial := func(n nettest.Namespace, address string) error {
		return n.Do(func() error {
			connection, err := net.DialTimeout("tcp", address+":22", 5*time.Second)
			if err == nil {
				_ = connection.Close()
			}
			return err
		})
	}
	refused := func(when string) {
		t.Helper()
		for who, n := range map[string]nettest.Namespace{"a pod": w.pod, "a process of the node": w.node} {
			if err := dial(n, clusterDNS); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("%s %s connects to another port of the address: %v", who, when, err)
			}
		}
	}
	w.serveNode(t)
	if err := dial(w.pod, podGateway); err != nil {
		t.Fatalf("a pod does not reach the server at the node's own address: %v", err)
	}
	refused("without the table of queries")
	w.keep(t, interval)
	w.awaitActive(t, true)
	refused("with the table of queries")

	w.node.Run(t, "nft delete table ip kube-proxy")
	for _, network := range []string{"udp", "tcp"} {
		if who, err := ask(w.pod, 0, network); err == nil {
			t.Errorf("%s answers an isolated pod by %s without kube-proxy's rules", who, network)
		}
	}
}

func TestMetrics(t *testing.T) {
	var i Interception
	for _, active := range []bool{false, true} {
		i.active.Store(active)
		var text exposition.Text
		i.Metrics(&text)
		want := fmt.Sprintf("\nkubernetes_bosh_node_dns_intercepts %g\n", exposition.Bool(active))
		if !strings.HasSuffix(text.String(), want) {
			t.Errorf("metrics are %q", text.String())
		}
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "interception.json")
	for content, want := range map[string]string{
		`{"address": "10.96.0.10", "health": "127.0.0.1:855"}`:  "",
		`{"address": "10.96.0.10", "health": "127.0.0.1:9254"}`: "no other user of the VM can answer",
		`{"address": "fd00::10", "health": "127.0.0.1:855"}`:    "it must be an IPv4 address",
		`{"server": "10.96.0.10"}`:                              "server",
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Load(path)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", content, err, want)
		}
	}
}
