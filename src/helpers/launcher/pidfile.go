package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"kubernetes-release/internal/filelock"
	"kubernetes-release/internal/process"
	"kubernetes-release/internal/rootfile"
)

// lockTimeout is how long start and stop wait for each other; both hold the lock for a moment only.
const lockTimeout = 10 * time.Second

// birth identifies a process among all that ever have the same PID: in one boot the kernel gives no two processes the
// same PID and start time.
type birth struct {
	PID int `json:"pid"`
	// StartTicks is the start time after boot, in the kernel's clock ticks.
	StartTicks uint64 `json:"start_ticks"`
	BootID     string `json:"boot_id"`
}

// birthOf identifies a running process. An error means that there is none, or that it has ended.
func birthOf(pid int) (birth, error) {
	stat, err := process.Living(pid)
	if err != nil {
		return birth{}, err
	}
	return newBirth(pid, stat)
}

func newBirth(pid int, stat process.Stat) (birth, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return birth{}, err
	}
	return birth{PID: pid, StartTicks: stat.Started, BootID: strings.TrimSpace(string(boot))}, nil
}

// runs tells whether a process has become the configured program: the child of start is the launcher until it has
// waited for everything. The first word of a script's command line is its interpreter.
func (c *Config) runs(pid int) bool {
	words := cmdline(pid)
	return slices.Contains(words[:min(len(words), 2)], c.Executable)
}

// launches tells whether a process is the launcher that will become the configured program, or systemd-run that will
// become the launcher.
func (c *Config) launches(pid int) bool {
	words := cmdline(pid)
	n := len(words)
	return (n == 3 || n > 3 && filepath.Base(words[0]) == "systemd-run") && words[n-2] == "exec" && words[n-1] == c.path
}

func cmdline(pid int) []string {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(content), "\x00"), "\x00")
}

// birthFile is next to the pidfile, in which monit allows nothing but the PID.
func (c *Config) birthFile() string { return c.Pidfile + ".json" }

// readPidfile returns the PID in the file; 0 without an error if there is no file, or no PID in it.
func (c *Config) readPidfile() (int, error) {
	content, err := os.ReadFile(c.Pidfile)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read pidfile: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil || pid <= 0 {
		return 0, nil //nolint:nilerr // a file without a PID, truncated by a full disk or a crash, names no process
	}
	return pid, nil
}

// running returns the PID of the process that the pidfile names, 0 if it has ended. A PID that now belongs to another
// process counts as ended.
func (c *Config) running() (int, error) {
	pid, err := c.readPidfile()
	if err != nil || pid == 0 {
		return 0, err
	}
	now, err := birthOf(pid)
	if err != nil {
		return 0, nil //nolint:nilerr // no such process, which is no error here
	}
	var then birth
	if content, err := os.ReadFile(c.birthFile()); err == nil && json.Unmarshal(content, &then) == nil &&
		then.PID == pid {
		if then == now {
			return pid, nil
		}
		return 0, nil
	}
	// Another program wrote the pidfile: go by the command line.
	if c.runs(pid) || c.launches(pid) {
		return pid, nil
	}
	return 0, nil
}

// Running reports whether the process of a configuration runs that Start has started.
func Running(path string) (bool, error) {
	config, err := Load(path)
	if err != nil {
		return false, err
	}
	pid, err := config.running()
	return pid != 0, err
}

// writePidfile stores the PID, and before it the birth that identifies the process. A process that has ended may not be
// reaped yet: who waits for it says how it ended.
func (c *Config) writePidfile(pid int) error {
	stat, err := process.Read(pid)
	if err != nil {
		return fmt.Errorf("write pidfile: %w", err)
	}
	b, err := newBirth(pid, stat)
	if err != nil {
		return fmt.Errorf("write pidfile: %w", err)
	}
	content, err := json.Marshal(b)
	if err != nil {
		return err
	}
	if err := rootfile.Write(c.birthFile(), append(content, '\n'), 0o644); err != nil {
		return fmt.Errorf("write pidfile: %w", err)
	}
	if err := rootfile.Write(c.Pidfile, fmt.Appendf(nil, "%d\n", pid), 0o644); err != nil {
		return fmt.Errorf("write pidfile: %w", err)
	}
	return nil
}

// removePidfile removes the files of a process, unless they now name another one.
func (c *Config) removePidfile(pid int) error {
	if current, err := c.readPidfile(); err != nil || (current != 0 && current != pid) {
		return err
	}
	var problems []error
	for _, path := range []string{c.Pidfile, c.birthFile()} {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

// locked runs f while no other start or stop of the same pidfile runs its own.
func (c *Config) locked(ctx context.Context, f func() error) error {
	ctx, cancel := context.WithTimeoutCause(
		ctx, lockTimeout, fmt.Errorf("another start or stop of %s runs longer than %s", c.Process, lockTimeout),
	)
	defer cancel()
	release, err := filelock.Acquire(ctx, c.Pidfile+".lock", fmt.Sprintf("kube-launcher, process %d", os.Getpid()), nil)
	if err != nil {
		return err
	}
	defer release()
	return f()
}
