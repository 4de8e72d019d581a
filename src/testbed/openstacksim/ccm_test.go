package openstacksim_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"kubernetes-release/cloud/controller/controllertest"
	"kubernetes-release/cloud/openstack"
	"kubernetes-release/control/nodes/labeler"
	"kubernetes-release/internal/boshdns"
	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
	"kubernetes-release/testbed/openstacksim"
)

// TestCloudControllerManager has the real cloud controller manager initialize a Node, whose provider ID is the one that
// node-controller finds, and create and delete a load balancer. It has the arguments and the permissions of the
// release's manifests. In addition to kubetest's requirements it needs COMPONENTS_DIR.
func TestCloudControllerManager(t *testing.T) {
	program := controllerProgram(t)
	api := kubetest.Start(t, kubetest.Options{})
	world := openstacksim.LabWorld(loopback)
	address := netip.MustParseAddr("127.66.16.9")
	const instance = "1a2b3c4d-0000-4000-8000-000000000001"
	boshServer(world, address.String(), "kube", instance)
	boshServer(world, "127.66.16.10", "kube", "another")
	sim, endpoint := start(t, world, 200*time.Millisecond)

	const nodePort = 31180
	listenAt(t, netip.AddrPortFrom(address, nodePort), "pod")

	client := api.Admin()
	// Without the provider ID, which a policy takes away.
	kubetest.CreateUninitializedNode(t, client, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-1a2b3c4d"}})
	config := cloudConfig(t, endpoint)
	command := exec.Command(
		program, controllertest.InPods(t, api, (&openstack.Provider{}).About(), config, nil)...,
	)
	command.Env = []string{"HOME=" + t.TempDir()}
	log, _ := kubetest.StartProgram(t, command)
	records := filepath.Join(t.TempDir(), "records.json")
	if err := os.WriteFile(records, fmt.Appendf(nil, `{
"record_keys": ["id", "instance_group", "az", "network", "deployment", "ip", "domain"],
"record_infos": [[%q, "worker", "z1", "default", "kube", %q, "bosh"]]}`, instance, address), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- labeler.NewKeeper(client, &labeler.Instances{
			Deployment: boshdns.Deployment{Name: "kube", Domain: "bosh", Records: records},
			Locator:    (&openstack.Provider{}).NewLocator(config),
		}, slog.New(slog.NewTextHandler(t.Output(), nil))).Run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
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
	controllertest.CheckPermissions(t, log)
}

// controllerProgram is the real cloud controller manager.
func controllerProgram(t *testing.T) string {
	t.Helper()
	program := filepath.Join(
		os.Getenv("COMPONENTS_DIR"), "cloud-provider-openstack/bin/openstack-cloud-controller-manager",
	)
	if _, err := os.Stat(program); os.Getenv("COMPONENTS_DIR") == "" || err != nil {
		t.Skipf("needs the real cloud controller: set COMPONENTS_DIR (%v)", err)
	}
	return program
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

// cloudConfig returns the path of a configuration for the simulator, with more lines of the section LoadBalancer.
func cloudConfig(t *testing.T, endpoint string, more ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "cloud.conf")
	content := openstacksim.CloudConfig(endpoint) + strings.Join(more, "")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func startController(t *testing.T, program, config, kubeconfig string) (stop func()) {
	t.Helper()
	command := exec.Command(
		program, "--cloud-provider=openstack", "--cloud-config="+config, "--kubeconfig="+kubeconfig,
		"--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig, "--leader-elect=false",
		"--cluster-name=prod", "--secure-port=0", "--configure-cloud-routes=false", "--v=2",
	)
	command.Env = []string{"HOME=" + t.TempDir()}
	_, stop = kubetest.StartProgram(t, command)
	return stop
}

// balancerService creates a Service, reaches its pod by the floating IP, gives it another load balancer, and deletes
// it.
func balancerService(t *testing.T, sim *openstacksim.Simulator, client kubernetes.Interface, nodePort int32) {
	t.Helper()
	ctx := t.Context()
	before := len(sim.World().Ports)
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
	service := func(what string, ready func(*corev1.Service) bool) (s *corev1.Service) {
		t.Helper()
		eventually.Succeeds(t, time.Minute, what, func() (err error) {
			if s, err = services.Get(ctx, "web", metav1.GetOptions{}); err == nil && !ready(s) {
				err = fmt.Errorf("not yet: %v %+v", s.Finalizers, s.Status)
			}
			return err
		})
		return s
	}
	balanced := func(s *corev1.Service) bool { return len(s.Status.LoadBalancer.Ingress) > 0 }
	address := service("load balancer's address", balanced).Status.LoadBalancer.Ingress[0].IP
	world := sim.World()
	if len(world.FloatingIPs) != 1 || world.FloatingIPs[0].Address != address {
		t.Errorf("the address is %s, want the floating IP in %+v", address, world.FloatingIPs)
	}
	eventually.Succeeds(t, 30*time.Second, "response through the load balancer", func() error {
		return fetch(ctx, fmt.Sprintf("http://%s:8080/", address))
	})
	// The way to a load balancer with other annotations in docs/openstack.md.
	patch := func(change string) {
		t.Helper()
		_, err := services.Patch(ctx, "web", types.MergePatchType, []byte(change), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	patch(`{"spec": {"type": "NodePort"}}`)
	service("released", func(s *corev1.Service) bool { return !balanced(s) && len(s.Finalizers) == 0 })
	patch(`{"metadata": {"annotations": {"loadbalancer.openstack.org/load-balancer-id": null,
		"service.beta.kubernetes.io/openstack-internal-load-balancer": "true"}}, "spec": {"type": "LoadBalancer"}}`)
	service("another load balancer", balanced)
	if floating := sim.World().FloatingIPs; len(floating) > 0 {
		t.Errorf("an internal load balancer has %+v", floating)
	}
	if err := services.Delete(ctx, "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually.Succeeds(t, time.Minute, "load balancer gone", func() error {
		w := sim.World()
		n := len(w.LoadBalancers) + len(w.Listeners) + len(w.Pools) + len(w.FloatingIPs) + len(w.Ports) - before
		if n > 0 {
			return fmt.Errorf("%d objects of the load balancer are left", n)
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
