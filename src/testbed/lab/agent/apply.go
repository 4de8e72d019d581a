package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"kubernetes-release/internal/atomicfile"
	"kubernetes-release/internal/bosh"
	"kubernetes-release/testbed/lab/vm"
)

// Paths in a VM, as bosh-agent has them.
var (
	jobsDir         = bosh.DefaultRoot.Path("jobs")
	jobsDataDir     = bosh.DefaultRoot.Path("data/jobs")
	packagesDir     = bosh.DefaultRoot.Path("packages")
	packagesDataDir = bosh.DefaultRoot.Path("data/packages")
	instanceDir     = bosh.DefaultRoot.Path("instance")
	specFile        = bosh.DefaultRoot.Path("bosh/spec.json")
)

// Machine is what an agent works on: a VM of the lab, or a machine of its own.
type Machine interface {
	Name() string
	// HostPath, Do, DoAsVcap, Run, DialContext and KillMonit are as those of a vm.VM.
	HostPath(path string) string
	Do(f func() error) error
	DoAsVcap(f func() error) error
	Run(ctx context.Context, argv []string, o vm.RunOptions) error
	DialContext(ctx context.Context, kind, address string) (net.Conn, error)
	KillMonit() error
}

// host is an Agent that works on the VM from the host.
type host struct {
	vm Machine
}

// New returns the agent of a VM.
func New(m Machine) Agent { return &host{vm: m} }

