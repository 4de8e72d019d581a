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

	"kubernetes-release/internal/tail"
)

const (
	// promptly is how soon an interrupted command must exit.
	promptly = 10 * time.Second
	// reachTimeout limits how long an `up` may take to reach the stage at which it is interrupted.
	reachTimeout = 3 * time.Minute
	// outage is how long the cloud is unavailable.
	outage = time.Minute
	// diskSize is the size of the disk for a lab's directory, in bytes; a lab uses about 1 GiB.
	diskSize = 3 << 30
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
	if out, err := l.up(); err != nil {
		t.Fatalf("up after the interruptions: %v\n%s", err, tail.Lines(out, 60))
	}
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
	out, err := l.run(2*time.Minute, "down")
	if err != nil {
		t.Fatalf("down after everything was killed: %v\n%s", err, out)
	}
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

// mustEqual fails for everything that has appeared since, and for processes of that lab.
func (h hostState) mustEqual(t *testing.T, l *lab, number int) {
	t.Helper()
	if number == 0 {
		t.Fatal("the lab had no network")
	}
	for line := range l.readHost(t, number) {
		if !h[line] {
			t.Errorf("left behind: %s", line)
		}
	}
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

// TestFullDiskIsReported fills the disk at several stages of a deploy. Each time the message must name the reason. With
// space again, `up` completes, and `down` leaves nothing behind.
func TestFullDiskIsReported(t *testing.T) {
	l := own(t)
	before := l.readHost(t, 0)
	disk := l.state
	unmount := smallDisk(t, disk)
	l.state = filepath.Join(disk, "lab")
	ballast := filepath.Join(disk, "ballast")
	for _, c := range []struct {
		name string
		free int64 // MiB
	}{
		{"no space at all", 0},
		{"no space for the release", 60},
		{"no space for packages", 300}, {"no space for the VM", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "no space for the VM" { // let it reach that stage
				leaveFree(t, ballast, diskSize)
				l.interrupt(t, interruption{line: "L creating VM", signal: syscall.SIGINT})
			}
			leaveFree(t, ballast, c.free<<20)
			started := time.Now()
			out, err := l.up()
			if err == nil {
				t.Fatalf("it was deployed:\n%s", tail.Lines(out, 20))
			}
			t.Logf("refused after %s:\n%s", time.Since(started).Round(100*time.Millisecond), tail.Lines(out, 3))
			if !strings.Contains(strings.ToLower(tail.Lines(out, 20)), "no space left on device") {
				t.Errorf("the end of the output does not say that there is no space left on the device")
			}
		})
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if out, err := l.up(); err != nil {
		t.Fatalf("up with free space: %v\n%s", err, tail.Lines(out, 60))
	}
	if got := l.mustKubectl(t, "", "get", "nodes", "--no-headers"); !strings.Contains(got, " Ready ") {
		t.Errorf("node is not Ready: %s", got)
	}
	number := l.networkNumber()
	leaveFree(t, ballast, 0) // a full disk must not prevent down
	out, err := l.run(2*time.Minute, "down")
	if err != nil {
		t.Fatalf("down: %v\n%s", err, out)
	}
	unmount()
	before.mustEqual(t, l, number)
}

// smallDisk mounts a file system of diskSize at dir, and returns the function that unmounts it.
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
	sh("mount", "-o", "loop", image, dir) // unmounting removes the loop device
	unmount := sync.OnceFunc(func() { sh("umount", "--lazy", dir) })
	t.Cleanup(unmount)
	return unmount
}

// leaveFree writes a file that leaves that many bytes of its disk free.
func leaveFree(t *testing.T, file string, free int64) {
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
	size := info.Size() + int64(disk.Bavail)*disk.Bsize - free
	if size < info.Size() {
		if err := f.Truncate(max(size, 0)); err != nil {
			t.Fatal(err)
		}
		return
	}
	// The file system keeps some blocks for itself, so the last ones may not be available.
	if err := syscall.Fallocate(int(f.Fd()), 0, 0, size); err != nil && !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}

// pidsOf returns the pids of an instance's processes by name, in the instance's PID namespace.
func (l *lab) pidsOf(t *testing.T, instance string) map[string]string {
	t.Helper()
	files := map[string]string{}
	for line := range strings.Lines(l.ssh(t, instance, "sh", "-c", "for f in /var/vcap/sys/run/*/*.pid "+
		"/var/vcap/sys/run/bpm/*/*.pid; do echo $f $(cat $f); done")) {
		if fields := strings.Fields(line); len(fields) == 2 {
			files[strings.TrimSuffix(filepath.Base(fields[0]), ".pid")] = fields[1]
		}
	}
	if len(files) < 9 {
		t.Fatalf("too few pidfiles: %v", files)
	}
	return files
}

// nodeIsReady returns nil if the API responds and its node is Ready, with a lease renewed after since.
func (l *lab) nodeIsReady(t *testing.T, since time.Time) error {
	t.Helper()
	out, err := l.kubectl(
		t,
		"",
		"--request-timeout=5s",
		"get",
		"nodes",
		"-o",
		`jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}`,
	)
	switch {
	case err != nil:
		return fmt.Errorf("get the node: %w: %s", err, out)
	case out != "True":
		return fmt.Errorf("the node's condition Ready is %q", out)
	}
	out, err = l.kubectl(
		t, "", "--request-timeout=5s", "-n", "kube-node-lease", "get", "leases", "-o",
		"jsonpath={.items[0].spec.renewTime}",
	)
	if err != nil {
		return fmt.Errorf("get the node's lease: %w: %s", err, out)
	}
	renewed, err := time.Parse(time.RFC3339Nano, out)
	switch {
	case err != nil:
		return fmt.Errorf("the node's lease: %w", err)
	case renewed.Before(since):
		return fmt.Errorf("the node's lease was renewed at %s, before %s", renewed, since)
	}
	return nil
}

// containersOf describes the containers of a namespace by what changes when one is restarted.
func (l *lab) containersOf(t *testing.T, namespace string) string {
	t.Helper()
	return l.mustKubectl(
		t,
		"",
		"-n",
		namespace,
		"get",
		"pods",
		"--sort-by=.metadata.name",
		"-o",
		`jsonpath={range .items[*]}{.metadata.name} {.metadata.uid} {range `+
			`.status.containerStatuses[*]}{.containerID} {.restartCount} {.state.running.startedAt}{end}{"\n"}{end}`,
	)
}

// served deploys two pods behind a load balancer and returns its host name.
func (l *lab) served(t *testing.T, name string) string {
	t.Helper()
	l.mustKubectl(t, loadBalancerManifest(name, "classic", l.smokeImage(t)), "apply", "-f", "-")
	t.Cleanup(func() { l.mustKubectl(t, "", "delete", "namespace", name, "--timeout=90s") })
	l.mustKubectl(t, "", "-n", name, "rollout", "status", "deployment/web", "--timeout=90s")
	return l.answered(t, name, 2*time.Minute)
}

// answered waits until a namespace's load balancer responds, and returns its host name.
func (l *lab) answered(t *testing.T, name string, timeout time.Duration) string {
	t.Helper()
	started := time.Now()
	host := l.loadBalancerHost(t, name, timeout)
	t.Logf("load balancer of %s has its name after %s", name, time.Since(started).Round(100*time.Millisecond))
	waitFor(t, timeout, "HTTP through "+host, func() error {
		_, err := l.get(host)
		return err
	})
	return host
}

// onNodePort sends a request to the node port of a namespace's Service.
func (l *lab) onNodePort(t *testing.T, name string) error {
	t.Helper()
	port := l.mustKubectl(t, "", "-n", name, "get", "service", "web", "-o", "jsonpath={.spec.ports[0].nodePort}")
	address := fmt.Sprintf("http://10.%d.16.4:%s/", l.networkNumber(), port)
	if out, err := exec.Command("curl", "-sS", "--fail", "--max-time", "5", address).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", address, err, out)
	}
	return nil
}

