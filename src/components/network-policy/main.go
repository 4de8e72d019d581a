// Command network-policy enforces the NetworkPolicies of a cluster for the pods of one node, with kube-router's policy
// controller: it writes rules of iptables and sets of addresses, and changes them when pods, namespaces or policies
// change. The rules stay in force when it ends.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/cloudnativelabs/kube-router/v2/pkg/controllers/netpol"
	"github.com/cloudnativelabs/kube-router/v2/pkg/healthcheck"
	"github.com/cloudnativelabs/kube-router/v2/pkg/options"
	"github.com/cloudnativelabs/kube-router/v2/pkg/utils"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

const (
	// retryInterval is the time between attempts while the API server, a permission or the Node is missing.
	retryInterval = 2 * time.Second
	// readyInterval is the time between looks for the first rules.
	readyInterval = 200 * time.Millisecond
	// firstSyncInterval is the time between syncs until one has succeeded.
	firstSyncInterval = 5 * time.Second
	// stallGrace is added to the time between two syncs before the process gives up: a sync of many policies takes a
	// while.
	stallGrace = 5 * time.Minute
	// unwrittenChain is in the kernel until this process has written its rules: they replace the table, and the
	// controller drops each chain with this prefix that no policy has (cleanupStaleRules in kube-router's
	// pkg/controllers/netpol/network_policy_controller.go).
	unwrittenChain = "KUBE-NWPLCY-UNWRITTEN"
)

type settings struct {
	kubeconfig, node, serviceCIDR, nodePorts string
	metricsAddress, readyFile, isolatedFile  string
	syncPeriod                               time.Duration
}

