package network

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// TestNamespacesAreNotEnteredOnTheMainThread: it cannot exit, so it would stay there.
func TestNamespacesAreNotEnteredOnTheMainThread(t *testing.T) {
	var group sync.WaitGroup
	for range 200 {
		group.Go(func() {
			_ = OnThread(func() error {
				if unix.Gettid() == unix.Getpid() {
					t.Error("the main thread")
				}
				return nil
			})
		})
	}
	group.Wait()
}

// TestRemovesHiddenNamespace mounts a directory over itself, as the first `ip netns add` on a machine does.
func TestRemovesHiddenNamespace(t *testing.T) {
	requireRoot(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "one")
	if err := os.WriteFile(path, nil, 0o444); err != nil {
		t.Fatal(err)
	}
	mount := func(source, target string, flags uintptr) {
		t.Helper()
		if err := unix.Mount(source, target, "", flags, ""); err != nil {
			t.Fatalf("mounting %s on %s: %v", source, target, err)
		}
		t.Cleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH) })
	}
	mount("/proc/self/ns/net", path, unix.MS_BIND)
	mount(dir, dir, unix.MS_BIND) // not recursively
	if err := os.Remove(path); err == nil {
		t.Skip("this kernel removes hidden mount points")
	}
	if err := removeHidden(path); err != nil {
		t.Fatal(err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), path+" ") {
		t.Error("the namespace is still mounted")
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("its file still exists: %v", err)
	}
}
