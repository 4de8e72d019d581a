package vm

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"kubernetes-release/internal/bosh"
	"kubernetes-release/internal/poll"
	"kubernetes-release/internal/process"
	"kubernetes-release/testbed/lab/network"
)

const (
	// For a machine without processor time to spare. On an idle one either takes less than a second.
	bootTimeout    = 3 * time.Minute // until monit answers
	destroyTimeout = 3 * time.Minute
)

// Create creates and boots a VM, and returns when its monit answers. The lab's network must exist. If a VM with that
// name is alive, that is an error; if it is dead, its remains are removed first. After an error nothing of the VM is
// left, unless the error says so.
func Create(ctx context.Context, spec Spec) (*VM, error) {
	if err := spec.check(); err != nil {
		return nil, err
	}
	if err := clearRemains(ctx, spec); err != nil {
		return nil, err
	}
	v := &VM{Spec: spec, record: record{Spec: spec, Created: time.Now().UTC()}}
	if err := v.create(ctx); err != nil {
		cleanup, cancel := context.WithTimeout(context.WithoutCancel(ctx), destroyTimeout)
		defer cancel()
		return nil, errors.Join(fmt.Errorf("creating VM %s: %w", spec.Name, err), v.Destroy(cleanup))
	}
	return v, nil
}

func clearRemains(ctx context.Context, spec Spec) error {
	old, err := Open(spec.StateDir, spec.Name)
	if err == nil && old.Alive() {
		return fmt.Errorf("VM %s already exists (init is process %d); destroy it first", spec.Name, old.PID())
	}
	return Remove(ctx, spec.StateDir, spec.Name)
}

// Remove destroys the VM with a name, if it exists, and removes its files; see VM.Destroy.
func Remove(ctx context.Context, stateDir, name string) error {
	v, err := Open(stateDir, name)
	if errors.Is(err, ErrNotFound) {
		return os.RemoveAll(Spec{StateDir: stateDir, Name: name}.dir()) // without a record there can only be files
	}
	if err != nil {
		return err
	}
	return v.Destroy(ctx)
}

func (v *VM) create(ctx context.Context) error {
	if err := os.MkdirAll(v.Spec.dir(), 0o755); err != nil {
		return err
	}
	// From here on the record exists, by which Destroy finds everything.
	if err := v.record.save(); err != nil {
		return err
	}
	populate := populateRoot
	if v.Spec.Image != "" {
		populate = populateImage
	}
	if err := populate(v.Spec); err != nil {
		return fmt.Errorf("populating its root directory: %w", err)
	}
	if v.Spec.PersistentDisk != "" {
		if err := os.MkdirAll(v.Spec.PersistentDisk, 0o755); err != nil {
			return fmt.Errorf("persistent disk: %w", err)
		}
	}
	return v.boot(ctx, v.Spec.Disk(), v.Spec.Files) // the Director has the disk of a new VM mounted before all else
}

// Mount is a directory of the host that a VM has, read-only unless it is writable.
type Mount struct {
	Source   string `json:"source"` // on the host, absolute
	Target   string `json:"target"` // in the VM
	Writable bool   `json:"writable,omitempty"`
}

// Disk returns the mount of the persistent disk, none if there is none.
func (s Spec) Disk() []Mount {
	if s.PersistentDisk == "" {
		return nil
	}
	return []Mount{{Source: s.PersistentDisk, Target: bosh.DefaultRoot.Path("store"), Writable: true}}
}

// Boot boots a VM that does not run, as when a machine is powered on: its disks are as they were, and what was only in
// memory is gone: processes, tmpfs, control groups, and everything in the network namespace (interfaces, addresses,
// packet filters, settings). mounts are what the agent mounts before monit starts; the persistent disk is one of them.
func (v *VM) Boot(ctx context.Context, mounts []Mount) error {
	if v.record.initRuns() {
		return fmt.Errorf("VM %s is running (init is process %d)", v.Spec.Name, v.record.PID)
	}
	v.record.PID, v.record.Started, v.record.Ready = 0, 0, false
	if err := v.record.save(); err != nil {
		return err
	}
	if err := v.Spec.removeCgroups(ctx); err != nil {
		return fmt.Errorf("VM %s: %w", v.Spec.Name, err)
	}
	if err := v.boot(ctx, mounts, nil); err != nil {
		return fmt.Errorf("booting VM %s: %w", v.Spec.Name, err)
	}
	return nil
}

