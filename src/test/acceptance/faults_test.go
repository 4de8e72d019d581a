package acceptance

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
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
)

const (
	// promptly is how soon an interrupted command has to be gone.
	promptly = 10 * time.Second
	// reachTimeout bounds how long an `up` that is to be interrupted may take to get that far.
	reachTimeout = 3 * time.Minute
	// outage is how long the cloud is away.
	outage = time.Minute
	// diskSize is what a lab's directory of its own gets; a lab needs about 1 GiB of it.
	diskSize = 3 << 30
)

// interruption ends an `up` as soon as a line of progress, or a file in the state directory, shows that a stage is reached.
type interruption struct {
	name   string
	line   string // regular expression over what was printed
	file   string // glob below the state directory
	signal syscall.Signal
}

// interruptions are in the order of the stages, so that each `up` gets further than the one before.
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

// TestInterruptedUpCompletes interrupts `up` at every stage, by Ctrl-C and by kill -9, and runs it again. In the end everything of the
// lab is killed without warning, and `down` leaves nothing of it.
func TestInterruptedUpCompletes(t *testing.T) {
	before := look(t, 0)
	l := own(t)
	for _, i := range interruptions {
		t.Run(fmt.Sprintf("%s, %s", i.name, i.signal), func(t *testing.T) { l.interrupt(t, i) })
	}
	begun := time.Now()
	if out, err := l.up(); err != nil {
		t.Fatalf("up after the interruptions: %v\n%s", err, tail(out, 60))
	}
	t.Logf("up after %d interruptions took %s", len(interruptions), time.Since(begun).Round(100*time.Millisecond))
	if got := l.mustKubectl(t, "", "get", "nodes", "--no-headers"); !strings.Contains(got, " Ready ") || strings.Count(got, "\n") != 0 {
		t.Errorf("nodes are not as wanted: %s", got)
	}
	number := l.networkNumber()
	for _, p := range l.processes(t) {
		if err := syscall.Kill(p.pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
	}
	out, err := l.run(2*time.Minute, "down")
	if err != nil {
		t.Fatalf("down after everything was killed: %v\n%s", err, out)
	}
	before.mustEqual(t, number)
}

// interrupt runs `up` until the stage is reached and ends it there.
func (l *lab) interrupt(t *testing.T, i interruption) {
	t.Helper()
	present, _ := filepath.Glob(filepath.Join(l.state, i.file))
	line := regexp.MustCompile(i.line)
	var out buffer
	cmd := l.command(t.Context(), append(l.upArgs(), "--verbose")...)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // as a shell does, so that Ctrl-C reaches what it has started, too
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
			t.Fatalf("up ended before the stage was reached: %v\n%s", err, tail(out.String(), 40))
		case <-time.After(2 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			_ = cmd.Process.Kill()
			t.Fatalf("the stage was not reached within %s: %v\n%s", reachTimeout, <-ended, tail(out.String(), 40))
		}
	}
	whom := cmd.Process.Pid
	if i.signal == syscall.SIGINT {
		whom = -whom
	}
	begun := time.Now()
	if err := syscall.Kill(whom, i.signal); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err == nil {
			t.Fatalf("up completed, interrupted or not:\n%s", tail(out.String(), 20))
		}
	case <-time.After(time.Minute):
		_ = cmd.Process.Kill()
		t.Fatalf("it does not end: %v\n%s", <-ended, tail(out.String(), 40))
	}
	took := time.Since(begun).Round(time.Millisecond)
	t.Logf("ended after %s", took)
	if i.signal == syscall.SIGKILL {
		return
	}
	if took > promptly {
		t.Errorf("it took %s to end", took)
	}
	if end := tail(out.String(), 6); !strings.Contains(end, "Interrupted. Run the same command again to continue.") {
		t.Errorf("it does not say what to do:\n%s", end)
	}
	if end := tail(out.String(), 6); strings.Count(end, "\n") > 5 || strings.Contains(end, "panic") {
		t.Errorf("odd last words:\n%s", end)
	}
	for _, p := range l.processes(t) {
		if p.onHost && !p.is("cloud") || strings.Contains(p.command, "/bin/pre-start") || strings.Contains(p.command, "/bin/post-start") {
			t.Errorf("process %d was left running: %s", p.pid, p.command)
		}
	}
}

