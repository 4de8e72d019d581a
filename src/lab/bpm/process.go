package bpm

import (
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
)

const (
	stopTimeout = 20 * time.Second // from the shutdown signal to QUIT
	quitTimeout = 2 * time.Second  // from QUIT to KILL
	hookTimeout = 30 * time.Second
	defaultUser = "vcap"
)

// Process is one process of one job, running or not.
type Process struct {
	Job    string
	Config *ProcessConfig
}

// Find reads a job's bpm.yml and picks a process; an empty name means the job's.
func Find(job, name string) (*Process, error) {
	if !validProcess.MatchString(job) {
		return nil, fmt.Errorf("job %q: must be the name of a job in /var/vcap/jobs", job)
	}
	config, err := LoadConfig(filepath.Join("/var/vcap/jobs", job, "config/bpm.yml"))
	if err != nil {
		return nil, err
	}
	p, err := config.Process(firstOf(name, job))
	if err != nil {
		return nil, fmt.Errorf("job %s: %w", job, err)
	}
	return &Process{Job: job, Config: p}, nil
}

func (p *Process) runDir() string { return filepath.Join("/var/vcap/sys/run/bpm", p.Job) }

// Pidfile is what monit reads.
func (p *Process) Pidfile() string { return filepath.Join(p.runDir(), p.Config.Name+".pid") }

// identityFile keeps the start time beside the pid, so that another process that got the number later is never taken for ours.
func (p *Process) identityFile() string { return filepath.Join(p.runDir(), p.Config.Name+".started") }

// PID returns the number of the running process, or 0.
func (p *Process) PID() int {
	content, err := os.ReadFile(p.Pidfile())
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		return 0
	}
	started, err := os.ReadFile(p.identityFile())
	if err != nil || startTime(pid) == "" || startTime(pid) != string(started) {
		return 0
	}
	return pid
}

