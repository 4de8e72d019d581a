package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"kubernetes-release/internal/poll"
	"kubernetes-release/testbed/lab/network"
)

const (
	cgroupRoot = "/sys/fs/cgroup"
	initGroup  = "init"
)

// hierarchy is one mounted tree of control groups.
type hierarchy struct {
	dir     string // /sys/fs/cgroup/memory, or /sys/fs/cgroup itself where version 2 is the only one
	v2      bool
	options string   // mount options: the controllers of a version 1 hierarchy
	aliases []string // links to it in /sys/fs/cgroup, such as cpu and cpuacct if both are mounted together
}

// hierarchies lists the control group trees of the host.
func hierarchies() ([]hierarchy, error) {
	mounts, err := mountinfo.GetMounts(nil)
	if err != nil {
		return nil, fmt.Errorf("listing control groups: %w", err)
	}
	found := hierarchiesOf(mounts)
	if len(found) == 0 {
		return nil, fmt.Errorf(
			"no control groups are mounted below %s; mount them, as Debian's init systems do", cgroupRoot,
		)
	}
	entries, _ := os.ReadDir(cgroupRoot)
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(cgroupRoot, e.Name()))
		if err != nil {
			continue
		}
		for i := range found {
			if filepath.Join(cgroupRoot, filepath.Base(target)) == found[i].dir {
				found[i].aliases = append(found[i].aliases, e.Name())
			}
		}
	}
	return found, nil
}

// hierarchiesOf returns the mounts of type cgroup and cgroup2 in or directly below /sys/fs/cgroup.
func hierarchiesOf(mounts []*mountinfo.Info) []hierarchy {
	var found []hierarchy
	for _, at := range mounts {
		dir := at.Mountpoint
		if dir != cgroupRoot && filepath.Dir(dir) != cgroupRoot {
			continue
		}
		switch at.FSType {
		case "cgroup":
			var controllers []string
			for o := range strings.SplitSeq(at.VFSOptions, ",") {
				if o != "rw" && o != "ro" && !strings.HasPrefix(o, "release_agent=") {
					controllers = append(controllers, o)
				}
			}
			if len(controllers) == 1 && strings.HasPrefix(controllers[0], "name=") {
				controllers = append([]string{"none"}, controllers...) // required for a tree without controllers
			}
			found = append(found, hierarchy{dir: dir, options: strings.Join(controllers, ",")})
		case "cgroup2":
			found = append(found, hierarchy{dir: dir, v2: true})
		}
	}
	return found
}

func (s Spec) cgroup(h hierarchy) string {
	return filepath.Join(h.dir, network.CgroupName(s.Network), s.Name)
}

// processGroup is the group that the VM's processes start in: the VM's group, or a child of it if version 2 is the only
// tree.
func (s Spec) processGroup(h hierarchy) string {
	if h.v2 && h.dir == cgroupRoot {
		return filepath.Join(s.cgroup(h), initGroup)
	}
	return s.cgroup(h)
}

// createCgroups creates the VM's group in every hierarchy, below the root of the tree and not below the caller's group,
// since the VM outlives the caller.
func (s Spec) createCgroups() error {
	trees, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range trees {
		group := s.cgroup(h)
		if err := os.MkdirAll(group, 0o755); err != nil {
			return fmt.Errorf("creating control group: %w", err)
		}
		lab := filepath.Dir(group)
		if h.v2 {
			for _, dir := range []string{h.dir, lab} {
				if err := delegateControllers(dir); err != nil {
					return err
				}
			}
			continue
		}
		if err := inheritCPUSets(lab, group); err != nil {
			return err
		}
	}
	return nil
}

// delegateControllers lets the children of a version 2 group use every controller that the group has.
func delegateControllers(dir string) error {
	controllers, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("reading the controllers of %s: %w", dir, err)
	}
	for c := range strings.FieldsSeq(string(controllers)) {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+c), 0); err != nil {
			return fmt.Errorf("delegating controller %s of %s: %w", c, dir, err)
		}
	}
	return nil
}

// inheritCPUSets sets the processors and memory nodes of new version 1 groups, which are empty at first and then accept
// no process.
func inheritCPUSets(groups ...string) error {
	for _, group := range groups {
		for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
			file := filepath.Join(group, name)
			content, err := os.ReadFile(file)
			if errors.Is(err, fs.ErrNotExist) || len(bytes.TrimSpace(content)) > 0 {
				continue
			}
			parent, err := os.ReadFile(filepath.Join(filepath.Dir(group), name))
			if err == nil {
				err = os.WriteFile(file, parent, 0)
			}
			if err != nil {
				return fmt.Errorf("setting %s: %w", file, err)
			}
		}
	}
	return nil
}

