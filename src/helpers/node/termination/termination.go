// Package termination takes a node out of service before its cloud takes the VM away: Spot instances that are
// interrupted, scheduled maintenance, and, if the operator wants that, recommendations to replace the instance. When an
// interruption is over and the VM is still there, the node returns into service.
package termination

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"kubernetes-release/cloud"
	"kubernetes-release/internal/poll"
	"kubernetes-release/internal/rootfile"
)

const (
	// DefaultInterval is that between two looks at instance metadata. Notices of Spot interruptions come two minutes
	// before; AWS recommends to look every 5 seconds.
	DefaultInterval = 5 * time.Second
	// reserve is how long before the end of the VM all pods should be gone: pods whose budgets did not permit their
	// eviction are then deleted, and have this time to end.
	reserve = 30 * time.Second
	// shortest is the shortest drain, however late the notice is.
	shortest = 5 * time.Second
	// riskTimeout is that of a drain for an interruption that may come, if no maintenance lead says how long to wait:
	// nothing says when the VM goes away.
	riskTimeout = 10 * time.Minute
	// retryPause is that between a drain that failed and the next one.
	retryPause = 15 * time.Second
)

// errTermination ends a drain for another interruption.
var errTermination = errors.New("a termination is announced")

// Node is the node of this VM.
type Node interface {
	// Drain takes the node out of service and evicts its pods within the timeout. An error means that the node may
	// still be in service.
	Drain(ctx context.Context, i cloud.Interruption, timeout time.Duration) error
	// Retired reports whether the node is still out of service after Drain.
	Retired(ctx context.Context) (bool, error)
	// Restore takes the node back into service after Drain.
	Restore(ctx context.Context) error
	// Report makes an interruption visible on the Node, for people and other programs.
	Report(ctx context.Context, i cloud.Interruption) error
}

// Options of a Handler.
type Options struct {
	// Announced returns the interruptions of this VM, the most urgent first. With an error, some may be missing.
	Announced func(context.Context) ([]cloud.Interruption, error)
	Node      Node
	// Marker is the file that says for which interruption the node was drained, so that another process of the handler
	// takes it back into service.
	Marker string
	// Lead is how long before maintenance the node is drained.
	Lead time.Duration
	// DrainAtRisk is whether the node is drained for an interruption that may come.
	DrainAtRisk bool
	// Interval is the time between two looks; 0: DefaultInterval.
	Interval time.Duration
	Clock    clock.PassiveClock
	Log      *slog.Logger
}

// Handler follows the interruptions of one VM.
type Handler struct {
	Options
	logged, shown map[string]bool // interruptions by id
	drained       string          // the interruption for which this process has drained the node
	failed        failedDrain     // the last one
	failure       string          // the last one, logged already
}

// failedDrain is tried again after a pause. It delays no drain for another interruption.
type failedDrain struct {
	id    string // of the interruption
	err   error
	retry time.Time
}

// New returns a handler.
func New(options Options) *Handler {
	if options.Interval == 0 {
		options.Interval = DefaultInterval
	}
	return &Handler{Options: options, logged: map[string]bool{}, shown: map[string]bool{}}
}

// Run handles interruptions until ctx ends.
func (h *Handler) Run(ctx context.Context) {
	h.Log.Info("watching for interruptions", "every", h.Interval, "maintenance_lead", h.Lead)
	for ctx.Err() == nil {
		if err := h.handle(ctx); ctx.Err() == nil {
			h.logFailure(err)
		}
		_ = poll.Sleep(ctx, h.Interval) // the end of ctx ends the loop
	}
}

// logFailure logs an error once, and that it is gone.
func (h *Handler) logFailure(err error) {
	failure := ""
	if err != nil {
		failure = err.Error()
	}
	switch failure {
	case h.failure:
	case "":
		h.Log.Info("interruptions are handled again")
	default:
		h.Log.Error("interruptions are not handled; trying again", "error", err)
	}
	h.failure = failure
}

// handle looks once. What fails is repeated by the next look.
func (h *Handler) handle(ctx context.Context) error {
	announced, unknown := h.Announced(ctx)
	var hidden error
	for _, i := range announced {
		hidden = errors.Join(hidden, h.report(ctx, i))
	}
	due := slices.IndexFunc(announced, h.due)
	var err error
	switch {
	case due >= 0:
		err = h.drain(ctx, announced[due])
	case unknown == nil: // otherwise, what the node was drained for may still be announced
		err = h.restore(ctx)
	}
	return errors.Join(unknown, hidden, err)
}