func main() {
	var s settings
	flags := pflag.NewFlagSet("network-policy", pflag.ContinueOnError)
	flags.StringVar(&s.kubeconfig, "kubeconfig", "", "kubeconfig `file` of the node")
	flags.StringVar(&s.node, "node-name", "", "`name` of the Node for whose pods policies are enforced")
	flags.StringVar(&s.serviceCIDR, "service-cidr", "", "network of Services")
	flags.StringVar(&s.nodePorts, "service-node-port-range", "30000-32767", "ports of Services on nodes")
	flags.DurationVar(
		&s.syncPeriod, "sync-period", 5*time.Minute, "how often all rules are written, even if nothing has changed",
	)
	flags.StringVar(&s.metricsAddress, "metrics-bind-address", "", "`ADDRESS:PORT` at which metrics are served")
	flags.StringVar(&s.readyFile, "ready-file", "", "`file` that is written once the rules are in force")
	flags.StringVar(
		&s.isolatedFile, "isolated-file", "",
		"`file` with the addresses of this node's pods that policies for egress select, one a line",
	)
	klogFlags := flag.NewFlagSet("", flag.ContinueOnError)
	klog.InitFlags(klogFlags)
	flags.AddGoFlagSet(klogFlags)
	if err := flags.Parse(os.Args[1:]); errors.Is(err, pflag.ErrHelp) {
		return
	} else if err != nil {
		fail(2, err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := s.run(ctx); err != nil {
		fail(1, err)
	}
}

func fail(status int, err error) {
	_, _ = fmt.Fprintln(os.Stderr, "Error:", err)
	os.Exit(status)
}

func (s settings) run(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if !retry(ctx, func() error { return s.available(ctx, client) }) {
		return nil
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(withoutUnused))
	pods, namespaces := factory.Core().V1().Pods().Informer(), factory.Core().V1().Namespaces().Informer()
	policies := factory.Networking().V1().NetworkPolicies().Informer()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	if ctx.Err() != nil {
		return nil
	}

	controller, iptables, err := newController(client, factory, s.options())
	if err != nil {
		return err
	}
	handlers := map[cache.SharedIndexInformer]cache.ResourceEventHandler{
		pods:       controller.PodEventHandler,
		namespaces: controller.NamespaceEventHandler,
		policies:   controller.NetworkPolicyEventHandler,
	}
	isolated := isolatedPods{
		file: s.isolatedFile, node: s.node, pods: factory.Core().V1().Pods().Lister(),
		policies: factory.Networking().V1().NetworkPolicies().Lister(), changed: make(chan struct{}, 1),
	}
	for informer, handler := range handlers {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return err
		}
		if _, err := informer.AddEventHandler(isolated.handler()); err != nil {
			return err
		}
	}
	if s.isolatedFile != "" {
		go isolated.keep(ctx)
	}

	if s.metricsAddress != "" {
		http.Handle("/metrics", promhttp.Handler())
		server := &http.Server{Addr: s.metricsAddress, ReadHeaderTimeout: 10 * time.Second}
		go func() { klog.Errorf("Metrics: %v", server.ListenAndServe()) }()
	}
	return s.enforce(ctx, controller, iptables)
}

// enforce runs the controller until the process is to end.
func (s settings) enforce(
	ctx context.Context, controller *netpol.NetworkPolicyController, iptables utils.IPTablesHandler,
) error {
	if err := iptables.ClearChain("filter", unwrittenChain); err != nil {
		return err
	}
	var running sync.WaitGroup
	running.Add(1)
	heartbeats := make(chan *healthcheck.ControllerHeartbeat)
	go controller.Run(heartbeats, ctx.Done(), &running)
	if err := s.watch(ctx, heartbeats, iptables, controller.RequestFullSync); err != nil {
		return err
	}
	// A sync that has started ends, so that sets of addresses and rules fit together.
	running.Wait()
	return nil
}

// newController returns kube-router's, which sees policies and pods as this command has it, and what it changes
// iptables with.
func newController(
	client kubernetes.Interface, factory informers.SharedInformerFactory, options *options.KubeRouterConfig,
) (*netpol.NetworkPolicyController, utils.IPTablesHandler, error) {
	iptables, sets, err := netpol.NewIPTablesHandlers(options)
	if err != nil {
		return nil, nil, err
	}
	pods, namespaces := factory.Core().V1().Pods(), factory.Core().V1().Namespaces()
	policies := boundedPolicies{
		factory.Networking().V1().NetworkPolicies().Informer(), pods.Lister(), namespaces.Lister(),
	}
	controller, err := netpol.NewNetworkPolicyController(
		client, options, distinctNames{pods.Informer()}, distinctNames{policies}, namespaces.Informer(), &sync.Mutex{},
		iptables, sets,
	)
	return controller, iptables[corev1.IPv4Protocol], err
}

// options are those of kube-router that its policy controller reads.
func (s settings) options() *options.KubeRouterConfig {
	o := options.NewKubeRouterConfig()
	o.RunFirewall, o.EnableIPv4, o.EnableIPv6, o.MetricsEnabled = true, true, false, true
	o.ClusterIPCIDRs, o.NodePortRange = []string{s.serviceCIDR}, s.nodePorts
	o.HostnameOverride, o.IPTablesSyncPeriod = s.node, s.syncPeriod
	return o
}

// retry calls a function until it succeeds; it returns false if the process is to end before.
func retry(ctx context.Context, try func() error) bool {
	for last := ""; ; {
		err := try()
		if err == nil {
			return true
		}
		if err.Error() != last {
			last = err.Error()
			klog.Infof("Waiting: %s", last)
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(retryInterval):
		}
	}
}

// available returns what is missing for the controller to start: the permissions, which a deploy grants after it has
// started the first control VM, and the Node with its address, by which the controller knows its pods.
func (s settings) available(ctx context.Context, client kubernetes.Interface) error {
	if _, err := client.NetworkingV1().NetworkPolicies("").List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
		return err
	}
	node, err := client.CoreV1().Nodes().Get(ctx, s.node, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, address := range node.Status.Addresses {
		if address.Type == corev1.NodeInternalIP {
			return nil
		}
	}
	return fmt.Errorf("node %s has no address yet", s.node)
}

// withoutUnused drops what the controller does not read, so that it takes little memory in a large cluster: it knows
// all pods. It also drops the annotations of policies, by which the controller limits its log (getIptablesNFlogLimit in
// pkg/controllers/netpol/utils.go of kube-router). It accepts limits that iptables refuses, such as 0/minute, and
// writes the rules of all policies at once: whoever can create a policy in one namespace would stop those of all
// others. The same holds for a policy with too many networks, or with the same peer many times.
func withoutUnused(object any) (any, error) {
	if object, ok := object.(metav1.Object); ok {
		object.SetManagedFields(nil)
		object.SetAnnotations(nil)
	}
	if policy, ok := object.(*networkingv1.NetworkPolicy); ok {
		policy.Spec.Ingress, policy.Spec.Egress = fitting(policy)
		for i := range policy.Spec.Ingress {
			policy.Spec.Ingress[i].From = unique(policy.Spec.Ingress[i].From)
		}
		for i := range policy.Spec.Egress {
			policy.Spec.Egress[i].To = unique(policy.Spec.Egress[i].To)
		}
	}
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return object, nil
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:            pod.Name,
			Namespace:       pod.Namespace,
			UID:             pod.UID,
			ResourceVersion: pod.ResourceVersion,
			Labels:          withPorts(pod),
		},
		Spec: corev1.PodSpec{NodeName: pod.Spec.NodeName, HostNetwork: pod.Spec.HostNetwork},
		Status: corev1.PodStatus{
			Phase:  pod.Status.Phase,
			HostIP: pod.Status.HostIP,
			PodIP:  pod.Status.PodIP,
			PodIPs: pod.Status.PodIPs,
		},
	}, nil
}

