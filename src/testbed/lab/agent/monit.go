package agent

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"kubernetes-release/internal/atomicfile"
	"kubernetes-release/internal/bosh"
	"kubernetes-release/internal/poll"
	"kubernetes-release/internal/process"
	"kubernetes-release/testbed/lab/vm"
)

var (
	monitJobDir = filepath.Join(vm.MonitDir, "job")
	stoppedFile = filepath.Join(vm.MonitDir, "stopped") // exists while the instance is stopped on request
)

const (
	pollInterval  = 20 * time.Millisecond
	reloadTimeout = 2 * time.Minute
	stopTimeout   = 5 * time.Minute
	stopRepeat    = 60 * time.Second
	statusTimeout = 30 * time.Second
	allServices   = "vcap" // the group that bosh-agent starts and stops
)

// monitStatus is the part of monit's status document that is used here.
type monitStatus struct {
	Services []monitService `xml:"service"`
}

type monitService struct {
	Type          int    `xml:"type,attr"` // 3 process, 5 system
	Name          string `xml:"name"`
	Status        int    `xml:"status"`  // 0: no error
	Monitor       int    `xml:"monitor"` // 0 no, 1 yes, 2 not checked yet, 4 waiting
	PendingAction int    `xml:"pendingaction"`
	PID           int    `xml:"pid"`
	Message       string `xml:"status_message"`
}

const (
	typeProcess    = 3
	typeSystem     = 5
	monitorNot     = 0
	monitorInit    = 2
	monitorWaiting = 4
)