// TestClusterSurvivesCloudOutage stops the cloud for a minute: its API, instance metadata, load balancers and the DNS
// of the VMs' network. The cluster keeps running, load balancers requested meanwhile are created afterwards, and no
// process is restarted.
func TestClusterSurvivesCloudOutage(t *testing.T) {
	l := deployed(t)
	host := l.served(t, "before-outage")
	pods, processes := l.containersOf(t, "before-outage"), l.pidsOf(t, "control/0")
	waitFor(
		t, time.Minute, "the node's first lease",
		func() error { return l.nodeIsReady(t, time.Now().Add(-40*time.Second)) },
	)
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
	t.Cleanup(func() { // runs before the other cleanups, which require the cloud
		if out, err := l.up(); err != nil {
			t.Errorf("up: %v\n%s", err, tail.Lines(out, 30))
		}
	})
	waitFor(t, 20*time.Second, "a Service created in the outage", func() error { return l.onNodePort(t, "in-outage") })
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
	t.Logf("%d requests succeeded in the outage", answers)
	if out, err := l.up(); err != nil || !strings.Contains(out, "Nothing has changed") {
		t.Fatalf("up, which restarts the cloud: %v\n%s", err, tail.Lines(out, 30))
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

// TestKilledProcessesAreRestarted kills processes of a VM: monit restarts them, and pods are not affected.
func TestKilledProcessesAreRestarted(t *testing.T) {
	l := deployed(t)
	l.served(t, "killed")
	pods := l.containersOf(t, "killed")
	for _, victims := range [][]string{
		{"kubelet"}, {"containerd"}, {"kube-apiserver"}, {"etcd"},
		{
			"kube-controller-manager", "kube-scheduler", "cloud-controller-manager", "kubelet-csr-approver",
			"kube-proxy", "flannel", "network-policy",
		},
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
			waitFor(t, time.Minute, "new processes", func() error {
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
			waitFor(t, time.Minute, "node Ready", func() error { return l.nodeIsReady(t, killed) })
			t.Logf("back after %s", time.Since(killed).Round(100*time.Millisecond))
			if err := l.onNodePort(t, "killed"); err != nil {
				t.Error(err)
			}
			if now := l.containersOf(t, "killed"); now != pods {
				t.Errorf("containers were restarted; before:\n%s\nafter:\n%s", pods, now)
			}
			for name, pid := range l.pidsOf(t, "control/0") {
				// kubelet depends on containerd, and monit restarts what depends on a process.
				if before[name] != pid && !slices.Contains(victims, name) &&
					!(name == "kubelet" && victims[0] == "containerd") {
					t.Errorf("%s was restarted too", name)
				}
			}
		})
	}
}
