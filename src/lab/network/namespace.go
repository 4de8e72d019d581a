package network

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// A thread that has entered a namespace is thrown away, which the runtime can't do with the process's first thread: that one would
// stay in the foreign namespace, and with it all that /proc/self says of this process. Locking it to the main goroutine keeps
// every other goroutine off it.
func init() { runtime.LockOSThread() }

// Do runs f with the calling thread inside the network namespace that path refers to (/run/netns/NAME or /proc/PID/ns/net).
// Sockets opened by f belong to that namespace for good; goroutines started by f do not run in it.
func Do(path string, f func() error) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening network namespace %s: %w", path, err)
	}
	defer func() { _ = unix.Close(fd) }()

	result := make(chan error, 1)
	go func() {
		// The thread is never unlocked and so ends with this goroutine: no other goroutine can inherit a foreign namespace.
		runtime.LockOSThread()
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			result <- fmt.Errorf("entering network namespace %s: %w", path, err)
			return
		}
		result <- f()
	}()
	return <-result
}

// Do runs f with the calling thread inside the cloud namespace; listeners opened there keep working afterwards.
func (n Network) Do(f func() error) error { return Do(n.NamespacePath(), f) }

// makeNamespace makes a named network namespace in the manner of `ip netns add`. An existing one is kept.
func makeNamespace(name string) error {
	path := filepath.Join(namespaceDir, name)
	if isNamespace(path) {
		return nil
	}
	if err := os.MkdirAll(namespaceDir, 0o755); err != nil {
		return fmt.Errorf("making %s: %w", namespaceDir, err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o444)
	if err != nil {
		return fmt.Errorf("making network namespace %s: %w", name, err)
	}
	_ = file.Close()

	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			result <- fmt.Errorf("making network namespace %s: %w", name, err)
			return
		}
		// The mount keeps the namespace alive after this thread has ended.
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

// removeNamespace takes a namespace's name away; the namespace goes with its last process. A missing one is no error.
func removeNamespace(name string) error {
	path := filepath.Join(namespaceDir, name)
	for {
		err := unix.Unmount(path, unix.MNT_DETACH)
		if err != nil {
			break // nothing (more) mounted: EINVAL, or no such file
		}
	}
	err := os.Remove(path)
	if errors.Is(err, unix.EBUSY) {
		err = removeBuried(path)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing network namespace %s: %w", name, err)
	}
	return nil
}

// removeBuried removes the file of a namespace whose mount can't be reached: the first `ip netns add` on a machine mounts the folder over
// itself, and what was mounted in it before stays below. A file may be removed where nothing is mounted on it, whatever is
// elsewhere, and takes the mounts of all mount namespaces with it; so a thread gets a mount namespace in which all is cleared away.
func removeBuried(path string) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with this goroutine
		result <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_FS); err != nil {
				return err
			}
			if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
				return err
			}
			for _, mount := range []string{filepath.Dir(path), path} {
				for unix.Unmount(mount, unix.MNT_DETACH) == nil {
				}
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
