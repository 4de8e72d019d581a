package vm

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"kubernetes-release/internal/bosh"
	"kubernetes-release/internal/logging"
)

// initArgument is the hidden first argument with which a program that uses this package is started as a VM's init.
const initArgument = "vm-init"

const (
	readyMessage = "ready"
	specFD       = 3
	statusFD     = 4
	stopTimeout  = 10 * time.Second
	// systemd's default (RestartSec); monit's unit has Restart=always (bosh-linux-stemcell-builder,
	// stages/bosh_monit/assets/monit.service).
	restartPause = 100 * time.Millisecond
)

// MonitPort is where a VM's monit listens, on the VM's loopback address.
const MonitPort = 2822

// MonitDir holds the files of a VM's monit: its log, state and configuration.
var MonitDir = bosh.DefaultRoot.Path("monit")

var (
	// MonitLog is monit's own log.
	MonitLog = filepath.Join(MonitDir, "monit.log")
	// MonitUserFile holds monit's "user:password", readable by root only.
	MonitUserFile = filepath.Join(MonitDir, "monit.user")
	// SystemMonitrc is a configuration file that exists before there are any jobs: monit warns about an include that
	// matches no file.
	SystemMonitrc = filepath.Join(MonitDir, "00_lab.monitrc")
)

const monitUser = "vcap"

// monitrc follows the stemcell's, but checks processes every second, so that a deploy spends less time waiting.
var monitrc = strings.ReplaceAll(`set daemon 1
set log MONIT_DIR/monit.log
set pidfile /run/monit.pid
set idfile MONIT_DIR/monit.id
set statefile MONIT_DIR/monit.state
set limits { programtimeout: 300 seconds }
set httpd port 2822 and
  use address 127.0.0.1
  allow cleartext MONIT_DIR/monit.user
include MONIT_DIR/*.monitrc
include MONIT_DIR/job/*.monitrc
`, "MONIT_DIR", MonitDir)

// MaybeRunInit runs a VM's init and does not return if Create has started the process as one. Programs and test
// binaries that create VMs must call it first in main or TestMain.
func MaybeRunInit() {
	if len(os.Args) > 1 && os.Args[1] == initArgument {
		os.Exit(initMain())
	}
}

// initMain is a VM's init: it reads its instructions from file descriptor 3, mounts the VM's filesystems, writes
// "ready" to descriptor 4, and then keeps monit running and reaps children until SIGTERM. It returns the exit code.
func initMain() int {
	log := logging.New(os.Stderr)
	runtime.LockOSThread() // never unlocked; see setUp
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "vm-init is started by the lab as the first process of a VM; it cannot be run by hand")
		return 2
	}
	specPipe, status := os.NewFile(specFD, "spec"), os.NewFile(statusFD, "status")
	if unix.Gettid() != 1 { // the scheduler moved the main goroutine before it was locked: start again
		return fail(log, status, syscall.Exec("/proc/self/exe", os.Args, os.Environ()))
	}
	syscall.CloseOnExec(specFD)
	syscall.CloseOnExec(statusFD)
	line, err := bufio.NewReader(specPipe).ReadString('\n')
	if err != nil {
		return 1 // the creator of this VM has exited
	}
	_ = specPipe.Close()
	var i instructions
	if err := json.Unmarshal([]byte(line), &i); err != nil {
		return fail(log, status, fmt.Errorf("decoding the instructions: %w", err))
	}
	spec := i.Spec
	ownResolver := spec.hasResolver() // before the root is changed
	units, systemd, err := setUp(i)
	if err != nil {
		return fail(log, status, err)
	}
	if systemd {
		_, _ = fmt.Fprintln(status, readyMessage)
		return fail(log, status, syscall.Exec("/sbin/init", []string{"/sbin/init"}, []string{"container=lab"}))
	}
	if !ownResolver {
		if err := startResolver(spec.Network.Gateway(), log); err != nil {
			return fail(log, status, fmt.Errorf("starting the resolver: %w", err))
		}
	}
	debug.SetGCPercent(20) // init has little to do from here on, so memory matters more than speed

	s := &supervisor{log: log, units: units, image: spec.Image != "", signals: make(chan os.Signal, 64)}
	signal.Notify(s.signals, unix.SIGCHLD, unix.SIGTERM, unix.SIGINT, unix.SIGPWR)
	if err := s.startMonit(); err != nil {
		return fail(log, status, err)
	}
	if err := s.awaitMonit(); err != nil {
		return fail(log, status, err)
	}
	_, _ = fmt.Fprintln(status, readyMessage)
	_ = status.Close()
	log.Info("VM is ready", "vm", spec.Name, "address", spec.Address)
	debug.FreeOSMemory()
	s.run()
	return 0
}

