// Package faults injects faults into a cluster in the lab: processes, VMs, networks, disks and clocks fail. It measures
// how long the cluster takes to recover by itself, and looks for objects that are lost.
package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"kubernetes-release/internal/poll"
	"kubernetes-release/testbed/apiprobe"
)

// Aims of the time to recover.
const (
	ProcessAim = 5 * time.Second
	LeaderAim  = 8 * time.Second
	// PodsAim is how long the pods of a lost VM may be missing, in addition to the eviction settings.
	PodsAim = 20 * time.Second
)

// recoverTimeout bounds the time until a cluster is healthy after a fault, however busy the machine is.
const recoverTimeout = 5 * time.Minute

// Fault is one row of the table.
type Fault struct {
	Name string
	// Aim is the maximum time to recover; 0 if there is none.
	Aim time.Duration
	// inject causes the fault, ends it if it does not end by itself, and returns what it has measured.
	inject func(context.Context, *Cluster) ([]Part, error)
}

// Part is the time that one part of a fault took to recover.
type Part struct {
	Name string
	Took time.Duration
}

// Result is what was measured.
type Result struct {
	Fault

	Parts []Part
	// Healthy is the time from the end of the fault until the whole cluster was healthy, with a sign of life of every
	// node and controller, which comes every few seconds only.
	Healthy time.Duration
	// Probe is what a client of the API that was not part of the fault has seen.
	Probe apiprobe.Report
}

// Took is the longest of the parts.
func (r Result) Took() time.Duration {
	var longest time.Duration
	for _, p := range r.Parts {
		longest = max(longest, p.Took)
	}
	return longest
}

// Met says whether the aim was met.
func (r Result) Met() bool { return r.Aim == 0 || r.Took() <= r.Aim }

// Print prints the result for people.
func (r Result) Print(out io.Writer) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: recovered after %s", r.Name, short(r.Took()))
	if r.Aim > 0 {
		fmt.Fprintf(&b, " (aim: %s, %s)", short(r.Aim), map[bool]string{true: "met", false: "MISSED"}[r.Met()])
	}
	fmt.Fprintf(&b, ", all healthy after %s\n", short(r.Healthy))
	for _, p := range r.Parts {
		fmt.Fprintf(&b, "  %-40s %8s\n", p.Name, short(p.Took))
	}
	fmt.Fprintf(
		&b, "  client: %d of %d reads and %d of %d writes failed, no success for %s; %d acknowledged writes lost\n",
		r.Probe.Reads.Failed, r.Probe.Reads.Sent, r.Probe.Writes.Failed, r.Probe.Writes.Sent,
		short(r.Probe.LongestGap()), len(r.Probe.Lost),
	)
	_, _ = io.WriteString(out, b.String())
}

func short(d time.Duration) string { return d.Round(100 * time.Millisecond).String() }

// Inject injects a fault into a healthy cluster while a client writes, and waits until the cluster is healthy again,
// without any repair. An error means that it did not recover, or that an acknowledged write is lost.
func (c *Cluster) Inject(ctx context.Context, f Fault) (Result, error) {
	if err := c.awaitHealthy(ctx, nil); err != nil {
		return Result{}, fmt.Errorf("before the fault: %w", err)
	}
	var parts []Part
	var healthy time.Duration
	probe, err := c.probe(ctx, func() (err error) {
		if parts, err = f.inject(ctx, c); err != nil {
			return err
		}
		started := time.Now()
		signs, err := c.signsOfLife(ctx)
		if err != nil {
			return err
		}
		err = c.awaitHealthy(ctx, signs)
		healthy = time.Since(started)
		return err
	})
	if err != nil {
		return Result{}, err
	}
	result := Result{Fault: f, Parts: parts, Healthy: healthy, Probe: probe}
	if n := len(probe.Lost); n > 0 {
		return result, fmt.Errorf("%d acknowledged writes are lost: %s", n, strings.Join(probe.Lost, ", "))
	}
	if probe.Writes.Sent == probe.Writes.Failed {
		return result, errors.New("no write was acknowledged, so none could be lost")
	}
	return result, nil
}

// probe uses the API while do runs.
func (c *Cluster) probe(ctx context.Context, do func() error) (apiprobe.Report, error) {
	probing, stop := context.WithCancel(ctx)
	defer stop()
	started := make(chan struct{})
	type outcome struct {
		report apiprobe.Report
		err    error
	}
	ended := make(chan outcome, 1)
	go func() {
		report, err := apiprobe.Run(probing, c.byName, func() { close(started) })
		ended <- outcome{report, err}
	}()
	select {
	case <-started:
	case o := <-ended:
		return o.report, o.err
	}
	err := do()
	stop()
	o := <-ended
	return o.report, errors.Join(err, o.err)
}

// until repeats a check every 100 ms until it succeeds, and returns the time since started.
func until(
	ctx context.Context, started time.Time, timeout time.Duration, check func(context.Context) error,
) (time.Duration, error) {
	err := poll.Within(ctx, timeout, 100*time.Millisecond, check)
	return time.Since(started), err
}
