// Package readywait holds a deploy back until a job serves. BOSH updates the next VM when post-start exits, so
// post-start must not succeed too early: one update after the other would take away etcd's quorum or all API servers.
//
// There is one exception. While most of etcd's members do not run, as when the first VM of a new cluster starts, no
// quorum is possible and the job cannot become ready. Then post-start must succeed, so that the deploy creates the
// other VMs.
package readywait

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"kubernetes-release/internal/poll"
	"kubernetes-release/internal/stopwatch"
)

const (
	// interval is the pause between two rounds. All workers of a deployment may do this at the same time, and the check
	// of one that stores volumes asks the API.
	interval = 500 * time.Millisecond
	// progressInterval is the minimum time between two progress lines.
	progressInterval = 15 * time.Second
	// killDelay is how long a check that was killed may keep its output open through a child process.
	killDelay = time.Second
)

// Options configure Wait.
type Options struct {
	// Check is the path of a program that exits with status 0 when the job serves. Its output is the reason otherwise.
	Check string
	// Members are the addresses, HOST:PORT, at which etcd's members listen for each other. If empty, Wait always waits.
	Members []string
	// Timeout limits the wait. If it is 0, Wait does not wait.
	Timeout time.Duration
}

// Wait repeats the check until it succeeds, and writes progress to output. It returns nil as well when no
// quorum of etcd is possible, and an error with the last problem when the timeout has passed.
func Wait(ctx context.Context, options Options, output io.Writer) error {
	took := stopwatch.Start()
	say := func(format string, arguments ...any) { _, _ = fmt.Fprintf(output, format+"\n", arguments...) }
	report := func(elapsed time.Duration, problem error) {
		say("Waiting for %s of at most %s: %v", elapsed.Round(time.Second), options.Timeout, problem)
	}
	if options.Timeout <= 0 {
		say("Not waiting: the timeout is %s.", options.Timeout)
		return nil
	}
	check := poll.Reported(0, progressInterval, report, options.check)
	err := poll.Within(ctx, options.Timeout, interval, UnlessNoQuorum(options.Members, check))
	var none *NoQuorumError
	switch {
	case errors.As(err, &none):
		say("Not waiting: %v", none)
		return nil
	case err != nil:
		return fmt.Errorf("not ready: %w", err)
	}
	say("Ready after %s.", took().Round(time.Second))
	return nil
}

// check runs the program once.
func (o Options) check(ctx context.Context) error {
	command := exec.CommandContext(ctx, o.Check)
	command.WaitDelay = killDelay
	output, err := command.CombinedOutput()
	if text := strings.TrimSpace(string(output)); err != nil && text != "" {
		return fmt.Errorf("%s (%w)", text, err)
	}
	return err
}
