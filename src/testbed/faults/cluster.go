package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"kubernetes-release/internal/bosh"
	"kubernetes-release/internal/nodestatus"
	"kubernetes-release/internal/poll"
	"kubernetes-release/internal/tail"
	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/lab"
	"kubernetes-release/testbed/lab/agent"
	"kubernetes-release/testbed/lab/client"
	"kubernetes-release/testbed/lab/instances"
	"kubernetes-release/testbed/lab/vm"
)

const (
	upTimeout      = 15 * time.Minute
	requestTimeout = 5 * time.Second
	namespace      = "faults"
)

// Ops and Vars are what the manifest needs in addition to aws.yml and lab.yml: three control VMs that run pods too, and
// a worker, with what operators can add for pods on AWS, and a quota of etcd that can be filled.
var (
	Ops = []string{
		"ops-files/scale-workers.yml", "src/testbed/acceptance/testdata/pods-on-control.yml",
		"ops-files/use-kms-encryption.yml", "ops-files/enable-node-local-dns.yml",
		"ops-files/enable-node-termination-handler.yml", "ops-files/enable-aws-load-balancer-controller.yml",
		"ops-files/enable-pod-roles.yml", smallQuota,
	}
	Vars = []string{
		"worker_instances=1", "encryption_active_key=kms",
		"encryption_kms_key=arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab",
		"service_account_issuer=https://lab-issuer.s3." + awssim.LabRegion + ".amazonaws.com/lab",
		"service_account_issuer_bucket=lab-issuer", "region=" + awssim.LabRegion,
	}
)

// Arguments are those of the lab's program that deploy such a cluster, after up.
func Arguments() []string {
	var arguments []string
	for _, file := range append([]string{"ops-files/aws.yml", "ops-files/lab.yml", "ops-files/lab-aws.yml"}, Ops...) {
		arguments = append(arguments, "-o", file)
	}
	for _, variable := range Vars {
		arguments = append(arguments, "-v", variable)
	}
	return arguments
}

// Command returns the command that runs the lab's program with arguments on the lab that is tried.
type Command func(ctx context.Context, arguments ...string) *exec.Cmd

// Cluster is a cluster in the lab: several control VMs and at least one worker.
type Cluster struct {
	lab     *lab.Lab
	command Command
	deploy  []string // arguments of the deploy
	say     func(string, ...any)

	admin    *rest.Config         // as in the lab's kubeconfig, which names the address of one API server
	byName   *rest.Config         // by the API's name
	client   kubernetes.Interface // by the API's name, a new connection for each request
	machines []*machine
	cleanUp  []func() error
}

// machine is an instance and its VM.
type machine struct {
	name    string // control/0
	id      string
	az      string
	address netip.Addr
	control bool
	server  kubernetes.Interface // its own API server; nil on workers
}

// Open opens the cluster that the lab in a state directory has deployed with these arguments. say reports progress.
func Open(
	ctx context.Context, state string, command Command, deploy []string, say func(string, ...any),
) (*Cluster, error) {
	l, err := lab.Open(state, false)
	if err != nil {
		return nil, err
	}
	l.Out = new(bytes.Buffer)
	c := &Cluster{lab: l, command: command, deploy: deploy, say: say}
	if c.admin, err = clientcmd.BuildConfigFromFlags("", filepath.Join(state, "kubeconfig")); err != nil {
		return nil, err
	}
	if c.byName, err = client.APIConfig(l, ""); err != nil {
		return nil, err
	}
	for _, config := range []*rest.Config{c.admin, c.byName} {
		config.Timeout, config.QPS, config.WarningHandler = requestTimeout, -1, rest.NoWarnings{}
	}
	if c.client, err = fresh(c.byName); err != nil {
		return nil, err
	}
	list, err := instances.List(l)
	if err != nil {
		return nil, err
	}
	for _, i := range list {
		m := &machine{
			name:    i.ShortName(),
			id:      i.ID,
			az:      i.AZ,
			address: i.Address,
			control: i.Group == "control",
		}
		if m.control {
			config := rest.CopyConfig(c.admin)
			config.Host = "https://" + netip.AddrPortFrom(i.Address, apiPort).String()
			if m.server, err = fresh(config); err != nil {
				return nil, err
			}
		}
		c.machines = append(c.machines, m)
	}
	return c, c.createPods(ctx)
}

