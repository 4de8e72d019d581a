package acceptance

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"kubernetes-release/internal/tail"
)

// interruption is a signal to `up`, sent as soon as a line of progress or a file in the state directory shows that it
// has reached a stage.
type interruption struct {
	name   string
	line   string // regular expression for a line of the output
	file   string // glob pattern below the state directory
	signal syscall.Signal
}

// interruptions are in the order of the stages, so that each `up` gets further than the previous one.
var interruptions = []interruption{
	{"generating variables", `Generating variables: \w+`, "", syscall.SIGKILL},
	{"reading the release", "", "releases/*", syscall.SIGKILL},
	{"reading the release", "", "releases/*", syscall.SIGINT},
	{"compiling", `Compiling packages: kubernetes/\w+`, "", syscall.SIGKILL},
	{"compiling", `Compiling packages: kubernetes/\w+`, "", syscall.SIGINT},
	{"starting the cloud", "", "cloud.json", syscall.SIGKILL},
	{"creating VMs", `L creating VM`, "", syscall.SIGKILL},
	{"creating VMs", `L creating VM`, "", syscall.SIGINT},
	{"installing packages", `L installing packages`, "", syscall.SIGKILL},
	{"pre-start", `L executing pre-start`, "", syscall.SIGKILL},
	{"pre-start", `L executing pre-start`, "", syscall.SIGINT},
	{"starting jobs", `L starting jobs`, "", syscall.SIGKILL},
	{"starting jobs", `L starting jobs`, "", syscall.SIGINT},
	{"post-start", `L executing post-start`, "", syscall.SIGINT},
	{"post-start", `L executing post-start`, "", syscall.SIGKILL},
}

// TestInterruptedUpCompletes interrupts `up` at every stage, with SIGINT and with SIGKILL, and runs it again. Then it
// kills all processes of the lab, and expects `down` to leave nothing behind.
func TestInterruptedUpCompletes(t *testing.T) {
	l := own(t)
	before := l.readHost(t, 0)
	for _, i := range interruptions {
		t.Run(fmt.Sprintf("%s, %s", i.name, i.signal), func(t *testing.T) { l.interrupt(t, i) })
	}
	started := time.Now()
	l.mustUp(t)
	t.Logf("up after %d interruptions took %s", len(interruptions), time.Since(started).Round(100*time.Millisecond))
	if got := l.mustKubectl(t, "", "get", "nodes", "--no-headers"); !strings.Contains(got, " Ready ") ||
		strings.Count(got, "\n") != 0 {
		t.Errorf("got nodes %s, want one that is Ready", got)
	}
	number := l.networkNumber()
	for _, p := range l.processes(t) {
		if err := syscall.Kill(p.pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
	}
	l.mustRun(t, 2*time.Minute, "down")
	before.mustEqual(t, l, number)
}

// interrupt runs `up` until it reaches the stage, and interrupts it there.
func (l *lab) interrupt(t *testing.T, i interruption) {
	t.Helper()
	present, _ := filepath.Glob(filepath.Join(l.state, i.file))
	line := regexp.MustCompile(i.line)
	var out buffer
	cmd := l.command(t.Context(), append(l.upArgs(), "--verbose")...)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // as a shell does, so that SIGINT reaches its children too
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	reached := func() bool {
		if i.line != "" {
			return line.MatchString(out.String())
		}
		now, _ := filepath.Glob(filepath.Join(l.state, i.file))
		return len(now) > len(present) || len(present) > 0 && strings.Contains(out.String(), "Rendering")
	}
	for deadline := time.Now().Add(reachTimeout); !reached(); {
		select {
		case err := <-ended:
			t.Fatalf("up exited before it reached the stage: %v\n%s", err, tail.Lines(out.String(), 40))
		case <-time.After(2 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			_ = cmd.Process.Kill()
			t.Fatalf(
				"up did not reach the stage within %s: %v\n%s", reachTimeout, <-ended, tail.Lines(out.String(), 40),
			)
		}
	}
	target := cmd.Process.Pid
	if i.signal == syscall.SIGINT {
		target = -target // the process group
	}
	started := time.Now()
	if err := syscall.Kill(target, i.signal); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err == nil {
			t.Fatalf("up completed although it was interrupted:\n%s", tail.Lines(out.String(), 20))
		}
	case <-time.After(time.Minute):
		_ = cmd.Process.Kill()
		t.Fatalf("up does not exit: %v\n%s", <-ended, tail.Lines(out.String(), 40))
	}
	took := time.Since(started).Round(time.Millisecond)
	t.Logf("exited after %s", took)
	if i.signal == syscall.SIGKILL {
		return
	}
	if took > promptly {
		t.Errorf("up took %s to exit", took)
	}
	if end := tail.Lines(
		out.String(), 6,
	); !strings.Contains(end, "Interrupted. Run the same command again to continue.") {
		t.Errorf("the output does not say what to do:\n%s", end)
	}
	if end := tail.Lines(out.String(), 6); strings.Count(end, "\n") > 5 || strings.Contains(end, "panic") {
		t.Errorf("unexpected last lines:\n%s", end)
	}
	for _, p := range l.processes(t) {
		if p.onHost && !p.is("cloud") || strings.Contains(p.command, "/bin/pre-start") ||
			strings.Contains(p.command, "/bin/post-start") {
			t.Errorf("process %d was left running: %s", p.pid, p.command)
		}
	}
}

// buffer can be read while a command writes to it.
type buffer struct {
	mutex sync.Mutex
	bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.Buffer.Write(p)
}

func (b *buffer) String() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.Buffer.String()
}

