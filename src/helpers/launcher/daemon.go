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

	"golang.org/x/sys/unix"
)

const (
	// tailLines and tailBytes bound what of a log is repeated in an error.
	tailLines = 15
	tailBytes = 8 << 10
)

// Start runs the process as a daemon: a session of its own, no terminal, no input, output appended to its log files. It
// returns when the process is ready (or, without a ready command, has lived for a moment). A process that does not get
// ready is stopped again, and the error repeats what it logged last. Where the process runs already, nothing happens.
func (l *Launcher) Start(ctx context.Context, path string) error {
	config, err := Load(path)
	if err != nil {
		return err
	}
	if config.Pidfile == "" || config.LogDir == "" {
		return inFile(config.path, errors.New("pidfile and log_dir are needed to start a daemon: set both"))
	}
	if err := os.MkdirAll(config.LogDir, 0o755); err != nil {
		return fmt.Errorf("%s: %w", config.Process, err)
	}
	d := &daemon{launcher: l, config: config}
	if err := d.openLogs(); err != nil {
		return fmt.Errorf("%s: %w", config.Process, err)
	}
	defer d.closeLogs()
	d.log = logger(io.MultiWriter(l.Stderr, d.stderr), config.Process) // monit throws away what start prints
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
		d.log.Info("runs already", "pid", pid)
		return nil
	}
	if err := d.awaitReady(ctx); err != nil {
		tail := d.tail() // before it is stopped: what it says of that helps nobody
		return d.fail(errors.Join(err, d.abandon(ctx)), tail)
	}
	return nil
}

// daemon is one process on its way to be ready.
type daemon struct {
	launcher       *Launcher
	config         *Config
	log            *slog.Logger
	stdout, stderr *os.File
	// logStart is how long the log of standard error was before the process began to write.
	logStart int64
	command  *exec.Cmd
	// ended is closed when the process has ended, with how in status.
	ended  chan struct{}
	status error
}

func (c *Config) logFile(stream string) string {
	return filepath.Join(c.LogDir, c.Process+"."+stream+".log")
}

// openLogs opens for appending, so that logrotate may copy and truncate the files under the process.
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

func openLog(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o640)
}

func (d *daemon) closeLogs() {
	_ = d.stdout.Close()
	_ = d.stderr.Close()
}

