package launcher

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// lockTimeout is how long start and stop wait for each other; both hold the lock for moments only.
const lockTimeout = 10 * time.Second

// birth tells one process from every other that ever has the same pid: the kernel gives no two processes of one boot
// the same pid and start time.
type birth struct {
	PID int `json:"pid"`
	// StartTicks is the start time after boot, in the kernel's clock ticks.
	StartTicks uint64 `json:"start_ticks"`
	BootID     string `json:"boot_id"`
}

// statReads bounds how often a process is looked at that seems to have ended but may just be in an exec.
const statReads = 10

// birthOf looks a living process up. An error means that there is none; one that has ended and waits for its parent to
// notice counts as none.
func birthOf(pid int) (birth, error) {
	fields, err := statOf(pid)
	for reads := 1; err == nil && vanishing(fields) && reads < statReads; reads++ {
		fields, err = statOf(pid)
	}
	if err != nil {
		return birth{}, err
	}
	if vanishing(fields) || fields[statState] == "Z" && fields[statThreads] == "1" {
		return birth{}, fmt.Errorf("process %d has ended (state %s, %s threads)", pid, fields[statState], fields[statThreads])
	}
	ticks, err := strconv.ParseUint(fields[statStart], 10, 64)
	if err != nil {
		return birth{}, fmt.Errorf("/proc/%d/stat: %w", pid, err)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return birth{}, err
	}
	return birth{PID: pid, StartTicks: ticks, BootID: strings.TrimSpace(string(boot))}, nil
}

// Fields of /proc/PID/stat, counted from the state, which is the third in proc(5).
const (
	statState   = 0
	statThreads = 17
	statStart   = 19
)

// statOf returns the fields of /proc/PID/stat from the state on. The name before it may hold spaces and parentheses.
func statOf(pid int) ([]string, error) {
	path := fmt.Sprintf("/proc/%d/stat", pid)
	stat, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	_, after, found := bytes.Cut(stat[max(0, bytes.LastIndexByte(stat, ')')):], []byte(") "))
	fields := strings.Fields(string(after))
	if !found || len(fields) <= statStart {
		return nil, fmt.Errorf("%s: unexpected form", path)
	}
	return fields, nil
}

// vanishing tells whether a thread was seen while the kernel took it away, with no thread left to count. It may have been
// a process's last, and the next look finds no process; or the first thread of a program with several, of which another
// has just taken its place by an exec, and the next look finds that one. Before that the first one is a zombie beside
// others, whereas a process that has ended is a zombie with one thread.
func vanishing(fields []string) bool {
	return fields[statState] == "X" || fields[statState] == "Z" && fields[statThreads] == "0"
}

// runs tells whether the process of a command line has become the configured program: start's child is the launcher
// until it has waited for everything. A script's first word is its interpreter.
func (c *Config) runs(pid int) bool {
	words := cmdline(pid)
	return slices.Contains(words[:min(len(words), 2)], c.Executable)
}

// launches tells whether a process is the launcher on the way to become the configured program.
func (c *Config) launches(pid int) bool {
	words := cmdline(pid)
	return len(words) == 3 && words[1] == "exec" && words[2] == c.path
}

func cmdline(pid int) []string {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(content), "\x00"), "\x00")
}

// birthFile stands beside the pidfile, which by monit's rule holds nothing but the pid.
func (c *Config) birthFile() string { return c.Pidfile + ".json" }

// readPidfile returns the pid that the file holds; 0 without an error if there is no file, or none with a pid.
func (c *Config) readPidfile() (int, error) {
	content, err := readFile(c.Pidfile)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read pidfile: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil || pid <= 0 {
		return 0, nil // cut short by a full disk or a crash
	}
	return pid, nil
}

// running returns the pid of the process that the pidfile means, 0 if it does not live. A pid that meanwhile belongs
// to another process is not taken for it.
func (c *Config) running() (int, error) {
	pid, err := c.readPidfile()
	if err != nil || pid == 0 {
		return 0, err
	}
	now, err := birthOf(pid)
	if err != nil {
		return 0, nil //nolint:nilerr // no such process: that is the answer
	}
	var then birth
	if content, err := readFile(c.birthFile()); err == nil && json.Unmarshal(content, &then) == nil && then.PID == pid {
		if then == now {
			return pid, nil
		}
		return 0, nil
	}
	// The file is from elsewhere: only a process that does what ours does is ours.
	if c.runs(pid) || c.launches(pid) {
		return pid, nil
	}
	return 0, nil
}

// writePidfile stores the pid, and before it the birth that makes it unmistakable.
func (c *Config) writePidfile(pid int) error {
	b, err := birthOf(pid)
	if err != nil {
		return fmt.Errorf("write pidfile: the process ended at once: %w", err)
	}
	content, err := json.Marshal(b)
	if err != nil {
		return err
	}
	if err := writeFile(c.birthFile(), append(content, '\n')); err != nil {
		return fmt.Errorf("write pidfile: %w", err)
	}
	if err := writeFile(c.Pidfile, fmt.Appendf(nil, "%d\n", pid)); err != nil {
		return fmt.Errorf("write pidfile: %w", err)
	}
	return nil
}

// writeFile replaces a file at once and whole.
func writeFile(path string, content []byte) error {
	temporary := path + ".new"
	if err := os.WriteFile(temporary, content, 0o644); err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	return os.Rename(temporary, path)
}

// removePidfile removes the files of a process, unless they have come to mean another one.
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
	if err := os.MkdirAll(filepath.Dir(c.Pidfile), 0o755); err != nil {
		return err
	}
	path := c.Pidfile + ".lock"
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // which unlocks
	limited, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return f()
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return fmt.Errorf("lock %s: %w", path, err)
		}
		select {
		case <-limited.Done():
			return fmt.Errorf("another start or stop of %s holds %s for longer than %s", c.Process, path, lockTimeout)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// terminate ends one process, and nothing that it started: SIGTERM, and SIGKILL if it has not gone after the time.
// gone must tell whether it has ended.
func (l *Launcher) terminate(ctx context.Context, process *os.Process, patience time.Duration, gone func() bool, say func(string, ...any)) error {
	if err := process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("SIGTERM to process %d: %w", process.Pid, err)
	}
	if l.awaitEnd(ctx, patience, gone, say) {
		return nil
	}
	say("did not end after SIGTERM, sending SIGKILL", "waited", patience)
	if err := process.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("SIGKILL to process %d: %w", process.Pid, err)
	}
	if l.awaitEnd(context.WithoutCancel(ctx), killPatience, gone, say) {
		return nil
	}
	return fmt.Errorf("process %d has not ended %s after SIGKILL: it hangs in the kernel, most likely on a disk or network file system; see /proc/%d/stack and dmesg", process.Pid, killPatience, process.Pid)
}

// killPatience is how long a killed process may take to go; it can do nothing more, only the kernel can.
const killPatience = 10 * time.Second

// awaitEnd reports whether the process ended in time.
func (l *Launcher) awaitEnd(ctx context.Context, patience time.Duration, gone func() bool, say func(string, ...any)) bool {
	begun := time.Now()
	report := begun.Add(l.progress)
	for !gone() {
		if time.Since(begun) >= patience || ctx.Err() != nil {
			return gone()
		}
		if time.Now().After(report) {
			say("waiting for the process to end", "since", time.Since(begun).Round(time.Second), "at_most", patience)
			report = time.Now().Add(l.progress)
		}
		time.Sleep(min(l.poll, 100*time.Millisecond))
	}
	return true
}