func fail(log *slog.Logger, status *os.File, err error) int {
	log.Error("VM cannot start", "error", err)
	_, _ = fmt.Fprintln(status, strings.ReplaceAll(err.Error(), "\n", "; "))
	return 1
}

// setUp sets up the namespaces that init was started in as the VM. It returns the hierarchy of systemd's units, and
// whether the image's systemd is to become init.
func setUp(i instructions) (units hierarchy, systemd bool, err error) {
	trees, err := hierarchies() // before the host's mounts are removed
	if err != nil {
		return hierarchy{}, false, err
	}
	systemd = i.Spec.Image != "" && i.Spec.bootsSystemd(trees)
	// The groups that init is in become the roots of the VM's view. This applies to the main thread, which starts all
	// processes.
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return hierarchy{}, false, fmt.Errorf("creating a cgroup namespace: %w", err)
	}
	if err := unix.Sethostname([]byte(i.Spec.hostname())); err != nil {
		return hierarchy{}, false, fmt.Errorf("setting the host name: %w", err)
	}
	if err := mountAll(i, trees); err != nil {
		return hierarchy{}, false, err
	}
	if err := setKernelDefaults(); err != nil {
		return hierarchy{}, false, err
	}
	unix.Umask(0o022)
	name, _ := unix.BytePtrFromString(initArgument) // instead of "exe", the name of the link by which it was started
	if err := unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(name)), 0, 0, 0); err != nil {
		return hierarchy{}, false, fmt.Errorf("naming init: %w", err)
	}
	units, err = unitTree(trees)
	if i.Spec.Image != "" {
		return units, systemd, errors.Join(err, keepClock())
	}
	return units, false, errors.Join(err, os.WriteFile(SystemMonitrc, nil, 0o600))
}

// kernelDefaults are settings of the network namespace as a stemcell boots with them (bosh-linux-stemcell-builder,
// stages/bosh_sysctl/assets/ 60-bosh-sysctl.conf); a new namespace has the host's. Those for bridged packets do not
// exist on a stemcell until br_netfilter is loaded, and have no effect before.
var kernelDefaults = map[string]string{
	"net/ipv4/ip_forward":                 "0",
	"net/ipv4/conf/all/rp_filter":         "1",
	"net/ipv4/conf/default/rp_filter":     "1",
	"net/ipv6/conf/all/disable_ipv6":      "1",
	"net/ipv6/conf/default/disable_ipv6":  "1",
	"net/bridge/bridge-nf-call-iptables":  "0",
	"net/bridge/bridge-nf-call-ip6tables": "0",
}

func setKernelDefaults() error {
	for name, value := range kernelDefaults {
		file, err := os.OpenFile("/proc/sys/"+name, os.O_WRONLY, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue // not in this kernel
		}
		if err == nil {
			_, err = file.WriteString(value)
			err = errors.Join(err, file.Close())
		}
		if err != nil {
			return fmt.Errorf("setting %s: %w", name, err)
		}
	}
	return nil
}

// supervisor keeps monit running, or the agent of an image, which starts monit itself, and reaps processes.
type supervisor struct {
	log     *slog.Logger
	signals chan os.Signal
	units   hierarchy
	image   bool
	monit   int // PID, 0 if it does not run
}

func (s *supervisor) startMonit() error {
	unit, argv := monitUnit, []string{"/usr/bin/monit", "-I", "-c", "/etc/monit/monitrc"}
	if s.image {
		unit, argv = agentUnit, []string{startFile}
	}
	pid, err := startInUnit(
		s.units,
		unit,
		argv,
		&syscall.ProcAttr{
			Dir:   "/",
			Env:   []string{"PATH=" + vmPath, "HOME=/root", "LANG=C.UTF-8"},
			Files: []uintptr{openNull(), 1, 2},
			Sys:   &syscall.SysProcAttr{Setsid: true},
		},
	)
	if err != nil {
		return fmt.Errorf("starting %s (Debian package monit, or the stemcell's agent): %w", argv[0], err)
	}
	s.monit = pid
	return nil
}

func openNull() uintptr {
	fd, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	return uintptr(fd)
}

