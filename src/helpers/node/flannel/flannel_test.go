package flannel

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
	"kubernetes-release/internal/nettest"
)

// TestANewVMWithTheAddressOfAnother: flannel routes to the pod subnet of a new VM that has the name and the address of
// a previous one, also if it could not reach the API while the Node was replaced.
func TestANewVMWithTheAddressOfAnother(t *testing.T) {
	requireFlannel(t)
	cluster := kubetest.Start(t, kubetest.Options{})
	admin := cluster.Admin()
	namespace := nettest.New(t)
	namespace.Run(t, `
		ip link set lo up
		ip link add eth0 type veth peer name peer
		ip link set peer up
		ip address add 10.0.31.4/24 dev eth0
		ip link set eth0 up`)
	api := forwardTo(t, namespace, cluster.AdminConfig().Host)

	// flannel requires any annotation; kube-controller-manager sets this one.
	createNode(t, admin, "own", "10.244.0.0/24", map[string]string{"node.alpha.kubernetes.io/ttl": "0"})
	createNode(t, admin, "other", "10.244.1.0/24", announcement(t, "10.0.31.5"))
	own := vm{namespace, "own", "10.0.31.4", cluster.Kubeconfig("flannel", "system:masters")}
	own.run(t, Backend{Type: "vxlan", VNI: 1, Port: 8472})
	awaitRoute(t, namespace, "flannel.1", "10.244.1.0/24")

	api.disconnect()
	if err := admin.CoreV1().Nodes().Delete(t.Context(), "other", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	createNode(t, admin, "other", "10.244.2.0/24", announcement(t, "10.0.31.5"))
	cluster.Restart() // an API server tells nobody what happened before its start
	cluster.AwaitReady()
	api.connect()
	awaitRoute(t, namespace, "flannel.1", "10.244.2.0/24")
}

// TestChecksumOffloadOfTheDevice: flannel uses the device with the setting that Prepare gave it, and does not outlive
// the device, which it would create without.
func TestChecksumOffloadOfTheDevice(t *testing.T) {
	requireFlannel(t)
	cluster := kubetest.Start(t, kubetest.Options{})
	admin := cluster.Admin()
	namespace := nettest.New(t)
	namespace.Run(t, `
		ip link set lo up
		ip link add eth0 type veth peer name peer
		ip link set peer up
		ip address add 10.0.31.4/24 dev eth0
		ip link set eth0 up`)
	forwardTo(t, namespace, cluster.AdminConfig().Host)
	createNode(t, admin, "own", "10.244.0.0/24", map[string]string{"node.alpha.kubernetes.io/ttl": "0"})
	createNode(t, admin, "other", "10.244.1.0/24", announcement(t, "10.0.31.5"))
	own := vm{namespace, "own", "10.0.31.4", cluster.Kubeconfig("flannel", "system:masters")}
	backend := Backend{Type: "vxlan", VNI: 1, Port: 8472}
	prepare := func(offload bool) {
		t.Helper()
		if err := namespace.Do(func() error {
			return Prepare(Config{Backend: backend}, netip.MustParseAddr(own.address), offload)
		}); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(what string, want uint32) {
		t.Helper()
		if err := namespace.Do(func() error {
			got, err := ethtool("flannel.1", unix.ETHTOOL_GTXCSUM, 0)
			if got != want {
				t.Errorf("%s: TX checksum offload is %d, want %d", what, got, want)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // and again, when the device is gone
		prepare(false)
		expect("before flannel", 0)
		started := own.run(t, backend)
		awaitRoute(t, namespace, "flannel.1", "10.244.1.0/24")
		expect("with flannel", 0)
		namespace.Run(t, "ip link del flannel.1")
		select {
		case <-started.ended:
		case <-time.After(time.Minute):
			t.Fatal("flannel goes on when its device is deleted: it must not create one without the setting")
		}
	}
	prepare(true)
	expect("of a new device", 1)
	prepare(false)
	expect("switched off", 0)
	prepare(true)
	expect("switched on again", 1)
}

// TestNodesAreRoutersToTheirPods: with host-gw, flannel of each VM announces the VM's address and nothing else, and has
// a route by it. flannel leaves out what is not in the VM's subnet.
func TestNodesAreRoutersToTheirPods(t *testing.T) {
	requireFlannel(t)
	cluster := kubetest.Start(t, kubetest.Options{})
	admin := cluster.Admin()
	one, two := nettest.New(t), nettest.New(t)
	nettest.Connect(t, one, "eth0", two, "eth0")
	vms := []vm{
		{one, "one", "10.0.31.4", cluster.Kubeconfig("one", "system:masters")},
		{two, "two", "10.0.31.5", cluster.Kubeconfig("two", "system:masters")},
	}
	far := announcement(t, "10.0.32.6")
	far["flannel.alpha.coreos.com/backend-type"], far["flannel.alpha.coreos.com/backend-data"] = "host-gw", "null"
	createNode(t, admin, "far", "10.244.9.0/24", far)
	for i, v := range vms {
		v.Run(t, `
			ip link set lo up
			ip address add `+v.address+`/24 dev eth0
			ip link set eth0 up
			ip route add default via 10.0.31.1`)
		v.Run(t, fmt.Sprintf("ip address add 10.244.%d.7/32 dev lo", i)) // in the place of a pod
		forwardTo(t, v.Namespace, cluster.AdminConfig().Host)
		createNode(t, admin, v.node, fmt.Sprintf("10.244.%d.0/24", i), map[string]string{"a": "b"})
	}
	logs := map[string]string{}
	for _, v := range vms {
		logs[v.node] = v.run(t, Backend{Type: "host-gw"}).log
	}
	for i, v := range vms {
		other := 1 - i
		route := awaitRoute(t, v.Namespace, "eth0", fmt.Sprintf("10.244.%d.0/24", other))
		if route.Gw.String() != vms[other].address {
			t.Errorf("%s has the route %v", v.node, route)
		}
		object, err := admin.CoreV1().Nodes().Get(t.Context(), v.node, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		const prefix = "flannel.alpha.coreos.com/"
		if want := map[string]string{
			"a": "b", prefix + "backend-data": "null", prefix + "backend-type": "host-gw",
			prefix + "kube-subnet-manager": "true", prefix + "public-ip": v.address,
		}; !maps.Equal(object.Annotations, want) {
			t.Errorf("Node %s has the annotations %v", v.node, object.Annotations)
		}
		// It has no route to this one, and says so nowhere else: hence CheckNeighbors.
		eventually.Succeeds(t, time.Minute, "refused route", func() error {
			text, err := os.ReadFile(logs[v.node])
			if err != nil || !bytes.Contains(text, []byte("Error adding route to {Ifindex: ")) ||
				!bytes.Contains(text, []byte("Dst: 10.244.9.0/24")) {
				return fmt.Errorf("%w: the log has no error about it", err)
			}
			return nil
		})
	}
	from, to := listen(t, one, "10.244.0.7"), listen(t, two, "10.244.1.7")
	if _, err := from.WriteTo([]byte("as it is"), to.LocalAddr()); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 100)
	if count, source, err := to.ReadFrom(buffer); err != nil || string(buffer[:count]) != "as it is" ||
		source.String() != from.LocalAddr().String() {
		t.Errorf("from the pod of another VM come %q from %v, %v", buffer[:count], source, err)
	}
}

// listen opens a port of UDP in a namespace.
func listen(t *testing.T, namespace nettest.Namespace, address string) *net.UDPConn {
	t.Helper()
	var socket *net.UDPConn
	if err := namespace.Do(func() (err error) {
		socket, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(address)})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	if err := socket.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return socket
}

// announcement is what flannel of the VM with that address says on its Node, after Prepare.
func announcement(t *testing.T, address string) map[string]string {
	t.Helper()
	mac, err := NewMAC(netip.MustParseAddr(address))
	if err != nil {
		t.Fatal(err)
	}
	const prefix = "flannel.alpha.coreos.com/"
	return map[string]string{
		prefix + "backend-data": fmt.Sprintf(`{"VNI":1,"VtepMAC":"%s"}`, mac), prefix + "backend-type": "vxlan",
		prefix + "kube-subnet-manager": "true", prefix + "public-ip": address,
	}
}

func createNode(t *testing.T, client kubernetes.Interface, name, subnet string, annotations map[string]string) {
	t.Helper()
	if _, err := client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec:       corev1.NodeSpec{PodCIDR: subnet, PodCIDRs: []string{subnet}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// requireFlannel skips the test without the real program.
func requireFlannel(t *testing.T) {
	t.Helper()
	nettest.Requires(t, "ip")
	if os.Getenv("COMPONENTS_DIR") == "" {
		t.Skip("COMPONENTS_DIR is not set: no real flannel")
	}
}

// vm is a network namespace in which flannel runs for a Node.
type vm struct {
	nettest.Namespace
	node, address, kubeconfig string
}

// process is a flannel that has been started.
type process struct {
	log   string
	ended chan struct{}
}

// run starts flannel, which runs until the test ends.
func (v vm) run(t *testing.T, backend Backend) process {
	t.Helper()
	dir := t.TempDir()
	config, err := json.Marshal(Config{Network: "10.244.0.0/16", EnableNFTables: true, Backend: backend})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "net-conf.json"), config, 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(
		filepath.Join(os.Getenv("COMPONENTS_DIR"), "flannel/bin/flanneld"), "--kube-subnet-mgr",
		"--kubeconfig-file="+v.kubeconfig, "--net-config-path="+dir+"/net-conf.json",
		"--subnet-file="+dir+"/subnet.env", "--iface="+v.address, "--public-ip="+v.address, "--healthz-port=0",
		"--iptables-forward-rules=false",
	)
	command.Env = append(os.Environ(), "NODE_NAME="+v.node)
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := v.Do(command.Start); err != nil {
		t.Fatal(err)
	}
	p := process{log.Name(), make(chan struct{})}
	go func() {
		_ = command.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = command.Process.Kill()
		<-p.ended
		_ = log.Close()
		if text, err := os.ReadFile(p.log); t.Failed() {
			t.Logf("flannel of %s: %v\n%s", v.node, err, text)
		}
	})
	return p
}

// awaitRoute waits until a device leads to a subnet, and returns the route.
func awaitRoute(t *testing.T, namespace nettest.Namespace, device, subnet string) (found netlink.Route) {
	t.Helper()
	eventually.Succeeds(t, time.Minute, "route to "+subnet, func() error {
		return namespace.Do(func() error {
			link, err := netlink.LinkByName(device)
			if err != nil {
				return err
			}
			routes, err := netlink.RouteList(link, netlink.FAMILY_V4)
			if err != nil {
				return err
			}
			for _, route := range routes {
				if route.Dst != nil && route.Dst.String() == subnet {
					found = route
					return nil
				}
			}
			return fmt.Errorf("the routes are %v", routes)
		})
	})
	return found
}

// cable forwards connections from a namespace to a server outside of it, while it is connected.
type cable struct {
	mu           sync.Mutex
	disconnected bool
	open         []net.Conn
}

func (c *cable) disconnect() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.disconnected = true
	for _, connection := range c.open {
		_ = connection.Close()
	}
	c.open = nil
}

func (c *cable) connect() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.disconnected = false
}

// forwardTo lets processes of the namespace reach a server by the address that it has outside.
func forwardTo(t *testing.T, namespace nettest.Namespace, server string) *cable {
	t.Helper()
	address, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	var listener net.Listener
	if err := namespace.Do(func() (err error) {
		listener, err = net.Listen("tcp", address.Host)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	c := &cable{}
	t.Cleanup(func() {
		_ = listener.Close()
		c.disconnect()
	})
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go c.forward(client, address.Host)
		}
	}()
	return c
}

func (c *cable) forward(client net.Conn, address string) {
	server, err := net.Dial("tcp", address)
	if err != nil {
		_ = client.Close()
		return
	}
	c.mu.Lock()
	if c.disconnected {
		_, _ = client.Close(), server.Close()
	} else {
		c.open = append(c.open, client, server)
	}
	c.mu.Unlock()
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	}()
	_, _ = io.Copy(client, server)
	_ = client.Close()
}