// joinCgroups moves a process into a group of the VM in every hierarchy.
func (s Spec) joinCgroups(pid int, group func(hierarchy) string) error {
	trees, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range trees {
		procs := filepath.Join(group(h), "cgroup.procs")
		if err := os.WriteFile(procs, []byte(strconv.Itoa(pid)), 0); err != nil {
			return fmt.Errorf("moving process %d into %s: %w", pid, procs, err)
		}
	}
	return nil
}

// mountCgroups mounts the VM's own view of control groups: in its cgroup namespace the VM's groups are the roots.
func mountCgroups(root string, trees []hierarchy) error {
	target := filepath.Join(root, cgroupRoot)
	if len(trees) == 1 && trees[0].v2 && trees[0].dir == cgroupRoot {
		if err := unix.Mount(
			"cgroup2", target, "cgroup2", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "",
		); err != nil {
			return fmt.Errorf("mounting control groups: %w", err)
		}
		return splitCgroup(target)
	}
	if err := unix.Mount(
		"cgroup", target, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=755",
	); err != nil {
		return fmt.Errorf("mounting %s: %w", target, err)
	}
	for _, h := range trees {
		if h.v2 {
			continue // it has no controllers next to version 1 trees, and container runtimes use those
		}
		dir := filepath.Join(target, filepath.Base(h.dir))
		if err := os.Mkdir(dir, 0o755); err != nil {
			return fmt.Errorf("mounting control groups: %w", err)
		}
		if err := unix.Mount(
			"cgroup", dir, "cgroup", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, h.options,
		); err != nil {
			return fmt.Errorf("mounting control groups %s (%s): %w", dir, h.options, err)
		}
		for _, alias := range h.aliases {
			if err := os.Symlink(filepath.Base(h.dir), filepath.Join(target, alias)); err != nil {
				return fmt.Errorf("mounting control groups: %w", err)
			}
		}
	}
	return nil
}

// splitCgroup moves init out of the VM's version 2 root group, since a group that has processes cannot delegate
// controllers to its children.
func splitCgroup(target string) error {
	init := filepath.Join(target, initGroup)
	if err := os.Mkdir(init, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("creating control group: %w", err)
	}
	if err := os.WriteFile(filepath.Join(init, "cgroup.procs"), []byte("0"), 0); err != nil {
		return fmt.Errorf("moving init to its control group: %w", err)
	}
	return delegateControllers(target)
}

// removeCgroups kills every process in the VM's groups and removes the groups and those below them, if they exist.
func (s Spec) removeCgroups(ctx context.Context) error {
	trees, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range trees {
		if err := removeGroup(ctx, s.cgroup(h)); err != nil {
			return err
		}
		// The lab's group is removed with its last VM.
		if err := os.Remove(
			filepath.Dir(s.cgroup(h)),
		); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.EBUSY) &&
			!errors.Is(err, syscall.ENOTEMPTY) {
			return fmt.Errorf("removing control group: %w", err)
		}
	}
	return nil
}

// removeGroup repeats killing and removing, since processes take a moment to exit and a process that forks can escape
// one round.
func removeGroup(ctx context.Context, group string) error {
	err := poll.Until(ctx, 20*time.Millisecond, func(context.Context) error { return removeGroupOnce(group) })
	if err != nil {
		return fmt.Errorf("removing control group %s: %w", group, err)
	}
	return nil
}

func removeGroupOnce(group string) error {
	entries, err := os.ReadDir(group)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	// A frozen process cannot be killed, and container runtimes freeze what they remove.
	_ = os.WriteFile(filepath.Join(group, "freezer.state"), []byte("THAWED"), 0)
	content, err := os.ReadFile(filepath.Join(group, "cgroup.procs"))
	if err == nil {
		for field := range strings.FieldsSeq(string(content)) {
			if pid, err := strconv.Atoi(field); err == nil && pid > 1 && pid != os.Getpid() {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
	}
	var problems []error
	for _, e := range entries {
		if e.IsDir() {
			problems = append(problems, removeGroupOnce(filepath.Join(group, e.Name())))
		}
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	if err := os.Remove(group); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Processes returns the processes of the VM, except its init, as the host numbers them.
func (v *VM) Processes() ([]int, error) {
	trees, err := hierarchies()
	if err != nil {
		return nil, err
	}
	var pids []int
	err = filepath.WalkDir(v.Spec.cgroup(trees[0]), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Name() != "cgroup.procs" {
			return err
		}
		content, err := os.ReadFile(path)
		for field := range strings.FieldsSeq(string(content)) {
			if pid, err := strconv.Atoi(field); err == nil && pid != v.record.PID {
				pids = append(pids, pid)
			}
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // a group that has just been removed, or all of them with the VM
	}
	return pids, err
}
