// Package drain empties a node before BOSH stops its VM, and takes it back into service afterwards.
//
// It authenticates as the kubelet of the VM. The Node authorizer and NodeRestriction permit a kubelet to evict and
// delete the pods of its own node, and to change its own Node except for taints.
package drain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"kubernetes-release/internal/nodestatus"
	"kubernetes-release/internal/nospace"
	"kubernetes-release/internal/poll"
)

// Options of a drain.
type Options struct {
	// Node is the name of the Node.
	Node string
	// VMDeleted is whether the VM is about to be deleted, and not only its processes restarted.
	VMDeleted bool
	// Timeout bounds the time until all pods have ended and their volumes are detached.
	Timeout time.Duration
	// Force deletes the pods that are left when Timeout has passed, in spite of budgets. Without it the drain fails.
	Force bool
	// LoadBalancerDelay is how long load balancers need to send no more requests to a node that they have lost as a
	// target.
	LoadBalancerDelay time.Duration

	// APITimeout is how long the API may be gone before the drain ends without error; defaults to 30 s.
	APITimeout time.Duration
	// Interval is the time between two rounds; defaults to 1 s.
	Interval time.Duration
}

const (
	defaultAPITimeout = 30 * time.Second
	defaultInterval   = time.Second
	// forceTimeout bounds the wait for pods that were deleted by force, beyond the longest of their grace periods.
	forceTimeout = 30 * time.Second
	// maxForceTimeout bounds it for pods with long grace periods.
	maxForceTimeout = 5 * time.Minute
)

// errAPIGone ends a drain without error: nobody else runs the pods, and a deploy or the deletion of a deployment must
// go on.
var errAPIGone = errors.New("the API has not answered for some time")

// DeadlineError means that pods or volumes were left at the deadline, and that the policy is to fail.
type DeadlineError struct {
	Timeout time.Duration
	Left    error
}

func (e *DeadlineError) Error() string {
	return fmt.Sprintf(
		"not drained after %s: %v; relax the budget or raise property drain.timeout of job kubelet, or set "+
			"drain.policy to force",
		e.Timeout, e.Left,
	)
}

// Unwrap returns what was left.
func (e *DeadlineError) Unwrap() error { return e.Left }

// Drain takes the node out of service: no new pods and no new requests from load balancers, then it evicts the pods, as
// their budgets permit, and waits until their volumes are detached. An error is a *DeadlineError, after which the node
// is in service again, or says that etcd refuses writes and the VM is about to be deleted: its pods would be lost, and
// a new VM could not join. Whatever else prevents a drain is logged.
func Drain(ctx context.Context, client kubernetes.Interface, options Options, log *slog.Logger) error {
	d := newDrain(client, options, log)
	err := d.run(ctx)
	var deadline *DeadlineError
	switch {
	case errors.As(err, &deadline):
		if err := d.retry(
			context.WithoutCancel(ctx),
			func(ctx context.Context) error { return Restore(ctx, client, options.Node, log) },
		); err != nil {
			d.log.Error("the node stays out of service", "error", err)
		}
		return err
	case nospace.Is(err) && d.VMDeleted:
		return fmt.Errorf("this VM must not be deleted: its pods cannot be evicted, and a new VM cannot join: %w", err)
	case err != nil:
		d.log.Error("not drained", "error", err)
	default:
		d.log.Info("node is drained", "node", d.Node, "took", d.clock.Since(d.started).Round(time.Millisecond))
	}
	return nil
}

type drain struct {
	Options
	client  kubernetes.Interface
	clock   clock.PassiveClock
	log     *slog.Logger
	started time.Time

	answered time.Time       // when the API last answered
	present  map[string]bool // UIDs of the node's pods when they were first listed
	evicted  map[string]bool // UIDs of pods whose eviction or deletion was accepted
	reported string          // what was logged last
	grace    time.Duration   // longest grace period of the pods
}

func newDrain(client kubernetes.Interface, options Options, log *slog.Logger) *drain {
	if options.APITimeout == 0 {
		options.APITimeout = defaultAPITimeout
	}
	if options.Interval == 0 {
		options.Interval = defaultInterval
	}
	d := &drain{
		Options: options,
		client:  client,
		log:     log,
		clock:   clock.RealClock{},
		evicted: map[string]bool{},
	}
	d.started = d.clock.Now()
	d.answered = d.started
	return d
}

