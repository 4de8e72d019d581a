package openstacksim_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
	"kubernetes-release/internal/tail"
	"kubernetes-release/testbed/openstacksim"
)

// TestCloudControllerManager has the real cloud controller manager initialize a Node, and create and delete a load
// balancer. In addition to kubetest's requirements it needs COMPONENTS_DIR.
func TestCloudControllerManager(t *testing.T) {
	program := filepath.Join(
		os.Getenv("COMPONENTS_DIR"), "cloud-provider-openstack/bin/openstack-cloud-controller-manager",
	)
	if _, err := os.Stat(program); os.Getenv("COMPONENTS_DIR") == "" || err != nil {
		t.Skipf("needs the real cloud controller: set COMPONENTS_DIR (%v)", err)
	}
	api := kubetest.Start(t, kubetest.Options{})
	world := openstacksim.LabWorld(loopback)
	address := netip.MustParseAddr("127.66.16.9")
	id := world.AddServer("vm-of-bosh", address)
	sim, endpoint := start(t, world, 200*time.Millisecond)

	const nodePort = 31180
	listenAt(t, netip.AddrPortFrom(address, nodePort), "pod")

	client := api.Admin()
	uninitializedNode(t, client, "worker-1a2b3c4d", id)
	startController(t, program, endpoint, api.Kubeconfig("ccm", "system:masters"))
	eventually.Succeeds(t, time.Minute, "node is initialized", func() error {
		n, err := client.CoreV1().Nodes().Get(t.Context(), "worker-1a2b3c4d", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, taint := range n.Spec.Taints {
			if strings.HasPrefix(taint.Key, "node.cloudprovider") {
				return fmt.Errorf("taint %s", taint.Key)
			}
		}
		for label, want := range map[string]string{
			"topology.kubernetes.io/zone":      openstacksim.LabZone,
			"topology.kubernetes.io/region":    openstacksim.LabRegion,
			"node.kubernetes.io/instance-type": "m1.large",
		} {
			if n.Labels[label] != want {
				return fmt.Errorf("label %s is %q, want %q", label, n.Labels[label], want)
			}
		}
		return nil
	})
	balancerService(t, sim, client, nodePort)
}

// listenAt serves a text on an address.
func listenAt(t *testing.T, address netip.AddrPort, text string) {
	t.Helper()
	server := &http.Server{
		Addr:              address.String(),
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }),
		ReadHeaderTimeout: time.Second,
	}
	go func() { _ = server.ListenAndServe() }()
	t.Cleanup(func() { server.Close() })
}

// uninitializedNode creates the Node of a server, as a kubelet does.
func uninitializedNode(t *testing.T, client kubernetes.Interface, name, server string) {
	t.Helper()
	node, err := client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.NodeSpec{
			ProviderID: "openstack:///" + server,
			Taints: []corev1.Taint{{
				Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true",
				Effect: corev1.TaintEffectNoSchedule,
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()},
	}
	if _, err := client.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func startController(t *testing.T, program, endpoint, kubeconfig string) {
	t.Helper()
	dir := t.TempDir()
	config := filepath.Join(dir, "cloud.conf")
	if err := os.WriteFile(config, []byte(openstacksim.CloudConfig(endpoint)), 0o600); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(dir, "ccm.log")
	output, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(
		program, "--cloud-provider=openstack", "--cloud-config="+config, "--kubeconfig="+kubeconfig,
		"--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig, "--leader-elect=false",
		"--cluster-name=prod", "--secure-port=0", "--configure-cloud-routes=false", "--v=2",
	)
	command.Env = []string{"HOME=" + dir}
	command.Stdout, command.Stderr = output, output
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		output.Close()
		if t.Failed() {
			end, err := tail.File(log, 0, 64<<10, 60)
			t.Logf("cloud controller's log: %v\n%s", err, end)
		}
	})
}

// balancerService creates a Service, reaches its pod by the floating IP, and deletes it.
func balancerService(t *testing.T, sim *openstacksim.Simulator, client kubernetes.Interface, nodePort int32) {
	t.Helper()
	ctx := t.Context()
	services := client.CoreV1().Services("default")
	if _, err := services.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, Selector: map[string]string{"app": "web"},
			Ports: []corev1.ServicePort{{Port: 8080, NodePort: nodePort, Protocol: corev1.ProtocolTCP}},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var address string
	eventually.Succeeds(t, time.Minute, "load balancer's address", func() error {
		s, err := services.Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(s.Status.LoadBalancer.Ingress) == 0 {
			return fmt.Errorf("no ingress yet")
		}
		address = s.Status.LoadBalancer.Ingress[0].IP
		return nil
	})
	world := sim.World()
	if len(world.FloatingIPs) != 1 || world.FloatingIPs[0].Address != address {
		t.Errorf("the address is %s, want the floating IP in %+v", address, world.FloatingIPs)
	}
	eventually.Succeeds(t, 10*time.Second, "response through the load balancer", func() error {
		return fetch(ctx, fmt.Sprintf("http://%s:8080/", address))
	})
	if err := services.Delete(ctx, "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually.Succeeds(t, time.Minute, "load balancer gone", func() error {
		w := sim.World()
		if n := len(w.LoadBalancers) + len(w.Listeners) + len(w.Pools) + len(w.FloatingIPs); n > 0 || len(w.Ports) > 2 {
			return fmt.Errorf("%d objects of the load balancer and %d ports are left", n, len(w.Ports))
		}
		return nil
	})
}

func fetch(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && string(body) != "pod" {
		return fmt.Errorf("answer %q", body)
	}
	return err
}