// buffer is written by a command and read by the test meanwhile.
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

// process is one of a lab's.
type process struct {
	pid     int
	command string
	onHost  bool // it is in the host's PID namespace
}

// is tells whether it is bin/lab with that command.
func (p process) is(command string) bool {
	words := strings.Fields(p.command)
	return len(words) > 1 && filepath.Base(words[0]) == "lab" && words[1] == command
}

// processes lists what runs of this lab: in its control groups, or with its directory among the arguments.
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
			continue // it has ended
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

// host is what there is on this machine of the kinds of things that a lab makes.
type host map[string]bool

var (
	labName   = regexp.MustCompile(`\bklab(\d+)\b`)
	labPrefix = regexp.MustCompile(`\b10\.(\d+)\.\d+\.\d+`)
)

// look lists namespaces, mounts, interfaces, addresses, routes, control groups, nftables rules and loop devices. What names another lab
// than the given one is left out, for others may come and go meanwhile; with number 0 that is all labs.
func look(t *testing.T, number int) host {
	t.Helper()
	h := host{}
	foreign := func(line string) bool {
		for _, pattern := range []*regexp.Regexp{labName, labPrefix} {
			if m := pattern.FindStringSubmatch(line); m != nil && m[1] != strconv.Itoa(number) {
				return true
			}
		}
		return false
	}
	for kind, argv := range map[string][]string{
		"network namespace": {"ip", "netns", "list"}, "interface": {"ip", "-o", "link", "show"}, "address": {"ip", "-o", "-4", "address", "show"},
		"route": {"ip", "-4", "route", "show", "table", "all"}, "rule": {"ip", "rule", "list"},
		"loop device": {"losetup", "--list", "--noheadings", "--output", "NAME,BACK-FILE"}, "nftables": {"nft", "list", "ruleset"},
		"mount": {"cat", "/proc/self/mounts"}, "control group": {"find", "/sys/fs/cgroup", "-maxdepth", "3", "-type", "d"},
	} {
		out, err := exec.Command(argv[0], argv[1:]...).Output()
		if err != nil {
			t.Fatalf("%q: %v", argv, err)
		}
		for line := range strings.Lines(string(out)) {
			// Names of namespaces get an id once somebody asks for it, and interfaces have counters.
			line, _, _ = strings.Cut(strings.TrimSpace(line), " (id:")
			if line != "" && !foreign(line) {
				h[kind+" "+line] = true
			}
		}
	}
	return h
}

// mustEqual fails for everything that has come since, and for processes of that lab.
func (h host) mustEqual(t *testing.T, number int) {
	t.Helper()
	if number == 0 {
		t.Fatal("the lab had no network")
	}
	for line := range look(t, number) {
		if !h[line] {
			t.Errorf("left behind: %s", line)
		}
	}
	group := fmt.Sprintf(":/klab%d/", number)
	for _, pid := range pids(t) {
		groups, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		if strings.Contains(string(groups), group) {
			// One without a command line has ended, and its parent is yet to take note.
			if command, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); len(command) > 0 {
				t.Errorf("process %d was left behind: %q", pid, command)
			}
		}
	}
}