// boot starts init, with control groups and network, and waits until it is ready.
func (v *VM) boot(ctx context.Context, mounts []Mount, files map[string]string) error {
	if err := v.Spec.createCgroups(); err != nil {
		return err
	}
	child, err := startInit(v.Spec)
	if err != nil {
		return err
	}
	defer child.close()
	if err := v.instruct(ctx, child, mounts, files); err != nil {
		_ = child.cmd.Process.Kill()
		return fmt.Errorf("%w\n%s", err, consoleTail(v.Spec))
	}
	return nil
}

// instruct sends init its instructions once its control groups and network exist, and waits until it is ready.
func (v *VM) instruct(
	ctx context.Context, child *initProcess, mounts []Mount, files map[string]string,
) error {
	init, err := process.Read(child.cmd.Process.Pid)
	if err != nil {
		return fmt.Errorf("init: %w", err)
	}
	v.record.PID, v.record.Started = child.cmd.Process.Pid, init.Started
	if err := v.record.save(); err != nil {
		return err
	}
	if err := v.Spec.joinCgroups(v.record.PID, v.Spec.cgroup); err != nil {
		return err
	}
	if err := v.Spec.Network.Attach(v.record.PID, v.Spec.Address); err != nil {
		return err
	}
	volumes, err := v.Spec.volumes()
	if err != nil {
		return err
	}
	if err := child.send(instructions{v.Spec, mounts, volumes, files}); err != nil {
		return err
	}
	if err := child.awaitReady(ctx); err != nil {
		return err
	}
	v.record.Ready = true
	if err := v.record.save(); err != nil {
		return err
	}
	return v.syncVolumes()
}

// initProcess is a started init with the pipes by which it is controlled until the VM has booted.
type initProcess struct {
	cmd    *exec.Cmd
	spec   *os.File // init reads its instructions from it, and exits if it is closed without any
	status *os.File // init writes "ready" or an error to it
}

// startInit starts this executable as init of new namespaces, where it waits for its instructions.
func startInit(spec Spec) (*initProcess, error) {
	specOut, specIn, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = specOut.Close() }()
	status, statusIn, err := os.Pipe()
	if err != nil {
		_ = specIn.Close()
		return nil, err
	}
	defer func() { _ = statusIn.Close() }()
	console, err := os.OpenFile(consoleLog(spec), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		_ = specIn.Close()
		_ = status.Close()
		return nil, err
	}
	defer func() { _ = console.Close() }()

	cmd := exec.Command("/proc/self/exe", initArgument, spec.Name)
	cmd.Args[0] = "lab"
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + vmPath, "LANG=C.UTF-8"}
	cmd.Stdout, cmd.Stderr = console, console
	cmd.ExtraFiles = []*os.File{specOut, statusIn}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true,
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
	}
	if err := cmd.Start(); err != nil {
		_ = specIn.Close()
		_ = status.Close()
		return nil, fmt.Errorf("starting init in new namespaces: %w", err)
	}
	go func() { _ = cmd.Wait() }() // so that it does not stay a zombie
	return &initProcess{cmd: cmd, spec: specIn, status: status}, nil
}

// instructions are what init needs to know.
type instructions struct {
	Spec    Spec     `json:"spec"`
	Mounts  []Mount  `json:"mounts,omitempty"`
	Volumes []Volume `json:"volumes,omitempty"`
	// Files are those of a new VM.
	Files map[string]string `json:"files,omitempty"`
}

func (p *initProcess) send(i instructions) error {
	content, err := json.Marshal(i)
	if err != nil {
		return err
	}
	if _, err := p.spec.Write(append(content, '\n')); err != nil {
		return fmt.Errorf("sending init its instructions: %w", err)
	}
	return nil
}

func (p *initProcess) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = p.status.SetReadDeadline(time.Now()) })
	defer stop()
	message, err := bufio.NewReader(p.status).ReadString('\n')
	switch message = strings.TrimSpace(message); {
	case message == readyMessage:
		return nil
	case message != "":
		return errors.New("init: " + message)
	case ctx.Err() != nil:
		return fmt.Errorf("init was not ready in time: %w", context.Cause(ctx))
	case errors.Is(err, io.EOF):
		return errors.New("init exited without a message")
	}
	return fmt.Errorf("waiting for init: %w", err)
}

func (p *initProcess) close() {
	_ = p.spec.Close()
	_ = p.status.Close()
}

