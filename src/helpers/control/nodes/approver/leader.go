package approver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// These durations are the defaults of Kubernetes' own controllers: a failed leader is replaced after at most 15
// seconds.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

// ErrLeadershipLost means that another instance may lead now, so this one must stop.
var ErrLeadershipLost = errors.New("leadership lost")

// RunElected takes part in an election under identity, which must be unique. It waits until this candidate leads, and
// then runs the controller until ctx ends (no error) or the leadership is lost (ErrLeadershipLost; the process should
// exit and be restarted).
//
// A follower sends one request every two seconds and reads nothing else, so permissions that are granted late, as in a
// new cluster after its control plane has started, cause no failed reads.
func RunElected(
	ctx context.Context, client kubernetes.Interface, machines Machines, identity string, metrics *Metrics,
	log *slog.Logger,
) error {
	// The lease is released only after the controller has stopped, so the elector must outlive ctx.
	electorCtx, stopElector := context.WithCancel(context.WithoutCancel(ctx))
	defer stopElector()

	term := &term{done: make(chan struct{})}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: leaseName,
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: leaseName},
			Client:     client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		},
		LeaseDuration:   leaseDuration,
		RenewDeadline:   renewDeadline,
		RetryPeriod:     retryPeriod,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(leading context.Context) {
				defer stopElector()
				term.serve(ctx, leading, New(client, machines, metrics, log).Run)
			},
			OnStoppedLeading: func() {},
			OnNewLeader: func(leader string) {
				log.Info("leader elected", "leader", leader, "self", leader == identity)
			},
		},
	})
	if err != nil {
		return fmt.Errorf("leader election: %w", err)
	}
	stopFollowing := context.AfterFunc(ctx, func() {
		if !term.started.Load() {
			stopElector()
		}
	})
	defer stopFollowing()
	elector.Run(electorCtx)
	switch {
	case term.started.Load() && term.result() != nil:
		return term.result()
	case ctx.Err() != nil:
		return nil
	default:
		return fmt.Errorf(
			"%w: lease %s/%s was not renewed within %s", ErrLeadershipLost, metav1.NamespaceSystem, leaseName,
			renewDeadline,
		)
	}
}

// term is the time during which this candidate leads.
type term struct {
	started atomic.Bool
	done    chan struct{}
	err     error
}

// serve runs work until either context ends.
func (t *term) serve(caller, leading context.Context, work func(context.Context) error) {
	t.started.Store(true)
	defer close(t.done)
	ctx, cancel := context.WithCancel(leading)
	defer cancel()
	stop := context.AfterFunc(caller, cancel)
	defer stop()
	t.err = work(ctx)
}

// result waits until a term that has started is over.
func (t *term) result() error {
	<-t.done
	return t.err
}
