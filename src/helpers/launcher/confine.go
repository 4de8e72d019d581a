package launcher

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// capabilities are the kernel's capabilities by their names in capabilities(7), without CAP_.
var capabilities = map[string]uint{
	"AUDIT_CONTROL":      unix.CAP_AUDIT_CONTROL,
	"AUDIT_READ":         unix.CAP_AUDIT_READ,
	"AUDIT_WRITE":        unix.CAP_AUDIT_WRITE,
	"BLOCK_SUSPEND":      unix.CAP_BLOCK_SUSPEND,
	"BPF":                unix.CAP_BPF,
	"CHECKPOINT_RESTORE": unix.CAP_CHECKPOINT_RESTORE,
	"CHOWN":              unix.CAP_CHOWN,
	"DAC_OVERRIDE":       unix.CAP_DAC_OVERRIDE,
	"DAC_READ_SEARCH":    unix.CAP_DAC_READ_SEARCH,
	"FOWNER":             unix.CAP_FOWNER,
	"FSETID":             unix.CAP_FSETID,
	"IPC_LOCK":           unix.CAP_IPC_LOCK,
	"IPC_OWNER":          unix.CAP_IPC_OWNER,
	"KILL":               unix.CAP_KILL,
	"LEASE":              unix.CAP_LEASE,
	"LINUX_IMMUTABLE":    unix.CAP_LINUX_IMMUTABLE,
	"MAC_ADMIN":          unix.CAP_MAC_ADMIN,
	"MAC_OVERRIDE":       unix.CAP_MAC_OVERRIDE,
	"MKNOD":              unix.CAP_MKNOD,
	"NET_ADMIN":          unix.CAP_NET_ADMIN,
	"NET_BIND_SERVICE":   unix.CAP_NET_BIND_SERVICE,
	"NET_BROADCAST":      unix.CAP_NET_BROADCAST,
	"NET_RAW":            unix.CAP_NET_RAW,
	"PERFMON":            unix.CAP_PERFMON,
	"SETFCAP":            unix.CAP_SETFCAP,
	"SETGID":             unix.CAP_SETGID,
	"SETPCAP":            unix.CAP_SETPCAP,
	"SETUID":             unix.CAP_SETUID,
	"SYSLOG":             unix.CAP_SYSLOG,
	"SYS_ADMIN":          unix.CAP_SYS_ADMIN,
	"SYS_BOOT":           unix.CAP_SYS_BOOT,
	"SYS_CHROOT":         unix.CAP_SYS_CHROOT,
	"SYS_MODULE":         unix.CAP_SYS_MODULE,
	"SYS_NICE":           unix.CAP_SYS_NICE,
	"SYS_PACCT":          unix.CAP_SYS_PACCT,
	"SYS_PTRACE":         unix.CAP_SYS_PTRACE,
	"SYS_RAWIO":          unix.CAP_SYS_RAWIO,
	"SYS_RESOURCE":       unix.CAP_SYS_RESOURCE,
	"SYS_TIME":           unix.CAP_SYS_TIME,
	"SYS_TTY_CONFIG":     unix.CAP_SYS_TTY_CONFIG,
	"WAKE_ALARM":         unix.CAP_WAKE_ALARM,
}

// maxUserID is the kernel's number for no user.
const maxUserID = 1<<32 - 1

// maxCapabilities is the size of the kernel's sets of capabilities, in bits.
const maxCapabilities = 64

