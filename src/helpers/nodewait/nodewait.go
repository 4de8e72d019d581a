// Package nodewait waits until this machine's Node serves pods.
//
// It runs with the kubelet's own kubeconfig, which may read its own Node and no other. That file appears only when the
// kubelet has been given its certificate, so its absence is one of the things that are waited out.
package nodewait

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// UninitializedTaint is on a Node until the cloud-controller-manager has set its addresses, zone and provider id.
const UninitializedTaint = "node.cloudprovider.kubernetes.io/uninitialized"

// requestTimeout bounds one request, so that an API server that accepts and never answers does not eat the whole deadline.
const requestTimeout = 10 * time.Second

// Options says for what to wait.
type Options struct {
	// Kubeconfig is read anew after each failure; it need not exist yet.
	Kubeconfig string
	// Name is the name of the Node.
	Name string
	// Timeout is for everything together and must be positive.
	Timeout time.Duration
	// Untainted also waits until the Node has no UninitializedTaint.
	Untainted bool
	// Interval between two looks; 0 means 500 ms.
	Interval time.Duration
	// Progress is how often an unchanged reason is said again; 0 means 15 seconds. A new reason is said at once.
	Progress time.Duration
}

// Wait returns nil as soon as the Node is as wanted. The error at the deadline holds the last reason.
func Wait(ctx context.Context, options Options, log *slog.Logger) error {
	if options.Interval == 0 {
		options.Interval = 500 * time.Millisecond
	}
	if options.Progress == 0 {
		options.Progress = 15 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, options.Timeout)
	defer cancel()

	w := waiter{options: options, log: log, started: time.Now()}
	for {
		missing := w.look(ctx)
		if missing == nil {
			log.Info("node is ready", "node", options.Name, "after", w.elapsed())
			return nil
		}
		if ctx.Err() == nil || w.last == nil {
			w.report(missing)
		}
		select {
		case <-ctx.Done():
			return w.failure(ctx)
		case <-time.After(options.Interval):
		}
	}
}

type waiter struct {
	options  Options
	log      *slog.Logger
	started  time.Time
	client   kubernetes.Interface
	last     error
	reported time.Time
}

func (w *waiter) elapsed() time.Duration { return time.Since(w.started).Round(time.Second) }

// look returns what the Node lacks, or nil.
func (w *waiter) look(ctx context.Context) error {
	if w.client == nil {
		client, err := newClient(w.options.Kubeconfig)
		if err != nil {
			return err
		}
		w.client = client
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	node, err := w.client.CoreV1().Nodes().Get(ctx, w.options.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("Node %s does not exist: the kubelet has not registered it yet", w.options.Name)
	case err != nil:
		w.client = nil // the file may have changed, as when the kubelet's certificate was issued
		return fmt.Errorf("read Node %s with %s: %w", w.options.Name, w.options.Kubeconfig, err)
	}
	return Missing(node, w.options.Untainted)
}

func (w *waiter) report(missing error) {
	changed := w.last == nil || w.last.Error() != missing.Error()
	w.last = missing
	if !changed && time.Since(w.reported) < w.options.Progress {
		return
	}
	w.reported = time.Now()
	w.log.Info("waiting for node", "node", w.options.Name, "reason", missing.Error(), "elapsed", w.elapsed(), "timeout", w.options.Timeout)
}

func (w *waiter) failure(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("Node %s is not ready after %s: %w", w.options.Name, w.options.Timeout, w.last)
	}
	return fmt.Errorf("stopped while waiting for Node %s: %w", w.options.Name, w.last)
}

func newClient(kubeconfig string) (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s can't be used yet: %w", kubeconfig, err)
	}
	return kubernetes.NewForConfig(config)
}

// Missing returns why a Node can't serve pods yet, in the words of its Ready condition, or nil when it can.
// With untainted it also wants the cloud's controller to be done with the Node.
func Missing(node *corev1.Node, untainted bool) error {
	condition := readyCondition(node)
	switch {
	case condition == nil:
		return fmt.Errorf("Node %s has no Ready condition yet", node.Name)
	case condition.Status != corev1.ConditionTrue:
		return fmt.Errorf("Node %s is not Ready (%s): %s", node.Name, condition.Reason, condition.Message)
	}
	if !untainted {
		return nil
	}
	for _, taint := range node.Spec.Taints {
		if taint.Key == UninitializedTaint {
			return fmt.Errorf("Node %s is Ready but has the taint %s: no cloud-controller-manager has initialised it yet (see its log on the control VMs)", node.Name, taint.Key)
		}
	}
	return nil
}

func readyCondition(node *corev1.Node) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == corev1.NodeReady {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}
