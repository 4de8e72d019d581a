// Package shutdown lets the processes of a control VM leave the cluster before the VM stops them, so that the other
// control VMs take over at once: BOSH runs drain scripts before monit stops anything, and with a time limit of their
// own.
//
// Nothing here may fail a deploy. What cannot be handed over is taken over by the others anyway, only later.
package shutdown

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/utils/clock"

	"kubernetes-release/internal/poll"
	"kubernetes-release/internal/process"
)

const exitInterval = 100 * time.Millisecond

// Options are those of Stop.
type Options struct {
	// BPM is the path of bpm, Job the job whose process to stop.
	BPM, Job string
	// Timeout is how long the process may take to exit.
	Timeout time.Duration
	// AgainAfter is when to send a second SIGTERM, at which Kubernetes' servers exit at once; never if it is 0.
	AgainAfter time.Duration
	// Progress is the time between two lines that say what is waited for.
	Progress time.Duration
	Clock    clock.PassiveClock
}

// Stop sends SIGTERM to a process that bpm runs, and waits until it has exited. It is no error if none runs. The
// process has more time than bpm gives it (DefaultStopTimeout in bpm-release's src/bpm/commands/stop.go).
//
// The PID comes from bpm, which asks runc, and not from a pidfile: /var/vcap/sys/run/bpm belongs to the group vcap.
func Stop(ctx context.Context, options Options, log *slog.Logger) error {
	bpm, job := options.BPM, options.Job
	output, err := exec.CommandContext(ctx, bpm, "pid", job).Output()
	if err != nil {
		log.Info("the process does not run", "job", job, "reason", reason(err))
		return nil
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(output)))
	if err != nil || pid <= 1 {
		return fmt.Errorf("%s pid %s printed %q, which is no process id", bpm, job, output)
	}
	stat, err := process.Living(pid)
	if err != nil {
		log.Info("the process does not run", "job", job, "pid", pid)
		return nil //nolint:nilerr // it has ended
	}
	started, signals := options.Clock.Now(), 0
	log.Info("stopping", "job", job, "pid", pid, "timeout", options.Timeout)
	report := func(elapsed time.Duration, _ error) {
		log.Info("waiting for the process to exit", "job", job, "elapsed", elapsed.Round(time.Second))
	}
	exited := poll.Reported(options.Progress, options.Progress, report, func(context.Context) error {
		if !process.Runs(pid, stat.Started) {
			return nil
		}
		again := options.AgainAfter > 0 && options.Clock.Since(started) >= options.AgainAfter
		if signals == 0 || signals == 1 && again {
			signals++
			if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
				return poll.Permanent(err)
			}
		}
		return errors.New("it still runs")
	})
	err = poll.Within(ctx, options.Timeout, exitInterval, exited)
	if err != nil {
		return fmt.Errorf("%s (process %d) did not exit after SIGTERM: %w", job, pid, err)
	}
	log.Info("stopped", "job", job, "pid", pid, "took", options.Clock.Since(started).Round(time.Millisecond))
	return nil
}

// reason is what a program wrote before it failed.
func reason(err error) string {
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return strings.TrimSpace(string(exit.Stderr))
	}
	return err.Error()
}
