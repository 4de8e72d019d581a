package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"kubernetes-release/testbed/lab/network"
)

// loop is a loop device of the host.
type loop struct{ minor uint32 }

func (d loop) path() string { return fmt.Sprintf("/dev/loop%d", d.minor) }

// all returns the loop devices of the host that have a file.
func all() []loop {
	found, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	var list []loop
	for _, f := range found {
		name := filepath.Base(filepath.Dir(filepath.Dir(f)))
		if minor, err := strconv.ParseUint(strings.TrimPrefix(name, "loop"), 10, 20); err == nil {
			list = append(list, loop{uint32(minor)})
		}
	}
	return list
}

// file returns the path of the device's file, "" if it has none any more.
func (d loop) file() string {
	content, _ := os.ReadFile(fmt.Sprintf("/sys/block/loop%d/loop/backing_file", d.minor))
	return strings.TrimSuffix(strings.TrimSpace(string(content)), " (deleted)")
}

func loops(file string) []loop {
	return slices.DeleteFunc(all(), func(d loop) bool { return d.file() != file })
}

// newLoop makes a file a loop device. It tries again when another process of the host takes the free device first.
func newLoop(file string) (loop, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return loop{}, err
	}
	defer func() { _ = control.Close() }()
	backing, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return loop{}, err
	}
	defer func() { _ = backing.Close() }()
	for {
		minor, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return loop{}, fmt.Errorf("finding a free loop device: %w", err)
		}
		d := loop{uint32(minor)}
		err = d.do(0, func(fd int) error {
			config := unix.LoopConfig{Fd: uint32(backing.Fd())}
			copy(config.Info.File_name[:], file)
			return unix.IoctlLoopConfigure(fd, &config)
		})
		if !errors.Is(err, unix.EBUSY) {
			return d, err
		}
	}
}

// do opens the device.
func (d loop) do(flags int, f func(fd int) error) error {
	fd, err := unix.Open(d.path(), unix.O_RDWR|unix.O_CLOEXEC|flags, 0)
	if err == nil {
		err = f(fd)
		_ = unix.Close(fd)
	}
	if err != nil {
		return fmt.Errorf("loop device %s: %w", d.path(), err)
	}
	return nil
}

// busy reports whether somebody has claimed the device for itself, as a mounted filesystem does, in whatever namespace
// it is mounted.
func (d loop) busy() (bool, error) {
	err := d.do(unix.O_EXCL, func(int) error { return nil })
	if errors.Is(err, unix.EBUSY) {
		return true, nil
	}
	if errors.Is(err, unix.ENXIO) {
		return false, nil // pulled before
	}
	return false, err
}

// leaving reports whether the kernel frees the device as soon as nobody has it open.
func (d loop) leaving() bool {
	content, err := os.ReadFile(fmt.Sprintf("/sys/block/loop%d/loop/autoclear", d.minor))
	return err != nil || strings.TrimSpace(string(content)) == "1"
}

// grow makes the device as large as its file.
func (d loop) grow() error {
	return d.do(0, func(fd int) error { return unix.IoctlSetInt(fd, unix.LOOP_SET_CAPACITY, 0) })
}

// remove frees the device. If it is in use its size becomes one sector, so that input and output of blocks fails, and
// the kernel frees it once it is not in use. Debian 12's kernel does not check the end of a device without any sector.
func (d loop) remove() error {
	busy, err := d.busy()
	if err != nil {
		return err
	}
	err = d.do(0, func(fd int) error {
		if busy {
			info, err := unix.IoctlLoopGetStatus64(fd)
			if err != nil {
				return err
			}
			info.Sizelimit = 512
			if err := unix.IoctlLoopSetStatus64(fd, info); err != nil {
				return err
			}
		} else if err := unix.Fsync(fd); err != nil {
			return err
		}
		return unix.IoctlSetInt(fd, unix.LOOP_CLR_FD, 0)
	})
	if errors.Is(err, unix.ENXIO) {
		return nil // it has no file any more
	}
	return err
}

// Unmount removes the machine's mounts in the lab's state directory: a disk that a fault replaced, if what
// injects faults was killed. VMs that run keep theirs.
func (s Store) Unmount() error {
	mounts, err := network.MountsBelow(s.StateDir)
	problems := []error{err}
	for _, dir := range slices.Backward(mounts) {
		if dir == s.StateDir {
			continue // the operator's own disk
		}
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			problems = append(problems, fmt.Errorf("unmounting %s: %w", dir, err))
		}
	}
	return errors.Join(problems...)
}

// Release frees the loop devices of all files in the lab's state directory, for the removal of a lab that cannot be
// asked. No VM may run any more, and nothing may be mounted.
func (s Store) Release() error {
	var problems []error
	for _, d := range all() {
		if strings.HasPrefix(d.file(), s.StateDir+"/") {
			problems = append(problems, d.remove())
		}
	}
	return errors.Join(problems...)
}
