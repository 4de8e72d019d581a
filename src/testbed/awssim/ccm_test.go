package awssim_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	cloudaws "kubernetes-release/cloud/aws"
	"kubernetes-release/cloud/controller"
	"kubernetes-release/cloud/controller/controllertest"
	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
	"kubernetes-release/internal/tail"
	"kubernetes-release/preflight"
	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/awssim/store"
)

// TestCloudControllerManager has the real cloud controller manager initialize a Node and create a load balancer of each
// kind. In addition to kubetest's requirements it needs AWS_CLOUD_CONTROLLER_MANAGER_BIN.
func TestCloudControllerManager(t *testing.T) {
	ccm := os.Getenv("AWS_CLOUD_CONTROLLER_MANAGER_BIN")
	if ccm == "" {
		t.Skip("needs the real cloud controller: set AWS_CLOUD_CONTROLLER_MANAGER_BIN")
	}
	api := kubetest.Start(t, kubetest.Options{})
	const nodePort = 31080
	world := ccmWorld()
	enforceGeneratedPolicies(t, world)
	b := start(t, world, awssim.Options{})
	address := world.Instances[0].Address
	backend(t, address, nodePort, "pod")
	backend(t, address, nodePort+1, "pod")

	client := api.Admin()
	uninitializedNode(t, client)
	logged(t, startCCM(t, ccm, b, api.Kubeconfig("ccm", "system:masters"), "--configure-cloud-routes=false"))
	doesItsWork(t, b, client, nodePort)
}

// TestCloudControllerManagerInPods starts the real cloud controller manager as its pods do: with the arguments, the
// configuration and the permissions of the release's manifests.
func TestCloudControllerManagerInPods(t *testing.T) {
	ccm := os.Getenv("AWS_CLOUD_CONTROLLER_MANAGER_BIN")
	if ccm == "" {
		t.Skip("needs the real cloud controller: set AWS_CLOUD_CONTROLLER_MANAGER_BIN")
	}
	api := kubetest.Start(t, kubetest.Options{})
	const nodePort = 31090
	world := ccmWorld()
	enforceGeneratedPolicies(t, world)
	b := start(t, world, awssim.Options{})
	backend(t, world.Instances[0].Address, nodePort, "pod")
	backend(t, world.Instances[0].Address, nodePort+1, "pod")
	client := api.Admin()
	uninitializedNode(t, client)

	conf := filepath.Join(t.TempDir(), "cloud.conf")
	if err := os.WriteFile(conf, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	arguments := controllertest.InPods(
		t, api, (&cloudaws.Provider{}).About(), conf, func(s *controller.Settings) { s.Cluster = cluster },
	)
	log := startProgram(t, ccm, b, arguments...)
	logged(t, log)
	doesItsWork(t, b, client, nodePort)
	controllertest.CheckPermissions(t, log)
}

// doesItsWork checks that the cloud controller initializes the Node, and creates and deletes load balancers.
func doesItsWork(t *testing.T, b *bed, client kubernetes.Interface, nodePort int) {
	t.Helper()
	ctx := t.Context()
	t.Cleanup(func() {
		if t.Failed() {
			for _, c := range b.sim.Calls("") {
				if c.Code != "" && c.Service != "metadata" {
					t.Logf("%s %s %v: %s", c.Service, c.Action, c.Params, c.Code)
				}
			}
		}
	})
	eventually.Succeeds(t, time.Minute, "node is initialized", func() error {
		n, err := client.CoreV1().Nodes().Get(ctx, "node-a", metav1.GetOptions{})
		if err != nil {
			return err
		}
		uninitialized := slices.ContainsFunc(
			n.Spec.Taints, func(t corev1.Taint) bool { return strings.HasPrefix(t.Key, "node.cloudprovider") },
		)
		if uninitialized || n.Labels["topology.kubernetes.io/zone"] != "us-east-1a" {
			return fmt.Errorf("taints %v, labels %v", n.Spec.Taints, n.Labels)
		}
		return nil
	})
	for i, kind := range []string{"classic", "nlb"} {
		t.Run(kind, func(t *testing.T) { loadBalancerService(t, b, client, kind, int32(nodePort+i)) })
	}
	for _, c := range b.sim.Calls("") {
		if c.Code == "UnauthorizedOperation" || c.Code == "AccessDenied" {
			t.Errorf(
				"the generated policy denies a call of the cloud controller manager: %s %s %v", c.Service, c.Action,
				c.Params,
			)
		}
		if c.Code == "InvalidAction" || c.Code == "UnknownParameter" || c.Code == "ValidationError" {
			t.Errorf(
				"the cloud controller manager called an action that is not simulated: %s %s %v: %s", c.Service,
				c.Action, c.Params, c.Code,
			)
		}
	}
}

// uninitializedNode creates the Node of the instance.
func uninitializedNode(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	kubetest.CreateUninitializedNode(t, client, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-a"},
		Spec:       corev1.NodeSpec{ProviderID: "aws:///us-east-1a/" + controlID},
	})
}

// enforceGeneratedPolicies replaces the policies of the roles with those that cloud-preflight prints.
func enforceGeneratedPolicies(t *testing.T, world *store.World) {
	t.Helper()
	for i := range world.Roles {
		name := world.Roles[i].Name
		setGeneratedPolicy(t, world, name, preflight.Role(strings.TrimPrefix(name, "kubernetes-")), cluster)
	}
}