// Recover waits until a cluster on which a fault has failed is healthy.
func (c *Cluster) Recover(ctx context.Context) error { return c.awaitHealthy(ctx, nil) }

// Close ends what faults have left in place, so that the lab can be removed.
func (c *Cluster) Close() error {
	var problems []error
	for _, clean := range slices.Backward(c.cleanUp) {
		problems = append(problems, clean())
	}
	c.cleanUp = nil
	return errors.Join(problems...)
}

// apiPort is the manifest's.
const apiPort = 6443

// fresh returns a client that opens a connection for each request, so that it never waits for a dead one.
func fresh(config *rest.Config) (kubernetes.Interface, error) {
	config = rest.CopyConfig(config)
	config.Wrap(func(transport http.RoundTripper) http.RoundTripper { return closing{transport} })
	config.NextProtos = []string{"http/1.1"}
	return kubernetes.NewForConfig(config)
}

// closing closes each connection after its request.
type closing struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (c closing) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Close = true
	return c.RoundTripper.RoundTrip(r)
}

// WrappedRoundTripper lets client-go cancel requests.
func (c closing) WrappedRoundTripper() http.RoundTripper { return c.RoundTripper }

// run runs the lab's program.
func (c *Cluster) run(ctx context.Context, arguments ...string) error {
	ctx, cancel := context.WithTimeout(ctx, upTimeout)
	defer cancel()
	command := c.command(ctx, arguments...)
	out, err := command.CombinedOutput()
	if err != nil {
		return fmt.Errorf("lab %s: %w\n%s", strings.Join(arguments, " "), err, tail.Lines(string(out), 40))
	}
	return nil
}

// up deploys again what is deployed.
func (c *Cluster) up(ctx context.Context) error { return c.run(ctx, c.deploy...) }

// fix recreates VMs that were lost, as BOSH's resurrector does, by a deploy.
func (c *Cluster) fix(ctx context.Context) error {
	return c.run(ctx, append(slices.Clone(c.deploy), "--fix")...)
}

// vm returns the VM that a machine has now.
func (c *Cluster) vm(m *machine) (*vm.VM, error) {
	_, v, err := instances.Find(c.lab, m.name)
	return v, err
}

// in runs a command as root on a VM and returns its output.
func (c *Cluster) in(ctx context.Context, m *machine, argv ...string) (string, error) {
	v, err := c.vm(m)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	if err := v.Run(ctx, argv, vm.RunOptions{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out}); err != nil {
		return "", fmt.Errorf("%s: %w: %s", m.name, err, tail.Lines(out.String(), 5))
	}
	return strings.TrimSpace(out.String()), nil
}

// processes returns the processes that monit watches on a VM. An error means that one is not running.
func (c *Cluster) processes(ctx context.Context, m *machine) (map[string]int, error) {
	v, err := c.vm(m)
	if err != nil {
		return nil, err
	}
	state, err := agent.New(v).State(ctx)
	if err != nil {
		return nil, err
	}
	found := map[string]int{}
	for _, p := range state.Processes {
		found[p.Name] = p.PID
		if p.State != agent.Running || p.PID == 0 {
			return nil, fmt.Errorf("%s: process %s is %s: %s", m.name, p.Name, p.State, p.Message)
		}
	}
	return found, nil
}

func (c *Cluster) control() []*machine {
	return slices.DeleteFunc(slices.Clone(c.machines), func(m *machine) bool { return !m.control })
}

func (c *Cluster) workers() []*machine {
	return slices.DeleteFunc(slices.Clone(c.machines), func(m *machine) bool { return m.control })
}

// others are the machines of a list except some.
func others(list []*machine, some ...*machine) []*machine {
	return slices.DeleteFunc(slices.Clone(list), func(m *machine) bool { return slices.Contains(some, m) })
}

// leader returns the control VM that holds the lease of a component, and when it was acquired.
func (c *Cluster) leader(ctx context.Context, component string) (*machine, error) {
	lease, err := c.client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, component, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	holder := ""
	if lease.Spec.HolderIdentity != nil {
		holder = *lease.Spec.HolderIdentity
	}
	for _, m := range c.control() {
		if strings.HasPrefix(holder, m.id) { // HOSTNAME_UUID, and the host name is the instance's id
			return m, nil
		}
	}
	return nil, fmt.Errorf("the lease of %s is held by %q, which is no control VM", component, holder)
}