func (c *Config) validateConfinement(v *validation) {
	for _, name := range c.Capabilities {
		if _, known := capabilities[name]; !known {
			v.problem("capabilities has %q: set names of capabilities(7) without CAP_, such as NET_ADMIN", name)
		}
	}
	for i, path := range c.WritablePaths {
		v.absolute(fmt.Sprintf("writable_paths[%d]", i), path)
	}
	for i, path := range c.LockFiles {
		v.absolute(fmt.Sprintf("lock_files[%d]", i), path)
	}
	for i, path := range c.UserDirs {
		v.absolute(fmt.Sprintf("user_dirs[%d]", i), path)
	}
	if c.PersistentDisk != "" {
		v.absolute("persistent_disk", c.PersistentDisk)
	}
	if c.UserID < 0 || c.UserID >= maxUserID {
		v.problem("user_id is %d: set a number between 0 and %d", c.UserID, maxUserID)
	}
	others := slices.ContainsFunc(c.Capabilities, func(name string) bool { return name != "NET_BIND_SERVICE" })
	if c.UserID != 0 && (c.Capabilities == nil || others || c.PrivateDir == "") {
		v.problem("user_id requires capabilities, a list of nothing but NET_BIND_SERVICE, and private_dir")
	}
	if c.UserID == 0 && len(c.UserDirs) > 0 {
		v.problem("user_dirs requires user_id")
	}
	if c.WritablePaths != nil && (c.Capabilities == nil || slices.Contains(c.Capabilities, "SYS_ADMIN")) {
		v.problem("writable_paths requires capabilities without SYS_ADMIN, with which the process could undo it")
	}
}

// confine takes from this thread what the process does not need. What a thread gives up, the program that it becomes by
// exec does not have: the caller must call exec from the same goroutine.
func (c *Config) confine(log *slog.Logger) error {
	if c.Capabilities == nil {
		return nil
	}
	runtime.LockOSThread()
	if c.WritablePaths != nil {
		if err := c.restrictView(); err != nil {
			log.Warn(
				"this kernel does not allow the process a read-only view of the file system; it starts without",
				"error", err,
			)
		}
	}
	if err := dropFromBounding(c.Capabilities); err != nil {
		return err
	}
	if err := c.becomeUser(); err != nil {
		return err
	}
	if err := keepCapabilities(c.Capabilities, c.UserID != 0); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	log.Info(
		"confined", "user_id", c.UserID, "capabilities", strings.Join(c.Capabilities, ","), "writable",
		strings.Join(c.WritablePaths, ","),
	)
	return nil
}

// startCapabilities are those that bpm.yml must list for a process with a user of its own. The launcher reads files of
// the job's user, becomes that user and gives everything up. KILL is for bpm's init, which stays vcap's and passes
// SIGTERM on (bpm-release, src/bpm/runc/adapter/adapter.go, wrapWithInit).
var startCapabilities = []string{"DAC_READ_SEARCH", "KILL", "SETGID", "SETPCAP", "SETUID"}

// temporaryDir is where a process with a user of its own can create files under bpm, whose own directory for them is
// vcap's: a small file system in memory that nobody else has (bpm-release, src/bpm/runc/specbuilder/specbuilder.go).
const temporaryDir = "/dev/shm"

// becomeOwnUser gives up what this process, which bpm has started as vcap, has more than the configured user, becomes
// that user and runs the program. It returns only with an error.
func (c *Config) becomeOwnUser(program string, line, environment []string, log *slog.Logger) error {
	has, err := permitted()
	if err != nil {
		return err
	}
	if missing := bits(startCapabilities) &^ has; missing != 0 {
		return fmt.Errorf(
			"user %d is to become user %d, but the process has no capabilities for that: bpm.yml must list [%s]",
			os.Geteuid(), c.UserID, strings.Join(startCapabilities, ", "),
		)
	}
	if err := c.confine(log); err != nil {
		return err
	}
	environment = append(slices.Clone(environment), "TMPDIR="+temporaryDir)
	return fmt.Errorf("%s cannot be run: %w", program, syscall.Exec(program, line, environment))
}

// checkConfined returns an error if this process, which is that of the configured user, has or can get more than its
// capabilities.
func (c *Config) checkConfined() error {
	has, err := permitted()
	if err != nil {
		return err
	}
	for number := range uintptr(maxCapabilities) {
		bounding, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, number, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			break // the kernel has no more
		}
		if err != nil {
			return fmt.Errorf("read the bounding set: %w", err)
		}
		has |= uint64(bounding) << number
	}
	if more := has &^ bits(c.Capabilities); more != 0 {
		return fmt.Errorf("user %d has capabilities that the process must not have: %x", c.UserID, more)
	}
	return nil
}