// awaitMonit waits until monit answers, unless that is the Director's to do.
func (s *supervisor) awaitMonit() error {
	if s.image {
		return nil
	}
	deadline := time.Now().Add(bootTimeout / 2)
	for {
		conn, err := net.DialTimeout("tcp4", fmt.Sprintf("127.0.0.1:%d", MonitPort), time.Second)
		if err == nil {
			return conn.Close()
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("monit does not answer: %w", err)
		}
		select {
		case <-s.signals:
			if s.reap(); s.monit == 0 {
				return errors.New("monit exited right after its start; its messages are in the console log")
			}
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// run keeps monit running and reaps processes until it receives a signal to stop.
func (s *supervisor) run() {
	var restart <-chan time.Time
	for {
		select {
		case <-restart:
			restart = nil
			if err := s.startMonit(); err != nil {
				s.log.Error("cannot restart monit", "error", err)
				restart = time.After(restartPause)
			}
		case sig := <-s.signals:
			if sig != unix.SIGCHLD {
				s.log.Info("shutting down", "signal", sig.String())
				s.shutdown()
				return
			}
			if s.reap(); s.monit == 0 && restart == nil {
				s.log.Warn("monit, or the stemcell's agent, exited; restarting it")
				restart = time.After(restartPause)
			}
		}
	}
}

// reap waits for every child that has exited. Processes whose parent has exited are children of init.
func (s *supervisor) reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		if pid == s.monit {
			s.monit = 0
		}
	}
}

// shutdown stops monit first, so that it restarts nothing, then all other processes.
func (s *supervisor) shutdown() {
	if s.monit != 0 {
		_ = unix.Kill(s.monit, unix.SIGTERM)
		s.awaitChildren(stopTimeout/2, func() bool { return s.monit == 0 })
	}
	_ = unix.Kill(-1, unix.SIGTERM)
	s.awaitChildren(stopTimeout, noOtherProcess)
	_ = unix.Kill(-1, unix.SIGKILL)
	s.awaitChildren(stopTimeout, noOtherProcess)
}

func (s *supervisor) awaitChildren(limit time.Duration, done func() bool) {
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); {
		if s.reap(); done() {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func noOtherProcess() bool { return errors.Is(unix.Kill(-1, 0), unix.ESRCH) }

// mountAll creates the VM's mounts and makes them the root of this process.
func mountAll(i instructions, trees []hierarchy) error {
	root := i.Spec.root()
	// Keep the following mounts from propagating to the host.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	if i.Spec.Image != "" {
		image, err := mountImage(i.Spec)
		if err != nil {
			return err
		}
		root = image
	} else if err := mountSystem(root); err != nil {
		return err
	}
	if err := mountKernelFilesystems(root); err != nil {
		return err
	}
	if i.Spec.Image == "" {
		if err := mountAsAgent(root); err != nil {
			return err
		}
	}
	if err := mountCgroups(root, trees); err != nil {
		return err
	}
	if err := createDevices(root); err != nil {
		return err
	}
	if err := showVolumes(filepath.Join(root, "dev"), i.Volumes); err != nil {
		return err
	}
	if err := shieldHostSettings(root); err != nil {
		return err
	}
	if err := completePrograms(i, root, trees); err != nil {
		return err
	}
	for _, m := range i.Mounts {
		mount := bindReadOnly
		if m.Writable {
			mount = bind
		}
		if err := mount(m.Source, root, m.Target); err != nil {
			return err
		}
	}
	if err := pivot(root); err != nil {
		return err
	}
	// As systemd does; kubelet and container runtimes depend on it.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("making mounts shared: %w", err)
	}
	return nil
}

// completePrograms gives the VM what stands in for systemd, and hides what no stemcell has.
func completePrograms(i instructions, root string, trees []hierarchy) error {
	if i.Spec.Image != "" {
		return installImage(i, root, trees)
	}
	if err := simulateSystemd(root, trees); err != nil {
		return err
	}
	return hideAbsentPrograms(root)
}

// mountSystem mounts the VM's directory, with disks that are mounted below it, and the host's programs in it.
func mountSystem(root string) error {
	if err := unix.Mount(root, root, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mounting %s: %w", root, err)
	}
	for _, name := range append([]string{"usr"}, systemDirs...) {
		info, err := os.Lstat(filepath.Join(root, name))
		if err != nil || !info.IsDir() {
			continue // a link into /usr, or not on this host
		}
		if err := bindReadOnly("/"+name, root, name); err != nil {
			return err
		}
	}
	return nil
}

// bindReadOnly is bind, with all mounts of the directory read-only.
func bindReadOnly(source, root, target string) error {
	if err := bind(source, root, target); err != nil {
		return err
	}
	if err := unix.MountSetattr(
		unix.AT_FDCWD, filepath.Join(root, target), unix.AT_RECURSIVE,
		&unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY},
	); err != nil {
		return fmt.Errorf("making %s read-only: %w", target, err)
	}
	return nil
}

