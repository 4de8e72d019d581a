package bpm

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// InitCommand is the hidden subcommand that is the first process of a sandbox's PID namespace, as tini is under bpm
// (bpm-release, src/bpm/runc/adapter/adapter.go, wrapWithInit): the PID that bpm knows, and monit's pidfile, is its.
const InitCommand = "init"

// RunInit starts a program, passes signals on to it, and returns its exit code when it has ended. Then the kernel ends
// whatever else runs in the namespace. Like tini (src/tini.c, wait_and_forward_signal) it fails, and so ends the
// program without further notice, if it may not send a signal, since the program has become another user.
func RunInit(argv []string) (int, error) {
	signals, children := make(chan os.Signal, 64), make(chan os.Signal, 1)
	signal.Notify(signals)
	signal.Notify(children, unix.SIGCHLD)
	// A process group of its own, as tini gives it (isolate_child).
	child, err := syscall.ForkExec(argv[0], argv, &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		return 0, fmt.Errorf("executing %s: %w", argv[0], err)
	}
	for {
		select {
		case <-children:
			if code, ended := reap(child); ended {
				return code, nil
			}
		case s := <-signals:
			if s == unix.SIGCHLD || s == unix.SIGURG { // Go's runtime sends itself SIGURG
				continue
			}
			if err := unix.Kill(child, s.(syscall.Signal)); err != nil && !errors.Is(err, unix.ESRCH) {
				return 0, fmt.Errorf("forwarding the signal '%s': %w", s, err)
			}
		}
	}
}

// reap waits for all processes that have ended, and returns the exit code of child, as a shell's, if it is one of them.
func reap(child int) (code int, ended bool) {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return code, ended
		}
		if pid != child {
			continue
		}
		code, ended = status.ExitStatus(), true
		if status.Signaled() {
			code = 128 + int(status.Signal())
		}
	}
}