// status queries the VM's monit over HTTP.
func (h *host) status(ctx context.Context) (monitStatus, error) {
	var status monitStatus
	credentials, err := os.ReadFile(h.vm.HostPath(vm.MonitUserFile))
	if err != nil {
		return status, err
	}
	user, password, _ := strings.Cut(strings.TrimSpace(string(credentials)), ":")
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(
		ctx,
		http.MethodGet,
		fmt.Sprintf("http://127.0.0.1:%d/_status?format=xml", vm.MonitPort),
		nil,
	)
	if err != nil {
		return status, err
	}
	request.SetBasicAuth(user, password)
	client := http.Client{Transport: &http.Transport{DialContext: h.vm.DialContext, DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return status, fmt.Errorf("querying monit of VM %s: %w", h.vm.Name(), err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return status, fmt.Errorf(
			"querying monit of VM %s: %s, %w", h.vm.Name(), response.Status,
			errors.Join(err, fmt.Errorf("see %s in the VM", vm.MonitLog)),
		)
	}
	return parseStatus(body)
}

// parseStatus decodes monit's XML, which is declared as ISO-8859-1; names of services are ASCII.
func parseStatus(body []byte) (monitStatus, error) {
	var status monitStatus
	decoder := xml.NewDecoder(bytes.NewReader(body))
	decoder.CharsetReader = func(_ string, input io.Reader) (io.Reader, error) { return input, nil }
	if err := decoder.Decode(&status); err != nil {
		return status, fmt.Errorf("reading monit's status: %w", err)
	}
	return status, nil
}

func (s monitStatus) generation() string {
	for _, service := range s.Services {
		if service.Type == typeSystem {
			return service.Name
		}
	}
	return ""
}

// state translates monit's status as bosh-agent does.
func (s monitStatus) state(stopped bool) State {
	result := State{State: Running}
	for _, service := range s.Services {
		if service.Type == typeSystem {
			continue
		}
		p := service.process(stopped)
		result.Processes = append(result.Processes, p)
		switch {
		case p.State == Starting:
			result.State = Starting
		case p.State != Running && result.State == Running:
			result.State = Failing
		}
	}
	if stopped {
		result.State = Stopped
	}
	return result
}

func (s monitService) process(stopped bool) Process {
	p := Process{Name: s.Name, PID: s.PID, Message: strings.TrimSpace(s.Message)}
	switch {
	case s.Monitor == monitorNot && s.PendingAction == 0 && stopped:
		p.State = Stopped
	case s.Monitor == monitorInit || s.Monitor == monitorWaiting || s.PendingAction != 0:
		p.State = Starting
	case s.Monitor == monitorNot:
		p.State, p.Message = Failing, cmp.Or(p.Message, "not monitored")
	case s.Status != 0:
		p.State, p.Message = Failing, cmp.Or(p.Message, "monit reports an error")
	case s.Type == typeProcess && s.PID <= 0:
		p.State, p.Message = Failing, cmp.Or(p.Message, "no process")
	default:
		p.State = Running
	}
	return p
}

// State implements Agent.
func (h *host) State(ctx context.Context) (State, error) {
	status, err := h.status(ctx)
	if err != nil {
		return State{}, err
	}
	state := status.state(h.isStopped())
	if state.State == Starting || state.State == Failing {
		state.FullDisks, err = h.fullDisks()
	}
	return state, err
}

// diskDirs are the mount points of the VM's disks: root, ephemeral and persistent.
var diskDirs = []string{"/", bosh.DefaultRoot.Path("data"), bosh.DefaultRoot.Path("store")}

// minFreeSpace is the free space, in bytes, below which a disk counts as full.
const minFreeSpace = 1 << 20

// fullDisks returns the mount points of the VM's disks that have no free space or no free inodes. Mount points on one
// file system are joined.
func (h *host) fullDisks() ([]string, error) {
	var full []string
	places := map[uint64]int{} // by device
	err := h.vm.Do(func() error {
		for _, dir := range diskDirs {
			var disk unix.Statfs_t
			var stat unix.Stat_t
			if err := errors.Join(unix.Statfs(dir, &disk), unix.Stat(dir, &stat)); err != nil {
				return fmt.Errorf("checking the free space on %s of VM %s: %w", dir, h.vm.Name(), err)
			}
			if disk.Bavail*uint64(disk.Bsize) >= minFreeSpace && (disk.Files == 0 || disk.Ffree > 0) {
				continue
			}
			if place, known := places[stat.Dev]; known {
				full[place] += " and " + dir
				continue
			}
			places[stat.Dev] = len(full)
			full = append(full, dir)
		}
		return nil
	})
	return full, err
}

func (h *host) isStopped() bool {
	_, err := os.Stat(h.vm.HostPath(stoppedFile))
	return err == nil
}

// Start implements Agent.
func (h *host) Start(ctx context.Context) error {
	services, err := h.configureMonit(ctx)
	if err != nil {
		return err
	}
	if err := os.Remove(h.vm.HostPath(stoppedFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if services == 0 {
		return nil // an instance with errands only
	}
	return h.monit(ctx, "-g", allServices, "start")
}

// Stop implements Agent. As bosh-agent does (jobsupervisor/monit_job_supervisor.go, StopAndWait) it first waits until
// monit has done what it was told before, and gives up after five minutes or when monit reports an error of a service.
func (h *host) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(
		ctx, stopTimeout, fmt.Errorf("the services have not stopped after %s", stopTimeout),
	)
	defer cancel()
	var status monitStatus
	if err := h.poll(ctx, func(ctx context.Context) (err error) {
		if status, err = h.status(ctx); err == nil {
			err = status.pending()
		}
		return err
	}); err != nil {
		return err
	}
	if err := atomicfile.Write(h.vm.HostPath(stoppedFile), nil, 0o600); err != nil {
		return err
	}
	if len(status.state(true).Processes) == 0 {
		return nil
	}
	stop := func() error {
		status, err := h.status(ctx)
		if err == nil {
			err = h.monitorLive(ctx, status)
		}
		if err != nil {
			return err
		}
		return h.monit(ctx, "-g", allServices, "stop")
	}
	if err := stop(); err != nil {
		return err
	}
	if err := h.awaitStopped(ctx, stop); err != nil {
		for service, pid := range h.livePIDs() {
			err = fmt.Errorf("%w; %s still runs as process %d", err, service, pid)
		}
		return err
	}
	return nil
}

// awaitStopped waits until no service has a process. It calls again once a minute: monit drops a request that arrives
// while it is busy with the same service.
func (h *host) awaitStopped(ctx context.Context, again func() error) error {
	repeat := time.Now().Add(stopRepeat)
	return h.poll(ctx, func(ctx context.Context) error {
		if time.Now().After(repeat) {
			if err := again(); err != nil {
				return poll.Permanent(err)
			}
			repeat = time.Now().Add(stopRepeat)
		}
		status, err := h.status(ctx)
		if err != nil {
			return err
		}
		if err := status.errored(); err != nil {
			return poll.Permanent(fmt.Errorf("stopping the services: %w", err))
		}
		state := status.state(true)
		if slices.ContainsFunc(state.Processes, func(p Process) bool { return p.State != Stopped }) ||
			len(h.livePIDs()) > 0 {
			return notDone(state)
		}
		return nil
	})
}

// pending is an error that names the services for which monit still has something to do.
func (s monitStatus) pending() error {
	return s.problem(
		"monit has not finished with", func(service monitService) bool { return service.PendingAction != 0 },
	)
}

// errored is an error that names the services of which monit reports an error.
func (s monitStatus) errored() error {
	return s.problem("monit reports errors of", func(service monitService) bool {
		return service.Status != 0 && strings.TrimSpace(service.Message) != ""
	})
}

func (s monitStatus) problem(what string, has func(monitService) bool) error {
	var names []string
	for _, service := range s.Services {
		if service.Type != typeSystem && has(service) {
			names = append(names, service.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("%s %s", what, strings.Join(names, ", "))
}

// monitorLive makes monit monitor those unmonitored services again that have a process. The stemcell's monit 5.2 runs
// the stop program of an unmonitored service; monit 5.33 considers it stopped and does nothing. Services without a
// process stay unmonitored, since monit would start them.
func (h *host) monitorLive(ctx context.Context, status monitStatus) error {
	live := h.livePIDs()
	pending := make(map[string]bool)
	for _, s := range status.Services {
		if s.Monitor == monitorNot && live[s.Name] != 0 {
			pending[s.Name] = true
			if err := h.monit(ctx, "monitor", s.Name); err != nil {
				return err
			}
		}
	}
	return h.poll(ctx, func(ctx context.Context) error {
		state, err := h.State(ctx)
		if err == nil &&
			slices.ContainsFunc(state.Processes, func(p Process) bool { return pending[p.Name] && p.PID == 0 }) {
			err = notDone(state)
		}
		return err
	})
}

// processCheck matches the name and pidfile of a process in a monit file.
var processCheck = regexp.MustCompile(`(?m)^\s*check\s+process\s+"?([^"\s]+)"?[^#]*?\bpidfile\s+"?([^"\s]+)`)

// livePIDs returns the services of the jobs' monit files whose pidfile names a running process.
func (h *host) livePIDs() map[string]int {
	live := make(map[string]int)
	// If this fails, for example because the VM has died, queries to monit fail too.
	_ = h.vm.Do(func() error {
		files, err := filepath.Glob(filepath.Join(monitJobDir, "*.monitrc"))
		if err != nil {
			return err
		}
		for _, f := range files {
			content, err := os.ReadFile(f)
			if err != nil {
				return err
			}
			for _, match := range processCheck.FindAllSubmatch(content, -1) {
				if pid := runningPID(string(match[2])); pid != 0 {
					live[string(match[1])] = pid
				}
			}
		}
		return nil
	})
	return live
}

// runningPID returns the PID in a pidfile if that process runs, otherwise 0. It must run in the VM's mount namespace.
func runningPID(pidfile string) int {
	content, err := os.ReadFile(pidfile)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		return 0
	}
	if stat, err := process.Read(pid); err != nil || stat.Ended() {
		return 0
	}
	return pid
}

// Unmonitor implements Agent. Like bosh-agent it does not wait until monit has done it.
func (h *host) Unmonitor(ctx context.Context) error {
	status, err := h.status(ctx)
	if err != nil || len(status.state(true).Processes) == 0 {
		return err
	}
	return h.monit(ctx, "-g", allServices, "unmonitor")
}

// poll repeats check at short intervals; the error names the VM.
func (h *host) poll(ctx context.Context, check func(context.Context) error) error {
	if err := poll.Until(ctx, pollInterval, check); err != nil {
		return fmt.Errorf("VM %s: %w", h.vm.Name(), err)
	}
	return nil
}

// notDone says which processes are not in the expected state, and which logs to read.
func notDone(s State) error {
	return fmt.Errorf(
		"%s; read %s and %s in the VM", cmp.Or(s.Problem(), "monit reports no process with a problem"),
		bosh.DefaultRoot.Log("JOB"), vm.MonitLog,
	)
}

// monit runs monit's command line in the VM.
func (h *host) monit(ctx context.Context, args ...string) error {
	var out bytes.Buffer
	argv := append([]string{"monit", "-c", "/etc/monit/monitrc"}, args...)
	ctx, cancel := context.WithTimeout(ctx, reloadTimeout)
	defer cancel()
	err := h.vm.Run(ctx, argv, vm.RunOptions{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out})
	if err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(out.String()))
	}
	return nil
}

// configureMonit installs the applied jobs' monit files, reloads monit, and returns how many files there are.
func (h *host) configureMonit(ctx context.Context) (int, error) {
	s, err := h.spec()
	if err != nil {
		return 0, err
	}
	files, err := h.monitFiles(s)
	if err != nil {
		return 0, err
	}
	if err := h.writeMonitFiles(files); err != nil {
		return 0, err
	}
	// monit cannot start with files that it cannot parse, so they are checked first.
	if err := h.monit(ctx, "-t"); err != nil {
		return 0, fmt.Errorf("the jobs' monit files: %w", errors.Join(err, h.writeMonitFiles(nil)))
	}
	return len(files), h.reloadMonit(ctx)
}

// reloadMonit does what bosh-agent does on a stemcell with systemd (jobsupervisor/monit_job_supervisor.go, Reload, and
// servicemanager/ systemd_service_manager.go): "systemctl kill monit", after which systemd starts monit again. The
// signal reaches every process in the control group of monit's unit, so also what monit has started, unless it has
// moved to a group of its own.
func (h *host) reloadMonit(ctx context.Context) error {
	generation, err := h.newGeneration()
	if err != nil {
		return err
	}
	if err := h.vm.KillMonit(); err != nil {
		return fmt.Errorf("reloading monit: %w", err)
	}
	return h.awaitGeneration(ctx, generation)
}

// monitFiles returns the files under the names that bosh-agent gives them: NNNN_JOB.monitrc for a job's monit, and
// NNNN_JOB_LABEL.monitrc for its LABEL.monit. NNNN counts from the last job of the manifest: monit starts the services
// of later files first, so that jobs start in the manifest's order. Files without a check are left out.
func (h *host) monitFiles(s ApplySpec) (map[string][]byte, error) {
	files := make(map[string][]byte)
	for i, j := range slices.Backward(s.Jobs) {
		index := len(s.Jobs) - 1 - i
		dir := h.vm.HostPath(filepath.Join(jobsDataDir, j.Name, j.Fingerprint))
		sources := map[string]string{filepath.Join(dir, "monit"): fmt.Sprintf("%04d_%s.monitrc", index, j.Name)}
		more, err := filepath.Glob(filepath.Join(dir, "*.monit"))
		if err != nil {
			return nil, err
		}
		for _, path := range more {
			label := strings.TrimSuffix(filepath.Base(path), ".monit")
			sources[path] = fmt.Sprintf("%04d_%s_%s.monitrc", index, j.Name, label)
		}
		for source, name := range sources {
			content, err := os.ReadFile(source)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("job %s: %w", j.Name, err)
			}
			if hasCheck(content) {
				files[name] = content
			}
		}
	}
	return files, nil
}

// hasCheck reports whether a monit file has anything but comments.
func hasCheck(content []byte) bool {
	for line := range bytes.Lines(content) {
		if text := bytes.TrimSpace(line); len(text) > 0 && text[0] != '#' {
			return true
		}
	}
	return false
}

func (h *host) writeMonitFiles(files map[string][]byte) error {
	dir := h.vm.HostPath(monitJobDir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if _, kept := files[e.Name()]; !kept {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	for name, content := range files {
		if err := atomicfile.Write(filepath.Join(dir, name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// newGeneration gives monit's system service a new name, by which awaitGeneration recognizes that monit has reloaded
// its files: for a moment after a reload it still answers from the old ones.
func (h *host) newGeneration() (string, error) {
	id := make([]byte, 6)
	_, _ = rand.Read(id) // never fails
	name := "system_" + hex.EncodeToString(id)
	return name, atomicfile.Write(h.vm.HostPath(vm.SystemMonitrc), []byte("check system "+name+"\n"), 0o600)
}

func (h *host) awaitGeneration(ctx context.Context, generation string) error {
	ctx, cancel := context.WithTimeout(ctx, reloadTimeout)
	defer cancel()
	return h.poll(ctx, func(ctx context.Context) error {
		status, err := h.status(ctx)
		if err == nil && status.generation() != generation {
			err = errors.New("monit has not reloaded its files")
		}
		return err
	})
}
