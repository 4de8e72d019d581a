package object

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"kubernetes-release/internal/nodestatus"
	"kubernetes-release/internal/poll"
	"kubernetes-release/internal/readywait"
)

// reportInterval is how often an unchanged reason is logged again.
const reportInterval = 15 * time.Second

// Wait returns nil as soon as the Node can run pods, by the kubelet that runs now. It waits for the kubeconfig too,
// which need not exist yet. The error at the deadline holds the last reason. Without space in etcd no kubelet can
// report: the one before must do then, or no deploy could increase etcd's quota.
func Wait(ctx context.Context, options Options, log *slog.Logger) error {
	ready := func(node *corev1.Node) error {
		if err := nodestatus.CheckReady(node, options.Untainted); err != nil {
			return err
		}
		err := options.checkReported(node)
		if err != nil && options.Full != nil && options.Full(ctx) {
			log.Info("not waiting for the kubelet's report: etcd refuses writes for lack of space", "reason", err)
			return nil
		}
		return err
	}
	return wait(ctx, options, log, "ready", ready)
}

// checkReported returns an error until the kubelet has reported that was started last: a Node stays Ready for 50
// seconds after a kubelet has stopped. The kubeconfig is written at each start, just before kubelet runs, and a kubelet
// always reports when it starts (isUpdateStatusPeriodExpired in pkg/kubelet/kubelet_node_status.go of Kubernetes).
func (o Options) checkReported(node *corev1.Node) error {
	file, err := os.Stat(o.Kubeconfig)
	if err != nil {
		return fmt.Errorf("not usable yet: %w", err)
	}
	started, reported := file.ModTime().Truncate(time.Second), nodestatus.ReadyCondition(node).LastHeartbeatTime.Time
	if reported.Before(started) {
		return fmt.Errorf(
			"Node %s is Ready, but its kubelet, started at %s, has not reported since %s", node.Name,
			started.UTC().Format(time.RFC3339), reported.UTC().Format(time.RFC3339),
		)
	}
	return nil
}

// WaitNetwork returns nil as soon as the node can announce its pod network: it is known which VM the Node belongs to,
// and kube-controller-manager has given it a pod subnet.
func WaitNetwork(ctx context.Context, options Options, log *slog.Logger) error {
	return wait(ctx, options, log, "known", nodestatus.CheckNetwork)
}

// InitializedCheck returns a check that fails until a cloud-controller-manager has initialized the Node.
func InitializedCheck(options Options) func(context.Context) error {
	return (&waiter{Options: options, wanted: nodestatus.CheckInitialized}).tryOnce
}

func wait(
	ctx context.Context, options Options, log *slog.Logger, reached string, check func(*corev1.Node) error,
) error {
	w := waiter{Options: options, wanted: check, log: log, clock: clock.RealClock{}}
	w.started = w.clock.Now()
	if err := poll.Within(
		ctx, options.Timeout, options.interval(), readywait.UnlessNoQuorum(options.EtcdMembers, w.check),
	); err != nil {
		return fmt.Errorf("wait for Node %s: %w", options.Name, err)
	}
	log.Info("node is "+reached, "node", options.Name, "after", w.elapsed())
	return nil
}

type waiter struct {
	Options
	// wanted returns what the Node lacks.
	wanted  func(*corev1.Node) error
	log     *slog.Logger
	clock   clock.PassiveClock
	started time.Time
	client  kubernetes.Interface
	// reason and reported are what was logged last, and when.
	reason   string
	reported time.Time
}

func (w *waiter) elapsed() time.Duration { return w.clock.Since(w.started).Round(time.Second) }

// check logs why the Node is not ready: each new reason immediately, an unchanged one from time to time.
func (w *waiter) check(ctx context.Context) error {
	err := w.tryOnce(ctx)
	if err == nil || ctx.Err() != nil || err.Error() == w.reason && w.clock.Since(w.reported) < reportInterval {
		return err
	}
	w.reason, w.reported = err.Error(), w.clock.Now()
	w.log.Info("waiting for node", "node", w.Name, "reason", w.reason, "elapsed", w.elapsed(), "timeout", w.Timeout)
	return err
}

func (w *waiter) tryOnce(ctx context.Context) error {
	if w.client == nil {
		client, err := w.Client()
		if err != nil {
			return fmt.Errorf("not usable yet: %w", err)
		}
		w.client = client
	}
	node, err := w.client.CoreV1().Nodes().Get(ctx, w.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("Node %s does not exist: the kubelet has not registered it yet", w.Name)
	case err != nil:
		w.client = nil // the file may have changed, for example when the kubelet's certificate was issued
		return fmt.Errorf("read Node %s with %s: %w", w.Name, w.Kubeconfig, err)
	}
	return w.wanted(node)
}
