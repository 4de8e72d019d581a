package network

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// OnThread runs f on a thread that exits afterwards, so that f may enter namespaces: no other goroutine, also none that
// f starts, ever runs in them. The main thread cannot exit: it would stay in those namespaces, and /proc/self, which is
// its view, with it. It is kept busy instead while another thread runs f.
func OnThread(f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the end of a locked goroutine is that of its thread
		if unix.Gettid() == unix.Getpid() {
			defer runtime.UnlockOSThread()
			result <- OnThread(f)
			return
		}
		result <- f()
	}()
	return <-result
}

// Do runs f on a thread in the network namespace of path (/run/netns/NAME or /proc/PID/ns/net). Sockets that f opens
// stay in that namespace; goroutines that f starts do not run in it.
func Do(path string, f func() error) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening network namespace %s: %w", path, err)
	}
	defer func() { _ = unix.Close(fd) }()

	return OnThread(func() error {
		if err := unix.Setns(fd, unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("entering network namespace %s: %w", path, err)
		}
		return f()
	})
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

	err = OnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("creating network namespace %s: %w", name, err)
		}
		// The mount keeps the namespace after this thread has exited.
		self := fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid())
		if err := unix.Mount(self, path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("naming network namespace %s: mounting %s on %s: %w", name, self, path, err)
		}
		return nil
	})
	if err != nil {
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
	return OnThread(func() error {
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
	})
}

func isNamespace(path string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(path, &fs) == nil && fs.Type == unix.NSFS_MAGIC
}
