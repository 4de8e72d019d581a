// Package smoke uses a cluster as its users do, reports what works, and removes what it made.
//
// A run makes a namespace with the restricted pod security standard, a Deployment of the release's little web server and
// Services in front of it. It looks from inside the pods by exec (the server's image can resolve names and fetch URLs), and
// at load balancers from where it runs. Each check is one line: "ok", "FAILED" with what was seen, or "skipped" when what
// it needs has failed. Whatever happens, a signal included, the namespace and its load balancers are removed, and the run
// ends only when they are gone. What a run that was killed has left is removed by the next one after its time is over.
//
// The identity that runs it needs, cluster-wide:
//
//	""    namespaces            create, delete, get, list
//	""    nodes                 list
//	""    pods, events          list
//	""    services              create, delete, get, list
//	""    pods/log              get
//	""    pods/exec             create, get
//	apps  deployments           create, get
//
// and /readyz, which every authenticated user may read.
package smoke

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	pollInterval     = time.Second
	progressInterval = 15 * time.Second
)

// Run checks a cluster and writes the report to output. The error says how many checks failed, or that something is left.
func Run(ctx context.Context, restConfig *rest.Config, config Config, output io.Writer) error {
	restConfig = rest.CopyConfig(restConfig)
	restConfig.QPS, restConfig.Burst = 50, 100
	client, err := kubernetes.NewForConfig(restConfig)
	if err != nil {
		return fmt.Errorf("API client: %w", err)
	}
	s := &suite{
		config: config,
		client: client,
		exec:   executor{restConfig, client}.run,
		logs:   executor{restConfig, client}.logs,
		fetch:  fetch,
		report: &report{output: output},
	}
	return s.run(ctx)
}

// suite is one run.
type suite struct {
	config Config
	client kubernetes.Interface
	// exec runs a command in a pod and returns its standard output.
	exec func(ctx context.Context, namespace, pod string, command ...string) (string, error)
	// logs returns what a pod has logged.
	logs func(ctx context.Context, namespace, pod string) (string, error)
	// fetch gets a URL from where the run takes place.
	fetch  func(ctx context.Context, url string) (string, error)
	report *report

	namespace string
	nodes     []corev1.Node
	pods      []corev1.Pod
}

// check is one line of the report.
type check struct {
	name string
	// needs names checks without which this one can tell nothing.
	needs   []string
	timeout time.Duration
	// run returns what was seen when all is well.
	run func(ctx context.Context) (string, error)
}

const (
	checkAPI     = "API server"
	checkNodes   = "nodes"
	checkObjects = "objects"
	checkPods    = "pods"
	checkExec    = "exec"
	checkDNS     = "DNS"
)

func (s *suite) checks() []check {
	each := time.Duration(s.config.CheckTimeout)
	checks := []check{
		{checkAPI, nil, each, s.checkAPI},
		{checkNodes, []string{checkAPI}, each, s.checkNodes},
		{checkObjects, []string{checkAPI}, each, s.checkObjects},
		{checkPods, []string{checkObjects}, each, s.checkPods},
		{"logs", []string{checkPods}, each, s.checkLogs},
		{checkExec, []string{checkPods}, each, s.checkExec},
	}
	if *s.config.DNS {
		checks = append(checks, check{checkDNS, []string{checkExec}, each, s.checkDNS})
	}
	checks = append(checks,
		check{"pod to pod", []string{checkExec}, each, s.checkPodToPod},
		check{"service", []string{checkExec}, each, s.checkService},
	)
	if *s.config.NodePort {
		checks = append(checks, check{"node port", []string{checkNodes, checkExec}, each, s.checkNodePort})
	}
	if s.config.LoadBalancer.Enabled {
		for _, kind := range s.config.LoadBalancer.Types {
			checks = append(checks, check{"load balancer " + kind, []string{checkPods}, time.Duration(s.config.LoadBalancer.Timeout),
				func(ctx context.Context) (string, error) { return s.checkLoadBalancer(ctx, kind) }})
		}
	}
	return checks
}

func (s *suite) run(ctx context.Context) error {
	timed, cancel := context.WithTimeoutCause(ctx, time.Duration(s.config.Timeout), fmt.Errorf("timeout of %s is over", time.Duration(s.config.Timeout)))
	defer cancel()
	s.removeLeftovers(timed)
	failed := s.runChecks(timed)

	// Also when the run was interrupted: what costs money must not stay.
	last, cancelLast := context.WithTimeoutCause(context.WithoutCancel(ctx), time.Duration(s.config.CleanupTimeout),
		fmt.Errorf("cleanup_timeout of %s is over", time.Duration(s.config.CleanupTimeout)))
	defer cancelLast()
	var left error
	if s.namespace != "" {
		left = s.report.do(last, check{name: "cleanup", run: s.cleanUp})
	}
	var result error
	if len(failed) > 0 {
		result = fmt.Errorf("%d of %d checks failed or were skipped: %s", len(failed), len(s.checks()), strings.Join(failed, ", "))
	}
	if left != nil {
		left = fmt.Errorf("namespace %s is left behind; remove it with: kubectl delete namespace %s", s.namespace, s.namespace)
	}
	return errors.Join(result, left)
}

