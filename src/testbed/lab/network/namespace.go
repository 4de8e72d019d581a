package network

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// A thread that has entered another namespace must exit, which the main thread cannot: it would stay in that namespace,
// and /proc/self, which is the main thread's view, with it. Locking the main goroutine to it keeps other goroutines off
// it.
func init() { runtime.LockOSThread() }

// Do runs f on a thread in the network namespace of path (/run/netns/NAME or /proc/PID/ns/net). Sockets that f opens
// stay in that namespace; goroutines that f starts do not run in it.
func Do(path string, f func() error) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening network namespace %s: %w", path, err)
	}
	defer func() { _ = unix.Close(fd) }()

	result := make(chan error, 1)
	go func() {
		// Never unlocked, so the thread exits with this goroutine and no other goroutine runs in the namespace.
		runtime.LockOSThread()
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			result <- fmt.Errorf("entering network namespace %s: %w", path, err)
			return
		}
		result <- f()
	}()
	return <-result
}

// Do runs f on a thread in the cloud namespace; listeners that it opens keep working afterwards.
func (n Network) Do(f func() error) error { return Do(n.NamespacePath(), f) }

// createNamespace creates a named network namespace as `ip netns add` does, unless it exists.
func createNamespace(name string) error {
	path := filepath.Join(namespaceDir, name)
	if isNamespace(path) {
		return nil
	}
	if err := os.MkdirAll(namespaceDir, 0o755); err != nil {
		return fmt.Errorf("creating %s: %w", namespaceDir, err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o444)
	if err != nil {
		return fmt.Errorf("creating network namespace %s: %w", name, err)
	}
	_ = file.Close()

	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			result <- fmt.Errorf("creating network namespace %s: %w", name, err)
			return
		}
		// The mount keeps the namespace after this thread has exited.
		self := fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid())
		if err := unix.Mount(self, path, "", unix.MS_BIND, ""); err != nil {
			result <- fmt.Errorf("naming network namespace %s: mounting %s on %s: %w", name, self, path, err)
			return
		}
		result <- nil
	}()
	if err := <-result; err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// removeNamespace removes a namespace's name, if it exists. The kernel removes the namespace after its last process has
// exited.
func removeNamespace(name string) error {
	path := filepath.Join(namespaceDir, name)
	unmountAll(path)
	err := os.Remove(path)
	if errors.Is(err, unix.EBUSY) {
		err = removeHidden(path)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing network namespace %s: %w", name, err)
	}
	return nil
}

// unmountAll unmounts what is mounted on path, which may be several mounts on top of each other.
func unmountAll(path string) {
	var err error
	for err == nil {
		err = unix.Unmount(path, unix.MNT_DETACH) // EINVAL when nothing is mounted any more, or no such file
	}
}

// removeHidden removes the file of a namespace whose mount is hidden: the first `ip netns add` on a machine bind-mounts
// the directory over itself, and hides earlier mounts in it. The kernel refuses to remove a file that is a mount point
// in the caller's mount namespace, but not one that is a mount point only in others, and then removes those mounts; so
// a thread unmounts it in a mount namespace of its own.
func removeHidden(path string) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread exits with this goroutine
		result <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
				return err
			}
			if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
				return err
			}
			for _, mount := range []string{filepath.Dir(path), path} {
				unmountAll(mount)
			}
			return os.Remove(path)
		}()
	}()
	return <-result
}

func isNamespace(path string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(path, &fs) == nil && fs.Type == unix.NSFS_MAGIC
}
