package launcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"al.essio.dev/pkg/shellescape"
	"golang.org/x/sys/unix"

	"kubernetes-release/internal/poll"
	"kubernetes-release/internal/rootfile"
	"kubernetes-release/internal/stopwatch"
	"kubernetes-release/internal/tail"
)

const (
	// tailLines and tailBytes limit how much of a log is repeated in an error.
	tailLines = 15
	tailBytes = 8 << 10
)

// Start prepares the VM and runs the process as a daemon: in its own session, without terminal and input, its output
// appended to its log files. It returns when the process is ready, or, without a ready command, has run for a moment. A
// process that does not get ready is stopped again, and the error repeats what it logged last. If the process already
// runs, Start leaves it alone.
func (l *Launcher) Start(ctx context.Context, path string) error {
	config, err := Load(path)
	if err != nil {
		return err
	}
	if config.Pidfile == "" || config.LogDir == "" {
		return inFile(config.path, errors.New("start requires pidfile and log_dir: set both"))
	}
	// The log first, in which every other problem is found.
	if err := rootfile.Protect(config.LogDir); err != nil {
		return fmt.Errorf("%s: %w", config.Process, err)
	}
	d := &daemon{launcher: l, config: config}
	if err := d.openLogs(); err != nil {
		return fmt.Errorf("%s: %w", config.Process, err)
	}
	defer d.closeLogs()
	d.log = logger(io.MultiWriter(l.Stderr, d.stderr), config.Process) // monit discards what start prints
	if err := l.prepare(ctx, config, d.log); err != nil {
		return d.fail(err, "")
	}
	pid := 0
	err = config.locked(ctx, func() error {
		var err error
		if pid, err = config.running(); err == nil && pid == 0 {
			err = d.spawn()
		}
		return err
	})
	switch {
	case err != nil:
		return d.fail(err, "")
	case pid != 0:
		d.log.Info("already running", "pid", pid)
		return nil
	}
	if err := d.awaitReady(ctx); err != nil {
		logEnd := d.tail() // before it is stopped: what it logs about that helps nobody
		return d.fail(errors.Join(err, d.abandon(ctx)), logEnd)
	}
	return nil
}

// daemon is a process that is being started.
type daemon struct {
	launcher       *Launcher
	config         *Config
	log            *slog.Logger
	stdout, stderr *os.File
	// logStart is the size of the log of standard error before the process started.
	logStart int64
	command  *exec.Cmd
	// exited is closed when the process has exited; status is how.
	exited chan struct{}
	status error
}

func (c *Config) logFile(stream string) string {
	return filepath.Join(c.LogDir, c.Process+"."+stream+".log")
}

// openLogs opens the files for appending, so that logrotate can copy and truncate them while the process runs.
func (d *daemon) openLogs() error {
	var err error
	if d.stdout, err = openLog(d.config.logFile("stdout")); err != nil {
		return err
	}
	if d.stderr, err = openLog(d.config.logFile("stderr")); err != nil {
		_ = d.stdout.Close()
		return err
	}
	return nil
}

func openLog(path string) (*os.File, error) { return rootfile.Append(path, 0o640) }

func (d *daemon) closeLogs() {
	_ = d.stdout.Close()
	_ = d.stderr.Close()
}

// spawn runs the launcher again as the daemon, which becomes the process by exec.
func (d *daemon) spawn() error {
	self, err := d.launcher.program()
	if err != nil {
		return err
	}
	line, err := d.launcher.scoped(d.config.Process, []string{self, "exec", d.config.path})
	if err != nil {
		return err
	}
	if info, err := d.stderr.Stat(); err == nil {
		d.logStart = info.Size()
	}
	// The daemon must not inherit what monit left open, such as its sockets. On a kernel without this call the
	// descriptors stay open.
	_ = unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
	syscall.Umask(0o022)
	d.command = exec.Command(line[0], line[1:]...)
	d.command.Dir = "/"
	d.command.Stdin = nil // /dev/null
	d.command.Stdout, d.command.Stderr = d.stdout, d.stderr
	d.command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := d.command.Start(); err != nil {
		return err
	}
	d.exited = make(chan struct{})
	err = d.config.writePidfile(d.command.Process.Pid) // before it can be reaped
	go func() {
		d.status = d.command.Wait()
		close(d.exited)
	}()
	if err != nil {
		return errors.Join(err, d.stop(context.Background()))
	}
	d.log.Info("started", "pid", d.command.Process.Pid, "log", d.config.logFile("stderr"))
	return nil
}

