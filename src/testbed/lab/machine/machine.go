// Package machine looks at the machine that a lab is to run on: what it lacks, and which settings of production it
// cannot have.
package machine

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Machine is a machine, as seen by this process.
type Machine struct {
	// Root is where /dev, /lib, /proc and /sys are; "" is the machine itself.
	Root string
	// Architecture is as Go names it.
	Architecture string
	UserID       int
	// Checkout is the directory of the repository, in which programs are built and VMs have their disks. FreeDisk is
	// what its file system has free, in bytes.
	Checkout string
	FreeDisk uint64
}

// This returns the present machine.
func This(checkout string) (Machine, error) {
	var disk unix.Statfs_t
	if err := unix.Statfs(checkout, &disk); err != nil {
		return Machine{}, fmt.Errorf("looking at the disk of %s: %w", checkout, err)
	}
	return Machine{
		Architecture: runtime.GOARCH, UserID: os.Geteuid(), Checkout: checkout,
		FreeDisk: disk.Bavail * uint64(disk.Bsize),
	}, nil
}

// read returns the content of a file, "" if there is none.
func (m Machine) read(path string) string {
	content, _ := os.ReadFile(filepath.Join(m.Root, path))
	return strings.TrimSpace(string(content))
}

func (m Machine) exists(path string) bool {
	_, err := os.Lstat(filepath.Join(m.Root, path))
	return err == nil
}

// mounts returns none if they cannot be read.
func (m Machine) mounts() []*mountinfo.Info {
	found, _ := mountinfo.GetMountsFromReader(strings.NewReader(m.read("/proc/self/mountinfo")), nil)
	return found
}

// mountOf returns the mount that has a path: the one with the longest name, the last one of several at one place.
func (m Machine) mountOf(path string) *mountinfo.Info {
	best := &mountinfo.Info{}
	for _, at := range m.mounts() {
		inside := path == at.Mountpoint || strings.HasPrefix(path, strings.TrimSuffix(at.Mountpoint, "/")+"/")
		if inside && len(at.Mountpoint) >= len(best.Mountpoint) {
			best = at
		}
	}
	return best
}

// hasOption looks for one of the mount or of the file system.
func hasOption(at *mountinfo.Info, option string) bool {
	return slices.Contains(strings.Split(at.Options+","+at.VFSOptions, ","), option)
}

// The capabilities that are looked for, by their numbers in capability.h.
const (
	capNetAdmin    = 12
	capSysChroot   = 18
	capSysPtrace   = 19
	capSysAdmin    = 21
	capSysResource = 24
	capMknod       = 27
)

func (m Machine) capable(capability int) bool {
	for line := range strings.Lines(m.read("/proc/self/status")) {
		if hex, ok := strings.CutPrefix(line, "CapEff:"); ok {
			set, err := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
			return err == nil && set>>capability&1 == 1
		}
	}
	return false
}

// cgroupV2 says that version 2 is the only one.
func (m Machine) cgroupV2() bool { return m.exists("/sys/fs/cgroup/cgroup.controllers") }

// controllers returns the controllers of control groups that VMs can have.
func (m Machine) controllers() []string {
	if m.cgroupV2() {
		return strings.Fields(m.read("/sys/fs/cgroup/cgroup.controllers"))
	}
	var found []string
	for _, at := range m.mounts() {
		if at.FSType == "cgroup" && filepath.Dir(at.Mountpoint) == "/sys/fs/cgroup" {
			found = append(found, strings.Split(at.VFSOptions, ",")...)
		}
	}
	return found
}