// spawn starts the launcher again as the daemon, which by exec becomes the process.
func (d *daemon) spawn() error {
	if info, err := d.stderr.Stat(); err == nil {
		d.logStart = info.Size()
	}
	// What monit left open, its own sockets among them, is not the daemon's business. On a kernel without the call the
	// descriptors stay open, as they would without us.
	_ = unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
	syscall.Umask(0o022)
	d.command = exec.Command(d.launcher.Self, "exec", d.config.path)
	d.command.Dir = "/"
	d.command.Stdin = nil // /dev/null
	d.command.Stdout, d.command.Stderr = d.stdout, d.stderr
	d.command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := d.command.Start(); err != nil {
		return err
	}
	d.ended = make(chan struct{})
	go func() {
		d.status = d.command.Wait()
		close(d.ended)
	}()
	if err := d.config.writePidfile(d.command.Process.Pid); err != nil {
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
	timeout := d.config.Ready.Timeout.or(defaultReadyTimeout)
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	begun := time.Now()
	report := begun.Add(d.launcher.progress)
	var last error
	for {
		err := d.tryReady(limited)
		if err == nil {
			return d.confirm(begun)
		}
		if last == nil || limited.Err() == nil {
			last = err
		}
		if time.Now().After(report) {
			d.log.Info("not ready yet", "since", time.Since(begun).Round(time.Second), "at_most", timeout, "last_error", last)
			report = time.Now().Add(d.launcher.progress)
		}
		select {
		case <-d.ended:
			return d.earlyEnd()
		case <-limited.Done():
			if ctx.Err() != nil {
				return fmt.Errorf("interrupted before it was ready; the last try: %w", last)
			}
			return fmt.Errorf("not ready within %s; the last try, %s, ended so: %w", timeout, quote(d.config.Ready.Command), last)
		case <-time.After(d.launcher.poll):
		}
	}
}

// settle watches a process without a ready command for a moment. It does not wait for what the process itself waits for,
// which may take minutes, and come only after other processes of the same machine have been started.
func (d *daemon) settle(ctx context.Context) error {
	if len(d.config.WaitFor) == 0 {
		if err := d.awaitExec(ctx); err != nil {
			return err
		}
	}
	select {
	case <-d.ended:
		return d.earlyEnd()
	case <-ctx.Done():
		return errors.New("interrupted")
	case <-time.After(d.launcher.settle):
		return nil
	}
}

// confirm makes sure that it was our process that the ready command has seen.
func (d *daemon) confirm(begun time.Time) error {
	select {
	case <-d.ended:
		return d.earlyEnd()
	default:
		d.log.Info("ready", "pid", d.command.Process.Pid, "took", time.Since(begun).Round(time.Millisecond))
		return nil
	}
}

// awaitExec waits while the process is still the launcher, which has its own deadlines for what it waits for. The time
// to get ready counts from when the program itself runs.
func (d *daemon) awaitExec(ctx context.Context) error {
	begun := time.Now()
	report := begun.Add(d.launcher.progress)
	for !d.config.runs(d.command.Process.Pid) {
		select {
		case <-d.ended:
			return d.earlyEnd()
		case <-ctx.Done():
			return errors.New("interrupted")
		case <-time.After(min(d.launcher.poll, 50*time.Millisecond)):
		}
		if time.Now().After(report) {
			d.log.Info("waiting for what the process needs", "since", time.Since(begun).Round(time.Second))
			report = time.Now().Add(d.launcher.progress)
		}
	}
	return nil
}

func (d *daemon) earlyEnd() error {
	if d.status == nil {
		return errors.New("it ended at once, with exit status 0")
	}
	return fmt.Errorf("it ended: %w", d.status)
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

// abandon stops the process that did not get ready and forgets it.
func (d *daemon) abandon(ctx context.Context) error {
	err := d.stop(ctx)
	return errors.Join(err, d.config.locked(context.WithoutCancel(ctx), func() error {
		return d.config.removePidfile(d.command.Process.Pid)
	}))
}

// stop ends the process that spawn started; an interrupt does not shorten its time, or it could be left half stopped.
func (d *daemon) stop(ctx context.Context) error {
	return d.launcher.terminate(context.WithoutCancel(ctx), d.command.Process, d.config.StopTimeout.or(defaultStopTimeout), func() bool {
		select {
		case <-d.ended:
			return true
		default:
			return false
		}
	}, d.log.Info)
}

// fail adds to an error where to read more, and what stands there last, and leaves it in the log too.
func (d *daemon) fail(err error, tail string) error {
	reason := strings.Join(problemsOf(err), "; ")
	d.log.Error("did not start", "error", reason)
	if tail == "" {
		return fmt.Errorf("%s did not start: %s; see %s", d.config.Process, reason, d.config.logFile("stderr"))
	}
	return fmt.Errorf("%s did not start: %s; the last lines of %s:\n%s", d.config.Process, reason, d.config.logFile("stderr"), tail)
}

// tail returns what the log of standard error got last since this start, or nothing if it cannot be read.
func (d *daemon) tail() string {
	f, err := os.Open(d.config.logFile("stderr"))
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	from := d.logStart
	if from > info.Size() { // truncated meanwhile
		from = 0
	}
	from = max(from, info.Size()-tailBytes)
	content, err := io.ReadAll(io.NewSectionReader(f, from, info.Size()-from))
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	return "  " + strings.Join(lines[max(0, len(lines)-tailLines):], "\n  ")
}

// Stop ends the process that Start started, and only that one. It is no error if none runs; a pidfile left behind is removed.
func (l *Launcher) Stop(ctx context.Context, path string) error {
	config, err := Load(path)
	if err != nil {
		return err
	}
	if config.Pidfile == "" {
		return inFile(config.path, errors.New("pidfile is needed to stop a daemon: set it"))
	}
	log, closeLog := config.stopLog(l.Stderr)
	defer closeLog()
	if err := l.stopRunning(ctx, config, log); err != nil {
		log.Error("did not stop", "error", err)
		return fmt.Errorf("%s did not stop: %w; see %s", config.Process, err, config.logFile("stderr"))
	}
	return nil
}

// stopLog writes to the process's log too, where that is possible.
func (c *Config) stopLog(stderr io.Writer) (*slog.Logger, func()) {
	if c.LogDir != "" {
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
		log.Info("does not run", "pidfile", config.Pidfile)
		return config.locked(ctx, func() error { return config.removePidfile(named) })
	}
	process, err := os.FindProcess(pid) // holds on to this very process, whatever becomes of the pid
	if err != nil {
		return err
	}
	defer func() { _ = process.Release() }()
	if again, err := config.running(); err != nil || again != pid {
		return errors.Join(err, config.locked(ctx, func() error { return config.removePidfile(pid) }))
	}
	begun := time.Now()
	log.Info("stopping", "pid", pid)
	self, err := birthOf(pid)
	gone := func() bool {
		now, lookup := birthOf(pid)
		return lookup != nil || now != self
	}
	if err == nil {
		err = l.terminate(ctx, process, config.StopTimeout.or(defaultStopTimeout), gone, log.Info)
	} else {
		err = nil // it has ended since
	}
	if err != nil {
		return err
	}
	log.Info("stopped", "pid", pid, "took", time.Since(begun).Round(time.Millisecond))
	return config.locked(ctx, func() error { return config.removePidfile(pid) })
}
