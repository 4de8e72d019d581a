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
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"kubernetes-release/internal/poll"
	"kubernetes-release/internal/process"
	"kubernetes-release/lab/network"
)

const (
	bootTimeout    = 60 * time.Second // from init's start until monit answers; takes well under a second on an idle machine
	destroyTimeout = 60 * time.Second
)

// Create makes and boots a VM, and returns once its monit answers. The lab's network must exist. A VM of that name that is alive is
// an error; the remains of one that isn't are removed first. After an error nothing of the VM is left, unless the
// error says so.
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
		return nil, errors.Join(fmt.Errorf("making VM %s: %w", spec.Name, err), v.Destroy(cleanup))
	}
	return v, nil
}

func clearRemains(ctx context.Context, spec Spec) error {
	old, err := Open(spec.StateDir, spec.Name)
	if errors.Is(err, ErrNotFound) {
		// Without a record nothing but files can have been made.
		if err := os.RemoveAll(spec.dir()); err != nil {
			return fmt.Errorf("removing the remains of VM %s: %w", spec.Name, err)
		}
		return nil
	}
	if err != nil {
		return err
	}
	if old.Alive() {
		return fmt.Errorf("VM %s exists already (init is process %d); destroy it first", spec.Name, old.PID())
	}
	slog.InfoContext(ctx, "removing the remains of a VM", "vm", spec.Name)
	return old.Destroy(ctx)
}

func (v *VM) create(ctx context.Context) error {
	if err := os.MkdirAll(v.Spec.dir(), 0o755); err != nil {
		return err
	}
	// From here on the record exists, so that whatever happens Destroy knows what to look for.
	if err := v.record.save(); err != nil {
		return err
	}
	if err := populateRoot(v.Spec); err != nil {
		return fmt.Errorf("filling its root directory: %w", err)
	}
	if err := v.Spec.makeCgroups(); err != nil {
		return err
	}
	if v.Spec.PersistentDisk != "" {
		if err := os.MkdirAll(v.Spec.PersistentDisk, 0o755); err != nil {
			return fmt.Errorf("persistent disk: %w", err)
		}
	}
	child, err := startInit(v.Spec)
	if err != nil {
		return err
	}
	defer child.close()
	if err := v.boot(ctx, child); err != nil {
		_ = child.cmd.Process.Kill()
		return fmt.Errorf("%w\n%s", err, consoleTail(v.Spec))
	}
	return nil
}

// boot lets init out of its starting block once its groups and network are in place, and waits for its word.
func (v *VM) boot(ctx context.Context, child *initProcess) error {
	init, err := process.Read(child.cmd.Process.Pid)
	if err != nil {
		return fmt.Errorf("init: %w", err)
	}
	v.record.PID, v.record.Started = child.cmd.Process.Pid, init.Started
	if err := v.record.save(); err != nil {
		return err
	}
	if err := v.Spec.joinCgroups(v.record.PID); err != nil {
		return err
	}
	var mac net.HardwareAddr
	if v.Spec.MAC != "" {
		if mac, err = net.ParseMAC(v.Spec.MAC); err != nil {
			return err
		}
	}
	if err := v.Spec.Network.Attach(v.record.PID, v.Spec.Address, mac); err != nil {
		return err
	}
	if err := child.release(v.Spec); err != nil {
		return err
	}
	if err := child.awaitReady(ctx); err != nil {
		return err
	}
	v.record.Ready = true
	return v.record.save()
}

// initProcess is a started init with the two pipes that it is spoken to by, until it is on its own.
type initProcess struct {
	cmd    *exec.Cmd
	orders *os.File // init's Spec goes here; closing it without one makes init end
	words  *os.File // init writes "ready" or what went wrong
}

// startInit starts this very program again as init of new namespaces, where it waits for orders.
func startInit(spec Spec) (*initProcess, error) {
	ordersOut, orders, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = ordersOut.Close() }()
	words, wordsIn, err := os.Pipe()
	if err != nil {
		_ = orders.Close()
		return nil, err
	}
	defer func() { _ = wordsIn.Close() }()
	console, err := os.OpenFile(consoleLog(spec), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		_ = orders.Close()
		_ = words.Close()
		return nil, err
	}
	defer func() { _ = console.Close() }()

	cmd := exec.Command("/proc/self/exe", initArgument, spec.Name)
	cmd.Args[0] = "lab"
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + vmPath, "LANG=C.UTF-8"}
	cmd.Stdout, cmd.Stderr = console, console
	cmd.ExtraFiles = []*os.File{ordersOut, wordsIn}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     true,
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
	}
	if err := cmd.Start(); err != nil {
		_ = orders.Close()
		_ = words.Close()
		return nil, fmt.Errorf("starting init in new namespaces: %w", err)
	}
	go func() { _ = cmd.Wait() }() // so that it is no zombie if it ends while we are here
	return &initProcess{cmd: cmd, orders: orders, words: words}, nil
}

func (p *initProcess) release(spec Spec) error {
	content, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	if _, err := p.orders.Write(append(content, '\n')); err != nil {
		return fmt.Errorf("giving init its orders: %w", err)
	}
	return nil
}

func (p *initProcess) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = p.words.SetReadDeadline(time.Now()) })
	defer stop()
	said, err := bufio.NewReader(p.words).ReadString('\n')
	switch said = strings.TrimSpace(said); {
	case said == readyWord:
		return nil
	case said != "":
		return errors.New("init: " + said)
	case ctx.Err() != nil:
		return fmt.Errorf("init was not ready in time: %w", context.Cause(ctx))
	case errors.Is(err, io.EOF):
		return errors.New("init ended without a word")
	}
	return fmt.Errorf("waiting for init: %w", err)
}

func (p *initProcess) close() {
	_ = p.orders.Close()
	_ = p.words.Close()
}

func consoleTail(s Spec) string {
	content, err := os.ReadFile(consoleLog(s))
	if err != nil {
		return ""
	}
	lines := bytes.Split(bytes.TrimSpace(content), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-5):], []byte("\n")))
}

// Shutdown asks the VM's init to stop monit and all processes (TERM, ten seconds, KILL) and waits until it has ended, as when a
// machine is powered down. The VM's files stay; it can only be destroyed afterwards.
func (v *VM) Shutdown(ctx context.Context) error {
	if !v.record.initRuns() {
		return nil
	}
	if err := unix.Kill(v.record.PID, unix.SIGTERM); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("VM %s: asking init (process %d) to shut down: %w", v.Spec.Name, v.record.PID, err)
	}
	return v.awaitExit(ctx)
}

// Kill ends the VM at once, as when a machine loses power. Its files stay.
func (v *VM) Kill(ctx context.Context) error {
	if v.record.initRuns() {
		if err := unix.Kill(v.record.PID, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("VM %s: ending init (process %d): %w", v.Spec.Name, v.record.PID, err)
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

// Destroy ends the VM and removes all that belongs to it but its persistent disk. It works on a VM in any state, made completely or
// in part, and may be repeated.
func (v *VM) Destroy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, destroyTimeout)
	defer cancel()
	if err := v.Spec.check(); err != nil {
		return err // the record was tampered with: don't guess what to kill or remove
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

// removeFiles deletes the VM's directory, the record last: what is interrupted here can be repeated.
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

// detachLoops frees loop devices whose file is below dir; the VM's processes, which might have used them, have ended.
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
