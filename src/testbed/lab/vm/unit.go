package vm

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// The control groups of systemd's units for monit and the agent, in the hierarchy in which systemd keeps its units.
const (
	monitUnit = "system.slice/monit.service"
	agentUnit = "system.slice/bosh-agent.service"
)

// systemdRun substitutes the systemd-run of a VM, whose systemd this package simulates.
//
//go:embed systemd-run.sh
var systemdRun []byte

// unitTree returns the hierarchy in which systemd keeps its units: version 2 if it is the only one, otherwise the one
// named systemd.
func unitTree(trees []hierarchy) (hierarchy, error) {
	for _, h := range trees {
		if h.v2 && h.dir == cgroupRoot || strings.Contains(h.options, "name=systemd") {
			return h, nil
		}
	}
	return hierarchy{}, fmt.Errorf(
		"there is no control group hierarchy named systemd below %s; mount it, as Debian's init systems do", cgroupRoot,
	)
}

// inVM is the hierarchy's directory in a VM.
func (h hierarchy) inVM() string {
	if h.dir == cgroupRoot {
		return cgroupRoot
	}
	return filepath.Join(cgroupRoot, filepath.Base(h.dir))
}

// simulateSystemd makes the VM look like one that systemd manages (sd_booted(3)), with a systemd-run that creates
// scopes.
// It must run before the root is changed.
func simulateSystemd(root string, trees []hierarchy) error {
	units, err := unitTree(trees)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(root, "run/systemd/system"), 0o755); err != nil {
		return err
	}
	const program = "usr/bin/systemd-run"
	file := filepath.Join(root, "run/systemd/systemd-run")
	script := strings.ReplaceAll(string(systemdRun), "UNITS", units.inVM())
	if err := os.WriteFile(file, []byte(script), 0o755); err != nil {
		return err
	}
	if err := unix.Mount(file, filepath.Join(root, program), "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("replacing /%s (Debian package systemd): %w", program, err)
	}
	return nil
}

// startInUnit starts a process of a unit, and returns its PID. It must be called on the main goroutine.
func startInUnit(units hierarchy, unit string, argv []string, attr *syscall.ProcAttr) (int, error) {
	group := filepath.Join(units.inVM(), unit)
	if err := os.MkdirAll(group, 0o755); err != nil {
		return 0, err
	}
	if units.v2 {
		dir, err := os.Open(group)
		if err != nil {
			return 0, err
		}
		defer func() { _ = dir.Close() }()
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, int(dir.Fd())
		return syscall.ForkExec(argv[0], argv, attr)
	}
	// A child inherits the groups of the thread that creates it.
	move := func(group string) error { return os.WriteFile(filepath.Join(group, "tasks"), []byte("0"), 0) }
	if err := move(group); err != nil {
		return 0, err
	}
	pid, err := syscall.ForkExec(argv[0], argv, attr)
	return pid, errors.Join(err, move(units.inVM()))
}

// KillMonit does what "systemctl kill monit" does: it sends SIGTERM to every process in the control group of monit's
// unit and in groups below it. Then init starts monit again, as systemd does.
func (v *VM) KillMonit() error {
	trees, err := hierarchies()
	if err != nil {
		return err
	}
	units, err := unitTree(trees)
	if err != nil {
		return err
	}
	return filepath.WalkDir(
		filepath.Join(v.Spec.cgroup(units), monitUnit),
		func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.Name() != "cgroup.procs" {
				return ignoreMissing(err)
			}
			content, err := os.ReadFile(path)
			for field := range strings.FieldsSeq(string(content)) {
				if pid, err := strconv.Atoi(field); err == nil && pid > 1 {
					_ = unix.Kill(pid, unix.SIGTERM) // fails if it has just exited
				}
			}
			return ignoreMissing(err)
		},
	)
}

// ignoreMissing drops the error of a control group that is removed while it is read.
func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}
