package bpm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"kubernetes-release/internal/atomicfile"
	"kubernetes-release/internal/bosh"
	"kubernetes-release/internal/filelock"
	"kubernetes-release/internal/poll"
	"kubernetes-release/internal/process"
)

const (
	// from the shutdown signal to QUIT: bpm-release, src/bpm/commands/stop.go, DefaultStopTimeout
	stopTimeout = 15 * time.Second
	// from QUIT to KILL: src/bpm/runc/lifecycle/lifecycle.go, ContainerSigQuitGracePeriod
	quitTimeout = 2 * time.Second
	stopPoll    = 10 * time.Millisecond
	hookTimeout = 30 * time.Second
	defaultUser = "vcap"

	root = bosh.DefaultRoot
)

// Process is one process of one job, running or not.
type Process struct {
	Job    string
	Config *ProcessConfig
}

// Find reads a job's bpm.yml and picks a process; an empty name means the job's.
func Find(job, name string) (*Process, error) {
	if !validProcess.MatchString(job) {
		return nil, fmt.Errorf("job %q: must be the name of a job in %s", job, root.Job(""))
	}
	config, err := LoadConfig(root.Job(job, "config/bpm.yml"))
	if err != nil {
		return nil, err
	}
	p, err := config.Process(cmp.Or(name, job))
	if err != nil {
		return nil, fmt.Errorf("job %s: %w", job, err)
	}
	return &Process{Job: job, Config: p}, nil
}

func (p *Process) runDir() string { return root.Run("bpm", p.Job) }

// Pidfile is what monit reads.
func (p *Process) Pidfile() string { return filepath.Join(p.runDir(), p.Config.Name+".pid") }

// state is what runc remembers of a process (runc, libcontainer/container.go, BaseState), as far as it is used here:
// its PID in the VM, and when it started, so that another process that gets the number later is never treated as ours.
type state struct {
	PID     int    `json:"init_process_pid"`
	Started uint64 `json:"init_process_start"`
}

// stateDir is where runc keeps the state (bpm-release, src/bpm/config/bpm_config.go, RuncRoot and ContainerID). bpm
// stops the process that it names, whoever wrote it. runc also runs the hooks that it names, as root, when bpm deletes
// the container.
func (p *Process) stateDir() string {
	id := "bpm-" + p.Job
	if p.Config.Name != p.Job {
		id += ".2e" + p.Config.Name
	}
	return root.Run("bpm-runc", id)
}

const stateFile = "state.json"

// PID returns the number of the running process, or 0.
func (p *Process) PID() int {
	content, err := os.ReadFile(filepath.Join(p.stateDir(), stateFile))
	if err != nil {
		return 0
	}
	var s state
	if err := json.Unmarshal(content, &s); err != nil || !process.Runs(s.PID, s.Started) {
		return 0
	}
	return s.PID
}

// remember writes the files that name the running process.
func (p *Process) remember(pid int) error {
	stat, err := process.Read(pid)
	if err != nil {
		return err
	}
	content, err := json.Marshal(state{PID: pid, Started: stat.Started})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(p.stateDir(), 0o711); err != nil {
		return err
	}
	return errors.Join(
		atomicfile.Write(filepath.Join(p.stateDir(), stateFile), content, 0o600),
		atomicfile.Write(p.Pidfile(), []byte(strconv.Itoa(pid)), 0o644),
	)
}

// openOwnLog opens bpm's own log of the job as bpm does before everything else (bpm-release, src/bpm/commands/root.go,
// setupBpmLogs).
func (p *Process) openOwnLog(command string) (account, error) {
	a, err := lookupUser()
	if err != nil {
		return account{}, err
	}
	if err := os.MkdirAll(root.Log(p.Job), 0o750); err != nil {
		return account{}, err
	}
	file, err := openAppend(root.Log(p.Job, "bpm.log"), a)
	if err != nil {
		return account{}, err
	}
	defer func() { _ = file.Close() }()
	_, err = fmt.Fprintf(
		file, "{\"timestamp\":%q,\"level\":\"info\",\"source\":\"bpm\",\"message\":\"bpm.%s.starting\"}\n",
		time.Now().UTC().Format(time.RFC3339Nano), command,
	)
	return a, err
}

// openAppend opens a log and gives it to vcap, and follows no link in its place (bpm-release, src/bpm/safeio).
func openAppend(path string, a account) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("refusing to open symlink at %s: %w", path, err)
	}
	if err != nil {
		return nil, err
	}
	if err := file.Chown(a.uid, a.gid); err != nil {
		return nil, errors.Join(fmt.Errorf("chown %s: %w", path, err), file.Close())
	}
	return file, nil
}

// lock serializes start and stop of a process, because monit's restart starts before the old stop has finished.
func (p *Process) lock() (release func(), err error) {
	if err := os.MkdirAll(p.runDir(), 0o700); err != nil {
		return nil, err
	}
	return filelock.Acquire(
		context.Background(), filepath.Join(p.runDir(), p.Config.Name+".lock"), strconv.Itoa(os.Getpid()), nil,
	)
}

