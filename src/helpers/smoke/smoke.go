// Package smoke tests a cluster as its users use it, reports the results, and cleans up.
//
// A run creates a namespace with the restricted Pod Security Standard, a Deployment of the release's test server, and
// Services for it. Checks use exec to resolve names and fetch URLs inside the pods; load balancers are fetched from
// where the run takes place. Claims of each StorageClass are tested while the other checks run. The report has one line
// for each check: "ok", "FAILED" with the reason, or "skipped" if a check that it requires has failed. In any case,
// also after a signal, the run deletes the namespace, its load balancers, volumes and snapshots, and waits until they
// are gone. A later run deletes what a killed run has left behind, once that run's time is over.
//
// In its own namespace a run has the permissions of the ClusterRole kubernetes.bosh.io:smoke-tests-run, and with
// StorageClasses, Ingresses, Gateways or roles of pods to test those of kubernetes.bosh.io:smoke-tests-storage-run,
// …-ingress-run, …-gateway-run or …-pod-roles-run: it binds them itself, which an admission policy permits in
// namespaces of runs only. In the whole cluster it needs these:
//
//	""                 namespaces       create, delete, get, list
//	""                 nodes            list
//	networking.k8s.io  networkpolicies  list
//	rbac               rolebindings     create, and bind for these ClusterRoles
//
// in the namespace default these:
//
//	""  events    list
//	""  services  get, of the Service kubernetes
//
// with metrics-server also this:
//
//	metrics.k8s.io  nodes  list
//
// with StorageClasses to test also these:
//
//	""                       persistentvolumes  list, patch
//	storage.k8s.io           storageclasses     get
//	snapshot.storage.k8s.io  volumesnapshotclasses, volumesnapshotcontents  list
//
// and /readyz, which every authenticated user can read.
package smoke

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"kubernetes-release/internal/nospace"
	"kubernetes-release/internal/poll"
	"kubernetes-release/internal/printable"
	"kubernetes-release/internal/stopwatch"
	"kubernetes-release/smoke/fetch"
)

const (
	// replicas is the number of pods: two, so that one can connect to another.
	replicas = 2
	// namespacePrefix begins the name of each run's namespace.
	namespacePrefix = "smoke-tests"

	pollInterval     = time.Second
	progressInterval = 15 * time.Second
	// explainTimeout limits the listing of pods and Events after a failure.
	explainTimeout = 20 * time.Second
	// defaultTimeout is the default of the job's property timeout.
	defaultTimeout = 10 * time.Minute
	// deleteTimeout limits one request to delete the namespace.
	deleteTimeout = 30 * time.Second
)

// limits are the timeouts of a run's steps.
type limits struct{ check, loadBalancer, policy, provisioning, cleanup time.Duration }

// limitsWithin are those of a run that may take that long; on a slow machine, where it may take longer than by default,
// its steps may too.
func limitsWithin(timeout time.Duration) limits {
	scale := max(1, float64(timeout)/float64(defaultTimeout))
	scaled := func(limit time.Duration) time.Duration { return time.Duration(scale * float64(limit)) }
	return limits{
		check:        scaled(3 * time.Minute),
		loadBalancer: scaled(5 * time.Minute),
		policy:       scaled(30 * time.Second),
		provisioning: scaled(30 * time.Second),
		cleanup:      scaled(5 * time.Minute),
	}
}

// Run checks a cluster and writes the report to output. The error tells how many checks failed, or what was left
// behind.
func Run(ctx context.Context, restConfig *rest.Config, config Config, output io.Writer) error {
	restConfig = rest.CopyConfig(restConfig)
	restConfig.QPS, restConfig.Burst = 50, 100
	client, err := kubernetes.NewForConfig(restConfig)
	if err != nil {
		return fmt.Errorf("API client: %w", err)
	}
	untyped, err := dynamic.NewForConfig(restConfig)
	if err != nil {
		return fmt.Errorf("API client: %w", err)
	}
	pods, err := newExecutor(restConfig)
	if err != nil {
		return fmt.Errorf("API client: %w", err)
	}
	s := &suite{
		config:  config,
		client:  client,
		dynamic: untyped,
		exec:    pods.run,
		logs:    pods.logs,
		proxy:   pods.proxy,
		fetch:   fetch.Get,
		report:  &report{output: output},
		clock:   clock.RealClock{},
		limits:  limitsWithin(config.Timeout.Std()),
		prefix:  namespacePrefix,
	}
	return s.run(ctx)
}

