package launcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"syscall"
	"time"

	"kubernetes-release/internal/poll"
	"kubernetes-release/internal/rootfile"
	"kubernetes-release/internal/stopwatch"
)

// Stop stops the process that Start started, and only that one. It is no error if none runs; a stale pidfile is
// removed.
func (l *Launcher) Stop(ctx context.Context, path string) error {
	config, err := Load(path)
	if err != nil {
		return err
	}
	if config.Pidfile == "" {
		return inFile(config.path, errors.New("stop requires pidfile: set it"))
	}
	if err := config.protectPidfile(); err != nil {
		return fmt.Errorf("%s did not stop: %w", config.Process, err)
	}
	log, closeLog := config.stopLog(l.Stderr)
	defer closeLog()
	if err := l.stopRunning(ctx, config, log); err != nil {
		log.Error("did not stop", "error", err)
		return fmt.Errorf("%s did not stop: %w; see %s", config.Process, err, config.logFile("stderr"))
	}
	return nil
}

// stopLog returns a logger that also writes to the process's log, if possible.
func (c *Config) stopLog(stderr io.Writer) (*slog.Logger, func()) {
	if c.LogDir != "" && rootfile.Protect(c.LogDir) == nil {
		if file, err := openLog(c.logFile("stderr")); err == nil {
			return logger(io.MultiWriter(stderr, file), c.Process), func() { _ = file.Close() }
		}
	}
	return logger(stderr, c.Process), func() {}
}

func (l *Launcher) stopRunning(ctx context.Context, config *Config, log *slog.Logger) error {
	named, err := config.readPidfile()
	if err != nil {
		return err
	}
	pid, err := config.running()
	if err != nil {
		return err
	}
	if pid == 0 {
		log.Info("not running", "pidfile", config.Pidfile)
		return config.locked(ctx, func() error { return config.removePidfile(named) })
	}
	process, err := os.FindProcess(pid) // refers to this very process, even if the PID is used again
	if err != nil {
		return err
	}
	defer func() { _ = process.Release() }()
	if again, err := config.running(); err != nil || again != pid {
		return errors.Join(err, config.locked(ctx, func() error { return config.removePidfile(pid) }))
	}
	took := stopwatch.Start()
	log.Info("stopping", "pid", pid)
	if self, err := birthOf(pid); err == nil { // else it has exited since
		exited := func() bool {
			now, err := birthOf(pid)
			return err != nil || now != self
		}
		if err := l.terminate(ctx, process, config.StopTimeout.Std(), exited, log); err != nil {
			return err
		}
	}
	log.Info("stopped", "pid", pid, "took", took().Round(time.Millisecond))
	return config.locked(ctx, func() error { return config.removePidfile(pid) })
}

// killTimeout is how long a killed process may take to exit; only the kernel works on that.
const killTimeout = 10 * time.Second

// terminate stops one process, but not its children: SIGTERM, and SIGKILL if it has not exited after the timeout.
func (l *Launcher) terminate(
	ctx context.Context, process *os.Process, timeout time.Duration, exited func() bool, log *slog.Logger,
) error {
	if err := process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("SIGTERM to process %d: %w", process.Pid, err)
	}
	if l.awaitExit(ctx, timeout, exited, log) {
		return nil
	}
	log.Info("did not exit after SIGTERM, sending SIGKILL", "pid", process.Pid, "timeout", timeout)
	if err := process.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("SIGKILL to process %d: %w", process.Pid, err)
	}
	if l.awaitExit(context.WithoutCancel(ctx), killTimeout, exited, log) {
		return nil
	}
	return fmt.Errorf(
		"process %d has not exited %s after SIGKILL: it hangs in the kernel, most likely on a disk or network file "+
			"system; see /proc/%d/stack and dmesg",
		process.Pid, killTimeout, process.Pid,
	)
}

func (l *Launcher) awaitExit(ctx context.Context, timeout time.Duration, exited func() bool, log *slog.Logger) bool {
	check := poll.Reported(l.progress, l.progress, func(elapsed time.Duration, _ error) {
		log.Info("waiting for the process to exit", "elapsed", elapsed.Round(time.Second), "timeout", timeout)
	}, func(context.Context) error {
		if !exited() {
			return errors.New("the process still runs")
		}
		return nil
	})
	return poll.Within(ctx, timeout, min(l.poll, 100*time.Millisecond), check) == nil || exited()
}