// process is a process of a lab.
type process struct {
	pid     int
	command string
	onHost  bool // in the host's PID namespace
}

// is says whether the process is bin/lab with that command.
func (p process) is(command string) bool {
	words := strings.Fields(p.command)
	return len(words) > 1 && filepath.Base(words[0]) == "lab" && words[1] == command
}

// processes lists the lab's processes: those in its control groups, or with its directory among their arguments.
func (l *lab) processes(t *testing.T) []process {
	t.Helper()
	group := fmt.Sprintf(":/klab%d/", l.networkNumber())
	ours, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		t.Fatal(err)
	}
	var found []process
	for _, pid := range pids(t) {
		dir := filepath.Join("/proc", strconv.Itoa(pid))
		arguments, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || len(arguments) == 0 {
			continue // it has exited
		}
		groups, _ := os.ReadFile(filepath.Join(dir, "cgroup"))
		command := strings.TrimSpace(strings.ReplaceAll(string(arguments), "\x00", " "))
		namespace, err := os.Readlink(filepath.Join(dir, "ns/pid"))
		if err == nil && (strings.Contains(string(groups), group) || strings.Contains(command, l.state)) {
			found = append(found, process{pid, command, namespace == ours})
		}
	}
	return found
}

func pids(t *testing.T) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var list []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && pid != os.Getpid() {
			list = append(list, pid)
		}
	}
	return list
}

// hostState is the set of namespaces, mounts, interfaces and the like on this machine, as a lab creates them.
type hostState map[string]bool

var (
	labName   = regexp.MustCompile(`\bklab(\d+)\b`)
	labPrefix = regexp.MustCompile(`\b10\.(\d+)\.\d+\.\d+`)
	labState  = regexp.MustCompile(`/\S*/kubernetes-lab-\d+\b`)
)

// readHost lists namespaces, mounts, interfaces, addresses, routes, control groups, nftables rules and loop devices. It
// leaves out those of other labs, which may come and go; with number 0, networks of all labs.
func (l *lab) readHost(t *testing.T, number int) hostState {
	t.Helper()
	h := hostState{}
	foreign := func(line string) bool {
		for _, pattern := range []*regexp.Regexp{labName, labPrefix} {
			if m := pattern.FindStringSubmatch(line); m != nil && m[1] != strconv.Itoa(number) {
				return true
			}
		}
		state := labState.FindString(line)
		return state != "" && state != l.state
	}
	for kind, argv := range map[string][]string{
		"network namespace": {"ip", "netns", "list"}, "interface": {"ip", "-o", "link", "show"}, "address": {
			"ip", "-o", "-4", "address", "show",
		},
		"route": {"ip", "-4", "route", "show", "table", "all"}, "rule": {"ip", "rule", "list"},
		"loop device": {
			"losetup", "--list", "--noheadings", "--output", "NAME,BACK-FILE",
		}, "nftables": {"nft", "list", "ruleset"},
		"mount": {"cat", "/proc/self/mounts"}, "control group": {
			"find", "/sys/fs/cgroup", "-maxdepth", "3", "-type", "d",
		},
	} {
		out, err := exec.Command(argv[0], argv[1:]...).Output()
		if err != nil {
			t.Fatalf("%q: %v", argv, err)
		}
		for line := range strings.Lines(string(out)) {
			// A namespace gets an id when it is first queried.
			line, _, _ = strings.Cut(strings.TrimSpace(line), " (id:")
			if line != "" && !foreign(line) {
				h[kind+" "+line] = true
			}
		}
	}
	return h
}

// without returns what is not in other.
func (h hostState) without(other hostState) hostState {
	rest := maps.Clone(h)
	maps.DeleteFunc(rest, func(line string, _ bool) bool { return other[line] })
	return rest
}

// mustEqual fails for everything that has appeared since, and for processes of that lab. What disappears within a
// minute is not the lab's, which is down, but another test's.
func (h hostState) mustEqual(t *testing.T, l *lab, number int) {
	t.Helper()
	if number == 0 {
		t.Fatal("the lab had no network")
	}
	left := l.readHost(t, number).without(h)
	waitFor(t, time.Minute, "nothing left behind", func() error {
		left = left.without(left.without(l.readHost(t, number)))
		if len(left) > 0 {
			return fmt.Errorf("there are\n%s", strings.Join(slices.Sorted(maps.Keys(left)), "\n"))
		}
		return nil
	})
	group := fmt.Sprintf(":/klab%d/", number)
	for _, pid := range pids(t) {
		groups, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		if strings.Contains(string(groups), group) {
			// A process without a command line has exited and waits to be reaped.
			if command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); len(command) > 0 {
				t.Errorf("process %d was left behind: %q", pid, command)
			}
		}
	}
}
