package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"kubernetes-release/internal/bosh"
	"kubernetes-release/testbed/lab/agent"
	"kubernetes-release/testbed/lab/vm"
)

// diskSize is the size of a disk that is filled. A VM uses a few hundred MB.
const diskSize = 3 << 30

// disk is one of a VM's disks, which in the lab are directories of the machine, unless one is replaced.
type disk struct {
	name string
	path func(*vm.VM) string // on the host
}

var (
	// In the lab the ephemeral disk is a directory of the root disk.
	rootDisk       = disk{"root", func(v *vm.VM) string { return v.HostPath("/") }}
	ephemeralDisk  = disk{"ephemeral", func(v *vm.VM) string { return v.HostPath(bosh.DefaultRoot.Path("data")) }}
	persistentDisk = disk{"persistent", func(v *vm.VM) string { return v.Spec.PersistentDisk }}
)

// give replaces a disk of a VM by a file system of its own with the same content, and reboots the VM. It returns the
// directory of the disk on the host, and a function that detaches the disk once the VM does not run.
func (c *Cluster) give(ctx context.Context, m *machine, d disk) (dir string, detach func() error, err error) {
	v, err := c.vm(m)
	if err != nil {
		return "", nil, err
	}
	dir = d.path(v)
	if err := v.Kill(ctx); err != nil {
		return "", nil, err
	}
	image := filepath.Join(c.lab.Dir, "disk-"+strings.ReplaceAll(m.name, "/", "-")+"-"+d.name)
	const script = `truncate --size "$1" "$2"
mkfs.ext4 -q -m 0 "$2"
new=$(mktemp -d "$2-XXXXXX") # in the lab's state directory, where bin/lab down finds it
mount -o loop "$2" "$new" # which removes the loop device when the last mount ends
cp -a "$3/." "$new/"
mount --bind "$new" "$3"
umount "$new"
rmdir "$new"`
	if err := sh(ctx, script, strconv.Itoa(diskSize), image, dir); err != nil {
		return "", nil, err
	}
	detach = func() error {
		err := unix.Unmount(dir, unix.MNT_DETACH)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			err = nil // it has been detached before
		}
		return errors.Join(err, os.RemoveAll(image))
	}
	c.cleanUp = append(c.cleanUp, detach)
	return dir, detach, agent.Boot(ctx, v)
}

func sh(ctx context.Context, script string, arguments ...string) error {
	out, err := exec.CommandContext(ctx, "sh", append([]string{"-euc", script, "sh"}, arguments...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// fill leaves no free space on the disk of a directory, and returns the function that frees it.
func fill(dir string) (free func() error, err error) {
	name := filepath.Join(dir, "ballast")
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	// A file system keeps some blocks for itself, so smaller and smaller pieces are tried.
	var size int64
	for piece := int64(64 << 20); piece >= 4096; {
		err := unix.Fallocate(int(f.Fd()), 0, size, piece)
		switch {
		case err == nil:
			size += piece
		case errors.Is(err, unix.ENOSPC):
			piece /= 2
		default:
			return nil, fmt.Errorf("filling %s: %w", dir, err)
		}
	}
	return func() error { return os.Remove(name) }, nil
}