func setGeneratedPolicy(t *testing.T, world *store.World, name string, role preflight.Role, cluster string) {
	t.Helper()
	policy, err := cloudaws.NewPolicy(cloudaws.PolicyOptions{Role: role, Cluster: cluster})
	if err != nil {
		t.Fatal(err)
	}
	content, err := policy.JSON()
	if err != nil {
		t.Fatal(err)
	}
	if err := world.SetPolicy(name, content); err != nil {
		t.Fatal(err)
	}
}

// ccmWorld has one instance at 127.0.0.1, the default source address on loopback.
func ccmWorld() *store.World {
	world := awssim.NewLabWorld(awssim.LabOptions{Network: netip.MustParsePrefix("127.0.0.0/16"), Cluster: cluster})
	world.Subnets[0].CIDR = netip.MustParsePrefix("127.0.0.0/20")
	world.Settings.HealthCheckInterval = store.Duration(100 * time.Millisecond)
	world.Instances = []store.Instance{
		{
			ID:              controlID,
			Subnet:          awssim.LabNodeSubnet(1),
			Address:         netip.MustParseAddr("127.0.0.1"),
			InstanceProfile: "kubernetes-control",
			SecurityGroups:  []string{awssim.LabSecurityGroup},
			Tags:            store.Tags{clusterTag: "owned"},
		},
	}
	return world
}

// logged shows the end of the cloud controller's log if the test fails.
func logged(t *testing.T, log string) {
	t.Cleanup(func() {
		if t.Failed() {
			end, err := tail.File(log, 0, 4<<20, 20_000)
			var lines []string
			for line := range strings.Lines(end) { // of routes there is one every few seconds
				if !strings.Contains(line, "batch") && !strings.Contains(line, "route_controller") {
					lines = append(lines, line)
				}
			}
			t.Logf("cloud controller's log: %v\n%s", err, strings.Join(lines[max(0, len(lines)-40):], ""))
		}
	})
}

func startCCM(t *testing.T, binary string, b *bed, kubeconfig string, flags ...string) (log string) {
	t.Helper()
	return startProgram(t, binary, b, ccmArguments(kubeconfig, flags...)...)
}

func ccmArguments(kubeconfig string, flags ...string) []string {
	return append([]string{
		"--cloud-provider=aws", "--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig, "--leader-elect=false", "--cluster-name=" + cluster,
		"--secure-port=0", "--v=2",
	}, flags...)
}

// startProgram starts the cloud controller on the instance and returns the path of its log.
func startProgram(t *testing.T, binary string, b *bed, arguments ...string) (log string) {
	t.Helper()
	log, _ = kubetest.StartProgram(t, onInstance(t, binary, b, arguments...))
	return log
}

func onInstance(t *testing.T, binary string, b *bed, arguments ...string) *exec.Cmd {
	t.Helper()
	command := exec.Command(binary, arguments...)
	command.Env = []string{
		"AWS_ENDPOINT_URL=" + b.api, "AWS_EC2_METADATA_SERVICE_ENDPOINT=" + b.metadata, "HOME=" + t.TempDir(),
	}
	return command
}

func loadBalancerService(t *testing.T, b *bed, client kubernetes.Interface, kind string, nodePort int32) {
	ctx := t.Context()
	services := client.CoreV1().Services("default")
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: kind, Annotations: map[string]string{}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, Selector: map[string]string{"app": "web"},
			Ports: []corev1.ServicePort{{Port: 8080, NodePort: nodePort, Protocol: corev1.ProtocolTCP}},
		},
	}
	if kind == "nlb" {
		service.Annotations["service.beta.kubernetes.io/aws-load-balancer-type"] = "nlb"
	}
	if _, err := services.Create(ctx, service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var host string
	eventually.Succeeds(t, time.Minute, "load balancer's host name", func() error {
		s, err := services.Get(ctx, kind, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(s.Status.LoadBalancer.Ingress) == 0 {
			return fmt.Errorf("no ingress yet")
		}
		host = s.Status.LoadBalancer.Ingress[0].Hostname
		return nil
	})
	addresses := b.sim.Lookup(host)
	if len(addresses) != 3 {
		t.Fatalf("%s resolves to %v, want an address in each zone", host, addresses)
	}
	eventually.Succeeds(
		t, 30*time.Second, "response through the load balancer", func() error { return fetch(ctx, addresses[0], 8080) },
	)
	if err := services.Delete(ctx, kind, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually.Succeeds(t, time.Minute, "load balancer gone", func() error {
		w := b.sim.World()
		if n := len(w.ClassicLoadBalancers) + len(w.LoadBalancers) + len(w.TargetGroups) + len(w.Listeners); n > 0 ||
			len(w.SecurityGroups) > 1 {
			return fmt.Errorf(
				"%d resources of the load balancer and %d security groups are left", n, len(w.SecurityGroups),
			)
		}
		return nil
	})
}

func fetch(ctx context.Context, address netip.Addr, port int) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s:%d/", address, port), nil)
	if err != nil {
		return err
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && string(body) != "pod" {
		return fmt.Errorf("answer %q", body)
	}
	return err
}