// startTime returns field 22 of /proc/PID/stat, or nothing for a process that has ended.
func startTime(pid int) string {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	fields := strings.Fields(string(content[strings.LastIndexByte(string(content), ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" {
		return ""
	}
	return fields[19]
}

// lock serialises start and stop of a process, because monit's restart starts before the old stop has ended.
func (p *Process) lock() (release func(), err error) {
	if err := os.MkdirAll(p.runDir(), 0o700); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(p.runDir(), p.Config.Name+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() { _ = file.Close() }, nil
}

// Start runs the process in the background. One that runs already is left alone.
func (p *Process) Start() error {
	release, err := p.lock()
	if err != nil {
		return err
	}
	defer release()
	if p.PID() != 0 {
		return nil
	}
	account, err := lookupUser()
	if err != nil {
		return err
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
	pid := cmd.Process.Pid
	if err := os.WriteFile(p.identityFile(), []byte(startTime(pid)), 0o600); err != nil {
		return errors.Join(err, cmd.Process.Kill())
	}
	if err := os.WriteFile(p.Pidfile(), []byte(strconv.Itoa(pid)), 0o644); err != nil {
		return errors.Join(err, cmd.Process.Kill())
	}
	return nil
}

// Run runs the process in the foreground, with env over its configured environment, and returns its exit code.
func (p *Process) Run(env []string, stdin io.Reader, stdout, stderr io.Writer) (int, error) {
	account, err := lookupUser()
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

// launch starts the sandbox and waits until the process itself has taken its place.
func (p *Process) launch(a account, env []string, stdin io.Reader, stdout, stderr io.Writer, background bool) (*exec.Cmd, error) {
	mounts, err := p.Config.mounts(p.Job)
	if err != nil {
		return nil, err
	}
	staging := filepath.Join(p.runDir(), p.Config.Name+".root")
	if err := os.MkdirAll(staging, 0o700); err != nil {
		return nil, err
	}
	encoded, err := json.Marshal(sandbox{
		Job: p.Job, Process: *p.Config, UID: a.uid, GID: a.gid, Mounts: mounts, Staging: staging, Env: p.environment(env),
	})
	if err != nil {
		return nil, err
	}
	report, reportIn, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = report.Close() }()
	cmd := exec.Command("/proc/self/exe", sandboxArgument, string(encoded))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
	cmd.ExtraFiles = []*os.File{reportIn}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: background, Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS}
	err = cmd.Start()
	_ = reportIn.Close()
	if err != nil {
		return nil, fmt.Errorf("job %s: starting process %s: %w", p.Job, p.Config.Name, err)
	}
	if problem, err := io.ReadAll(report); err != nil || len(problem) > 0 {
		_ = cmd.Wait()
		return nil, fmt.Errorf("job %s: starting process %s: %s", p.Job, p.Config.Name, firstOf(string(problem), fmt.Sprint(err)))
	}
	return cmd, nil
}

// environment is the configured one with bpm's defaults for what it doesn't set.
func (p *Process) environment(more []string) []string {
	merged := map[string]string{
		"TMPDIR": filepath.Join("/var/vcap/data", p.Job, "tmp"),
		"HOME":   filepath.Join("/var/vcap/data", p.Job),
		"LANG":   "en_US.UTF-8",
		"PATH":   filepath.Join("/var/vcap/jobs", p.Job, "bin") + ":/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin:.",
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

// makeDirs makes what the process may write, and gives it to the user.
func (p *Process) makeDirs(a account) error {
	dirs := []string{filepath.Join("/var/vcap/sys/log", p.Job), filepath.Join("/var/vcap/data", p.Job), filepath.Join("/var/vcap/data", p.Job, "tmp")}
	if p.Config.PersistentDisk {
		if _, err := os.Stat("/var/vcap/store"); err != nil {
			return fmt.Errorf("job %s: persistent_disk: the instance group has no persistent disk: %w", p.Job, err)
		}
		dirs = append(dirs, filepath.Join("/var/vcap/store", p.Job))
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
	path := filepath.Join("/var/vcap/sys/log", p.Job, fmt.Sprintf("%s.%s.log", p.Config.Name, stream))
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := file.Chown(a.uid, a.gid); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// Stop ends the process: its shutdown signal, 20 seconds later QUIT, which makes Go and Java write their stacks, and then KILL. A process
// that doesn't run is no error.
func (p *Process) Stop() error {
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
		_ = p.signal(pid, first, stopTimeout) || p.signal(pid, unix.SIGQUIT, quitTimeout) || p.signal(pid, unix.SIGKILL, quitTimeout)
		if p.PID() == pid {
			return fmt.Errorf("job %s: process %s (%d) doesn't end, not even after KILL", p.Job, p.Config.Name, pid)
		}
	}
	for _, file := range []string{p.Pidfile(), p.identityFile()} {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return p.removeGroups()
}

// signal tells whether the process ended within limit of being sent sig.
func (p *Process) signal(pid int, sig unix.Signal, limit time.Duration) bool {
	_ = unix.Kill(pid, sig) // it may have ended, which the loop sees
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if p.PID() != pid {
			return true
		}
	}
	return false
}

// removeGroups removes the control groups that held the process to its limits.
func (p *Process) removeGroups() error {
	for _, tree := range []string{"memory", "pids", ""} {
		group := filepath.Join("/sys/fs/cgroup", tree, "bpm", p.Job+"."+p.Config.Name)
		// Busy: a process that ours has left behind is still limited by it.
		if err := os.Remove(group); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.EBUSY) {
			return err
		}
	}
	return nil
}

// Status is one line of List.
type Status struct {
	Job, Process string
	PID          int // 0: it doesn't run
}

// List returns all processes of all jobs that have a bpm.yml.
func List() ([]Status, error) {
	files, err := filepath.Glob("/var/vcap/jobs/*/config/bpm.yml")
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
