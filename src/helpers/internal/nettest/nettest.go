// Package nettest gives tests network namespaces of their own. Only root can create them.
package nettest

import (
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
	created := make(chan *os.File)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine: it is not unlocked
		defer close(created)
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return
		}
		if file, err := os.Open("/proc/thread-self/ns/net"); err == nil {
			created <- file
		}
	}()
	file, ok := <-created
	if !ok {
		t.Fatal("cannot create a network namespace")
	}
	t.Cleanup(func() { _ = file.Close() })
	return Namespace{file}
}

// Do runs f on a thread in the namespace. Processes that it starts are in the namespace too, and sockets that it opens;
// goroutines that it starts are not.
func (n Namespace) Do(f func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET)
		if err == nil {
			err = f()
		}
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
