// Package readywait holds a deploy back until a job serves. BOSH updates the next VM when post-start exits, so post-start
// must not succeed too early: one update after the other would take away etcd's quorum or all API servers.
//
// There is one exception. While most of etcd's members do not run, as when the first VM of a new cluster starts, no quorum
// is possible and the job cannot become ready. Then post-start must succeed, so that the deploy creates the other VMs.
package readywait

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"time"

	"kubernetes-release/internal/poll"
)

const (
	// interval is the pause between two rounds.
	interval = time.Second
	// progressInterval is the minimum time between two progress lines.
	progressInterval = 15 * time.Second
	// dialTimeout limits one connection to a member, with the lookup of its name.
	dialTimeout = 2 * time.Second
	// maxRoundsWithoutQuorum is how many consecutive rounds most members must be unreachable before Wait gives up.
	maxRoundsWithoutQuorum = 3
	// killDelay is how long a check that was killed may keep its output open through a child process.
	killDelay = time.Second
)

// Options configure Wait.
type Options struct {
	// Check is the path of a program that exits with status 0 when the job serves. Its output is the reason otherwise.
	Check string
	// Members are the addresses, HOST:PORT, at which etcd's members listen for each other. If empty, Wait always waits.
	Members []string
	// Timeout limits the wait; it must be positive.
	Timeout time.Duration
}

// errNoQuorum ends the wait: too few members run.
var errNoQuorum = errors.New("no quorum of etcd is possible")

// Wait runs the check every second until it succeeds, and writes progress to output. It returns nil as well when no quorum
// of etcd is possible, and an error with the last problem when the timeout has passed.
func Wait(ctx context.Context, options Options, output io.Writer) error {
	w := &waiter{Options: options, output: output, started: time.Now()}
	err := poll.Within(ctx, options.Timeout, interval, poll.Reported(0, progressInterval, w.report, w.round))
	switch {
	case errors.Is(err, errNoQuorum):
		w.print("Not waiting: %d of %d etcd members answer, too few for a quorum. Last problem: %v", w.answering, len(w.Members), w.problem)
		return nil
	case err != nil && len(w.Members) > 0:
		return fmt.Errorf("not ready; %d of %d etcd members answer: %w", w.answering, len(w.Members), err)
	case err != nil:
		return fmt.Errorf("not ready: %w", err)
	}
	w.print("Ready after %s.", time.Since(w.started).Round(time.Second))
	return nil
}

// waiter is the state of one Wait.
type waiter struct {
	Options
	output  io.Writer
	started time.Time
	// problem is why the last check failed, and answering how many members answered after it.
	problem   error
	answering int
	// roundsWithoutQuorum counts consecutive rounds.
	roundsWithoutQuorum int
}

func (w *waiter) round(ctx context.Context) error {
	problem := w.check(ctx)
	if problem == nil || ctx.Err() != nil {
		return problem
	}
	w.problem = problem
	if w.answering = w.countMembers(ctx); len(w.Members) == 0 || w.answering*2 > len(w.Members) {
		w.roundsWithoutQuorum = 0
	} else {
		w.roundsWithoutQuorum++
	}
	if w.roundsWithoutQuorum >= maxRoundsWithoutQuorum && ctx.Err() == nil {
		return poll.Permanent(errNoQuorum)
	}
	return problem
}

func (w *waiter) report(elapsed time.Duration, problem error) {
	w.print("Waiting for %s of at most %s: %v", elapsed.Round(time.Second), w.Timeout, problem)
}

// check runs the program once.
func (w *waiter) check(ctx context.Context) error {
	command := exec.CommandContext(ctx, w.Check)
	command.WaitDelay = killDelay
	output, err := command.CombinedOutput()
	if text := strings.TrimSpace(string(output)); err != nil && text != "" {
		return fmt.Errorf("%s (%w)", text, err)
	}
	return err
}

// countMembers returns how many members accept connections.
func (w *waiter) countMembers(ctx context.Context) int {
	dialer, count := &net.Dialer{Timeout: dialTimeout}, 0
	for _, address := range w.Members {
		if connection, err := dialer.DialContext(ctx, "tcp", address); err == nil {
			_ = connection.Close()
			count++
		}
	}
	return count
}

func (w *waiter) print(format string, arguments ...any) {
	_, _ = fmt.Fprintf(w.output, format+"\n", arguments...)
}