// suite is one run.
type suite struct {
	config Config
	client kubernetes.Interface
	// dynamic is the client for snapshots and Gateways, which client-go has no types for.
	dynamic dynamic.Interface
	// exec runs a command in a pod and returns its standard output.
	exec func(ctx context.Context, namespace, pod string, command ...string) (string, error)
	// logs returns the log of a pod.
	logs func(ctx context.Context, namespace, pod string) (string, error)
	// proxy gets the path / of a Service through the API server.
	proxy func(ctx context.Context, namespace, service string, port int) (string, error)
	// fetch gets a URL from where the run takes place.
	fetch  func(ctx context.Context, url string) (string, error)
	report *report
	clock  clock.PassiveClock
	limits limits
	// prefix begins the name of the run's namespace.
	prefix string

	namespace string
	nodes     []corev1.Node
	pods      []corev1.Pod
}

// check is one line of the report.
type check struct {
	name string
	// requires names the checks that must have succeeded before this one.
	requires []string
	timeout  time.Duration
	// background checks mostly wait for the cloud: they run while the next ones do.
	background bool
	// run returns a description of what works.
	run func(ctx context.Context) (string, error)
}

const (
	checkAPI     = "API server"
	checkNodes   = "nodes"
	checkObjects = "objects"
	checkPods    = "pods"
	checkExec    = "exec"
)

func (s *suite) checks() []check {
	each := s.limits.check
	checks := []check{
		{name: checkAPI, timeout: each, run: s.checkAPI},
		{name: checkNodes, requires: []string{checkAPI}, timeout: each, run: s.checkNodes},
		{name: checkObjects, requires: []string{checkAPI}, timeout: each, run: s.checkObjects},
	}
	for n, class := range s.config.Storage.Classes {
		checks = append(checks, check{
			name:       "storage " + class,
			requires:   []string{checkObjects},
			timeout:    s.config.Storage.Timeout.Std(),
			background: true,
			run:        func(ctx context.Context) (string, error) { return s.checkVolumes(ctx, n+1, class) },
		})
	}
	checks = append(checks,
		check{name: checkPods, requires: []string{checkObjects}, timeout: each, run: s.checkPods},
		check{name: "logs", requires: []string{checkPods}, timeout: each, run: s.checkLogs},
		check{name: checkExec, requires: []string{checkPods}, timeout: each, run: s.checkExec},
		check{name: "DNS", requires: []string{checkExec}, timeout: each, run: s.checkDNS},
		check{name: "pod to pod", requires: []string{checkExec}, timeout: each, run: s.checkPodToPod},
		check{name: "service", requires: []string{checkExec}, timeout: each, run: s.checkService},
		check{name: "API to service", requires: []string{checkPods}, timeout: each, run: s.checkServiceProxy},
		check{name: "node port", requires: []string{checkNodes, checkExec}, timeout: each, run: s.checkNodePort},
	)
	if s.config.LoadBalancer.Enabled {
		for _, kind := range s.config.LoadBalancer.Types {
			checks = append(checks, check{
				name: "load balancer " + kind, requires: []string{checkPods}, timeout: s.limits.loadBalancer,
				run: func(ctx context.Context) (string, error) { return s.checkLoadBalancer(ctx, kind) },
			})
		}
	}
	if s.config.Ingress {
		checks = append(
			checks,
			check{
				name: "ingress", requires: []string{checkPods}, timeout: s.limits.loadBalancer, run: s.checkIngress,
			},
		)
	}
	if s.config.Gateway {
		checks = append(
			checks,
			check{
				name: "gateway", requires: []string{checkPods}, timeout: s.limits.loadBalancer, run: s.checkGateway,
			},
		)
	}
	if s.config.PodRoles.Issuer != "" {
		checks = append(
			checks, check{name: "pod roles", requires: []string{checkExec}, timeout: each, run: s.checkPodRoles},
		)
	}
	if s.config.Metrics {
		checks = append(
			checks, check{name: "metrics", requires: []string{checkNodes}, timeout: each, run: s.checkMetrics},
		)
	}
	if s.config.NetworkPolicies {
		checks = append(
			checks,
			check{name: "network policy", requires: []string{checkExec}, timeout: each, run: s.checkNetworkPolicy},
		)
	}
	return checks
}

