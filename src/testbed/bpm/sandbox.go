package bpm

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sort"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// SandboxCommand is the hidden subcommand that builds a process's sandbox around itself and then executes the process.
const SandboxCommand = "sandbox"

// sandboxFD is the file descriptor on which it reports an error. The kernel closes it when the process is executed.
const sandboxFD = 3

// sandbox describes how to start the process; SandboxCommand gets the path of a file of it, as JSON.
type sandbox struct {
	Job     string        `json:"job"`
	Process ProcessConfig `json:"process"`
	UID     int           `json:"uid"`
	GID     int           `json:"gid"`
	Env     []string      `json:"env"`
	Mounts  []bindMount   `json:"mounts"`
	Staging string        `json:"staging"` // an empty directory to mount the new root on
}

// bindMount mounts a path of the VM at a path of the sandbox, with nosuid and nodev.
type bindMount struct {
	Source   string `json:"source"`
	Target   string `json:"target"`
	Writable bool   `json:"writable"`
	Execute  bool   `json:"execute"`
}

// RunSandbox runs the hidden subcommand. It returns only on failure.
func RunSandbox(file string) error {
	report := os.NewFile(sandboxFD, "report")
	syscall.CloseOnExec(sandboxFD)
	err := enterSandbox(file)
	_, _ = fmt.Fprint(report, err)
	return err
}

func enterSandbox(file string) error {
	runtime.LockOSThread()
	encoded, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading the sandbox: %w", err)
	}
	var s sandbox
	if err := json.Unmarshal(encoded, &s); err != nil {
		return fmt.Errorf("decoding the sandbox: %w", err)
	}
	for _, limit := range []func() error{s.limitOpenFiles, s.limitByCgroup} {
		if err := limit(); err != nil {
			fmt.Fprintf(os.Stderr, "bpm: %v; the limit is skipped\n", err)
		}
	}
	if err := s.buildRoot(); err != nil {
		return err
	}
	directory := s.Process.WorkDir
	if directory == "" {
		directory = root.Job(s.Job)
	}
	if !s.Process.Unsafe.Privileged {
		if err := becomeUser(s.UID, s.GID, s.Process.Capabilities); err != nil {
			return err
		}
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("forbidding new privileges: %w", err)
		}
	}
	if err := unix.Chdir(directory); err != nil {
		return fmt.Errorf("working directory %s: %w", directory, err)
	}
	// bpm itself starts its init without this check; the process's log has init's error then.
	if err := unix.Faccessat(unix.AT_FDCWD, s.Process.Executable, unix.X_OK, unix.AT_EACCESS); err != nil {
		return fmt.Errorf("executing %s: %w", s.Process.Executable, err)
	}
	self := "/proc/self/exe"
	err = syscall.Exec(self, append([]string{self, InitCommand, "--", s.Process.Executable}, s.Process.Args...), s.Env)
	return fmt.Errorf("executing %s: %w", InitCommand, err)
}

func (s *sandbox) limitOpenFiles() error {
	if s.Process.Limits.OpenFiles == nil {
		return nil
	}
	want := *s.Process.Limits.OpenFiles
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: want, Max: want}); err != nil {
		return fmt.Errorf("limits.open_files %d: %w", want, err)
	}
	return nil
}

// limitByCgroup moves the process into its own cgroups below those that bpm runs in.
func (s *sandbox) limitByCgroup() error {
	_, err := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	v2 := err == nil
	set := func(tree, file, value string) error {
		parent := filepath.Join("/sys/fs/cgroup", tree, "bpm")
		group := filepath.Join(parent, s.Job+"."+s.Process.Name)
		if err := os.MkdirAll(group, 0o755); err != nil {
			return err
		}
		if v2 { // a group has the files of the controllers that its parent delegates
			delegated := filepath.Join(parent, "cgroup.subtree_control")
			if err := os.WriteFile(delegated, []byte("+memory +pids"), 0); err != nil {
				return err
			}
		}
		if err := os.WriteFile(filepath.Join(group, file), []byte(value), 0); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0)
	}
	if s.Process.Limits.Memory != "" {
		size, err := parseBytes(s.Process.Limits.Memory)
		if err != nil {
			return err
		}
		tree, file := "memory", "memory.limit_in_bytes"
		if v2 {
			tree, file = "", "memory.max"
		}
		if err := set(tree, file, strconv.FormatInt(size, 10)); err != nil {
			return fmt.Errorf("limits.memory %s: %w", s.Process.Limits.Memory, err)
		}
	}
	if s.Process.Limits.Processes != nil {
		tree := "pids"
		if v2 {
			tree = ""
		}
		if err := set(tree, "pids.max", strconv.FormatInt(*s.Process.Limits.Processes, 10)); err != nil {
			return fmt.Errorf("limits.processes %d: %w", *s.Process.Limits.Processes, err)
		}
	}
	return nil
}