// report logs an interruption and shows it on the Node, each once.
func (h *Handler) report(ctx context.Context, i cloud.Interruption) error {
	if !h.logged[i.ID] {
		h.logged[i.ID] = true
		h.Log.Warn("interruption announced", "kind", i.Kind, "id", i.ID, "at", i.At, "what", i.Text)
	}
	if h.shown[i.ID] {
		return nil
	}
	if err := h.Node.Report(ctx, i); err != nil {
		return fmt.Errorf("show the interruption %s on the Node: %w", i.ID, err)
	}
	h.shown[i.ID] = true
	return nil
}

// due reports whether the node must be out of service for an interruption.
func (h *Handler) due(i cloud.Interruption) bool {
	switch i.Kind {
	case cloud.Termination:
		return true
	case cloud.Maintenance:
		return h.Lead > 0 && !h.Clock.Now().Before(i.At.Add(-h.Lead))
	case cloud.Risk:
		return h.DrainAtRisk
	default:
		return false
	}
}

// drain drains the node for an interruption, again if post-start of kubelet has taken it back into service in a deploy.
func (h *Handler) drain(ctx context.Context, i cloud.Interruption) error {
	if h.drained == i.ID {
		retired, err := h.Node.Retired(ctx)
		if err != nil {
			return fmt.Errorf("find out whether the node is out of service: %w", err)
		}
		if retired {
			return nil
		}
		h.Log.Info("the node is in service again before the interruption", "interruption", i.ID)
	}
	if h.failed.id == i.ID && h.Clock.Now().Before(h.failed.retry) {
		return h.failed.err
	}
	timeout := h.timeout(i)
	h.Log.Info("draining the node", "interruption", i.ID, "timeout", timeout.Round(time.Second))
	if err := rootfile.Write(h.Marker, []byte(i.ID+"\n"), 0o600); err != nil { // pods matter more
		h.Log.Error("the node will not return into service by itself", "interruption", i.ID, "error", err)
	}
	err := h.drainUntilTermination(ctx, i, timeout)
	if errors.Is(err, errTermination) {
		h.Log.Info("the drain has ended early", "interruption", i.ID, "reason", err)
		return nil
	}
	if err != nil {
		err = fmt.Errorf("drain the node for %s: %w", i.ID, err)
		h.failed = failedDrain{id: i.ID, err: err, retry: h.Clock.Now().Add(retryPause)}
		return err
	}
	h.drained = i.ID
	return nil
}

// drainUntilTermination drains the node. If a termination is announced meanwhile, it stops the drain and returns
// errTermination: the drain could last longer than the VM, and honors budgets as if there was time.
func (h *Handler) drainUntilTermination(ctx context.Context, i cloud.Interruption, timeout time.Duration) error {
	if i.Kind == cloud.Termination {
		return h.Node.Drain(ctx, i, timeout)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- h.Node.Drain(ctx, i, timeout) }()
	for {
		select {
		case err := <-ended:
			return err
		case <-time.After(h.Interval):
		}
		if h.terminates(ctx) {
			stop()
			if err := <-ended; err == nil { // the node was drained already
				return nil
			}
			return errTermination
		}
	}
}

// terminates reports whether a termination is announced. That this is not known ends no drain.
func (h *Handler) terminates(ctx context.Context) bool {
	announced, _ := h.Announced(ctx)
	return slices.ContainsFunc(announced, func(i cloud.Interruption) bool { return i.Kind == cloud.Termination })
}

// timeout is how long evictions can take.
func (h *Handler) timeout(i cloud.Interruption) time.Duration {
	timeout := h.Lead
	if i.Kind == cloud.Risk && timeout <= 0 {
		timeout = riskTimeout
	}
	if left := i.At.Sub(h.Clock.Now()); i.Kind == cloud.Termination || !i.At.IsZero() && left < timeout {
		timeout = left
	}
	return max(timeout-reserve, shortest)
}

// restore takes the node back into service, if this or an earlier process of the handler has drained it.
func (h *Handler) restore(ctx context.Context) error {
	id, err := rootfile.Read(h.Marker)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find out whether the node is drained: %w", err)
	}
	if err := h.Node.Restore(ctx); err != nil {
		return fmt.Errorf("take the node back into service: %w", err)
	}
	h.drained = ""
	h.Log.Info("the interruption is over; the node is in service", "interruption", strings.TrimSpace(string(id)))
	return os.Remove(h.Marker)
}