// Start runs the process in the background. It does nothing if the process is already running.
func (p *Process) Start() error {
	account, err := p.openOwnLog("start")
	if err != nil {
		return err
	}
	release, err := p.lock()
	if err != nil {
		return err
	}
	defer release()
	if p.PID() != 0 {
		return nil
	}
	if err := p.makeDirs(account); err != nil {
		return err
	}
	stdout, err := p.openLog("stdout", account)
	if err != nil {
		return err
	}
	defer func() { _ = stdout.Close() }()
	stderr, err := p.openLog("stderr", account)
	if err != nil {
		return err
	}
	defer func() { _ = stderr.Close() }()
	if err := p.preStart(stdout, stderr); err != nil {
		return err
	}
	cmd, err := p.launch(account, nil, nil, stdout, stderr, true)
	if err != nil {
		return fmt.Errorf("%w (see %s)", err, stderr.Name())
	}
	if err := p.remember(cmd.Process.Pid); err != nil {
		return errors.Join(err, cmd.Process.Kill())
	}
	return nil
}

// Run runs the process in the foreground, with env over its configured environment, and returns its exit code. When ctx
// ends, the process gets SIGTERM.
func (p *Process) Run(ctx context.Context, env []string, stdin io.Reader, stdout, stderr io.Writer) (int, error) {
	account, err := p.openOwnLog("run")
	if err != nil {
		return 0, err
	}
	if err := p.makeDirs(account); err != nil {
		return 0, err
	}
	if err := p.preStart(stdout, stderr); err != nil {
		return 0, err
	}
	cmd, err := p.launch(account, env, stdin, stdout, stderr, false)
	if err != nil {
		return 0, err
	}
	defer context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(unix.SIGTERM) })()
	err = cmd.Wait()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		if status, ok := failed.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return 128 + int(status.Signal()), nil
		}
		return failed.ExitCode(), nil
	}
	return 0, err
}

// launch starts the sandbox and waits until it has executed the process itself.
func (p *Process) launch(
	a account, env []string, stdin io.Reader, stdout, stderr io.Writer, background bool,
) (*exec.Cmd, error) {
	mounts, err := p.Config.mounts(p.Job)
	if err != nil {
		return nil, err
	}
	encoded, err := json.Marshal(sandbox{
		Job:     p.Job,
		Process: *p.Config,
		UID:     a.uid,
		GID:     a.gid,
		Mounts:  mounts,
		Staging: filepath.Join(p.bundle(), "rootfs"),
		Env:     p.environment(env),
	})
	if err != nil {
		return nil, err
	}
	if err := p.writeBundle(encoded); err != nil {
		return nil, err
	}
	report, reportIn, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = report.Close() }()
	cmd := exec.Command("/proc/self/exe", SandboxCommand, filepath.Join(p.bundle(), bundleConfig))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
	cmd.ExtraFiles = []*os.File{reportIn}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Setsid:     background,
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
	}
	if !p.Config.Unsafe.HostPidNamespace {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWPID
	}
	err = cmd.Start()
	_ = reportIn.Close()
	if err != nil {
		return nil, fmt.Errorf("job %s: starting process %s: %w", p.Job, p.Config.Name, err)
	}
	if problem, err := io.ReadAll(report); err != nil || len(problem) > 0 {
		_ = cmd.Wait()
		return nil, fmt.Errorf(
			"job %s: starting process %s: %s", p.Job, p.Config.Name, cmp.Or(string(problem), fmt.Sprint(err)),
		)
	}
	return cmd, nil
}

// bundleConfig is what the sandbox is started from, in the bundle.
const bundleConfig = "config.json"

// bundle is the directory from which bpm has runc start the process, as root (bpm-release,
// src/bpm/config/bpm_config.go).
func (p *Process) bundle() string { return root.Data("bpm", "bundles", p.Job, p.Config.Name) }

// writeBundle writes the bundle as bpm does (src/bpm/runc/client/client.go, CreateBundle): a file that is there already
// is used, whoever it belongs to.
func (p *Process) writeBundle(config []byte) error {
	if err := os.MkdirAll(p.bundle(), 0o700); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(p.bundle(), "rootfs"), 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(p.bundle(), bundleConfig), config, 0o600)
}

// environment is the configured environment, with bpm's defaults for variables that it does not set.
func (p *Process) environment(more []string) []string {
	merged := map[string]string{
		"TMPDIR": root.Data(p.Job, "tmp"),
		"HOME":   root.Data(p.Job),
		"LANG":   "en_US.UTF-8",
		"PATH":   root.Job(p.Job, "bin") + ":/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin:.",
	}
	for k, v := range p.Config.Env {
		merged[k] = v
	}
	for _, pair := range more {
		k, v, _ := strings.Cut(pair, "=")
		merged[k] = v
	}
	list := make([]string, 0, len(merged))
	for k, v := range merged {
		list = append(list, k+"="+v)
	}
	slices.Sort(list)
	return list
}