// buildRoot mounts the only files that the process can see in a new root, which is read-only except for the documented
// directories.
func (s *sandbox) buildRoot() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	root := s.Staging
	if err := unix.Mount("bpm", root, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("mounting a root: %w", err)
	}
	// Shorter targets first: a mount hides what was mounted below it before.
	sort.SliceStable(s.Mounts, func(i, j int) bool { return len(s.Mounts[i].Target) < len(s.Mounts[j].Target) })
	for _, m := range s.Mounts {
		if err := m.mount(root); err != nil {
			return fmt.Errorf("mounting %s at %s: %w", m.Source, m.Target, err)
		}
	}
	if err := mountProc(filepath.Join(root, "proc")); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	if err := s.makeDev(root); err != nil {
		return fmt.Errorf("creating /dev: %w", err)
	}
	for _, name := range []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"} {
		if target, err := os.Readlink("/" + name); err == nil {
			if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
				return err
			}
		}
	}
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("changing the root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leaving the VM's root: %w", err)
	}
	if err := unix.Mount(
		"", "/", "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "",
	); err != nil {
		return fmt.Errorf("making the root read-only: %w", err)
	}
	return nil
}

// mountProc mounts the /proc of the process's PID namespace, of which bpm makes some parts read-only (bpm-release,
// src/bpm/runc/specbuilder/specbuilder.go, DefaultSpec).
func mountProc(target string) error {
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	return unix.Mount("proc", target, "proc", 0, "")
}

func (m bindMount) mount(root string) error {
	info, err := os.Stat(m.Source)
	if err != nil {
		return err
	}
	target := filepath.Join(root, m.Target)
	if info.IsDir() {
		err = os.MkdirAll(target, 0o755)
	} else if err = os.MkdirAll(filepath.Dir(target), 0o755); err == nil {
		var file *os.File
		if file, err = os.OpenFile(target, os.O_CREATE, 0o644); err == nil {
			err = file.Close()
		}
	}
	if err != nil {
		return err
	}
	if err := unix.Mount(m.Source, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	attributes := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if !m.Writable {
		attributes.Attr_set |= unix.MOUNT_ATTR_RDONLY
	}
	if !m.Execute {
		attributes.Attr_set |= unix.MOUNT_ATTR_NOEXEC
	}
	return unix.MountSetattr(unix.AT_FDCWD, target, unix.AT_RECURSIVE, attributes)
}

// makeDev creates a /dev with harmless devices only, each a bind mount of the VM's device node.
func (s *sandbox) makeDev(root string) error {
	dev := filepath.Join(root, "dev")
	if err := os.MkdirAll(dev, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("dev", dev, "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "mode=755"); err != nil {
		return err
	}
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		path := filepath.Join(dev, name)
		if err := os.WriteFile(path, nil, 0o666); err != nil {
			return err
		}
		if err := unix.Mount("/dev/"+name, path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	shm := filepath.Join(dev, "shm")
	if err := os.Mkdir(shm, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(
		"shm", shm, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=1777,size=64m",
	); err != nil {
		return err
	}
	for link, target := range map[string]string{
		"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
	} {
		if err := os.Symlink(target, filepath.Join(dev, link)); err != nil {
			return err
		}
	}
	return nil
}

// mounts lists what the process can see, as bpm's docs/runtime.md describes it.
func (p *ProcessConfig) mounts(job string) ([]bindMount, error) {
	data, tmp := root.Data(job), root.Data(job, "tmp")
	list := []bindMount{
		{Source: "/sys", Target: "/sys"},
		{Source: tmp, Target: "/tmp", Writable: true},
		{Source: tmp, Target: "/var/tmp", Writable: true},
		{Source: tmp, Target: tmp, Writable: true},
		{Source: root.Data("packages"), Target: root.Data("packages"), Execute: true},
		{Source: root.Package(""), Target: root.Package(""), Execute: true},
		{Source: root.Job(job), Target: root.Job(job), Execute: true},
		{Source: root.Log(job), Target: root.Log(job), Writable: true},
	}
	if p.EphemeralDisk {
		list = append(list, bindMount{Source: data, Target: data, Writable: true})
	}
	if p.PersistentDisk {
		store := root.Store(job)
		list = append(list, bindMount{Source: store, Target: store, Writable: true})
	}
	own := list[1:] // bpm's boshMounts, which have no /sys
	for _, dir := range []string{"/usr", "/etc", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"} {
		if info, err := os.Lstat(dir); err == nil && info.IsDir() {
			list = append(list, bindMount{Source: dir, Target: dir, Execute: true})
		}
	}
	for _, v := range p.AdditionalVolumes {
		list = append(list, bindMount{Source: v.Path, Target: v.Path, Writable: v.Writable, Execute: v.AllowExecutions})
	}
	for _, v := range p.Unsafe.UnrestrictedVolumes {
		paths, err := filepath.Glob(v.Path)
		if err != nil {
			return nil, fmt.Errorf("unsafe.unrestricted_volumes: path %q: %w", v.Path, err)
		}
		if len(paths) == 0 && !strings.ContainsAny(v.Path, "*?[") {
			return nil, fmt.Errorf("unsafe.unrestricted_volumes: path %s does not exist", v.Path)
		}
		for _, path := range paths {
			// As bpm's filterVolumesUnderBoshMounts in src/bpm/runc/adapter/adapter.go: silently.
			if slices.ContainsFunc(own, func(m bindMount) bool { return strings.HasPrefix(path, m.Target) }) {
				continue
			}
			list = append(list, bindMount{Source: path, Target: path, Writable: v.Writable, Execute: v.AllowExecutions})
		}
	}
	return list, nil
}
