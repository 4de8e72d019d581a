// Package launcher starts the processes of this release. A job renders what its process is, as data, to
// config/flags.json; the launcher turns it into a command line, in the same way for all jobs:
//
//	check  checks everything before anything is stopped or started (pre-start): the configuration, the certificates,
//	       and, by running the program itself, the name and the value of each flag
//	exec   waits for what the process needs, then becomes the process, with the same PID (bpm, and start)
//	as     becomes another command of the job, as the user of the process
//	start  prepares the VM, runs exec as a daemon and returns when the process is ready (monit)
//	stop   stops that process, and only that one: its children keep running, as containers must when containerd
//	       restarts
//
// The operator's own flags are in extra_args.json next to the configuration. They can add flags, but not replace those
// that the job sets.
package launcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"al.essio.dev/pkg/shellescape"

	"kubernetes-release/internal/logging"
)

// Launcher holds what the commands depend on.
type Launcher struct {
	// Now is the clock by which certificates are checked.
	Now func() time.Time
	// Stderr receives the log, as structured lines.
	Stderr io.Writer

	// root is the directory in which /proc/sys, /sys, /run and /etc are; "" is the machine itself.
	root string
	// self is the path of the launcher's own program, which start runs again; defaults to the running program.
	self string
	// poll is the interval between two checks of something that is waited for; progress how often a wait logs that it
	// goes on.
	poll, progress time.Duration
	// settle is how long start watches a process that has no ready command, to notice one that exits immediately.
	settle time.Duration
}

// New returns a Launcher for this machine.
func New(stderr io.Writer) *Launcher {
	return &Launcher{
		Now:      time.Now,
		Stderr:   stderr,
		poll:     200 * time.Millisecond,
		progress: 10 * time.Second,
		settle:   100 * time.Millisecond,
	}
}

func logger(w io.Writer, process string) *slog.Logger {
	return logging.New(w).With("process", process)
}

// Exec waits for what the configuration requires, then becomes the process. It returns only with an error.
func (l *Launcher) Exec(ctx context.Context, path string) error {
	config, err := Load(path)
	if err != nil {
		return err
	}
	log := logger(l.Stderr, config.Process)
	if err := executable(config.Executable); err != nil {
		return fmt.Errorf("%s: %w", config.Process, err)
	}
	if err := config.checkUserDirs(mountsFile); err != nil {
		return fmt.Errorf("%s does not start: %w", config.Process, err)
	}
	if err := l.execAsUser(config, log); err != nil {
		return fmt.Errorf("%s does not start: %w", config.Process, err)
	}
	id, err := config.identity()
	if err != nil {
		return fmt.Errorf("%s does not start: %w", config.Process, err)
	}
	for _, w := range config.WaitFor {
		if err := l.wait(ctx, w, log); err != nil {
			return fmt.Errorf("%s does not start: %w", config.Process, err)
		}
	}
	environment := config.environment(id, os.Environ())
	if err := l.setUp(ctx, config.Setup, environment); err != nil {
		return fmt.Errorf("%s does not start: %w", config.Process, err)
	}
	flags, err := config.flags(id)
	if err != nil {
		return fmt.Errorf("%s does not start: %w", config.Process, err)
	}
	line := config.commandLine(flags)
	signal.Reset(
		syscall.SIGTERM, syscall.SIGINT,
	) // from here on a signal stops the process immediately, and none is lost
	if ctx.Err() != nil {
		return fmt.Errorf("%s does not start: interrupted", config.Process)
	}
	log.Info("starting", "command", shellescape.QuoteCommand(line))
	applyLimits(config.limits, log)
	if os.Geteuid() == 0 { // otherwise it is confined since it began, see execAsUser
		if err := config.confine(log); err != nil {
			return fmt.Errorf("%s does not start: %w", config.Process, err)
		}
	}
	err = syscall.Exec(config.Executable, line, environment)
	if errors.Is(err, syscall.E2BIG) {
		return fmt.Errorf(
			"%s: the command line with its environment is too long for the kernel (%d arguments): %w",
			config.Executable, len(line), err,
		)
	}
	return fmt.Errorf("%s cannot be run: %w", config.Executable, err)
}

// execAsUser runs the launcher again as the configured user if another user than root has started it, as bpm does: what
// it waits for and sets up, it does as that user. As that user it returns nil, if it has nothing that the user must not
// have.
func (l *Launcher) execAsUser(config *Config, log *slog.Logger) error {
	switch {
	case config.UserID == 0 || os.Geteuid() == 0:
		return nil
	case os.Geteuid() == config.UserID:
		return config.checkConfined()
	}
	self, err := l.program()
	if err != nil {
		return err
	}
	return config.becomeOwnUser(self, []string{self, "exec", config.path}, os.Environ(), log)
}

// As runs a command as the user of a configuration, with the process's capabilities: another process or an errand of
// the same job. It returns only with an error.
func (l *Launcher) As(path string, line []string) error {
	config, err := Load(path)
	if err != nil {
		return err
	}
	if config.UserID == 0 {
		return inFile(config.path, errors.New("the process has no user of its own: user_id is not set"))
	}
	if err := executable(line[0]); err != nil {
		return err
	}
	if err := config.checkUserDirs(mountsFile); err != nil {
		return fmt.Errorf("%s does not start: %w", line[0], err)
	}
	log := logger(l.Stderr, filepath.Base(line[0]))
	if os.Geteuid() != 0 {
		return config.becomeOwnUser(line[0], line, os.Environ(), log)
	}
	if err := config.confine(log); err != nil {
		return err
	}
	return fmt.Errorf("%s cannot be run: %w", line[0], syscall.Exec(line[0], line, os.Environ()))
}

// program is the path of the launcher's own program.
func (l *Launcher) program() (string, error) {
	if l.self != "" {
		return l.self, nil
	}
	return os.Executable()
}

// setUp runs the command of Config.Setup; its output is part of the process's log.
func (l *Launcher) setUp(ctx context.Context, line, environment []string) error {
	if len(line) == 0 {
		return nil
	}
	command := exec.CommandContext(ctx, line[0], line[1:]...)
	command.Env = environment
	command.Stdout, command.Stderr = l.Stderr, l.Stderr
	killGroup(command)
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s: %w", shellescape.QuoteCommand(line), err)
	}
	return nil
}

// executable returns why a file cannot be run, or nil.
func executable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("executable: %w; does the job's spec list its package?", err)
	}
	if info.IsDir() || info.Mode()&0o111 == 0 {
		return fmt.Errorf("executable: %s is not a program (mode %s)", path, info.Mode())
	}
	return nil
}