// permitted returns the capabilities of this thread.
func permitted() (uint64, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return 0, fmt.Errorf("read capabilities: %w", err)
	}
	return uint64(data[0].Permitted) | uint64(data[1].Permitted)<<32, nil
}

// becomeUser makes this process the one of the configured user. This thread can still keep capabilities
// (capabilities(7)).
func (c *Config) becomeUser() error {
	if c.UserID == 0 {
		return nil
	}
	var job unix.Stat_t
	if err := unix.Stat(filepath.Dir(c.PrivateDir), &job); err != nil {
		return fmt.Errorf("the job's directory: %w", err)
	}
	if err := errors.Join(
		unix.Prctl(unix.PR_SET_KEEPCAPS, 1, 0, 0, 0),
		syscall.Setgroups([]int{int(job.Gid)}),
		syscall.Setresgid(c.UserID, c.UserID, c.UserID),
		syscall.Setresuid(c.UserID, c.UserID, c.UserID),
	); err != nil {
		return fmt.Errorf("become user %d: %w", c.UserID, err)
	}
	return nil
}

// bits returns capabilities as a set.
func bits(names []string) uint64 {
	var set uint64
	for _, name := range names {
		set |= 1 << capabilities[name]
	}
	return set
}

// dropFromBounding takes all capabilities but these from the bounding set, for good: exec gives a program of root's
// what is in it (capabilities(7)).
func dropFromBounding(names []string) error {
	keep := bits(names)
	for number := range uintptr(maxCapabilities) {
		if keep&(1<<number) != 0 {
			continue
		}
		err := unix.Prctl(unix.PR_CAPBSET_DROP, number, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			break // the kernel has no more
		}
		if err != nil {
			return fmt.Errorf("give up capability %d: %w", number, err)
		}
	}
	return nil
}

// keepCapabilities gives up all capabilities but these. A program that root does not run has only those that are
// ambient.
func keepCapabilities(names []string, ambient bool) error {
	keep := bits(names)
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("give up ambient capabilities: %w", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	for i := range data {
		part := uint32(keep >> (32 * i))
		data[i].Permitted &= part
		data[i].Effective = data[i].Permitted
		data[i].Inheritable = 0
		if ambient {
			data[i].Inheritable = data[i].Permitted
		}
	}
	if err := unix.Capset(&header, &data[0]); err != nil {
		return fmt.Errorf("give up capabilities: %w", err)
	}
	if !ambient {
		return nil
	}
	for _, name := range names {
		if err := unix.Prctl(
			unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, uintptr(capabilities[name]), 0, 0,
		); err != nil {
			return fmt.Errorf("keep capability %s: %w", name, err)
		}
	}
	return nil
}

// restrictView gives the thread a view of the file system in which it can write to the configured paths only.
func (c *Config) restrictView() error {
	if err := privateMounts(); err != nil {
		return err
	}
	return readOnlyExcept(c.WritablePaths)
}

// privateMounts gives the thread a mount namespace of its own. What is mounted or unmounted on the VM later is seen in
// it too, but not the other way round.
func privateMounts() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("mount namespace: %w", err)
	}
	return nil
}

// readOnlyExcept makes all file systems in the thread's mount namespace read-only but for these paths.
func readOnlyExcept(paths []string) error {
	var writable []string
	for _, path := range paths {
		resolved, err := filepath.EvalSymlinks(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = unix.Mount(resolved, resolved, "", unix.MS_BIND|unix.MS_REC, "")
		}
		if err != nil {
			return fmt.Errorf("mount %s: %w", path, err)
		}
		writable = append(writable, resolved)
	}
	if err := unix.MountSetattr(
		unix.AT_FDCWD, "/", unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY},
	); err != nil {
		return fmt.Errorf("mount / read-only: %w", err)
	}
	for _, path := range writable {
		if err := unix.MountSetattr(
			unix.AT_FDCWD, path, unix.AT_RECURSIVE, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY},
		); err != nil {
			return fmt.Errorf("mount %s writable: %w", path, err)
		}
	}
	return nil
}