// awaitReady returns nil when the process is ready, or why it is not.
func (d *daemon) awaitReady(ctx context.Context) error {
	if d.config.Ready == nil {
		return d.settle(ctx)
	}
	if err := d.awaitExec(ctx); err != nil {
		return err
	}
	timeout := d.config.Ready.Timeout.Std()
	took := stopwatch.Start()
	err := poll.Within(
		ctx, timeout, d.launcher.poll,
		d.unlessExited(poll.Reported(d.launcher.progress, d.launcher.progress, func(elapsed time.Duration, err error) {
			d.log.Info("not ready yet", "elapsed", elapsed.Round(time.Second), "timeout", timeout, "last_error", err)
		}, d.tryReady)),
	)
	var unready *poll.Error
	if errors.As(err, &unready) {
		return fmt.Errorf("not ready: the command %s %w", shellescape.QuoteCommand(d.config.Ready.Command), err)
	}
	if err != nil {
		return err
	}
	if d.hasExited() { // then another process made the ready command succeed
		return d.exitError()
	}
	d.log.Info("ready", "pid", d.command.Process.Pid, "took", took().Round(time.Millisecond))
	return nil
}

// settle watches a process without a ready command for a moment. It does not wait for what the process itself waits
// for, which can take minutes, or depend on processes that monit starts later on the same VM.
func (d *daemon) settle(ctx context.Context) error {
	if len(d.config.WaitFor) == 0 && len(d.config.Setup) == 0 {
		if err := d.awaitExec(ctx); err != nil {
			return err
		}
	}
	select {
	case <-d.exited:
		return d.exitError()
	case <-ctx.Done():
		return errors.New("interrupted")
	case <-time.After(d.launcher.settle):
		return nil
	}
}

// awaitExec waits while the process is still the launcher, which has its own timeouts for what it waits for. The time
// to get ready counts from when the program itself runs.
func (d *daemon) awaitExec(ctx context.Context) error {
	return poll.Until(
		ctx, d.launcher.poll,
		d.unlessExited(poll.Reported(d.launcher.progress, d.launcher.progress, func(elapsed time.Duration, _ error) {
			d.log.Info("waiting for what the process needs", "elapsed", elapsed.Round(time.Second))
		}, func(context.Context) error {
			if !d.config.runs(d.command.Process.Pid) {
				return errors.New("the process still waits for what it needs")
			}
			return nil
		})),
	)
}

// unlessExited makes a check fail for good if the process has exited.
func (d *daemon) unlessExited(check func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if d.hasExited() {
			return poll.Permanent(d.exitError())
		}
		return check(ctx)
	}
}

func (d *daemon) hasExited() bool {
	select {
	case <-d.exited:
		return true
	default:
		return false
	}
}

func (d *daemon) exitError() error {
	if d.status == nil {
		return errors.New("it exited, with exit status 0")
	}
	return fmt.Errorf("it exited: %w", d.status)
}

// tryReady runs the ready command once.
func (d *daemon) tryReady(ctx context.Context) error {
	command := exec.CommandContext(ctx, d.config.Ready.Command[0], d.config.Ready.Command[1:]...)
	output := &cappedBuffer{limit: tailBytes}
	command.Stdout, command.Stderr = output, output
	command.Dir = "/"
	id, err := d.config.identity()
	if err != nil {
		return err
	}
	command.Env = d.config.environment(id, os.Environ())
	killGroup(command)
	if err := command.Run(); err != nil {
		if text := strings.TrimSpace(output.String()); text != "" {
			return fmt.Errorf("%w: %s", err, lastLine(text))
		}
		return err
	}
	return nil
}

// abandon stops the process that did not get ready and removes its pidfile.
func (d *daemon) abandon(ctx context.Context) error {
	err := d.stop(ctx)
	return errors.Join(err, d.config.locked(context.WithoutCancel(ctx), func() error {
		return d.config.removePidfile(d.command.Process.Pid)
	}))
}

// stop stops the process that spawn started. An interrupt does not shorten its time, or the process could be left
// running.
func (d *daemon) stop(ctx context.Context) error {
	return d.launcher.terminate(
		context.WithoutCancel(ctx), d.command.Process, d.config.StopTimeout.Std(), d.hasExited, d.log,
	)
}

// fail logs an error, and adds to it the log's path and the last lines of the log.
func (d *daemon) fail(err error, logEnd string) error {
	reason := strings.Join(problemsOf(err), "; ")
	d.log.Error("did not start", "error", reason)
	if logEnd == "" {
		return fmt.Errorf("%s did not start: %s; see %s", d.config.Process, reason, d.config.logFile("stderr"))
	}
	return fmt.Errorf(
		"%s did not start: %s; the last lines of %s:\n%s", d.config.Process, reason, d.config.logFile("stderr"), logEnd,
	)
}

// tail returns the last lines that the process has logged to standard error since this start, or "" if they cannot be
// read.
func (d *daemon) tail() string {
	end, err := tail.File(d.config.logFile("stderr"), d.logStart, tailBytes, tailLines)
	if err != nil {
		return ""
	}
	return tail.Indent(end, "  ")
}
