package results

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"kubernetes-release/internal/kubetest"
	"kubernetes-release/internal/poll"
	"kubernetes-release/internal/tail"
	"kubernetes-release/preflight"
	"kubernetes-release/testbed/accounts"
	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/awssim/store"
)

var (
	realAccounts = flag.Int("real", 5, "random accounts that the real cloud controller manager runs in")
	realFirst    = flag.Uint64("real-first", 24, "seed of the first of them; 24 is a right account")
)

// TestRealCloudController compares results, and the problems that they are compared with, with what becomes of a real
// cloud controller manager in the same account. In addition to kubetest's requirements it needs
// AWS_CLOUD_CONTROLLER_MANAGER_BIN.
func TestRealCloudController(t *testing.T) {
	binary := os.Getenv("AWS_CLOUD_CONTROLLER_MANAGER_BIN")
	if binary == "" {
		t.Skip("needs the real cloud controller: set AWS_CLOUD_CONTROLLER_MANAGER_BIN")
	}
	works := 0
	for seed, tried := *realFirst, 0; tried < *realAccounts; seed++ {
		a, err := Account(seed)
		if err != nil {
			t.Fatal(err)
		}
		if a.Config.Role != preflight.Control {
			continue
		}
		tried++
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			if compareWithReal(t, binary, a) {
				works++
			}
		})
	}
	if *realFirst == 24 && works == 0 {
		t.Error("the cloud controller does not work in a right account")
	}
	t.Logf(
		"the cloud controller works in %d of %d random accounts; the preflight's results agree", works, *realAccounts,
	)
}

// compareWithReal reports whether the cloud controller works.
func compareWithReal(t *testing.T, binary string, a *accounts.Account) bool {
	c := NewChecker()
	defer c.Close()
	report, err := c.Preflight(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	problems, err := a.Problems(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	fault := runReal(t, binary, c, a)
	details := fmt.Sprintf(
		"%v\nin the calls of the cloud controller: %v\nthe real one: %v\n%s", a, problems, fault, text(report),
	)
	if why := Wrong(report, problems); why != "" {
		t.Errorf("%s: %s", why, details)
	}
	// an update may need what creation does not
	doesWithout := func(p accounts.Problem) bool { return p.Required || p.Action != "" }
	switch {
	case fault != nil && len(problems) == 0:
		t.Errorf("the real cloud controller fails: %s", details)
	case fault == nil && slices.ContainsFunc(problems, func(p accounts.Problem) bool { return !doesWithout(p) }):
		t.Errorf("the real cloud controller works: %s", details)
	}
	return fault == nil
}

// realRun is a cloud controller manager in an account.
type realRun struct {
	account *accounts.Account
	sim     *awssim.Simulator
	client  kubernetes.Interface
	exited  chan error
	log     string
}

// runReal has the real cloud controller initialize a Node, create a load balancer of each kind, and write the pod route
// if that is configured. The error is why it does not.
func runReal(t *testing.T, binary string, c *Checker, a *accounts.Account) error {
	sim, err := awssim.New(a.World, awssim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sim.Close() })
	c.use(sim, a)
	cluster := kubetest.Start(t, kubetest.Options{})
	r := &realRun{
		account: a,
		sim:     sim,
		client:  cluster.Admin(),
		exited:  make(chan error, 1),
		log:     filepath.Join(t.TempDir(), "ccm.log"),
	}
	r.objects(t)
	output, err := os.Create(r.log)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := cluster.Kubeconfig("ccm", "system:masters")
	command := exec.Command(
		binary, "--cloud-provider=aws", "--kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig,
		"--authorization-kubeconfig="+kubeconfig, "--leader-elect=false", "--cluster-name="+a.Config.Cluster,
		"--secure-port=0", "--v=2", "--cluster-cidr=10.200.0.0/16", "--allocate-node-cidrs=true",
		"--route-reconciliation-period=1s", fmt.Sprintf("--configure-cloud-routes=%v", a.Config.ConfigureCloudRoutes),
	)
	command.Env = []string{
		"AWS_ENDPOINT_URL=" + c.api.URL, "AWS_EC2_METADATA_SERVICE_ENDPOINT=" + c.metadata.URL, "HOME=" + t.TempDir(),
	}
	command.Stdout, command.Stderr = output, output
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { r.exited <- command.Wait(); close(ended) }()
	defer func() {
		_ = command.Process.Kill()
		<-ended
		output.Close()
	}()
	for deadline := time.Now().Add(time.Minute); ; {
		done, err := r.outcome(t)
		switch {
		case done:
			return err
		case time.Now().After(deadline):
			return fmt.Errorf("after a minute: %w", err)
		}
		if err := poll.Sleep(t.Context(), 50*time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
}

const lbAnnotation = "service.beta.kubernetes.io/aws-load-balancer-"

// objects creates the Node and the Services.
func (r *realRun) objects(t *testing.T) {
	t.Helper()
	instance := r.account.World.Instances[r.account.Self]
	kubetest.CreateUninitializedNode(t, r.client, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node"},
		Spec: corev1.NodeSpec{
			ProviderID: "aws:///" + r.account.World.Subnets[0].AvailabilityZone + "/" + instance.ID,
			PodCIDR:    "10.200.0.0/24",
			PodCIDRs:   []string{"10.200.0.0/24"},
		},
	})
	for name, annotations := range map[string]map[string]string{
		"classic": nil, "nlb": {lbAnnotation + "type": "nlb"}, "internal": {lbAnnotation + "internal": "true"},
	} {
		if _, err := r.client.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
			Spec: corev1.ServiceSpec{
				Type:     corev1.ServiceTypeLoadBalancer,
				Selector: map[string]string{"app": "web"},
				Ports:    []corev1.ServicePort{{Port: 8080}},
			},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// outcome reports whether the cloud controller has done everything, or has failed; otherwise the error is what is not
// done yet.
func (r *realRun) outcome(t *testing.T) (done bool, err error) {
	select {
	case err := <-r.exited:
		end, _ := tail.File(r.log, 0, 1<<20, 2000)
		return true, fmt.Errorf(
			"the cloud controller has exited: %w: %s", cmp.Or(err, errors.New("exit status 0")), end,
		)
	default:
	}
	for _, c := range r.sim.Calls("") {
		if c.Code == "UnauthorizedOperation" || c.Code == "AccessDenied" {
			return true, fmt.Errorf("%s:%s: %s", c.Service, c.Action, c.Code)
		}
	}
	events, err := r.client.CoreV1().Events("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		if e.Reason == "SyncLoadBalancerFailed" {
			return true, errors.New(e.Message)
		}
	}
	node, err := r.client.CoreV1().Nodes().Get(t.Context(), "node", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(
		node.Spec.Taints, func(taint corev1.Taint) bool { return strings.HasPrefix(taint.Key, "node.cloudprovider") },
	) {
		return false, errors.New("the node is not initialized")
	}
	services, err := r.client.CoreV1().Services("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range services.Items {
		if s.Spec.Type == corev1.ServiceTypeLoadBalancer && len(s.Status.LoadBalancer.Ingress) == 0 {
			return false, fmt.Errorf("the service %s has no load balancer", s.Name)
		}
	}
	if r.account.Config.ConfigureCloudRoutes &&
		!slices.ContainsFunc(r.sim.World().RouteTables, func(table store.RouteTable) bool {
			return slices.ContainsFunc(
				table.Routes, func(route store.Route) bool { return strings.HasPrefix(route.Destination, "10.200.") },
			)
		}) {
		return false, errors.New("there is no pod route")
	}
	return true, nil
}