// bind mounts a directory of the host on one below the VM's root, which is created if it is missing.
func bind(source, root, target string) error {
	path := filepath.Join(root, target)
	err := os.MkdirAll(path, 0o755)
	if err == nil {
		err = unix.Mount(source, path, "", unix.MS_BIND|unix.MS_REC, "")
	}
	if err != nil {
		return fmt.Errorf("mounting %s at %s: %w", source, target, err)
	}
	return nil
}

type mount struct {
	target, kind string
	flags        uintptr
	options      string
}

func mountKernelFilesystems(root string) error {
	const safe = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := mountThese(root, []mount{
		{"/proc", "proc", safe, ""},
		{"/sys", "sysfs", safe, ""},
		{"/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=755"},
		{"/dev", "tmpfs", unix.MS_NOSUID, "mode=755"},
		{"/dev/pts", "devpts", unix.MS_NOSUID | unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620,gid=5"},
		// as bosh-agent remounts it (SetupSharedMemory in platform/linux_platform.go)
		{"/dev/shm", "tmpfs", safe, "mode=1777"},
		{"/dev/mqueue", "mqueue", safe, ""},
	}); err != nil {
		return err
	}
	return os.Mkdir(filepath.Join(root, "run/lock"), 0o777|fs.ModeSticky)
}

func mountThese(root string, mounts []mount) error {
	for _, m := range mounts {
		target := filepath.Join(root, m.target)
		if err := os.MkdirAll(target, 0o755); err != nil {
			return fmt.Errorf("mounting %s: %w", m.target, err)
		}
		if err := unix.Mount(m.kind, target, m.kind, m.flags, m.options); err != nil {
			return fmt.Errorf("mounting %s on %s: %w", m.kind, m.target, err)
		}
	}
	return nil
}

// mountAsAgent mounts what bosh-agent does: the directory for run files (setupRunDir in platform/linux_platform.go),
// 16 MB unless env.bosh.run_dir.tmpfs_size is set, with the kernel's mode for a tmpfs, of root and vcap, and the
// directories from which nothing can be executed, which it binds to directories of the ephemeral disk (SetupTmpDir and
// SetupLogDir).
func mountAsAgent(root string) error {
	if err := mountThese(root, []mount{
		{bosh.DefaultRoot.Path("data/sys/run"), "tmpfs", 0, fmt.Sprintf("size=16m,mode=1777,gid=%d", VcapGID)},
	}); err != nil {
		return err
	}
	for _, name := range []string{"tmp", "var/tmp", "var/log"} {
		path := filepath.Join(root, name)
		if err := bind(path, root, name); err != nil {
			return err
		}
		attributes := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOEXEC | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
		if err := unix.MountSetattr(unix.AT_FDCWD, path, 0, &attributes); err != nil {
			return fmt.Errorf("mounting /%s noexec: %w", name, err)
		}
	}
	return nil
}

const loopDevices = 128

// createDevices creates the device nodes of a VM. They are private: other VMs do not see a volume that is attached to
// this one.
func createDevices(root string) error {
	type device struct {
		name         string
		mode         uint32
		major, minor uint32
	}
	devices := []device{
		{
			"null",
			unix.S_IFCHR | 0o666,
			1,
			3,
		},
		{"zero", unix.S_IFCHR | 0o666, 1, 5},
		{"full", unix.S_IFCHR | 0o666, 1, 7},
		{
			"random",
			unix.S_IFCHR | 0o666,
			1,
			8,
		},
		{"urandom", unix.S_IFCHR | 0o666, 1, 9},
		{"kmsg", unix.S_IFCHR | 0o644, 1, 11},
		{
			"tty",
			unix.S_IFCHR | 0o666,
			5,
			0,
		},
		{"fuse", unix.S_IFCHR | 0o666, 10, 229},
		{"net/tun", unix.S_IFCHR | 0o666, 10, 200},
		{"loop-control", unix.S_IFCHR | 0o660, 10, 237},
	}
	for i := range uint32(loopDevices) {
		devices = append(devices, device{fmt.Sprintf("loop%d", i), unix.S_IFBLK | 0o660, 7, i})
	}
	dev := filepath.Join(root, "dev")
	if err := os.Mkdir(filepath.Join(dev, "net"), 0o755); err != nil {
		return err
	}
	for _, d := range devices {
		path := filepath.Join(dev, d.name)
		if err := unix.Mknod(path, d.mode, int(unix.Mkdev(d.major, d.minor))); err != nil {
			return fmt.Errorf("creating device /dev/%s: %w", d.name, err)
		}
		if err := os.Chmod(path, fs.FileMode(d.mode&0o777)); err != nil { // regardless of the umask
			return err
		}
	}
	for link, target := range map[string]string{
		"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1",
		"stderr": "/proc/self/fd/2",
	} {
		if err := os.Symlink(target, filepath.Join(dev, link)); err != nil {
			return err
		}
	}
	return nil
}

// hostSettings belong to the whole kernel: a VM that sets them, as kubelet and kube-proxy do, would change the host.
var hostSettings = []string{
	"kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes", "kernel/pid_max",
	"kernel/threads-max", "vm/overcommit_memory", "vm/panic_on_oom", "vm/max_map_count", "vm/swappiness",
	"vm/dirty_ratio", "vm/dirty_background_ratio", "fs/file-max", "fs/nr_open", "fs/aio-max-nr",
	"fs/inotify/max_user_instances", "fs/inotify/max_user_watches", "net/netfilter/nf_conntrack_max",
	"net/netfilter/nf_conntrack_buckets",
}

// shieldHostSettings mounts files of the VM's own over them. A user namespace, as of a pod with hostUsers: false, can
// mount /proc and /sys only where its VM has one without such mounts (mount_too_revealing in Linux' fs/namespace.c), so
// the VM has both once more, in a directory of init's own.
func shieldHostSettings(root string) error {
	store := filepath.Join(root, "run/kernel-settings")
	if err := os.Mkdir(store, 0o755); err != nil {
		return err
	}
	if err := mountUnshielded(root); err != nil {
		return err
	}
	shield := func(path string) error {
		content, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			return nil //nolint:nilerr // not in this kernel
		}
		file := filepath.Join(store, strings.ReplaceAll(path, "/", "."))
		if err := os.WriteFile(file, content, 0o644); err != nil {
			return err
		}
		if err := unix.Mount(file, filepath.Join(root, path), "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("shielding /%s: %w", path, err)
		}
		return nil
	}
	for _, name := range hostSettings {
		if err := shield("proc/sys/" + name); err != nil {
			return err
		}
	}
	return shield("sys/module/nf_conntrack/parameters/hashsize")
}