// runChecks returns the names of the checks that did not pass.
func (s *suite) runChecks(ctx context.Context) []string {
	var failed []string
	detailed := false
	for _, c := range s.checks() {
		missing := slices.DeleteFunc(slices.Clone(c.needs), func(name string) bool { return !slices.Contains(failed, name) })
		switch {
		case ctx.Err() != nil:
			s.report.line("skipped", c.name, context.Cause(ctx).Error())
		case len(missing) > 0:
			s.report.line("skipped", c.name, "needs "+strings.Join(missing, ", "))
		default:
			limited, cancel := context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("not within %s", c.timeout))
			err := s.report.do(limited, c)
			cancel()
			if err == nil {
				continue
			}
			if !detailed {
				detailed = true
				s.explain(ctx)
			}
		}
		failed = append(failed, c.name)
	}
	return failed
}

// removeLeftovers deletes the namespaces of runs that were killed. A failure is only reported: it is no fault of this run.
func (s *suite) removeLeftovers(ctx context.Context) {
	list, err := s.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: runLabel + "=" + s.config.NamespacePrefix})
	if err != nil {
		return // the first check says what is wrong with the API server
	}
	for _, old := range list.Items {
		expires, err := time.Parse(time.RFC3339, old.Annotations[expiresAnnotation])
		if err != nil || time.Now().Before(expires) || old.DeletionTimestamp != nil {
			continue
		}
		s.report.line("note", "leftover", fmt.Sprintf("removing namespace %s of a run that should have ended at %s", old.Name, expires.Format(time.RFC3339)))
		if err := s.client.CoreV1().Namespaces().Delete(ctx, old.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			s.report.line("note", "leftover", err.Error())
		}
	}
}

// cleanUp removes load balancers while the namespace's other objects still are as the cloud controller expects them, then
// the namespace, and waits until all are gone.
func (s *suite) cleanUp(ctx context.Context) (string, error) {
	services := s.client.CoreV1().Services(s.namespace)
	err := s.eventually(ctx, func() error {
		list, err := services.List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var left []string
		for _, item := range list.Items {
			if item.Spec.Type != corev1.ServiceTypeLoadBalancer {
				continue
			}
			left = append(left, item.Name)
			if item.DeletionTimestamp == nil {
				if err := services.Delete(ctx, item.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
					return err
				}
			}
		}
		if len(left) > 0 {
			return fmt.Errorf("Services %s are still there: the cloud controller has not removed their load balancers yet", strings.Join(left, ", "))
		}
		return nil
	})
	if err != nil {
		// The namespace is deleted all the same: whatever can go shall go.
		return "", errors.Join(err, s.deleteNamespace(context.WithoutCancel(ctx)))
	}
	err = s.eventually(ctx, func() error {
		if err := s.deleteNamespace(ctx); err != nil {
			return err
		}
		left, err := s.client.CoreV1().Namespaces().Get(ctx, s.namespace, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		}
		return fmt.Errorf("namespace %s is still there: %s", s.namespace, terminating(left))
	})
	return "namespace " + s.namespace + " and its load balancers are gone", err
}

func (s *suite) deleteNamespace(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	err := s.client.CoreV1().Namespaces().Delete(ctx, s.namespace, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // gone, or going
	}
	return err
}

// terminating says what holds a namespace back.
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

// eventually repeats a look until it returns nil; the error at the deadline is that of the last look.
func (s *suite) eventually(ctx context.Context, look func() error) error {
	var last error
	for {
		err := look()
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err // an error that only says that the time is over would hide the reason
		}
		s.report.progress(last)
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), last)
		case <-time.After(pollInterval):
		}
	}
}

// report writes the lines of a run.
type report struct {
	mu      sync.Mutex
	output  io.Writer
	name    string
	started time.Time
	said    time.Time
}

// do runs a check and reports it.
func (r *report) do(ctx context.Context, c check) error {
	r.name, r.started, r.said = c.name, time.Now(), time.Now()
	seen, err := c.run(ctx)
	elapsed := time.Since(r.started).Round(100 * time.Millisecond)
	if err != nil {
		r.line("FAILED", c.name, fmt.Sprintf("%v (%s)", err, elapsed))
		return err
	}
	r.line("ok", c.name, fmt.Sprintf("%s (%s)", seen, elapsed))
	return nil
}

// progress says from time to time what the current check waits for.
func (r *report) progress(missing error) {
	if time.Since(r.said) >= progressInterval {
		r.said = time.Now()
		r.line("waiting", r.name, fmt.Sprintf("%v (%s)", missing, time.Since(r.started).Round(time.Second)))
	}
}

func (r *report) line(verdict, name, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = fmt.Fprintf(r.output, "%-8s%-23s%s\n", verdict, name, strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n"+strings.Repeat(" ", 31)))
}

// fetch gets a URL over a connection of its own; any status but 200 is an error.
func fetch(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, 4096))
	if err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s answered %s: %s", url, response.Status, body)
	}
	return string(body), nil
}