func consoleTail(s Spec) string {
	content, err := os.ReadFile(consoleLog(s))
	if err != nil {
		return ""
	}
	lines := bytes.Split(bytes.TrimSpace(content), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-5):], []byte("\n")))
}

// Shutdown makes the VM's init stop monit and all processes (SIGTERM, and SIGKILL ten seconds later) and waits until it
// has exited, as when a machine is powered down. The VM's files are kept; it can be booted or destroyed afterwards.
func (v *VM) Shutdown(ctx context.Context) error {
	if !v.record.initRuns() {
		return nil
	}
	if err := unix.Kill(v.record.PID, unix.SIGTERM); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("VM %s: asking init (process %d) to shut down: %w", v.Spec.Name, v.record.PID, err)
	}
	return v.awaitExit(ctx)
}

// Kill powers off the VM without closing its connections, as when a machine loses power. Its files are kept.
func (v *VM) Kill(ctx context.Context) error {
	if v.record.initRuns() {
		// The kernel would close the connections of killed processes, as that of a machine without power cannot.
		if err := v.Spec.Network.Detach(v.Spec.Address); err != nil {
			return fmt.Errorf("VM %s: %w", v.Spec.Name, err)
		}
		if err := unix.Kill(v.record.PID, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("VM %s: killing init (process %d): %w", v.Spec.Name, v.record.PID, err)
		}
	}
	return v.awaitExit(ctx)
}

func (v *VM) awaitExit(ctx context.Context) error {
	return poll.Until(ctx, 10*time.Millisecond, func(context.Context) error {
		if v.record.initRuns() {
			return fmt.Errorf("VM %s: init (process %d) is still running", v.Spec.Name, v.record.PID)
		}
		return nil
	})
}

// Destroy kills the VM and removes everything that belongs to it except its persistent disk. The VM can be in any
// state, also created only in part. Destroy can be repeated.
func (v *VM) Destroy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, destroyTimeout)
	defer cancel()
	if err := v.Spec.check(); err != nil {
		return err // the record is corrupt: do not guess what to kill or remove
	}
	if err := v.Kill(ctx); err != nil {
		return err
	}
	if err := v.Spec.removeCgroups(ctx); err != nil {
		return fmt.Errorf("VM %s: %w", v.Spec.Name, err)
	}
	if err := v.Spec.Network.Detach(v.Spec.Address); err != nil {
		return fmt.Errorf("VM %s: %w", v.Spec.Name, err)
	}
	if err := detachLoops(v.Spec.dir()); err != nil {
		return fmt.Errorf("VM %s: %w", v.Spec.Name, err)
	}
	return v.removeFiles()
}

// removeFiles deletes the VM's directory, the record last, so that it can be repeated after an interruption.
func (v *VM) removeFiles() error {
	entries, err := os.ReadDir(v.Spec.dir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("VM %s: %w", v.Spec.Name, err)
	}
	for _, e := range entries {
		if path := filepath.Join(v.Spec.dir(), e.Name()); path != recordFile(v.Spec) {
			if err := os.RemoveAll(path); err != nil {
				return fmt.Errorf("VM %s: removing its files: %w", v.Spec.Name, err)
			}
		}
	}
	if err := os.RemoveAll(v.Spec.dir()); err != nil {
		return fmt.Errorf("VM %s: removing its files: %w", v.Spec.Name, err)
	}
	return nil
}

// detachLoops frees loop devices whose file is below dir. No process of the VM may run any more.
func detachLoops(dir string) error {
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, f := range files {
		content, err := os.ReadFile(f)
		backing := strings.TrimSpace(string(content))
		if err != nil || !strings.HasPrefix(backing, dir+"/") {
			continue
		}
		device := "/dev/" + filepath.Base(filepath.Dir(filepath.Dir(f)))
		fd, err := unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("opening %s: %w", device, err)
		}
		err = unix.IoctlSetInt(fd, unix.LOOP_CLR_FD, 0)
		_ = unix.Close(fd)
		if err != nil && !errors.Is(err, unix.ENXIO) {
			return fmt.Errorf("freeing %s of %s: %w", device, backing, err)
		}
	}
	return nil
}

// Leftovers lists what still exists of a lab's VMs and network; see network.Leftovers.
func Leftovers(n network.Network, stateDir string) ([]string, error) {
	left, err := network.Leftovers(n, stateDir)
	if err != nil {
		return nil, err
	}
	names, err := List(stateDir)
	for _, name := range names {
		left = append(left, "VM directory "+Spec{Name: name, StateDir: stateDir}.dir())
	}
	return left, err
}