func (p *Process) preStart(stdout, stderr io.Writer) error {
	hook := p.Config.Hooks.PreStart
	if hook == "" {
		return nil
	}
	cmd := exec.Command(hook)
	cmd.Stdout, cmd.Stderr, cmd.Env = stdout, stderr, p.environment(nil)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("job %s: hooks.pre_start: %w", p.Job, err)
	}
	timer := time.AfterFunc(hookTimeout, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("job %s: hooks.pre_start %s (limit %s): %w", p.Job, hook, hookTimeout, err)
	}
	return nil
}

// makeDirs creates the directories that bpm creates, and gives them to the process's user, also what it cannot write to
// (bpm-release, src/bpm/runc/adapter/adapter.go, CreateJobPrerequisites).
func (p *Process) makeDirs(a account) error {
	dirs := []string{root.Log(p.Job), root.Run(p.Job), root.Data(p.Job, "tmp")}
	if p.Config.EphemeralDisk {
		dirs = append(dirs, root.Data(p.Job))
	}
	if p.Config.PersistentDisk {
		if _, err := os.Stat(root.Store("")); err != nil {
			return fmt.Errorf("job %s: persistent_disk: the instance group has no persistent disk: %w", p.Job, err)
		}
		dirs = append(dirs, root.Store(p.Job))
	}
	for _, v := range p.Config.AdditionalVolumes {
		if v.MountOnly {
			continue
		}
		if info, err := os.Stat(v.Path); err == nil && !info.IsDir() {
			if err := os.Chown(v.Path, a.uid, a.gid); err != nil {
				return err
			}
			continue
		} else if err == nil {
			if err := os.Chmod(v.Path, 0o700); err != nil {
				return err
			}
		}
		dirs = append(dirs, v.Path)
	}
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("job %s: %w", p.Job, err)
		}
		if err := os.Chown(dir, a.uid, a.gid); err != nil {
			return fmt.Errorf("job %s: %w", p.Job, err)
		}
	}
	return nil
}

func (p *Process) openLog(stream string, a account) (*os.File, error) {
	return openAppend(root.Log(p.Job, fmt.Sprintf("%s.%s.log", p.Config.Name, stream)), a)
}

// Stop sends the process its shutdown signal, 15 seconds later QUIT, which makes Go and Java programs print their
// stacks, and then KILL. It is no error if the process is not running.
func (p *Process) Stop() error {
	if _, err := p.openOwnLog("stop"); err != nil {
		return err
	}
	release, err := p.lock()
	if err != nil {
		return err
	}
	defer release()
	if pid := p.PID(); pid != 0 {
		first := unix.SIGTERM
		if p.Config.ShutdownSignal == "INT" {
			first = unix.SIGINT
		}
		_ = p.signal(pid, first, stopTimeout) || p.signal(pid, unix.SIGQUIT, quitTimeout) ||
			p.signal(pid, unix.SIGKILL, quitTimeout)
		if p.PID() == pid {
			return fmt.Errorf("job %s: process %s (%d) is still running after SIGKILL", p.Job, p.Config.Name, pid)
		}
	}
	return errors.Join(
		os.RemoveAll(p.stateDir()), os.RemoveAll(p.bundle()), os.RemoveAll(p.Pidfile()), p.removeGroups(),
	)
}

// signal sends sig and tells whether the process stopped within limit.
func (p *Process) signal(pid int, sig unix.Signal, limit time.Duration) bool {
	_ = unix.Kill(pid, sig) // fails if it has stopped, which the check below finds
	return poll.Within(context.Background(), limit, stopPoll, func(context.Context) error {
		if p.PID() == pid {
			return errors.New("still running")
		}
		return nil
	}) == nil
}

// removeGroups removes the control groups that held the process to its limits.
func (p *Process) removeGroups() error {
	for _, tree := range []string{"memory", "pids", ""} {
		group := filepath.Join("/sys/fs/cgroup", tree, "bpm", p.Job+"."+p.Config.Name)
		// EBUSY: a process that ours left behind is still in the group.
		if err := os.Remove(group); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.EBUSY) {
			return err
		}
	}
	return nil
}

// Status is one line of List.
type Status struct {
	Job, Process string
	PID          int // 0 if the process is not running
}

// List returns all processes of all jobs that have a bpm.yml.
func List() ([]Status, error) {
	files, err := filepath.Glob(root.Job("*", "config/bpm.yml"))
	if err != nil {
		return nil, err
	}
	var list []Status
	for _, file := range files {
		config, err := LoadConfig(file)
		if err != nil {
			return nil, err
		}
		job := filepath.Base(filepath.Dir(filepath.Dir(file)))
		for i := range config.Processes {
			p := Process{Job: job, Config: &config.Processes[i]}
			list = append(list, Status{Job: job, Process: p.Config.Name, PID: p.PID()})
		}
	}
	return list, nil
}

type account struct{ uid, gid int }

func lookupUser() (account, error) {
	u, err := user.Lookup(defaultUser)
	if err != nil {
		return account{}, err
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return account{}, err
	}
	gid, err := strconv.Atoi(u.Gid)
	return account{uid: uid, gid: gid}, err
}
