package firewall

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	testingclock "k8s.io/utils/clock/testing"

	"kubernetes-release/internal/boshdns"
	"kubernetes-release/internal/nettest"
)

// The addresses of a network as on AWS: this node, another VM of the deployment, a machine that is none, and metadata.
const (
	ownAddress   = "10.0.0.4"
	otherNode    = "10.0.0.5"
	stranger     = "10.0.0.66"
	podAddress   = "10.244.1.7"
	neighborPod  = "10.244.1.8"
	podGateway   = "10.244.1.1"
	remotePod    = "10.244.2.9"
	metadata     = "169.254.169.254"
	metadataIPv6 = "fd00:ec2::254"
	metadataLink = "fe80::a9fe:a9fe"
	overlayPort  = 8472
)

// arrival is how long a packet that must arrive may take on a busy machine, and absent how long one is waited for that
// must not.
const arrival, absent = 10 * time.Second, 300 * time.Millisecond

// dialVariable makes the test's program connect to this address and exit: so that another user does. It does so from
// the address in sourceVariable, if there is one.
const dialVariable, sourceVariable = "NODEFIREWALL_DIAL", "NODEFIREWALL_SOURCE"

// payloadVariable makes it send a packet of UDP instead, with this payload in hexadecimal digits, and markVariable with
// a mark.
const payloadVariable, markVariable = "NODEFIREWALL_PAYLOAD", "NODEFIREWALL_MARK"

func TestMain(m *testing.M) {
	address := os.Getenv(dialVariable)
	if address == "" {
		os.Exit(m.Run())
	}
	if payload := os.Getenv(payloadVariable); payload != "" {
		if err := sendPayload(address, payload, os.Getenv(markVariable)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	dialer := net.Dialer{Timeout: 5 * time.Second}
	if source := os.Getenv(sourceVariable); source != "" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(source)}
	}
	connection, err := dialer.Dial("tcp", address)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_ = connection.Close()
}

// sendPayload sends what hexadecimal digits say to an address, with a mark if there is one.
func sendPayload(address, digits, mark string) error {
	payload, err := hex.DecodeString(digits)
	if err != nil {
		return err
	}
	dialer := net.Dialer{Control: func(_, _ string, socket syscall.RawConn) error {
		if mark == "" {
			return nil
		}
		number, err := strconv.Atoi(mark)
		if err != nil {
			return err
		}
		controlErr := socket.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, number)
		})
		return errors.Join(controlErr, err)
	}}
	connection, err := dialer.Dial("udp4", address)
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	_, err = connection.Write(payload)
	return err
}

// namespace is a network namespace with what these tests do in it.
type namespace struct{ nettest.Namespace }

func newNamespace(t *testing.T) namespace {
	t.Helper()
	return namespace{nettest.New(t)}
}

// world is a node with two pods, each with a link of its own as by the CNI plugin ptp, and its network.
type world struct{ node, pod, neighbor, network namespace }

func newWorld(t *testing.T) world {
	t.Helper()
	nettest.Requires(t, "nft")
	w := world{newNamespace(t), newNamespace(t), newNamespace(t), newNamespace(t)}
	nettest.Connect(t, w.node.Namespace, "veth1", w.pod.Namespace, "eth0")
	nettest.Connect(t, w.node.Namespace, "veth2", w.neighbor.Namespace, "eth0")
	nettest.Connect(t, w.node.Namespace, "eth0", w.network.Namespace, "eth0")
	nettest.Connect(t, w.node.Namespace, "flannel.1", w.network.Namespace, "tunnel")
	for _, n := range []namespace{w.node, w.pod, w.neighbor, w.network} {
		n.Run(t, "ip link set lo up\nsysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0 "+
			"net.ipv4.conf.default.rp_filter=0 net.ipv6.conf.all.forwarding=1")
	}
	w.node.Run(t, `
		ip link set veth1 up
		ip link set veth2 up
		ip link set eth0 up
		ip link set flannel.1 up
		ip addr add `+podGateway+`/32 dev veth1
		ip addr add `+podGateway+`/32 dev veth2
		ip route add `+podAddress+` dev veth1
		ip route add `+neighborPod+` dev veth2
		ip addr add `+ownAddress+`/24 dev eth0
		ip addr add 10.244.1.0/32 dev flannel.1
		ip route add 10.244.2.0/24 dev flannel.1
		ip route add default via 10.0.0.1
		ip -6 addr add fd00::4/64 dev eth0 nodad
		ip -6 route add default via fd00::1
		nft add table ip test
		nft add chain ip test postrouting {type nat hook postrouting priority srcnat;}
		nft add rule ip test postrouting ip saddr 10.244.0.0/16 ip daddr != 10.244.0.0/16 masquerade`)
	for address, pod := range map[string]namespace{podAddress: w.pod, neighborPod: w.neighbor} {
		pod.Run(t, `
			ip link set eth0 up
			ip addr add `+address+`/32 dev eth0
			ip route add `+podGateway+` dev eth0
			ip route add default via `+podGateway)
	}
	w.network.Run(t, `
		ip link set eth0 up
		ip link set tunnel up
		ip addr add 10.0.0.1/24 dev eth0
		ip addr add `+otherNode+`/24 dev eth0
		ip addr add `+stranger+`/24 dev eth0
		ip addr add `+metadata+`/32 dev eth0
		ip addr add `+remotePod+`/32 dev tunnel
		ip route add 10.244.1.0/24 via 10.244.1.0 dev tunnel onlink
		ip -6 addr add fd00::1/64 dev eth0 nodad
		ip -6 addr add `+metadataIPv6+`/128 dev eth0 nodad
		ip -6 addr add fd20:ce::254/128 dev eth0 nodad
		ip -6 addr add `+metadataLink+`/64 dev eth0 nodad
		ip addr add 168.63.129.16/32 dev eth0`)
	return w
}

// serve accepts connections of TCP on ports of the namespace, and closes them.
func (n namespace) serve(t *testing.T, ports ...int) {
	t.Helper()
	for _, port := range ports {
		n.accept(t, port, func(connection net.Conn) { _ = connection.Close() })
	}
}