// TestFullDisk deploys on a disk that fills up at several stages: each time the message says so, and with room again `up` completes.
// `down` then leaves nothing.
func TestFullDisk(t *testing.T) {
	l := own(t)
	before := look(t, 0)
	disk := l.state
	unmount := smallDisk(t, disk)
	l.state = filepath.Join(disk, "lab")
	ballast := filepath.Join(disk, "ballast")
	for _, c := range []struct {
		name string
		room int64 // MiB
	}{
		{"no room at all", 0}, {"no room for the release", 60}, {"no room for packages", 300}, {"no room for the VM", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "no room for the VM" { // let it get as far as that
				leaveRoom(t, ballast, diskSize)
				l.interrupt(t, interruption{line: "L creating VM", signal: syscall.SIGINT})
			}
			leaveRoom(t, ballast, c.room<<20)
			begun := time.Now()
			out, err := l.up()
			if err == nil {
				t.Fatalf("it was deployed:\n%s", tail(out, 20))
			}
			t.Logf("refused after %s:\n%s", time.Since(begun).Round(100*time.Millisecond), tail(out, 3))
			if !strings.Contains(strings.ToLower(tail(out, 20)), "no space left on device") {
				t.Errorf("the end of the output does not say that there is no space left on the device")
			}
		})
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if out, err := l.up(); err != nil {
		t.Fatalf("up with room again: %v\n%s", err, tail(out, 60))
	}
	if got := l.mustKubectl(t, "", "get", "nodes", "--no-headers"); !strings.Contains(got, " Ready ") {
		t.Errorf("node is not Ready: %s", got)
	}
	number := l.networkNumber()
	leaveRoom(t, ballast, 0) // neither may a full disk keep a lab from being removed
	out, err := l.run(2*time.Minute, "down")
	if err != nil {
		t.Fatalf("down: %v\n%s", err, out)
	}
	unmount()
	before.mustEqual(t, number)
}

// smallDisk mounts a file system of diskSize at dir, and gives what takes it away.
func smallDisk(t *testing.T, dir string) func() {
	t.Helper()
	image := filepath.Join(t.TempDir(), "disk")
	sh := func(argv ...string) {
		t.Helper()
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", argv, err, out)
		}
	}
	sh("truncate", "--size", strconv.Itoa(diskSize), image)
	sh("mkfs.ext4", "-q", "-m", "0", image)
	sh("mount", "-o", "loop", image, dir) // the loop device goes with the mount
	unmount := sync.OnceFunc(func() { sh("umount", "--lazy", dir) })
	t.Cleanup(unmount)
	return unmount
}

// leaveRoom makes a file that leaves so many bytes of its disk free.
func leaveRoom(t *testing.T, file string, room int64) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	var disk syscall.Statfs_t
	if err := syscall.Fstatfs(int(f.Fd()), &disk); err != nil {
		t.Fatal(err)
	}
	size := info.Size() + int64(disk.Bavail)*disk.Bsize - room
	if size < info.Size() {
		if err := f.Truncate(max(size, 0)); err != nil {
			t.Fatal(err)
		}
		return
	}
	// The file system keeps some blocks for its own lists; the last ones may not be given out.
	if err := syscall.Fallocate(int(f.Fd()), 0, 0, size); err != nil && !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}

// pidsOf gives the pids of an instance's processes by pidfile, as the instance numbers them.
func (l *lab) pidsOf(t *testing.T, instance string) map[string]string {
	t.Helper()
	files := map[string]string{}
	for line := range strings.Lines(l.ssh(t, instance, "sh", "-c", "for f in /var/vcap/sys/run/*/*.pid /var/vcap/sys/run/bpm/*/*.pid; do echo $f $(cat $f); done")) {
		if fields := strings.Fields(line); len(fields) == 2 {
			files[strings.TrimSuffix(filepath.Base(fields[0]), ".pid")] = fields[1]
		}
	}
	if len(files) < 9 {
		t.Fatalf("too few pidfiles: %v", files)
	}
	return files
}

// nodeIsReady says whether the API answers and its node is Ready, with a lease that was renewed after since.
func (l *lab) nodeIsReady(t *testing.T, since time.Time) error {
	t.Helper()
	out, err := l.kubectl(t, "", "--request-timeout=5s", "get", "nodes", "-o", `jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}`)
	if err != nil || out != "True" {
		return fmt.Errorf("the node's Ready is %q: %w", out, errors.Join(err))
	}
	if out, err = l.kubectl(t, "", "--request-timeout=5s", "-n", "kube-node-lease", "get", "leases", "-o", "jsonpath={.items[0].spec.renewTime}"); err != nil {
		return fmt.Errorf("the node's lease: %w: %s", err, out)
	}
	if renewed, err := time.Parse(time.RFC3339Nano, out); err != nil || renewed.Before(since) {
		return fmt.Errorf("the node's lease was renewed at %q, before %s: %w", out, since, errors.Join(err))
	}
	return nil
}