// unshielded is where a VM has /proc and /sys without mounts on them; only root can look into it.
const unshielded = "run/kernel"

func mountUnshielded(root string) error {
	if err := os.Mkdir(filepath.Join(root, unshielded), 0o700); err != nil {
		return err
	}
	for _, kind := range []string{"proc", "sysfs"} {
		target := filepath.Join(root, unshielded, kind)
		if err := os.Mkdir(target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(kind, target, kind, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
			return fmt.Errorf("mounting %s on %s: %w", kind, target, err)
		}
	}
	return nil
}

// absentPrograms are on no stemcell (bosh-linux-stemcell-builder, stages/base_ubuntu_packages), while the host may have
// them.
var absentPrograms = []string{"conntrack", "socat"}

// hideAbsentPrograms mounts an empty file, which cannot be executed, over them.
func hideAbsentPrograms(root string) error {
	empty := filepath.Join(root, "run/absent")
	if err := os.WriteFile(empty, nil, 0o444); err != nil {
		return err
	}
	for _, name := range absentPrograms {
		for _, dir := range []string{"usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin"} {
			path := filepath.Join(root, dir, name)
			info, err := os.Lstat(path)
			if err != nil || !info.Mode().IsRegular() {
				continue
			}
			if err := unix.Mount(empty, path, "", unix.MS_BIND, ""); err != nil {
				return fmt.Errorf("hiding /%s/%s: %w", dir, name, err)
			}
		}
	}
	return nil
}

// pivot changes the root to root and unmounts the host's.
func pivot(root string) error {
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("changing root to %s: %w", root, err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leaving the host's root: %w", err)
	}
	return os.Chdir("/")
}