// accept gives the connections of TCP on a port of the namespace to a function, until the test ends.
func (n namespace) accept(t *testing.T, port int, handle func(net.Conn)) {
	t.Helper()
	if err := n.Do(func() error {
		listener, err := net.Listen("tcp", fmt.Sprintf("[::]:%d", port))
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = listener.Close() })
		go func() {
			for {
				connection, err := listener.Accept()
				if err != nil {
					return
				}
				handle(connection)
			}
		}()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// dial connects as a user.
func (n namespace) dial(t *testing.T, uid uint32, address string) error {
	t.Helper()
	return n.dialFrom(t, uid, "", address)
}

// dialFrom connects as a user from an address, or from that which the kernel chooses.
func (n namespace) dialFrom(t *testing.T, uid uint32, source, address string) error {
	t.Helper()
	return n.client(t, uid, dialVariable+"="+address, sourceVariable+"="+source)
}

// client runs the test's program as a user, with an environment that says what it does.
func (n namespace) client(t *testing.T, uid uint32, environment ...string) error {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return n.Do(func() error {
		// The program of the test is in a directory that only root can read.
		command := exec.Command("/proc/self/fd/3")
		program, err := os.Open(self)
		if err != nil {
			return err
		}
		defer func() { _ = program.Close() }()
		command.ExtraFiles = []*os.File{program}
		command.Dir = "/"
		// Programs that detect races wait for a second when they exit.
		command.Env = slices.Concat(environment, []string{"GORACE=atexit_sleep_ms=0"})
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		output, err := command.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, output)
		}
		return nil
	})
}