// ledElsewhere returns nil if lost VMs hold no lease of these components.
func (c *Cluster) ledElsewhere(ctx context.Context, components []string, lost ...*machine) error {
	for _, component := range components {
		leader, err := c.leader(ctx, component)
		if err != nil {
			return err
		}
		if slices.Contains(lost, leader) {
			return fmt.Errorf("%s of %s still holds the lease", component, leader.name)
		}
	}
	return nil
}

// etcdLeader returns the VM with etcd's leader.
func (c *Cluster) etcdLeader(ctx context.Context) (*machine, error) {
	for _, m := range c.control() {
		v, err := c.vm(m)
		if err != nil {
			return nil, err
		}
		client := http.Client{
			Timeout:   requestTimeout,
			Transport: &http.Transport{DialContext: v.DialContext, DisableKeepAlives: true},
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:2381/metrics", nil)
		if err != nil {
			return nil, err
		}
		response, err := client.Do(request)
		if err != nil {
			return nil, fmt.Errorf("%s: metrics of etcd: %w", m.name, err)
		}
		var text bytes.Buffer
		_, err = text.ReadFrom(response.Body)
		_ = response.Body.Close()
		if err != nil {
			return nil, err
		}
		if strings.Contains(text.String(), "\netcd_server_is_leader 1\n") {
			return m, nil
		}
	}
	return nil, errors.New("no member of etcd is the leader")
}

// writable returns nil if a write succeeds on each of the API servers.
func writable(ctx context.Context, servers []*machine) error {
	return each(servers, func(m *machine) error {
		name := fmt.Sprintf("by-%s-%d", strings.ReplaceAll(m.name, "/", "-"), time.Now().UnixNano())
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := m.server.CoreV1().ConfigMaps(namespace).Create(ctx, object, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("writing by the API server of %s: %w", m.name, err)
		}
		return nil
	})
}

// ready returns nil if the API server of each VM is ready, which takes its etcd member.
func ready(ctx context.Context, servers []*machine) error {
	return each(servers, func(m *machine) error {
		if text, err := m.server.CoreV1().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); err != nil {
			return fmt.Errorf("the API server of %s is not ready: %w: %s", m.name, err, text)
		}
		return nil
	})
}

// each does something for all machines at the same time.
func each(list []*machine, do func(*machine) error) error {
	problems := make([]error, len(list))
	var group sync.WaitGroup
	for n, m := range list {
		group.Go(func() { problems[n] = do(m) })
	}
	group.Wait()
	return errors.Join(problems...)
}

// signsOfLife returns the times at which nodes and controllers have last renewed their leases, by the leases' names.
// These times are only compared with each other, since clocks may differ.
func (c *Cluster) signsOfLife(ctx context.Context) (map[string]string, error) {
	signs := map[string]string{}
	err := poll.Within(ctx, recoverTimeout, time.Second, func(ctx context.Context) error {
		for _, space := range []string{corev1.NamespaceNodeLease, metav1.NamespaceSystem} {
			leases, err := c.client.CoordinationV1().Leases(space).List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			for _, lease := range leases.Items {
				if lease.Spec.RenewTime != nil &&
					(space == corev1.NamespaceNodeLease || slices.Contains(controllers, lease.Name)) {
					signs[lease.Name] = lease.Spec.RenewTime.String()
				}
			}
		}
		return nil
	})
	return signs, err
}

// controllers have a lease each.
var controllers = []string{"kube-controller-manager", "kube-scheduler", "cloud-controller-manager"}

// loadBalancers is the lease of the AWS Load Balancer Controller, which clusters of Arguments have.
const loadBalancers = "aws-load-balancer-controller-leader"

// awaitHealthy waits until the cluster is healthy; see healthy.
func (c *Cluster) awaitHealthy(ctx context.Context, signs map[string]string) error {
	if err := poll.Within(
		ctx, recoverTimeout, 500*time.Millisecond, func(ctx context.Context) error { return c.healthy(ctx, signs) },
	); err != nil {
		return fmt.Errorf("the cluster is not healthy: %w", err)
	}
	return nil
}