func (s *suite) run(ctx context.Context) error {
	timed, cancel := context.WithTimeoutCause(
		ctx, s.config.Timeout.Std(), fmt.Errorf("timeout of %s exceeded", s.config.Timeout),
	)
	defer cancel()
	s.removeLeftovers(timed)
	failed := s.runChecks(timed)
	if !s.config.NetworkPolicies {
		s.noteNetworkPolicies(timed)
	}
	s.noteReleasedVolumes(timed)
	s.noteDeletedSnapshots(timed)

	// An interrupted run cleans up too, since load balancers cost money.
	last, cancelLast := context.WithTimeout(context.WithoutCancel(ctx), s.limits.cleanup)
	defer cancelLast()
	var left error
	if s.namespace != "" {
		left = s.report.do(last, check{name: "cleanup", run: s.cleanUp})
	}
	var result error
	if len(failed) > 0 {
		result = fmt.Errorf(
			"%d of %d checks failed or were skipped: %s", len(failed), len(s.checks()), strings.Join(failed, ", "),
		)
	}
	if left != nil {
		left = fmt.Errorf(
			"namespace %[1]s was not deleted with everything in it; delete it with: kubectl delete namespace %[1]s, "+
				"and what the cleanup names",
			s.namespace,
		)
	}
	return errors.Join(result, left)
}

// runChecks returns the names of the checks that did not pass.
func (s *suite) runChecks(ctx context.Context) []string {
	var failed []string
	explained := false
	note := func(c check, err error) {
		if err == nil {
			return
		}
		if !explained {
			explained = true
			s.explain(ctx)
		}
		failed = append(failed, c.name)
	}
	var running []func()
	for _, c := range s.checks() {
		missing := slices.DeleteFunc(
			slices.Clone(c.requires), func(name string) bool { return !slices.Contains(failed, name) },
		)
		switch {
		case ctx.Err() != nil:
			s.report.line("skipped", c.name, context.Cause(ctx).Error())
			failed = append(failed, c.name)
		case len(missing) > 0:
			s.report.line("skipped", c.name, "requires "+strings.Join(missing, ", "))
			failed = append(failed, c.name)
		case c.background:
			result := make(chan error, 1)
			go func() { result <- s.runCheck(ctx, c) }()
			running = append(running, func() { note(c, <-result) })
		default:
			note(c, s.runCheck(ctx, c))
		}
	}
	for _, wait := range running {
		wait()
	}
	return failed
}

func (s *suite) runCheck(ctx context.Context, c check) error {
	limited, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	return s.report.do(limited, c)
}

// removeLeftovers deletes the namespaces of killed runs. A failure is only reported, and does not fail this run.
func (s *suite) removeLeftovers(ctx context.Context) {
	list, err := s.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: runLabel + "=" + s.prefix})
	if err != nil {
		return // the first check reports the problem of the API server
	}
	for _, old := range list.Items {
		expires, err := time.Parse(time.RFC3339, old.Annotations[expiresAnnotation])
		if err != nil || s.clock.Now().Before(expires) || old.DeletionTimestamp != nil {
			continue
		}
		s.report.line(
			"note",
			"leftover",
			fmt.Sprintf(
				"deleting namespace %s of a run whose time was over at %s", old.Name, expires.Format(time.RFC3339),
			),
		)
		if err := s.releaseVolumes(ctx, old.Name); err != nil {
			s.report.line("note", "leftover", err.Error())
			continue // with its claims, the run that finds the namespace again would lose sight of the volumes
		}
		if err := s.client.CoreV1().
			Namespaces().
			Delete(ctx, old.Name, metav1.DeleteOptions{}); err != nil &&
			!apierrors.IsNotFound(err) {
			s.report.line("note", "leftover", err.Error())
		}
	}
}