// watch receives the heartbeat at the start of each sync, and writes the ready file when the first has succeeded; the
// controller itself would try again after the sync period only. It returns an error if syncs have stopped, and nil if
// the process is to end.
func (s settings) watch(
	ctx context.Context, heartbeats <-chan *healthcheck.ControllerHeartbeat, iptables utils.IPTablesHandler,
	sync func(),
) error {
	stalled := time.NewTimer(s.syncPeriod + stallGrace)
	defer stalled.Stop()
	look, again := time.NewTicker(readyInterval), time.NewTicker(firstSyncInterval)
	defer look.Stop()
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			go func() {
				for range heartbeats { //nolint:revive // The controller ends only when its heartbeat is received.
				}
			}()
			return nil
		case <-heartbeats:
			stalled.Reset(s.syncPeriod + stallGrace)
		case <-stalled.C:
			return fmt.Errorf("no rules were written for %s", s.syncPeriod+stallGrace)
		case <-again.C:
			sync()
		case <-look.C:
			ready, err := inForce(iptables)
			if err != nil || !ready {
				continue
			}
			look.Stop()
			again.Stop()
			klog.Info("The network policies are in force")
			if s.readyFile == "" {
				continue
			}
			if err := os.WriteFile(s.readyFile, nil, 0o644); err != nil {
				return err
			}
		}
	}
}

// inForce reports whether this process has written the rules. Those of a process before it stay in the kernel, so the
// chain tells whose rules these are. iptables exits with 1 for a chain that does not exist, and for other failures
// (ChainExists in go-iptables), so the rule that accepts what the policies allow must exist as well, which is written
// with those of the pods (ensureExplicitAccept in kube-router's network_policy_controller.go).
func inForce(iptables utils.IPTablesHandler) (bool, error) {
	if unwritten, err := iptables.ChainExists("filter", unwrittenChain); err != nil || unwritten {
		return false, err
	}
	return iptables.Exists(
		"filter", "FORWARD", "-m", "comment", "--comment",
		"KUBE-ROUTER rule to explicitly ACCEPT traffic that comply to network policies", "-m", "mark", "--mark",
		"0x20000/0x20000", "-j", "ACCEPT",
	)
}