// ping reports whether the kernel of the machine with an address answers an echo request.
func (n namespace) ping(t *testing.T, address string) bool {
	t.Helper()
	answered := false
	if err := n.Do(func() error {
		socket, err := net.DialIP("ip4:icmp", nil, &net.IPAddr{IP: net.ParseIP(address)})
		if err != nil {
			return err
		}
		defer func() { _ = socket.Close() }()
		if _, err := socket.Write([]byte{8, 0, 0xf7, 0xff, 0, 0, 0, 0}); err != nil {
			return err
		}
		if err := socket.SetReadDeadline(time.Now().Add(arrival)); err != nil {
			return err
		}
		buffer := make([]byte, 100)
		count, _, err := socket.ReadFrom(buffer) // without the header of IP
		answered = err == nil && count >= 8 && buffer[0] == 0
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return answered
}

// timedOut reports whether dial got no answer at all. Clients should learn at once that they are refused.
func timedOut(err error) bool { return err != nil && strings.Contains(err.Error(), "timeout") }

// overlay is a socket in the place of flannel's device: the kernel gives the device what it would give to it.
func (n namespace) overlay(t *testing.T) *net.UDPConn {
	t.Helper()
	var socket *net.UDPConn
	if err := n.Do(func() error {
		var err error
		socket, err = net.ListenUDP("udp4", &net.UDPAddr{Port: overlayPort})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	return socket
}

// send sends a packet of UDP from any address, as a container with its default capability NET_RAW can.
func (n namespace) send(t *testing.T, from, to string, payload string) {
	t.Helper()
	source, destination := netip.MustParseAddr(from).As4(), netip.MustParseAddr(to).As4()
	packet := make([]byte, 28, 28+len(payload))
	packet[0], packet[8], packet[9] = 0x45, 64, unix.IPPROTO_UDP
	copy(packet[12:], source[:])
	copy(packet[16:], destination[:])
	binary.BigEndian.PutUint16(packet[20:], 54321)
	binary.BigEndian.PutUint16(packet[22:], overlayPort)
	binary.BigEndian.PutUint16(packet[24:], uint16(8+len(payload)))
	packet = append(packet, payload...)
	if err := n.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		// As packets that the tunnel's device makes.
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, tunnelMark); err != nil {
			return err
		}
		err = unix.Sendto(fd, packet, 0, &unix.SockaddrInet4{Addr: destination})
		if err == unix.EPERM { // the output hook has dropped the packet
			return nil
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// received reports whether the payload arrives.
func received(t *testing.T, socket *net.UDPConn, payload string, within time.Duration) bool {
	t.Helper()
	if err := socket.SetReadDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 100)
	for {
		count, err := socket.Read(buffer)
		if err != nil {
			return false
		}
		if string(buffer[:count]) == payload {
			return true
		}
	}
}

// packets are by what sends them: from where, with which source and destination, and the socket where they arrive.
type packets map[string]struct {
	from         namespace
	source, dest string
	at           *net.UDPConn
}

// expect sends each packet and fails unless all arrive, or none does. what tells the packets of each call apart.
func (p packets) expect(t *testing.T, what string, arrive bool) {
	t.Helper()
	for name, packet := range p {
		packet.from.send(t, packet.source, packet.dest, what+name)
		within := absent
		if arrive {
			within = arrival
		}
		if got := received(t, packet.at, what+name, within); got != arrive {
			t.Errorf("%s: %s: arrives: %t, want %t", what, name, got, arrive)
		}
	}
}

// records writes BOSH's records with these instances.
func records(t *testing.T, path string, addresses ...string) {
	t.Helper()
	rows := make([]string, len(addresses))
	for i, address := range addresses {
		rows[i] = fmt.Sprintf(`["id-%d", "worker", "z1", "private", "prod", %q, "bosh"]`, i, address)
	}
	rows = append(rows, `["x", "db", "z1", "private", "other", "`+stranger+`", "bosh"]`)
	content := `{"record_keys": ["id", "instance_group", "az", "network", "deployment", "ip", "domain"],
"record_infos": [` + strings.Join(rows, ",\n") + `]}`
	if err := os.WriteFile(path+".new", []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// firewall returns that of the node, with the job's defaults.
func (w world) firewall(t *testing.T, change func(*Config)) *Firewall {
	t.Helper()
	path := filepath.Join(t.TempDir(), "records.json")
	records(t, path, ownAddress, otherNode)
	config := Config{
		PodCIDR: netip.MustParsePrefix("10.244.0.0/16"), OverlayPorts: []uint16{overlayPort},
		BlockedPorts: []uint16{2379, 2380, 6444}, VerifySource: true,
		Metadata:   Metadata{Restricted: true, Users: []string{"root"}},
		Deployment: boshdns.Deployment{Name: "prod", Domain: "bosh", Records: path},
	}
	if change != nil {
		change(&config)
	}
	var f *Firewall
	if err := w.node.Do(func() error {
		var err error
		f, err = New(config, slog.New(slog.NewTextHandler(io.Discard, nil)))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return f
}

func (w world) apply(t *testing.T, f *Firewall) {
	t.Helper()
	if err := w.node.Do(func() error { return f.Apply(t.Context()) }); err != nil {
		t.Fatal(err)
	}
}

// TestOnlyNodesReachTheOverlay is a pod that sends packets of VXLAN to nodes, from its own address and from others',
// and a machine that is no VM of the deployment.
func TestOnlyNodesReachTheOverlay(t *testing.T) {
	w := newWorld(t)
	here, there := w.node.overlay(t), w.network.overlay(t)
	attacks := packets{
		"a pod to its node":                        {w.pod, podAddress, ownAddress, here},
		"a pod to its gateway":                     {w.pod, podAddress, podGateway, here},
		"a pod with another node's address":        {w.pod, otherNode, ownAddress, here},
		"a pod to another node, masqueraded":       {w.pod, podAddress, otherNode, there},
		"a pod of another node, by the tunnel":     {w.network, remotePod, "10.244.1.0", here},
		"a VM of another deployment":               {w.network, stranger, ownAddress, here},
		"a user of the node, by loopback":          {w.node, "127.0.0.1", "127.0.0.1", here},
		"a node that has announced a wrong target": {w.node, ownAddress, stranger, there},
	}
	friends := packets{
		"another node": {w.network, otherNode, ownAddress, here},
		"this node":    {w.node, ownAddress, otherNode, there},
		"pods among themselves, on the same port": {w.pod, podAddress, remotePod, there},
	}
	expect := func(what string, attacksArrive bool) {
		t.Helper()
		attacks.expect(t, what, attacksArrive)
		friends.expect(t, what, true)
	}
	expect("without the table", true)
	// The rules for the port hold by themselves.
	f := w.firewall(t, func(c *Config) { c.VerifySource = false })
	w.apply(t, f)
	expect("with the table", false)

	// A VM that the Director creates, and one that it deletes.
	records(t, f.config.Deployment.Records, ownAddress, stranger)
	w.apply(t, f)
	w.network.send(t, stranger, ownAddress, "new")
	if !received(t, here, "new", arrival) {
		t.Error("the packet of a new node does not arrive")
	}
	w.network.send(t, otherNode, ownAddress, "deleted")
	if received(t, here, "deleted", absent) {
		t.Error("the packet of a deleted VM arrives")
	}

	// Records that cannot be read close nothing and open nothing.
	if err := os.WriteFile(f.config.Deployment.Records, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.apply(t, f)
	w.network.send(t, stranger, ownAddress, "unreadable")
	if !received(t, here, "unreadable", arrival) {
		t.Error("without readable records, known nodes are dropped")
	}

	w.node.Run(t, "nft delete table inet "+Table)
	var log strings.Builder
	f.log = slog.New(slog.NewTextHandler(&log, nil))
	f.clock = testingclock.NewFakePassiveClock(f.written.Add(tableInterval))
	w.apply(t, f)
	w.pod.send(t, podAddress, ownAddress, "written again")
	if received(t, here, "written again", absent) {
		t.Error("the table is not written again")
	}
	if !strings.Contains(log.String(), "restart flannel, kube-proxy") {
		t.Errorf("the log does not say what to do about the rules of others: %s", &log)
	}
}

// TestPodsSendFromTheirOwnAddressOnly is a pod, and a machine of the network, that send with addresses of others.
func TestPodsSendFromTheirOwnAddressOnly(t *testing.T) {
	w := newWorld(t)
	here, there := w.node.overlay(t), w.network.overlay(t)
	pod, neighbor := w.pod.overlay(t), w.neighbor.overlay(t)
	attacks := packets{
		"as its neighbor, to a pod elsewhere":         {w.pod, neighborPod, remotePod, there},
		"as its neighbor, to a VM":                    {w.pod, neighborPod, otherNode, there},
		"as a pod of another node, to a neighbor":     {w.pod, remotePod, neighborPod, neighbor},
		"as a VM, to a neighbor":                      {w.pod, otherNode, neighborPod, neighbor},
		"as a VM, to its node":                        {w.pod, otherNode, ownAddress, here},
		"as an address of nobody, to a pod elsewhere": {w.pod, "192.0.2.7", remotePod, there},
		"as a pod, from the VM network to the VM":     {w.network, remotePod, ownAddress, here},
		"as a neighbor, from the VM network":          {w.network, neighborPod, ownAddress, here},
	}
	friends := packets{
		"a pod to its neighbor":       {w.pod, podAddress, neighborPod, neighbor},
		"a pod to its node":           {w.pod, podAddress, ownAddress, here},
		"a pod to a pod elsewhere":    {w.pod, podAddress, remotePod, there},
		"a pod to a VM, masqueraded":  {w.neighbor, neighborPod, otherNode, there},
		"a pod elsewhere to a pod":    {w.network, remotePod, podAddress, pod},
		"a VM to its own pod":         {w.node, podGateway, podAddress, pod},
		"another VM":                  {w.network, otherNode, ownAddress, here},
		"another VM's end, to a pod":  {w.network, "10.244.2.0", neighborPod, neighbor},
		"a VM to itself, by loopback": {w.node, ownAddress, ownAddress, here},
	}
	expect := func(what string, attacksArrive bool) {
		t.Helper()
		attacks.expect(t, what, attacksArrive)
		friends.expect(t, what, true)
	}
	// No rule but those for addresses.
	only := func(c *Config) { c.OverlayPorts, c.BlockedPorts = nil, nil }
	expect("without the table", true)
	w.apply(t, w.firewall(t, only))
	expect("with the table", false)
	w.apply(t, w.firewall(t, func(c *Config) { only(c); c.VerifySource = false }))
	expect("with the table, unverified", true)
}

// TestPodsOfOtherNodesByRoutes is a network of pods without a tunnel, as with flannel's backend host-gw: each node has
// routes to the pods of the others, by their addresses.
func TestPodsOfOtherNodesByRoutes(t *testing.T) {
	w := newWorld(t)
	w.node.Run(t, "ip link del flannel.1\nip route add 10.244.2.0/24 via "+otherNode+" dev eth0")
	w.network.Run(t, `
		ip addr add `+remotePod+`/32 dev lo
		ip route add 10.244.1.0/24 via `+ownAddress+` dev eth0 src `+otherNode)
	here, there, pod := w.node.overlay(t), w.network.overlay(t), w.pod.overlay(t)
	w.node.serve(t, 2379)
	w.pod.serve(t, 80)
	w.network.serve(t, 80)
	attacks := packets{
		"a pod as its neighbor, to a pod elsewhere":    {w.pod, neighborPod, remotePod, there},
		"a pod as one elsewhere, to its node":          {w.pod, remotePod, ownAddress, here},
		"another VM as a pod of this one, to a pod":    {w.network, neighborPod, podAddress, pod},
		"another VM as a pod of this one, to the node": {w.network, neighborPod, ownAddress, here},
	}
	friends := packets{
		"a pod to a pod elsewhere": {w.pod, podAddress, remotePod, there},
		"a pod elsewhere to a pod": {w.network, remotePod, podAddress, pod},
		"another VM to a pod":      {w.network, otherNode, podAddress, pod},
	}
	expect := func(what string, attacksArrive bool) {
		t.Helper()
		attacks.expect(t, what, attacksArrive)
		friends.expect(t, what, true)
		if err := w.network.dialFrom(t, 0, remotePod, ownAddress+":2379"); (err == nil) != attacksArrive {
			t.Errorf("%s: a pod elsewhere to etcd: %v", what, err)
		}
		for name, dial := range map[string]error{
			"a pod to a pod elsewhere":  w.pod.dial(t, 0, remotePod+":80"),
			"a pod elsewhere to a pod":  w.network.dialFrom(t, 0, remotePod, podAddress+":80"),
			"a VM to a pod elsewhere":   w.node.dial(t, 1000, remotePod+":80"),
			"another VM to a pod of it": w.network.dialFrom(t, 0, otherNode, podAddress+":80"),
		} {
			if dial != nil {
				t.Errorf("%s: %s: %v", what, name, dial)
			}
		}
	}
	expect("without the table", true)
	w.apply(t, w.firewall(t, nil))
	expect("with the table", false)
}

// TestTheOverlayReachesPodsOnly is a Node that announced the address of metadata as its pod subnet before the admission
// policy existed: flannel has a route to it.
func TestTheOverlayReachesPodsOnly(t *testing.T) {
	w := newWorld(t)
	w.node.Run(t, "ip route add 192.0.2.1/32 dev flannel.1\nip addr add 192.0.2.2/32 dev flannel.1")
	w.network.Run(t, "ip addr add 192.0.2.1/32 dev tunnel")
	w.network.serve(t, 80)
	if err := w.pod.dial(t, 0, remotePod+":80"); err != nil {
		t.Fatal(err)
	}
	for name, from := range map[string]namespace{"the pod": w.pod, "the node": w.node} {
		if err := from.dial(t, 0, "192.0.2.1:80"); err != nil {
			t.Errorf("%s, without the table: %v", name, err)
		}
	}
	w.apply(t, w.firewall(t, nil))
	for name, from := range map[string]namespace{"the pod": w.pod, "the node": w.node} {
		if err := from.dial(t, 0, "192.0.2.1:80"); err == nil {
			t.Errorf("%s connects by a route of a Node that is not to pods", name)
		}
		if err := from.dial(t, 0, remotePod+":80"); err != nil {
			t.Errorf("%s to a pod of another node: %v", name, err)
		}
	}
}

// tunnelEnds have the tunnels of a test with devices of VXLAN, by the node's address.
var tunnelEnds = map[string]string{ownAddress: "02:00:00:00:00:04", otherNode: "02:00:00:00:00:05"}

// tunnel gives a node of a pod network, 10.244.N.0/24, a device of VXLAN to another node, as flannel does.
func (n namespace) tunnel(t *testing.T, device, address, subnet, other, otherSubnet string) {
	t.Helper()
	vxlan := "type vxlan id 1 local " + address + " dev eth0 dstport 8472 nolearning"
	n.Run(t, `
		ip link add `+device+` address `+tunnelEnds[address]+` `+vxlan+`
		ip link set `+device+` up
		ip addr add `+subnet+`/32 dev `+device+`
		ip neigh add `+otherSubnet+` lladdr `+tunnelEnds[other]+` dev `+device+` nud permanent
		bridge fdb append `+tunnelEnds[other]+` dev `+device+` dst `+other+`
		ip route add `+otherSubnet+`/24 via `+otherSubnet+` dev `+device+` onlink`)
}

// inVXLAN is the payload of a packet of VXLAN to another node, with a packet of UDP from one pod to another.
func inVXLAN(to, fromPod, toPod string, port uint16, text string) string {
	mac, err := net.ParseMAC(tunnelEnds[to])
	if err != nil {
		panic(err)
	}
	source, destination := netip.MustParseAddr(fromPod).As4(), netip.MustParseAddr(toPod).As4()
	packet := append([]byte{8, 0, 0, 0, 0, 0, 1, 0}, mac...)
	packet = append(packet, 2, 0, 0, 0, 0, 9, 8, 0)
	header := make([]byte, 28)
	header[0], header[8], header[9] = 0x45, 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(header[2:], uint16(28+len(text)))
	copy(header[12:], source[:])
	copy(header[16:], destination[:])
	sum := uint32(0)
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(header[i:]))
	}
	binary.BigEndian.PutUint16(header[10:], ^uint16(sum+sum>>16))
	binary.BigEndian.PutUint16(header[20:], 54321)
	binary.BigEndian.PutUint16(header[22:], port)
	binary.BigEndian.PutUint16(header[24:], uint16(8+len(text)))
	return hex.EncodeToString(append(append(packet, header...), text...))
}

// TestUsersCannotMakePacketsOfTheOverlay is a user of a VM that sends packets of VXLAN to another one, with the address
// of any pod in them, past NetworkPolicies. The devices of VXLAN are the kernel's; one is that of another CNI.
func TestUsersCannotMakePacketsOfTheOverlay(t *testing.T) {
	nettest.Requires(t, "nft", "bridge")
	const vcap = 1000
	for device, forged := range map[string]bool{"flannel.1": false, "other.1": true} {
		t.Run(device, func(t *testing.T) {
			w := newWorld(t)
			w.node.Run(t, "ip link del flannel.1")
			// The firewall starts before flannel.
			f := w.firewall(t, nil)
			w.apply(t, f)
			w.node.tunnel(t, device, ownAddress, "10.244.1.0", otherNode, "10.244.2.0")
			w.network.tunnel(t, "flannel.1", otherNode, "10.244.2.0", ownAddress, "10.244.1.0")
			w.network.Run(t, "ip addr add "+remotePod+"/32 dev lo")
			// As kube-proxy and flannel do: a process of the VM that connects to a node port of the VM reaches a pod of
			// another node. A rule of the hook output still sees the interface of the node port, which is lo.
			w.node.Run(t, `
				nft add chain ip test output {type nat hook output priority -100;}
				nft add rule ip test output ip daddr `+ownAddress+` tcp dport 30080 dnat to `+remotePod+`:80
				nft add rule ip test postrouting ip saddr != 10.244.0.0/16 ip daddr 10.244.0.0/16 masquerade`)
			w.pod.serve(t, 80)
			w.network.serve(t, 80)
			var there *net.UDPConn
			if err := w.network.Do(func() (err error) {
				there, err = net.ListenUDP("udp4", &net.UDPAddr{Port: 9999})
				return err
			}); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = there.Close() })
			forge := func(what, mark string, want bool) {
				t.Helper()
				payload := inVXLAN(otherNode, neighborPod, remotePod, 9999, what)
				err := w.node.client(t, vcap, dialVariable+"="+otherNode+":8472", payloadVariable+"="+payload,
					markVariable+"="+mark)
				within := absent
				if want {
					within = arrival
				}
				if got := received(t, there, what, within); got != want {
					t.Errorf("%s: a packet of a user arrives: %t, want %t: %v", what, got, want, err)
				}
				if mark != "" && (err == nil || !strings.Contains(err.Error(), "not permitted")) {
					t.Errorf("%s: a user can mark packets: %v", what, err)
				}
			}
			friends := func(what string) {
				t.Helper()
				for name, dial := range map[string]func() error{
					"root":            func() error { return w.node.dial(t, 0, remotePod+":80") },
					"a user":          func() error { return w.node.dial(t, vcap, remotePod+":80") },
					"a node port":     func() error { return w.node.dial(t, vcap, ownAddress+":30080") },
					"a pod":           func() error { return w.pod.dial(t, 0, remotePod+":80") },
					"a pod elsewhere": func() error { return w.network.dialFrom(t, 0, remotePod, podAddress+":80") },
				} {
					if err := dial(); err != nil {
						t.Errorf("%s: %s by the tunnel: %v", what, name, err)
					}
				}
				if !w.node.ping(t, "10.244.2.0") || !w.network.ping(t, "10.244.1.0") {
					t.Errorf("%s: the tunnel's ends do not answer a ping", what)
				}
			}
			forge("before the tunnel is seen", "", true)
			friends("before the tunnel is seen")
			w.apply(t, f)
			forge("afterwards", "", forged)
			forge("with the mark", strconv.Itoa(tunnelMark), false)
			friends("afterwards")
		})
	}
}

// TestTheOverlayEndsAtPods is a pod of another node, and root there, that connect to this VM through the tunnel, past
// the cloud's firewall between VMs, which sees packets of VXLAN only.
func TestTheOverlayEndsAtPods(t *testing.T) {
	w := newWorld(t)
	here, pod, there := w.node.overlay(t), w.pod.overlay(t), w.network.overlay(t)
	w.node.serve(t, 22)
	w.pod.serve(t, 80)
	w.network.serve(t, 80)
	// As flannel and kube-proxy do: what goes to pods has the address of the tunnel's end, and a node port of this node
	// leads to a pod of another one.
	w.node.Run(t, `
		ip -6 addr add fe80::41/64 dev flannel.1 nodad
		nft add rule ip test postrouting ip saddr != 10.244.0.0/16 ip daddr 10.244.0.0/16 masquerade
		nft add chain ip test prerouting {type nat hook prerouting priority dstnat;}
		nft add rule ip test prerouting ip daddr `+ownAddress+` tcp dport 30080 dnat to `+remotePod+`:80`)
	// A machine that the VM reaches, by IPv6 too.
	const beyond, beyondIPv6, from6 = "192.0.2.7", "fd99::7", "fd98::9"
	w.neighbor.serve(t, 80)
	w.node.Run(t, `
		ip route add `+beyond+` dev veth2
		ip -6 addr add fe80::51/64 dev veth2 nodad
		ip -6 route add `+beyondIPv6+` dev veth2
		ip -6 route add `+from6+` dev flannel.1`)
	w.neighbor.Run(t, `
		ip addr add `+beyond+`/32 dev eth0
		ip -6 addr add `+beyondIPv6+`/128 dev eth0 nodad
		ip -6 route add default via fe80::51 dev eth0`)
	// What has the address of the remote pod goes through the tunnel, also to the VM's own address, and so does what
	// root makes by hand (of the protocol 255).
	w.network.Run(t, `
		ip -6 addr add fe80::42/64 dev tunnel nodad
		ip -6 addr add `+from6+`/128 dev tunnel nodad
		ip -6 route add `+beyondIPv6+` via fe80::41 dev tunnel
		ip rule add from `+remotePod+` lookup 7
		ip rule add ipproto 255 lookup 7
		ip route add default via 10.244.1.0 dev tunnel onlink table 7`)
	from := func(source, address string) func() error {
		return func() error { return w.network.dialFrom(t, 0, source, address) }
	}
	attacks := map[string]func() error{
		"to the tunnel's end": from(remotePod, "10.244.1.0:22"),
		"to a pod's gateway":  from(remotePod, podGateway+":22"),
		"to the VM":           from(remotePod, ownAddress+":22"),
		"to the VM, by IPv6":  from("", "[fe80::41%tunnel]:22"),
		"by the VM, by IPv6":  from(from6, "["+beyondIPv6+"]:80"),
	}
	forged := packets{
		"to the tunnel's end":     {w.network, remotePod, "10.244.1.0", here},
		"to the VM":               {w.network, remotePod, ownAddress, here},
		"to what the VM reaches":  {w.network, remotePod, beyond, w.neighbor.overlay(t)},
		"as another VM, to a pod": {w.network, otherNode, podAddress, pod},
	}
	friends := map[string]func() error{
		"the node to a pod elsewhere":     func() error { return w.node.dial(t, 1000, remotePod+":80") },
		"the VM's address to a pod there": func() error { return w.node.dialFrom(t, 0, ownAddress, remotePod+":80") },
		"a pod to a pod elsewhere":        func() error { return w.pod.dial(t, 0, remotePod+":80") },
		"a pod elsewhere to a pod":        from(remotePod, podAddress+":80"),
		"a client of a node port":         from(stranger, ownAddress+":30080"),
		"a VM by its own network":         from(otherNode, ownAddress+":22"),
	}
	friendly := packets{
		"a pod elsewhere to a pod":       {w.network, remotePod, podAddress, pod},
		"the end of another VM to a pod": {w.network, "10.244.2.0", podAddress, pod},
		"a pod to a pod elsewhere":       {w.pod, podAddress, remotePod, there},
	}
	expect := func(what string, reached bool) {
		t.Helper()
		for name, dial := range attacks {
			if err := dial(); (err == nil) != reached {
				t.Errorf("%s: %s: %v, want connected %t", what, name, err, reached)
			}
		}
		forged.expect(t, what, reached)
		for name, dial := range friends {
			if err := dial(); err != nil {
				t.Errorf("%s: %s: %v", what, name, err)
			}
		}
		friendly.expect(t, what, true)
		if !w.network.ping(t, "10.244.1.0") {
			t.Errorf("%s: the tunnel's end does not answer a ping", what)
		}
	}
	expect("without the table", true)
	// 8472 is a port as any other then, and addresses are not looked at.
	only := func(c *Config) { c.OverlayPorts, c.VerifySource = []uint16{4789}, false }
	w.apply(t, w.firewall(t, only))
	expect("with the table", false)
	if err := w.network.dialFrom(t, 0, remotePod, "10.244.1.0:22"); timedOut(err) {
		t.Errorf("a pod elsewhere to the tunnel's end: %v, want a refusal", err)
	}
}

// TestSegmentsFitTheWay is a pod that connects to another one through the tunnel, and to a machine beyond the VM's
// interface, which both have a smaller MTU than the pod's link; by IPv6 too. The other ends do not know it.
func TestSegmentsFitTheWay(t *testing.T) {
	const tunnelMTU, interfaceMTU, headers, headersIPv6 = 1410, 1460, 40, 60
	w := newWorld(t)
	w.node.Run(t, fmt.Sprintf("ip link set flannel.1 mtu %d\nip link set eth0 mtu %d", tunnelMTU, interfaceMTU))
	w.node.Run(t, "ip -6 addr add fd01::1/64 dev veth1 nodad")
	w.pod.Run(t, "ip -6 addr add fd01::7/64 dev eth0 nodad\nip -6 route add default via fd01::1")
	w.network.Run(t, "ip -6 route add fd01::/64 via fd00::4")
	accepted := make(chan int, 1)
	w.network.accept(t, 80, func(connection net.Conn) {
		accepted <- segmentSize(t, connection)
		_ = connection.Close()
	})
	expect := func(what string, fits bool) {
		t.Helper()
		for address, most := range map[string]int{
			remotePod + ":80": tunnelMTU - headers, otherNode + ":80": interfaceMTU - headers,
			"[fd00::1]:80": interfaceMTU - headersIPv6,
		} {
			var own int
			if err := w.pod.Do(func() error {
				connection, err := net.DialTimeout("tcp", address, arrival)
				if err != nil {
					return err
				}
				own = segmentSize(t, connection)
				return connection.Close()
			}); err != nil {
				t.Fatalf("%s: %s: %v", what, address, err)
			}
			for who, size := range map[string]int{"the pod": own, "the other end": <-accepted} {
				if (size <= most) != fits {
					t.Errorf("%s: %s: %s sends segments of %d bytes; %d fit", what, address, who, size, most)
				}
			}
		}
	}
	expect("without the table", false)
	w.apply(t, w.firewall(t, nil))
	expect("with the table", true)
}

// segmentSize is how many bytes a connection sends in one packet at most.
func segmentSize(t *testing.T, connection net.Conn) int {
	t.Helper()
	raw, err := connection.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Error(err)
		return 0
	}
	var size int
	controlErr := raw.Control(func(fd uintptr) {
		size, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG)
	})
	if err := errors.Join(controlErr, err); err != nil {
		t.Error(err)
	}
	return size
}

// TestPodsDoNotReachPortsOfTheControlPlane tries etcd, its peers and the endpoint at which VMs join, and kubelets where
// an operator has closed them. The node has a virtual address of the API too, which everybody reaches.
func TestPodsDoNotReachPortsOfTheControlPlane(t *testing.T) {
	w := newWorld(t)
	const virtual = "10.0.0.100"
	w.node.Run(t, "ip addr add "+virtual+"/32 dev eth0")
	w.node.serve(t, 2379, 6443, 6444, 10250)
	w.network.serve(t, 2379, 2380, 6443, 6444, 10250)
	attacks := []string{
		ownAddress + ":2379", podGateway + ":6444", otherNode + ":2379", otherNode + ":2380", otherNode + ":6444",
		virtual + ":2379", virtual + ":6444",
		// The kernel gives both ends of a pod's link an address of IPv6, and Go's servers on 0.0.0.0 listen there too.
		"[fe80::1%eth0]:2379", "[fe80::1%eth0]:6444",
	}
	w.node.Run(t, "ip -6 addr add fe80::1/64 dev veth1 nodad")
	w.pod.Run(t, "ip -6 addr add fe80::7/64 dev eth0 nodad")
	kubelets := []string{ownAddress + ":10250", podGateway + ":10250", otherNode + ":10250", "[fe80::1%eth0]:10250"}
	friends := []string{
		otherNode + ":6443", virtual + ":6443",
		stranger + ":2379",  // an etcd that is none of the deployment's
		remotePod + ":2379", // and that of a pod
	}
	reached := func(what string, addresses ...string) {
		t.Helper()
		for _, address := range addresses {
			if err := w.pod.dial(t, 0, address); err != nil {
				t.Errorf("%s, a pod to %s: %v", what, address, err)
			}
		}
	}
	refused := func(what string, addresses ...string) {
		t.Helper()
		for _, address := range addresses {
			if err := w.pod.dial(t, 0, address); err == nil {
				t.Errorf("%s, a pod connects to %s", what, address)
			} else if timedOut(err) && !strings.HasPrefix(address, "[fe80:") {
				// A refusal to an address of one link can leave by another one: the kernel looks for its way without
				// the interface (nf_send_reset6 in net/ipv6/netfilter/nf_reject_ipv6.c).
				t.Errorf("%s, a pod to %s: %v, want a refusal", what, address, err)
			}
		}
	}
	reached("without the table", slices.Concat(friends, kubelets, attacks)...)
	w.apply(t, w.firewall(t, func(c *Config) { c.BlockedPorts = append(c.BlockedPorts, 10250) }))
	reached("with kubelets closed", friends...)
	refused("with kubelets closed", slices.Concat(kubelets, attacks)...)
	w.apply(t, w.firewall(t, nil))
	reached("with the defaults", slices.Concat(friends, kubelets)...)
	refused("with the defaults", attacks...)
	// VMs themselves, and processes on the host network, under any user.
	for _, address := range []string{otherNode + ":2379", otherNode + ":6444", "127.0.0.1:2379"} {
		if err := w.node.dial(t, 1000, address); err != nil {
			t.Errorf("the node to %s: %v", address, err)
		}
	}
	if err := w.network.dial(t, 0, ownAddress+":2379"); err != nil {
		t.Errorf("another node: %v", err)
	}
	if err := w.network.dialFrom(t, 0, stranger, virtual+":6443"); err != nil {
		t.Errorf("a machine outside of the deployment, to the API: %v", err)
	}
	if err := w.node.Do(func() error {
		return w.firewall(t, func(c *Config) { c.BlockedPorts = nil }).Apply(t.Context())
	}); err != nil {
		t.Fatal(err)
	}
	if err := w.pod.dial(t, 0, otherNode+":2379"); err != nil {
		t.Errorf("without blocked ports: %v", err)
	}
}

// TestServicesDoNotLeadToPortsOfTheControlPlane is a pod of another node, whose packets have that node's address, and a
// machine that is none: they connect by node ports of this one to Services with the addresses of VMs.
func TestServicesDoNotLeadToPortsOfTheControlPlane(t *testing.T) {
	w := newWorld(t)
	w.node.serve(t, 2379, 8080)
	w.network.serve(t, 2379, 6443)
	w.pod.serve(t, 2379)
	w.node.Run(t, `
		nft add chain ip test prerouting {type nat hook prerouting priority dstnat;}
		nft add chain ip test output {type nat hook output priority -100;}
		nft add rule ip test postrouting ip daddr `+otherNode+` masquerade`)
	for port, endpoint := range map[int]string{
		30001: otherNode + ":2379", 30002: ownAddress + ":2379",
		30003: otherNode + ":6443", 30004: ownAddress + ":8080", 30005: podAddress + ":2379",
	} {
		for _, chain := range []string{"prerouting", "output"} {
			w.node.Run(t, fmt.Sprintf("nft add rule ip test %s ip daddr %s tcp dport %d dnat to %s",
				chain, ownAddress, port, endpoint))
		}
	}
	at := func(port int) string { return net.JoinHostPort(ownAddress, strconv.Itoa(port)) }
	expect := func(what string, reached bool) {
		t.Helper()
		for _, source := range []string{otherNode, stranger} {
			for _, port := range []int{30001, 30002} {
				err := w.network.dialFrom(t, 0, source, at(port))
				if (err == nil) != reached {
					t.Errorf("%s: %s to node port %d: %v, want connected %t", what, source, port, err, reached)
				}
				if timedOut(err) {
					t.Errorf("%s: %s to node port %d: %v, want a refusal", what, source, port, err)
				}
			}
			for _, port := range []int{30003, 30004, 30005} {
				if err := w.network.dialFrom(t, 0, source, at(port)); err != nil {
					t.Errorf("%s: %s to node port %d: %v", what, source, port, err)
				}
			}
		}
		for port := 30001; port <= 30005; port++ {
			if err := w.node.dial(t, 1000, at(port)); err != nil {
				t.Errorf("%s: a process of the node to node port %d: %v", what, port, err)
			}
		}
		// The answers go to a port that is blocked, as any can be the source of a connection.
		client := net.Dialer{Timeout: arrival, LocalAddr: &net.TCPAddr{IP: net.ParseIP(otherNode), Port: 6444}}
		if err := w.network.Do(func() error {
			connection, err := client.Dial("tcp", ownAddress+":30003")
			if err != nil {
				return err
			}
			return errors.Join(connection.(*net.TCPConn).SetLinger(0), connection.Close()) // the port is free at once
		}); err != nil {
			t.Errorf("%s: from port 6444: %v", what, err)
		}
	}
	expect("without the table", true)
	w.apply(t, w.firewall(t, nil))
	expect("with the table", false)
}

// TestOnlyUsersThatAreNamedReadMetadata connects as other users, and as a pod where the hop limit would let it.
func TestOnlyUsersThatAreNamedReadMetadata(t *testing.T) {
	w := newWorld(t)
	w.network.serve(t, 53, 80, 32526)
	services := []string{
		metadata + ":80", "[" + metadataIPv6 + "]:80", "[fd20:ce::254]:80", "[" + metadataLink + "%eth0]:80",
		"168.63.129.16:80", "168.63.129.16:32526",
	}
	expect := func(what string, from namespace, uid uint32, allowed bool) {
		t.Helper()
		for _, address := range services {
			if from == w.pod && strings.HasPrefix(address, "[") {
				continue // the pod network has no IPv6
			}
			err := from.dial(t, uid, address)
			if (err == nil) != allowed {
				t.Errorf("%s, %s: %v, want allowed %t", what, address, err, allowed)
			}
			if timedOut(err) {
				t.Errorf("%s, %s: %v, want a refusal", what, address, err)
			}
		}
	}
	expect("a user without the table", w.node, 1000, true)
	expect("a pod without the table", w.pod, 0, true)
	w.apply(t, w.firewall(t, nil))
	expect("root", w.node, 0, true)
	expect("a user", w.node, 1000, false)
	expect("a pod", w.pod, 0, false)
	for what, address := range map[string]string{
		"another address": otherNode + ":80", "Azure's DNS": "168.63.129.16:53", "Google Cloud's DNS": metadata + ":53",
	} {
		if err := w.node.dial(t, 1000, address); err != nil {
			t.Errorf("a user to %s: %v", what, err)
		}
		if err := w.pod.dial(t, 0, address); err != nil {
			t.Errorf("a pod to %s: %v", what, err)
		}
	}
	w.apply(t, w.firewall(t, func(c *Config) { c.Metadata.Users = []string{"root", "1000"} }))
	expect("a user that is named", w.node, 1000, true)
	expect("a user that is not", w.node, 1001, false)
	w.apply(t, w.firewall(t, func(c *Config) { c.Metadata.Pods = true }))
	expect("a pod that may", w.pod, 0, true)
	expect("a user of its node", w.node, 1000, false)
	w.apply(t, w.firewall(t, func(c *Config) { c.Metadata.Users = nil }))
	expect("root that is not named", w.node, 0, false)
	w.apply(t, w.firewall(t, func(c *Config) { c.Metadata.Restricted = false }))
	expect("a user without restrictions", w.node, 1000, true)
	expect("a pod without restrictions", w.pod, 0, true)
}

// TestLocalPortsAreForUsersThatAreNamed is a server that asks its clients nothing and listens on all addresses, such as
// the webhooks of the AWS Load Balancer Controller, with the API server of the same VM as its client.
func TestLocalPortsAreForUsersThatAreNamed(t *testing.T) {
	const apiServer, vcap = 1900000004, 1000
	w := newWorld(t)
	w.node.serve(t, 3311, 3312)
	w.network.serve(t, 3312)
	// A Service whose endpoint is the port: for users of the VM, and for pods.
	w.node.Run(t, `
		nft add chain ip test output {type nat hook output priority -100;}
		nft add chain ip test prerouting {type nat hook prerouting priority dstnat;}
		nft add rule ip test output ip daddr 10.100.0.1 tcp dport 80 dnat to `+ownAddress+`:3312
		nft add rule ip test prerouting ip daddr 10.100.0.1 tcp dport 80 dnat to `+ownAddress+`:3312`)
	own := []string{"127.0.0.1:3312", "[::1]:3312", ownAddress + ":3312", "10.100.0.1:80", ":3312"}
	expect := func(what string, from namespace, uid uint32, allowed bool, addresses ...string) {
		t.Helper()
		for _, address := range addresses {
			err := from.dial(t, uid, address)
			if (err == nil) != allowed {
				t.Errorf("%s to %s: %v, want allowed %t", what, address, err, allowed)
			}
			if timedOut(err) {
				t.Errorf("%s to %s: %v, want a refusal", what, address, err)
			}
		}
	}
	all := func(what string, attacksAllowed bool) {
		t.Helper()
		expect(what+": a user of the VM", w.node, vcap, attacksAllowed, own...)
		expect(what+": another VM", w.network, 0, attacksAllowed, ownAddress+":3312", "[fd00::4]:3312")
		expect(what+": a pod", w.pod, 0, attacksAllowed, ownAddress+":3312", podGateway+":3312", "10.100.0.1:80")
		expect(what+": the API server", w.node, apiServer, true, own...)
		expect(what+": root", w.node, 0, true, own...)
		expect(what+": a user of the VM", w.node, vcap, true, "127.0.0.1:3311", otherNode+":3312")
		expect(what+": another VM", w.network, 0, true, ownAddress+":3311")
		expect(what+": a pod", w.pod, 0, true, ownAddress+":3311", otherNode+":3312")
	}
	all("without the table", true)
	w.apply(t, w.firewall(t, nil))
	all("with the defaults", true)
	users := []string{"root", "1900000004"}
	w.apply(t, w.firewall(t, func(c *Config) { c.LocalPorts = []LocalPort{{Port: 3312, Users: users}} }))
	all("with the port", false)
	w.apply(t, w.firewall(t, func(c *Config) { c.LocalPorts = []LocalPort{{Port: 3312}} }))
	expect("root that is not named", w.node, 0, false, own...)
}

func TestUsersThatDoNotExist(t *testing.T) {
	const user = "nobody-of-this-vm"
	for property, config := range map[string]Config{
		"metadata.users": {Metadata: Metadata{Users: []string{"root", user}}},
		"local.ports":    {LocalPorts: []LocalPort{{Port: 3312, Users: []string{user}}}},
	} {
		_, err := config.withUserIDs()
		if err == nil || !strings.Contains(err.Error(), user) || !strings.Contains(err.Error(), property) {
			t.Errorf("%s: got %v", property, err)
		}
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "firewall.json")
	for content, want := range map[string]string{
		`{"pod_cidr": "10.244.0.0/16"}`: "",
		`{"pod_cidr": "fd00::/64"}`:     "must be an IPv4 network",
		`{}`:                            "must be an IPv4 network",
		`{"pod_cidr": "10.244.0.0/16", "ports": [1]}`:     "ports",
		`{"pod_cidr": "10.244.0.0/16", "overlay_ports":7`: "firewall.json",
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Load(path)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", content, err, want)
		}
	}
}