// cleanUp deletes the load balancers first, while their controllers still find the namespace's other objects, then the
// namespace, and waits until all are gone, volumes and snapshots too.
func (s *suite) cleanUp(ctx context.Context) (string, error) {
	err := s.eventually(ctx, func() error {
		// One after the other: the controller keeps the security group that its load balancers share if the last two
		// disappear in the same moment (docs/load-balancers.md).
		application := s.gatewaysGone(ctx)
		if application == nil {
			application = s.ingressesGone(ctx)
		}
		return errors.Join(application, s.balancedServicesGone(ctx))
	})
	if err != nil {
		// Delete the namespace anyway, so that everything else is deleted.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), deleteTimeout+s.limits.provisioning)
		defer cancel()
		s.awaitProvisioning(ctx)
		return "", errors.Join(err, s.releaseVolumes(ctx, s.namespace), s.deleteNamespace(ctx))
	}
	s.awaitProvisioning(ctx)
	err = s.eventually(ctx, func() error {
		return errors.Join(
			s.releaseVolumes(ctx, s.namespace), s.deleteNamespace(ctx), s.namespaceGone(ctx), s.volumesGone(ctx),
		)
	})
	deleted := "its load balancers were"
	if len(s.config.Storage.Classes) > 0 {
		deleted = "its load balancers, volumes and snapshots were"
	}
	return fmt.Sprintf("namespace %s and %s deleted", s.namespace, deleted), err
}

func (s *suite) balancedServicesGone(ctx context.Context) error {
	services := s.client.CoreV1().Services(s.namespace)
	list, err := services.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	balanced := slices.DeleteFunc(
		list.Items, func(item corev1.Service) bool { return item.Spec.Type != corev1.ServiceTypeLoadBalancer },
	)
	return allGone(ctx, "Services", "cloud controller", balanced, services.Delete)
}

func (s *suite) namespaceGone(ctx context.Context) error {
	left, err := s.client.CoreV1().Namespaces().Get(ctx, s.namespace, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("namespace %s still exists: %s", s.namespace, terminating(left))
}

func (s *suite) deleteNamespace(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, deleteTimeout)
	defer cancel()
	err := s.client.CoreV1().Namespaces().Delete(ctx, s.namespace, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // deleted, or being deleted
	}
	return err
}

// terminating returns why a namespace still exists.
func terminating(n *corev1.Namespace) string {
	var reasons []string
	for _, c := range n.Status.Conditions {
		if c.Status == corev1.ConditionTrue {
			reasons = append(reasons, c.Message)
		}
	}
	if len(reasons) == 0 {
		return "phase " + string(n.Status.Phase)
	}
	return strings.Join(reasons, "; ")
}

// eventually repeats a step of a check until it succeeds, and reports progress.
func (s *suite) eventually(ctx context.Context, step func() error) error {
	name, _ := ctx.Value(nameOfCheck{}).(string)
	report := func(elapsed time.Duration, reason error) {
		s.report.line("waiting", name, fmt.Sprintf("%v (%s)", reason, elapsed.Round(time.Second)))
	}
	return poll.Until(
		ctx, pollInterval,
		poll.Reported(progressInterval, progressInterval, report, func(context.Context) error { return step() }),
	)
}

// nameOfCheck is the key of the name of the check that a context belongs to.
type nameOfCheck struct{}

// report writes the lines of a run.
type report struct {
	mu     sync.Mutex
	output io.Writer
}

func (r *report) do(ctx context.Context, c check) error {
	took := stopwatch.Start()
	works, err := c.run(context.WithValue(ctx, nameOfCheck{}, c.name))
	if err = nospace.Explain(err); err != nil {
		r.line("FAILED", c.name, err.Error())
		return err
	}
	r.line("ok", c.name, fmt.Sprintf("%s (%s)", works, took().Round(100*time.Millisecond)))
	return nil
}

func (r *report) line(result, name, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = fmt.Fprintf(
		r.output, "%-8s%-23s%s\n", result, name,
		strings.ReplaceAll(printable.Text(strings.TrimSpace(text)), "\n", "\n"+strings.Repeat(" ", 31)),
	)
}
