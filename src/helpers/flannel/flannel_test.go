package flannel

import (
	"encoding/json"
	"fmt"
	"io"
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
	nettest.Requires(t, "ip")
	components := os.Getenv("COMPONENTS_DIR")
	if components == "" {
		t.Skip("COMPONENTS_DIR is not set: no real flannel")
	}
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
	kubeconfig := cluster.Kubeconfig("flannel", "system:masters")
	runFlannel(t, namespace, filepath.Join(components, "flannel/bin/flanneld"), kubeconfig)
	awaitRoute(t, namespace, "10.244.1.0/24")

	api.disconnect()
	if err := admin.CoreV1().Nodes().Delete(t.Context(), "other", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	createNode(t, admin, "other", "10.244.2.0/24", announcement(t, "10.0.31.5"))
	cluster.Restart() // an API server tells nobody what happened before its start
	cluster.AwaitReady()
	api.connect()
	awaitRoute(t, namespace, "10.244.2.0/24")
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

// runFlannel runs flannel in the namespace, until the test ends.
func runFlannel(t *testing.T, namespace nettest.Namespace, program, kubeconfig string) {
	t.Helper()
	dir := t.TempDir()
	config, err := json.Marshal(Config{
		Network: "10.244.0.0/16", EnableNFTables: true, Backend: Backend{Type: "vxlan", VNI: 1, Port: 8472},
	})
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
		program, "--kube-subnet-mgr", "--kubeconfig-file="+kubeconfig, "--net-config-path="+dir+"/net-conf.json",
		"--subnet-file="+dir+"/subnet.env", "--iface=10.0.31.4", "--public-ip=10.0.31.4", "--healthz-port=0",
		"--iptables-forward-rules=false",
	)
	command.Env = append(os.Environ(), "NODE_NAME=own")
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := namespace.Do(command.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		_ = log.Close()
		if text, err := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("flannel: %v\n%s", err, text)
		}
	})
}

// awaitRoute waits until flannel's device leads to a subnet.
func awaitRoute(t *testing.T, namespace nettest.Namespace, subnet string) {
	t.Helper()
	eventually.Succeeds(t, time.Minute, "route to "+subnet, func() error {
		return namespace.Do(func() error {
			link, err := netlink.LinkByName("flannel.1")
			if err != nil {
				return err
			}
			routes, err := netlink.RouteList(link, netlink.FAMILY_V4)
			if err != nil {
				return err
			}
			for _, route := range routes {
				if route.Dst != nil && route.Dst.String() == subnet {
					return nil
				}
			}
			return fmt.Errorf("the routes are %v", routes)
		})
	})
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
