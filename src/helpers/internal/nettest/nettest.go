// Package nettest gives tests network namespaces of their own. Only root can create them.
package nettest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Namespace is a network namespace that lasts as long as the test.
type Namespace struct{ file *os.File }

// Requires skips the test without root, or without one of the programs.
func Requires(t *testing.T, programs ...string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can create network namespaces")
	}
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(program + " is not installed")
		}
	}
}

// New creates a namespace.
func New(t *testing.T) Namespace {
	t.Helper()
	var file *os.File
	if err := inOther(func() error { return unix.Unshare(unix.CLONE_NEWNET) }, func() (err error) {
		file, err = os.Open("/proc/thread-self/ns/net")
		return err
	}); err != nil {
		t.Fatalf("create a network namespace: %v", err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return Namespace{file}
}

// Do runs f on a thread in the namespace. Processes that it starts are in the namespace too, and sockets that it opens;
// goroutines that it starts are not.
func (n Namespace) Do(f func() error) error {
	return inOther(func() error { return unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET) }, f)
}

// inOther has a thread enter another namespace, runs f there and goes back. The thread is used again, since processes
// that it has started may be set to end with it (Pdeathsig in syscall.SysProcAttr).
func inOther(enter, f func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		own, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			runtime.UnlockOSThread()
			result <- err
			return
		}
		defer own.Close()
		if err = enter(); err == nil {
			err = f()
		}
		if back := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); back != nil {
			result <- errors.Join(err, fmt.Errorf("return to the own network namespace: %w", back))
			return // with the thread, which stays locked
		}
		runtime.UnlockOSThread()
		result <- err
	}()
	return <-result
}

// Run runs commands, one a line.
func (n Namespace) Run(t *testing.T, script string) {
	t.Helper()
	for line := range strings.Lines(script) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if err := n.Do(func() error {
			output, err := exec.Command(fields[0], fields[1:]...).CombinedOutput()
			if err != nil {
				return fmt.Errorf("%s: %w: %s", strings.TrimSpace(line), err, output)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// Connect adds a pair of interfaces.
func Connect(t *testing.T, a Namespace, nameA string, b Namespace, nameB string) {
	t.Helper()
	if err := a.Do(func() error {
		return netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: nameA}, PeerName: nameB, PeerNamespace: netlink.NsFd(int(b.file.Fd())),
		})
	}); err != nil {
		t.Fatal(err)
	}
}