var validName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]*$`)

func (s ApplySpec) check() error {
	seen := make(map[string]bool)
	entry := func(kind, name, fingerprint, dir string) error {
		switch {
		case !validName.MatchString(name):
			return fmt.Errorf("%s name %q: must be letters, digits, dots, dashes and underscores", kind, name)
		case !validName.MatchString(fingerprint):
			return fmt.Errorf(
				"%s %s: fingerprint %q: must be letters, digits, dots, dashes and underscores", kind, name, fingerprint,
			)
		case seen[kind+" "+name]:
			return fmt.Errorf("%s %s is given twice", kind, name)
		}
		seen[kind+" "+name] = true
		if info, err := os.Stat(dir); err != nil {
			return fmt.Errorf("%s %s: %w", kind, name, err)
		} else if !info.IsDir() {
			return fmt.Errorf("%s %s: %s is not a directory", kind, name, dir)
		}
		return nil
	}
	for _, j := range s.Jobs {
		if err := entry("job", j.Name, j.Fingerprint, j.Dir); err != nil {
			return err
		}
	}
	for _, p := range s.Packages {
		if err := entry("package", p.Name, p.Fingerprint, p.Dir); err != nil {
			return err
		}
	}
	return nil
}

// Apply implements Agent.
func (h *host) Apply(ctx context.Context, s ApplySpec) error {
	if err := s.check(); err != nil {
		return err
	}
	// As bosh-agent does (agent/applier/concrete_applier.go, Apply), monit is reloaded without services, which Start
	// adds again.
	if err := h.writeMonitFiles(nil); err != nil {
		return err
	}
	for _, step := range []func(ApplySpec) error{
		h.installJobs, h.installPackages, h.createJobDirs, h.removeOthers, h.writeInstance,
	} {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := step(s); err != nil {
			return err
		}
	}
	content, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	if err := atomicfile.Write(h.vm.HostPath(specFile), content, 0o600); err != nil {
		return err
	}
	return h.reloadMonit(ctx)
}

// spec reads the spec that Apply has kept. It is empty before the first Apply.
func (h *host) spec() (ApplySpec, error) {
	var s ApplySpec
	content, err := os.ReadFile(h.vm.HostPath(specFile))
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(content, &s); err != nil {
		return s, fmt.Errorf("decoding %s of VM %s: %w", specFile, h.vm.Name(), err)
	}
	return s, nil
}

// installJobs copies jobs into the VM. A directory gets its final name only when it is complete.
func (h *host) installJobs(s ApplySpec) error {
	for _, j := range s.Jobs {
		target := filepath.Join(jobsDataDir, j.Name, j.Fingerprint)
		if _, err := os.Stat(h.vm.HostPath(target)); errors.Is(err, fs.ErrNotExist) {
			temporary := h.vm.HostPath(target + ".incomplete")
			if err := os.RemoveAll(temporary); err != nil {
				return fmt.Errorf("job %s: %w", j.Name, err)
			}
			if err := copyJob(j.Dir, temporary); err != nil {
				return fmt.Errorf("job %s: %w", j.Name, err)
			}
			if err := os.Rename(temporary, h.vm.HostPath(target)); err != nil {
				return fmt.Errorf("job %s: %w", j.Name, err)
			}
		} else if err != nil {
			return fmt.Errorf("job %s: %w", j.Name, err)
		}
		if err := os.Chown(h.vm.HostPath(filepath.Dir(target)), 0, vm.VcapGID); err != nil {
			return fmt.Errorf("job %s: %w", j.Name, err)
		}
		if err := renameio.Symlink(target, h.vm.HostPath(filepath.Join(jobsDir, j.Name))); err != nil {
			return fmt.Errorf("job %s: %w", j.Name, err)
		}
	}
	return nil
}

// copyJob copies a rendered job with the owner and modes that bosh-agent sets: root:vcap, 0750 for directories and
// bin/*, 0640 for other files.
func copyJob(source, target string) error {
	return filepath.WalkDir(source, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(source, path)
		if err != nil {
			return err
		}
		to := filepath.Join(target, relative)
		mode := fs.FileMode(0o640)
		switch {
		case entry.IsDir():
			mode = 0o750
			err = os.MkdirAll(to, mode)
		case strings.HasPrefix(relative, "bin"+string(filepath.Separator)):
			mode = 0o750
			err = vm.CopyFile(path, to)
		default:
			err = vm.CopyFile(path, to)
		}
		if err != nil {
			return err
		}
		return errors.Join(os.Chown(to, 0, vm.VcapGID), os.Chmod(to, mode))
	})
}

// installPackages mounts packages into the VM. The mounts are passed as file descriptors, since the host's directories
// have no path in the VM.
func (h *host) installPackages(s ApplySpec) error {
	for _, p := range s.Packages {
		target := filepath.Join(packagesDataDir, p.Name, p.Fingerprint)
		if err := os.MkdirAll(h.vm.HostPath(target), 0o755); err != nil {
			return fmt.Errorf("package %s: %w", p.Name, err)
		}
		if err := h.mountPackage(p.Dir, target); err != nil {
			return fmt.Errorf("package %s: mounting %s: %w", p.Name, p.Dir, err)
		}
		if err := renameio.Symlink(target, h.vm.HostPath(filepath.Join(packagesDir, p.Name))); err != nil {
			return fmt.Errorf("package %s: %w", p.Name, err)
		}
	}
	return nil
}

// Boot boots a VM that does not run. As after a reboot under a Director, its persistent disk is mounted, and monit
// starts the processes; no lifecycle script runs.
func Boot(ctx context.Context, v *vm.VM) error { return boot(ctx, v, v.Spec.Disk()) }

// BootWithoutDisk is Boot for a persistent disk that bosh-agent does not mount, such as one without partitions
// (mountLastMountedDisk in agent/bootstrap.go): it starts monit all the same.
func BootWithoutDisk(ctx context.Context, v *vm.VM) error { return boot(ctx, v, nil) }

// boot boots a VM with a disk and its packages, which on a stemcell are files of the ephemeral disk.
func boot(ctx context.Context, v *vm.VM, mounts []vm.Mount) error {
	h := &host{vm: v}
	s, err := h.spec()
	if err != nil {
		return err
	}
	for _, p := range s.Packages {
		mounts = append(
			mounts, vm.Mount{Source: p.Dir, Target: filepath.Join(packagesDataDir, p.Name, p.Fingerprint)},
		)
	}
	return v.Boot(ctx, mounts)
}

func (h *host) mountPackage(source, target string) error {
	tree, err := unix.OpenTree(unix.AT_FDCWD, source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(tree) }()
	if err := unix.MountSetattr(
		tree, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NODEV},
	); err != nil {
		return err
	}
	return h.vm.Do(func() error {
		var want, have unix.Stat_t
		if err := unix.Fstat(tree, &want); err != nil {
			return err
		}
		mounted, err := isMountPoint(target)
		if err != nil {
			return err
		}
		if mounted {
			// Nothing to do for the same directory; a different one with the same fingerprint has been rebuilt.
			if err := unix.Stat(target, &have); err == nil && have.Dev == want.Dev && have.Ino == want.Ino {
				return nil
			}
			if err := unix.Unmount(target, unix.MNT_DETACH); err != nil {
				return err
			}
		}
		return unix.MoveMount(tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH)
	})
}

func isMountPoint(path string) (bool, error) {
	var here, above unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_MNT_ID, &here); err != nil {
		return false, err
	}
	if err := unix.Statx(
		unix.AT_FDCWD, filepath.Dir(path), unix.AT_SYMLINK_NOFOLLOW, unix.STATX_MNT_ID, &above,
	); err != nil {
		return false, err
	}
	return here.Mnt_id != above.Mnt_id, nil
}

// createJobDirs creates the directories that every job has. It runs in the VM because /var/vcap/sys/run is mounted only
// there.
func (h *host) createJobDirs(s ApplySpec) error {
	return h.vm.Do(func() error {
		for _, j := range s.Jobs {
			for _, dir := range []string{
				bosh.DefaultRoot.Data(j.Name), bosh.DefaultRoot.Log(j.Name), bosh.DefaultRoot.Run(j.Name),
			} {
				if err := os.MkdirAll(dir, 0o770); err != nil {
					return fmt.Errorf("job %s: %w", j.Name, err)
				}
				if err := errors.Join(os.Chown(dir, 0, vm.VcapGID), os.Chmod(dir, 0o770)); err != nil {
					return fmt.Errorf("job %s: %w", j.Name, err)
				}
			}
		}
		return nil
	})
}

// removeOthers removes jobs and packages that the spec does not name, and other versions of those that it names.
func (h *host) removeOthers(s ApplySpec) error {
	jobs, packages := make(map[string]string), make(map[string]string)
	for _, j := range s.Jobs {
		jobs[j.Name] = j.Fingerprint
	}
	for _, p := range s.Packages {
		packages[p.Name] = p.Fingerprint
	}
	return h.vm.Do(func() error {
		return errors.Join(
			removeUnnamed(jobsDir, jobsDataDir, jobs),
			removeUnnamed(packagesDir, packagesDataDir, packages),
		)
	})
}

func removeUnnamed(links, data string, keep map[string]string) error {
	entries, err := os.ReadDir(links)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if _, named := keep[e.Name()]; !named {
			if err := os.RemoveAll(filepath.Join(links, e.Name())); err != nil {
				return err
			}
		}
	}
	if entries, err = os.ReadDir(data); err != nil {
		return err
	}
	for _, e := range entries {
		versions, err := os.ReadDir(filepath.Join(data, e.Name()))
		if err != nil {
			return err
		}
		for _, v := range versions {
			if keep[e.Name()] == v.Name() {
				continue
			}
			if err := removeVersion(filepath.Join(data, e.Name(), v.Name())); err != nil {
				return err
			}
		}
		if _, named := keep[e.Name()]; !named {
			if err := os.Remove(filepath.Join(data, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeVersion removes a directory, after unmounting the host's package from it.
func removeVersion(path string) error {
	for {
		mounted, err := isMountPoint(path)
		if err != nil {
			return err
		}
		if !mounted {
			return os.RemoveAll(path)
		}
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmounting %s: %w", path, err)
		}
	}
}

// writeInstance writes the files that bosh-agent writes, and no others (writeInstanceData in agent/action/apply.go).
func (h *host) writeInstance(s ApplySpec) error {
	for name, value := range map[string]string{
		"id": s.Instance.ID, "az": s.Instance.AZ, "name": s.Instance.Group, "deployment": s.Instance.Deployment,
	} {
		if err := atomicfile.Write(h.vm.HostPath(filepath.Join(instanceDir, name)), []byte(value), 0o644); err != nil {
			return err
		}
	}
	return nil
}
