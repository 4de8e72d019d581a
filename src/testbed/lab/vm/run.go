package vm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"kubernetes-release/testbed/lab/network"
)

// killDelay is the time between SIGTERM and SIGKILL for a canceled command.
const killDelay = 5 * time.Second

// errNotRunning is wrapped by the errors of calls that need a running VM.
var errNotRunning = errors.New("the VM is not running")

// Run runs argv in the VM, in all its namespaces and control groups, and waits for it. If the command fails the error
// is an *ExitError. When ctx ends, the command and the processes of its session get SIGTERM, and SIGKILL five seconds
// later.
func (v *VM) Run(ctx context.Context, argv []string, o RunOptions) error {
	if len(argv) == 0 {
		return fmt.Errorf("VM %s: no command", v.Spec.Name)
	}
	cmd := &exec.Cmd{Args: argv, Dir: o.Dir, Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, Env: environment(o)}
	if cmd.Dir == "" {
		cmd.Dir = "/"
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		// Without a terminal the command gets a session of its own, so that it can be killed with its children.
		Setsid:     !isTerminal(o),
		Credential: &syscall.Credential{}, // root without the caller's supplementary groups
	}
	if err := v.start(cmd); err != nil {
		return fmt.Errorf("VM %s: running %q: %w", v.Spec.Name, argv, err)
	}
	exited := make(chan struct{})
	go stopWith(ctx, cmd, exited)
	err := cmd.Wait()
	close(exited)
	if ctx.Err() != nil {
		return fmt.Errorf("VM %s: %q was stopped: %w", v.Spec.Name, argv, context.Cause(ctx))
	}
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		return &ExitError{Argv: argv, Code: exitCode(failed)}
	}
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return fmt.Errorf("VM %s: running %q: %w", v.Spec.Name, argv, err)
	}
	return nil
}

// start starts cmd from a thread that is inside the VM.
func (v *VM) start(cmd *exec.Cmd) error {
	// Do not wait forever for daemons that a script has started and that keep its output open.
	cmd.WaitDelay = killDelay
	cmd.SysProcAttr.Ptrace = true // the process stops before its first instruction, until this thread detaches from it
	return v.enter(true, func() error {
		path, err := lookPath(cmd.Args[0])
		if err != nil {
			return err
		}
		cmd.Path = path
		if err := cmd.Start(); err != nil {
			return err
		}
		if err := v.admit(cmd.Process.Pid); err != nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			return err
		}
		return nil
	})
}

// admit moves a process that the calling thread has started, and traces, into the VM's control groups, and lets it run.
// The thread is in the VM's cgroup namespace, the process not yet in its groups. Across that border the kernel moves
// nothing if version 2 is mounted with nsdelegate, as by systemd; so a thread of the host moves it.
func (v *VM) admit(pid int) error {
	var stopped unix.Siginfo
	if err := unix.Waitid(unix.P_PID, pid, &stopped, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		return fmt.Errorf("waiting for the start of process %d: %w", pid, err)
	}
	moved := make(chan error)
	go func() { moved <- v.Spec.joinCgroups(pid, v.Spec.processGroup) }()
	if err := <-moved; err != nil {
		return err
	}
	if err := unix.PtraceDetach(pid); err != nil && !errors.Is(err, unix.ESRCH) { // it has been killed
		return fmt.Errorf("letting process %d run: %w", pid, err)
	}
	return nil
}