func (d *drain) run(ctx context.Context) error {
	node, err := d.node(ctx)
	if err != nil || node == nil {
		return err
	}
	if err := nodestatus.CheckReady(node, false); err != nil {
		d.log.Info("not evicting pods: without a kubelet they would never end", "reason", err)
		return nil
	}
	elsewhere, err := d.elsewhere(ctx, node)
	if err != nil {
		return err
	}
	if !elsewhere && !d.VMDeleted {
		d.log.Info("not evicting pods: the VM stays, and no other node could run them")
		return nil
	}
	if err := d.retry(
		ctx, func(ctx context.Context) error { return retire(ctx, d.client, d.Node, d.log) },
	); err != nil {
		return err
	}
	if !elsewhere {
		d.log.Info("ending pods in spite of budgets: the VM is deleted, and no other node could run them")
		return d.force(ctx)
	}
	left := d.until(ctx, d.Timeout, d.empty(d.evict))
	var passed *poll.Error
	switch {
	case left == nil:
	case !errors.As(left, &passed) || ctx.Err() != nil: // it has ended before the deadline
		return left
	case !d.Force:
		return &DeadlineError{Timeout: d.Timeout, Left: left}
	default:
		d.log.Info("the deadline has passed; deleting the pods that are left, in spite of budgets", "left", left)
		if err := d.force(ctx); err != nil {
			return err
		}
	}
	return d.awaitLoadBalancers(ctx)
}

// retry repeats a step until it succeeds, fails for good, or the API has been gone for too long.
func (d *drain) retry(ctx context.Context, step func(context.Context) error) error {
	return d.until(ctx, d.Timeout+d.APITimeout, step)
}

// until repeats a check until it succeeds or the timeout has passed. It returns errAPIGone early, and ends at once if
// etcd refuses writes for lack of space, because no pod can be evicted then.
func (d *drain) until(ctx context.Context, timeout time.Duration, check func(context.Context) error) error {
	return poll.Within(ctx, timeout, d.Interval, func(ctx context.Context) error {
		err := check(ctx)
		if nospace.Is(err) {
			return noSpace(err)
		}
		var status apierrors.APIStatus
		var waiting *waitingError
		switch {
		case err == nil,
			errors.As(err, &waiting),
			errors.As(err, &status) && !apierrors.IsServiceUnavailable(err) && !apierrors.IsTooManyRequests(err):
			d.answered = d.clock.Now()
		case d.clock.Since(d.answered) > d.APITimeout:
			return poll.Permanent(fmt.Errorf("%w: %w", errAPIGone, err))
		}
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			return poll.Permanent(
				fmt.Errorf("%w; the job kubernetes-addons of this release grants permissions of nodes", err),
			)
		}
		if err != nil && ctx.Err() == nil && err.Error() != d.reported {
			d.reported = err.Error()
			d.log.Info("draining", "waiting_for", err, "elapsed", d.clock.Since(d.started).Round(time.Second))
		}
		return err
	})
}

// noSpace ends repetitions: the errand that makes space in etcd waits for this deploy, which holds the lock
// (jobs/run_errand.rb of the Director).
func noSpace(err error) error {
	return poll.Permanent(nospace.Explain(err))
}

// node returns the Node, nil if it does not exist.
func (d *drain) node(ctx context.Context) (node *corev1.Node, err error) {
	err = d.retry(ctx, func(ctx context.Context) (err error) {
		node, err = d.client.CoreV1().Nodes().Get(ctx, d.Node, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			d.log.Info("nothing to drain: the Node does not exist")
			node, err = nil, nil
		}
		return err
	})
	return node, err
}

// elsewhere reports whether another node could run pods of this VM's own.
func (d *drain) elsewhere(ctx context.Context, own *corev1.Node) (found bool, err error) {
	err = d.retry(ctx, func(ctx context.Context) error {
		nodes, err := d.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return err
		}
		for i := range nodes.Items {
			found = found || nodes.Items[i].Name != d.Node && accepts(&nodes.Items[i], own.Spec.Taints)
		}
		return nil
	})
	return found, err
}

// conditionTaints is what the keys of taints start with that follow a node's conditions, such as memory-pressure
// (pkg/controller/nodelifecycle/node_lifecycle_controller.go). Pods that were there before need not tolerate them.
const conditionTaints = "node.kubernetes.io/"

// accepts reports whether pods that tolerate these taints, as pods of a pool do, can be scheduled on a node.
func accepts(node *corev1.Node, tolerated []corev1.Taint) bool {
	for _, taint := range node.Spec.Taints {
		if taint.Effect == corev1.TaintEffectPreferNoSchedule {
			continue
		}
		same := func(t corev1.Taint) bool { return t.MatchTaint(&taint) && t.Value == taint.Value }
		if strings.HasPrefix(taint.Key, conditionTaints) || !slices.ContainsFunc(tolerated, same) {
			return false
		}
	}
	return !node.Spec.Unschedulable && nodestatus.CheckReady(node, false) == nil
}

// awaitLoadBalancers waits until load balancers, if there are any, send no more requests through this node.
func (d *drain) awaitLoadBalancers(ctx context.Context) error {
	balanced := false
	err := d.retry(ctx, func(ctx context.Context) error {
		services, err := d.client.CoreV1().
			Services(metav1.NamespaceAll).
			List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return err
		}
		for i := range services.Items {
			balanced = balanced || services.Items[i].Spec.Type == corev1.ServiceTypeLoadBalancer
		}
		return nil
	})
	rest := d.LoadBalancerDelay - d.clock.Since(d.started)
	if err != nil || !balanced || rest <= 0 {
		return err
	}
	d.log.Info("waiting until load balancers send no more requests", "for", rest.Round(time.Second))
	return poll.Sleep(ctx, rest)
}