// containersOf describes the containers of a namespace by what changes when one is started anew.
func (l *lab) containersOf(t *testing.T, namespace string) string {
	t.Helper()
	return l.mustKubectl(t, "", "-n", namespace, "get", "pods", "--sort-by=.metadata.name", "-o",
		`jsonpath={range .items[*]}{.metadata.name} {.metadata.uid} {range .status.containerStatuses[*]}{.containerID} {.restartCount} {.state.running.startedAt}{end}{"\n"}{end}`)
}

// served deploys two pods behind a load balancer and gives the load balancer's name.
func (l *lab) served(t *testing.T, name string) string {
	t.Helper()
	l.mustKubectl(t, loadBalancerManifest(name, "classic", l.smokeImage(t)), "apply", "-f", "-")
	t.Cleanup(func() { l.mustKubectl(t, "", "delete", "namespace", name, "--timeout=90s") })
	l.mustKubectl(t, "", "-n", name, "rollout", "status", "deployment/web", "--timeout=90s")
	return l.answered(t, name, 2*time.Minute)
}

// answered waits until a namespace's load balancer answers, and gives its name.
func (l *lab) answered(t *testing.T, name string, timeout time.Duration) string {
	t.Helper()
	var host string
	begun := time.Now()
	eventually(t, timeout, "host name of the load balancer of "+name, func() (err error) {
		host, err = l.kubectl(t, "", "-n", name, "get", "service", "web", "-o", "jsonpath={.status.loadBalancer.ingress[0].hostname}")
		if err != nil || host == "" {
			return fmt.Errorf("none yet: %w", errors.Join(err))
		}
		return nil
	})
	t.Logf("load balancer of %s has its name after %s", name, time.Since(begun).Round(100*time.Millisecond))
	eventually(t, timeout, "HTTP through "+host, func() error {
		out, err := l.run(20*time.Second, "client", "curl", "-sS", "--fail", "--max-time", "5", "http://"+host+"/")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	return host
}

// onNodePort asks a namespace's service on the port that every node has for it.
func (l *lab) onNodePort(t *testing.T, name string) error {
	t.Helper()
	port := l.mustKubectl(t, "", "-n", name, "get", "service", "web", "-o", "jsonpath={.spec.ports[0].nodePort}")
	address := fmt.Sprintf("http://10.%d.16.4:%s/", l.networkNumber(), port)
	if out, err := exec.Command("curl", "-sS", "--fail", "--max-time", "5", address).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", address, err, out)
	}
	return nil
}

// TestCloudOutage takes the cloud away for a minute: its API, instance metadata, load balancers and the DNS of the VMs' network. The
// cluster goes on, what was asked for meanwhile is made afterwards, and no process was restarted.
func TestCloudOutage(t *testing.T) {
	l := deployed(t)
	host := l.served(t, "before-outage")
	pods, processes := l.containersOf(t, "before-outage"), l.pidsOf(t, "control/0")
	eventually(t, time.Minute, "the node's first lease", func() error { return l.nodeIsReady(t, time.Now().Add(-40*time.Second)) })
	var cloud struct{ PID int }
	text, err := os.ReadFile(filepath.Join(l.state, "cloud.json"))
	if err != nil || json.Unmarshal(text, &cloud) != nil || cloud.PID < 2 {
		t.Fatalf("cloud.json: %s %v", text, err)
	}
	if err := syscall.Kill(cloud.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	gone := time.Now()
	image := l.smokeImage(t)
	l.mustKubectl(t, loadBalancerManifest("in-outage", "classic", image), "apply", "-f", "-")
	t.Cleanup(func() { l.mustKubectl(t, "", "delete", "namespace", "in-outage", "--timeout=90s") })
	l.mustKubectl(t, "", "-n", "in-outage", "rollout", "status", "deployment/web", "--timeout=50s")
	t.Cleanup(func() { // before the others, which need the cloud
		if out, err := l.up(); err != nil {
			t.Errorf("up: %v\n%s", err, tail(out, 30))
		}
	})
	eventually(t, 20*time.Second, "a service made in the outage", func() error { return l.onNodePort(t, "in-outage") })
	answers := 0
	for time.Since(gone) < outage {
		for _, namespace := range []string{"before-outage", "in-outage"} {
			if err := l.onNodePort(t, namespace); err != nil {
				t.Fatalf("%s into the outage: %v", time.Since(gone).Round(time.Second), err)
			}
			answers++
		}
		if err := l.nodeIsReady(t, time.Now().Add(-40*time.Second)); err != nil {
			t.Fatalf("%s into the outage: %v", time.Since(gone).Round(time.Second), err)
		}
		time.Sleep(2 * time.Second)
	}
	t.Logf("%d requests were answered in the outage", answers)
	if out, err := l.up(); err != nil || !strings.Contains(out, "nothing was touched") {
		t.Fatalf("up, which starts the cloud again: %v\n%s", err, tail(out, 30))
	}
	l.answered(t, "in-outage", 3*time.Minute)
	if again := l.answered(t, "before-outage", time.Minute); again != host {
		t.Errorf("the load balancer was %s and is %s", host, again)
	}
	if err := l.nodeIsReady(t, time.Now().Add(-40*time.Second)); err != nil {
		t.Error(err)
	}
	if after := l.containersOf(t, "before-outage"); after != pods {
		t.Errorf("containers were restarted; before:\n%s\nafter:\n%s", pods, after)
	}
	for name, pid := range l.pidsOf(t, "control/0") {
		if processes[name] != pid {
			t.Errorf("%s was restarted: pid %s is now %s", name, processes[name], pid)
		}
	}
}

// TestKilledProcessesComeBack kills processes of a VM without warning: monit starts them again, and what runs in pods doesn't notice.
func TestKilledProcessesComeBack(t *testing.T) {
	l := deployed(t)
	l.served(t, "killed")
	pods := l.containersOf(t, "killed")
	for _, victims := range [][]string{
		{"kubelet"}, {"containerd"}, {"kube-apiserver"}, {"etcd"},
		{"kube-controller-manager", "kube-scheduler", "cloud-controller-manager", "kubelet-csr-approver", "kube-proxy", "flannel"},
	} {
		t.Run(strings.Join(victims, " "), func(t *testing.T) {
			before := l.pidsOf(t, "control/0")
			kill := []string{"kill", "-9"}
			for _, name := range victims {
				if before[name] == "" {
					t.Fatalf("no pidfile of %s: %v", name, before)
				}
				kill = append(kill, before[name])
			}
			killed := time.Now()
			l.ssh(t, "control/0", kill...)
			eventually(t, time.Minute, "new processes", func() error {
				after := l.pidsOf(t, "control/0")
				for _, name := range victims {
					if after[name] == before[name] || after[name] == "" {
						return fmt.Errorf("%s: pid %q was %q", name, after[name], before[name])
					}
				}
				out, err := l.run(30*time.Second, "status")
				if err != nil {
					return fmt.Errorf("%w\n%s", err, out)
				}
				return nil
			})
			eventually(t, time.Minute, "node Ready", func() error { return l.nodeIsReady(t, killed) })
			t.Logf("back after %s", time.Since(killed).Round(100*time.Millisecond))
			if err := l.onNodePort(t, "killed"); err != nil {
				t.Error(err)
			}
			if now := l.containersOf(t, "killed"); now != pods {
				t.Errorf("containers were restarted; before:\n%s\nafter:\n%s", pods, now)
			}
			for name, pid := range l.pidsOf(t, "control/0") {
				// kubelet depends on containerd, and monit restarts what depends on a process.
				if before[name] != pid && !slices.Contains(victims, name) && !(name == "kubelet" && victims[0] == "containerd") {
					t.Errorf("%s was restarted too", name)
				}
			}
		})
	}
}