// healthy returns nil if all processes run, all API servers are ready, all nodes and pods are Ready, and nodes and
// controllers have renewed their leases since signs.
func (c *Cluster) healthy(ctx context.Context, signs map[string]string) error {
	if err := each(c.machines, func(m *machine) error { _, err := c.processes(ctx, m); return err }); err != nil {
		return err
	}
	if err := ready(ctx, c.control()); err != nil {
		return err
	}
	nodes, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(nodes.Items) != len(c.machines) {
		return fmt.Errorf("%d nodes, want %d", len(nodes.Items), len(c.machines))
	}
	for i := range nodes.Items {
		if err := nodestatus.CheckReady(&nodes.Items[i], true); err != nil {
			return err
		}
	}
	if err := c.podsReady(ctx); err != nil {
		return err
	}
	now, err := c.signsOfLife(ctx)
	if err != nil {
		return err
	}
	for name, then := range signs {
		if now[name] == then {
			return fmt.Errorf("the lease %s has not been renewed", name)
		}
	}
	return nil
}

// othersStay returns nil if all nodes except those of lost VMs have been Ready since a time.
func (c *Cluster) othersStay(ctx context.Context, started time.Time, lost ...*machine) error {
	nodes, err := c.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var problems []error
	for _, node := range nodes.Items {
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && !isOn(lost, &node) &&
				(condition.Status != corev1.ConditionTrue || condition.LastTransitionTime.After(started)) {
				problems = append(
					problems,
					fmt.Errorf(
						"Node %s was not Ready while others were lost: %s since %s, %s", node.Name,
						condition.Status, condition.LastTransitionTime, condition.Message,
					),
				)
			}
		}
	}
	return errors.Join(problems...)
}

// isOn says whether a Node is that of one of the machines.
func isOn(list []*machine, node *corev1.Node) bool {
	return slices.ContainsFunc(list, func(m *machine) bool { return hasAddress(node, m.address.String()) })
}

func hasAddress(node *corev1.Node, address string) bool {
	return slices.ContainsFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool { return a.Address == address })
}

// replicas is the number of pods that faults move.
const replicas = 2

// podsReady returns nil if the pods are Ready, none of them on the given VMs.
func (c *Cluster) podsReady(ctx context.Context, lost ...*machine) error {
	ready, err := c.readyPods(ctx, namespace, "", lost...)
	if err != nil {
		return err
	}
	if len(ready) < replicas {
		return fmt.Errorf("%d pods of %d are Ready", len(ready), replicas)
	}
	return nil
}

// readyPods are the Ready pods of a namespace with these labels, none of them on the given VMs.
func (c *Cluster) readyPods(ctx context.Context, namespace, labels string, lost ...*machine) ([]corev1.Pod, error) {
	pods, err := c.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: labels})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool {
		return pod.DeletionTimestamp != nil || on(lost, pod) != nil ||
			!slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
				return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
			})
	}), nil
}

// on returns the machine of a list on which a pod is, or nil.
func on(list []*machine, pod corev1.Pod) *machine {
	for _, m := range list {
		if pod.Status.HostIP == m.address.String() {
			return m
		}
	}
	return nil
}

// createPods creates the pods that faults move. They are preferably on workers, and leave a node 5 s after it is known
// to be lost.
func (c *Cluster) createPods(ctx context.Context) error {
	image, err := c.smokeImage(ctx)
	if err != nil {
		return err
	}
	objects := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := c.client.CoreV1().
		Namespaces().
		Create(ctx, objects, metav1.CreateOptions{}); err != nil &&
		!apierrors.IsAlreadyExists(err) {
		return err
	}
	_, err = c.client.AppsV1().
		Deployments(namespace).
		Create(ctx, deployment(image), metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return poll.Within(
		ctx, recoverTimeout, time.Second, func(ctx context.Context) error { return c.podsReady(ctx) },
	)
}

// smokeImage is the image of the release for tests.
func (c *Cluster) smokeImage(ctx context.Context) (string, error) {
	text, err := c.in(ctx, c.machines[0], "cat", bosh.DefaultRoot.Package("images", "images.json"))
	if err != nil {
		return "", err
	}
	var images map[string]string
	err = json.Unmarshal([]byte(text), &images)
	return images["smoke-test"], err
}