// lookPath finds a program in the VM's PATH. It must run in the VM's mount namespace.
func lookPath(name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for dir := range strings.SplitSeq(vmPath, ":") {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("there is no program %s in %s of the VM", name, vmPath)
}

// stopWith stops cmd with its session if ctx ends first.
func stopWith(ctx context.Context, cmd *exec.Cmd, exited <-chan struct{}) {
	select {
	case <-exited:
		return
	case <-ctx.Done():
	}
	target := cmd.Process.Pid
	if cmd.SysProcAttr.Setsid {
		target = -target
	}
	_ = unix.Kill(target, unix.SIGTERM)
	select {
	case <-exited:
	case <-time.After(killDelay):
		_ = unix.Kill(target, unix.SIGKILL)
	}
}

func exitCode(e *exec.ExitError) int {
	if status, ok := e.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return e.ExitCode()
}

func isTerminal(o RunOptions) bool {
	file, ok := o.Stdin.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// Do runs f on a thread in the VM's mount, network, UTS and IPC namespaces, but not in its PID namespace. Paths in f
// are the VM's. Goroutines that f starts do not run there.
func (v *VM) Do(f func() error) error { return v.enter(false, f) }

// DoAsVcap is Do with vcap's permissions on files. Only the thread of f loses root's: it ends with f.
func (v *VM) DoAsVcap(f func() error) error {
	return v.Do(func() error { return AsVcap(f) })
}

// AsVcap runs f with vcap's permissions on files. The calling thread loses root's, and must end.
func AsVcap(f func() error) error {
	// Raw calls, since those of package syscall change all threads. setfsuid(2) reports no error, and drops the
	// capabilities on files.
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
		return fmt.Errorf("dropping root's groups: %w", errno)
	}
	_, _, _ = unix.RawSyscall(unix.SYS_SETFSGID, VcapGID, 0, 0)
	_, _, _ = unix.RawSyscall(unix.SYS_SETFSUID, VcapUID, 0, 0)
	return f()
}

// namespace is a file in /proc/PID/ns with its flag.
type namespace struct {
	name string
	flag int
}

// enter runs f on a thread of its own in the VM's namespaces. With processes set, processes that f starts are in its
// PID namespace too.
func (v *VM) enter(processes bool, f func() error) error {
	if !v.record.initRuns() {
		return errNotRunning
	}
	kinds := []namespace{
		{"cgroup", unix.CLONE_NEWCGROUP},
		{"ipc", unix.CLONE_NEWIPC},
		{"uts", unix.CLONE_NEWUTS},
		{"net", unix.CLONE_NEWNET},
		{"mnt", unix.CLONE_NEWNS},
	}
	if processes {
		kinds = append([]namespace{{"pid", unix.CLONE_NEWPID}}, kinds...)
	}
	files := make([]*os.File, 0, len(kinds))
	defer func() {
		for _, f := range files {
			_ = f.Close()
		}
	}()
	for _, k := range kinds {
		file, err := os.Open(fmt.Sprintf("/proc/%d/ns/%s", v.record.PID, k.name))
		if err != nil {
			return fmt.Errorf("%w: %w", errNotRunning, err)
		}
		files = append(files, file)
	}
	return network.OnThread(func() error {
		// Threads share root and working directory by default, and those of a VM are different.
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return fmt.Errorf("preparing to enter the VM: %w", err)
		}
		for i, k := range kinds {
			if err := unix.Setns(int(files[i].Fd()), k.flag); err != nil {
				return fmt.Errorf("entering the VM's %s namespace: %w", k.name, err)
			}
		}
		return f()
	})
}

// DialContext connects to an address from the VM's network namespace, for http.Transport. Names are resolved as in the
// VM.
func (v *VM) DialContext(ctx context.Context, kind, address string) (conn net.Conn, err error) {
	if !v.record.initRuns() {
		return nil, errNotRunning
	}
	err = network.Do(fmt.Sprintf("/proc/%d/ns/net", v.record.PID), func() error {
		d := net.Dialer{Resolver: &net.Resolver{PreferGo: true, Dial: v.dialResolver}}
		conn, err = d.DialContext(ctx, kind, address)
		return err
	})
	return conn, err
}

// dialResolver connects to the VM's name server, not to the machine's.
func (v *VM) dialResolver(ctx context.Context, kind, _ string) (net.Conn, error) {
	return v.DialContext(ctx, kind, net.JoinHostPort(stubAddress.String(), strconv.Itoa(dnsPort)))
}

func environment(o RunOptions) []string {
	merged := make(map[string]string)
	if !o.Bare {
		merged = map[string]string{
			"PATH":    vmPath,
			"HOME":    "/root",
			"USER":    "root",
			"LOGNAME": "root",
			"LANG":    "C.UTF-8",
		}
		if t := os.Getenv("TERM"); t != "" {
			merged["TERM"] = t
		}
	}
	for k, val := range o.Env {
		merged[k] = val
	}
	list := make([]string, 0, len(merged))
	for k, val := range merged {
		list = append(list, k+"="+val)
	}
	sort.Strings(list)
	return list
}
