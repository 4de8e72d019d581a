package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/testbed/lab/vm"
	"kubernetes-release/testbed/lab/vm/vmtest"
)

func TestMain(m *testing.M) { vmtest.Main(m) }

// newVM creates a VM with an agent, which is removed when the test ends.
func newVM(t *testing.T) (*vm.VM, Agent) {
	t.Helper()
	v := vmtest.New(t)
	return v, New(v)
}

const sleeperMonit = `check process NAME
  with pidfile /var/vcap/sys/run/NAME/NAME.pid
  start program "/var/vcap/jobs/NAME/bin/ctl start"
  stop program "/var/vcap/jobs/NAME/bin/ctl stop"
  group vcap
`

const sleeperCtl = `#!/bin/sh
pidfile=/var/vcap/sys/run/NAME/NAME.pid
case $1 in
start) setsid sleep 1000 > /dev/null 2>&1 & echo $! > $pidfile ;;
stop) pid=$(cat $pidfile); kill $pid; while kill -0 $pid 2> /dev/null; do sleep 0.01; done; rm -f $pidfile ;;
esac
`

func sleeper(t *testing.T, name, fingerprint string, more map[string]string) Job {
	t.Helper()
	content := map[string]string{
		"monit":   strings.ReplaceAll(sleeperMonit, "NAME", name),
		"bin/ctl": strings.ReplaceAll(sleeperCtl, "NAME", name),
	}
	for k, text := range more {
		content[k] = text
	}
	return Job{Name: name, Fingerprint: fingerprint, Dir: vmtest.Files(t, content)}
}

func sh(t *testing.T, v *vm.VM, script string) string {
	t.Helper()
	var out bytes.Buffer
	if err := v.Run(
		t.Context(), []string{"bash", "-euc", script}, vm.RunOptions{Stdout: &out, Stderr: &out},
	); err != nil {
		t.Errorf("%s: %v\n%s", script, err, out.String())
	}
	return strings.TrimSpace(out.String())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// awaitRestart kills a process and waits until monit has started it again.
func awaitRestart(t *testing.T, v *vm.VM, a Agent, name string) {
	t.Helper()
	pidfile := "/var/vcap/sys/run/" + name + "/" + name + ".pid"
	old := sh(t, v, "cat "+pidfile+"; kill -9 $(cat "+pidfile+")")
	awaitState(t, a, "monit restarts "+name, func(state State) bool {
		return slices.ContainsFunc(state.Processes, func(p Process) bool {
			return p.Name == name && p.State == Running && p.PID != 0 && strconv.Itoa(p.PID) != old
		})
	})
}

func awaitState(t *testing.T, a Agent, what string, reached func(State) bool) {
	t.Helper()
	eventually.Succeeds(t, 30*time.Second, what, func() error {
		state, err := a.State(t.Context())
		if err == nil && !reached(state) {
			err = fmt.Errorf("the state is %+v", state)
		}
		return err
	})
}

// start starts the jobs and waits until all of them run.
func start(t *testing.T, a Agent) {
	t.Helper()
	must(t, a.Start(t.Context()))
	eventually.Succeeds(t, time.Minute, "all jobs run", func() error {
		state, err := a.State(t.Context())
		if err == nil && state.State != Running {
			err = fmt.Errorf("%s: %s", state.State, state.Problem())
		}
		return err
	})
}

func TestApplyInstallsJobsAndPackages(t *testing.T) {
	v, a := newVM(t)
	pkg := Package{Name: "tool", Fingerprint: "p1", Dir: vmtest.Files(t, map[string]string{"bin/tool": "tool one"})}
	spec := ApplySpec{
		Instance: Instance{Deployment: "kubernetes", Group: "control", ID: "abc", AZ: "z1", Bootstrap: true},
		Jobs:     []Job{sleeper(t, "a", "j1", map[string]string{"config/x.json": "{}"}), sleeper(t, "b", "j1", nil)},
		Packages: []Package{pkg, {Name: "other", Fingerprint: "o1", Dir: vmtest.Files(t, map[string]string{"f": "x"})}},
	}
	must(t, a.Apply(t.Context(), spec))
	must(t, a.Apply(t.Context(), spec)) // nothing changes
	for _, c := range []struct{ script, want string }{
		{"readlink -f /var/vcap/jobs/a", "/var/vcap/data/jobs/a/j1"},
		{"cd /var/vcap/jobs/a; stat -c '%a %U %G %n' . bin bin/ctl config/x.json", "750 root vcap .\n750 root vcap " +
			"bin\n750 root vcap bin/ctl\n640 root vcap config/x.json"},
		{"cat /var/vcap/packages/tool/bin/tool; readlink /var/vcap/packages/tool", "tool " +
			"one/var/vcap/data/packages/tool/p1"},
		{"touch /var/vcap/packages/tool/x 2>&1 | grep -o 'Read-only' || true", "Read-only"},
		{"grep -c /var/vcap/data/packages/tool /proc/self/mountinfo", "1"},
		{"stat -c '%a %U %G' /var/vcap/sys/log/a /var/vcap/sys/run/a /var/vcap/data/a", "770 root vcap\n770 root " +
			"vcap\n770 root vcap"},
		{"cd /var/vcap/instance; ls; cat id; echo; cat az", "az\ndeployment\nid\nname\nabc\nz1"},
		{"ls /var/vcap/monit/job", ""}, // monit is configured by Start
	} {
		if got := sh(t, v, c.script); got != c.want {
			t.Errorf("%s: got %q, want %q", c.script, got, c.want)
		}
	}

	spec.Jobs = []Job{sleeper(t, "a", "j2", nil)}
	spec.Packages = []Package{
		{Name: "tool", Fingerprint: "p2", Dir: vmtest.Files(t, map[string]string{"bin/tool": "tool two"})},
	}
	must(t, a.Apply(t.Context(), spec))
	for _, c := range []struct{ script, want string }{
		{
			"ls /var/vcap/jobs /var/vcap/data/jobs/a; test ! -e /var/vcap/data/jobs/b; test ! -e " +
				"/var/vcap/jobs/a/config",
			"/var/vcap/data/jobs/a:\nj2\n\n/var/vcap/jobs:\na",
		},
		{"cat /var/vcap/packages/tool/bin/tool; ls /var/vcap/packages", "tool twotool"},
		{"grep -c /var/vcap/data/packages /proc/self/mountinfo", "1"},
	} {
		if got := sh(t, v, c.script); got != c.want {
			t.Errorf("%s: got %q, want %q", c.script, got, c.want)
		}
	}
	if content, err := os.ReadFile(filepath.Join(pkg.Dir, "bin/tool")); err != nil || string(content) != "tool one" {
		t.Errorf("removing a package from the VM changed the host's directory: %q, %v", content, err)
	}
}

// TestJobsStartInTheManifestsOrder compares the times of the pidfiles.
func TestJobsStartInTheManifestsOrder(t *testing.T) {
	v, a := newVM(t)
	var spec ApplySpec
	for _, name := range []string{"etcd", "api", "kubelet", "flannel"} {
		spec.Jobs = append(spec.Jobs, sleeper(t, name, "j1", nil))
	}
	must(t, a.Apply(t.Context(), spec))
	start(t, a)
	if got := sh(
		t, v, "cd /var/vcap/sys/run; stat -c '%Y%y %n' */*.pid | sort | grep -o '[a-z]*.pid'",
	); got != "etcd.pid\napi.pid\nkubelet.pid\nflannel.pid" {
		t.Errorf("monit started jobs in the order %q", got)
	}
}

// TestBootStartsProcessesWithoutPreStart: after a reboot monit starts what it monitored, and the job's packages are
// there.
func TestBootStartsProcessesWithoutPreStart(t *testing.T) {
	v, a := newVM(t)
	job := sleeper(t, "a", "j1", map[string]string{
		"bin/pre-start": "#!/bin/sh\necho again >> /var/vcap/store/pre-start\n",
		// The directory of pidfiles is on a tmpfs.
		"bin/ctl": "#!/bin/sh\nmkdir -p /var/vcap/sys/run/a\ncat /var/vcap/packages/tool/tool >> " +
			"/var/vcap/store/start\n" + strings.ReplaceAll(
			strings.TrimPrefix(sleeperCtl, "#!/bin/sh\n"), "NAME", "a",
		),
	})
	must(
		t,
		a.Apply(
			t.Context(),
			ApplySpec{
				Jobs: []Job{job},
				Packages: []Package{
					{Name: "tool", Fingerprint: "p1", Dir: vmtest.Files(t, map[string]string{"tool": "tool\n"})},
				},
			},
		),
	)
	must(t, a.RunScript(t.Context(), "pre-start", nil))
	start(t, a)
	must(t, v.Kill(t.Context()))
	must(t, Boot(t.Context(), v))
	eventually.Succeeds(t, time.Minute, "monit starts the job", func() error {
		state, err := a.State(t.Context())
		if err == nil && (state.State != Running || len(state.Processes) != 1) {
			err = fmt.Errorf("%+v", state)
		}
		return err
	})
	if got := sh(
		t, v,
		"cat /var/vcap/store/pre-start /var/vcap/store/start; readlink /proc/$(cat /var/vcap/sys/run/a/a.pid)/exe",
	); got != "again\ntool\ntool\n/usr/bin/sleep" {
		t.Errorf("after the reboot: %q", got)
	}
	must(t, a.Apply(t.Context(), ApplySpec{Jobs: []Job{job}})) // which unmounts the package
}

func TestProcessesStartStopAndFail(t *testing.T) {
	v, a := newVM(t)
	must(t, a.Apply(t.Context(), ApplySpec{Jobs: []Job{sleeper(t, "a", "j1", nil), sleeper(t, "b", "j1", nil)}}))
	start(t, a)
	state, err := a.State(t.Context())
	must(t, err)
	if state.State != Running || len(state.Processes) != 2 || state.Processes[0].PID == 0 {
		t.Errorf("after Start: %+v", state)
	}
	if got := sh(
		t, v,
		"ls /var/vcap/monit/job; cat /proc/$(cat /var/vcap/sys/run/a/a.pid)/comm; grep -v ':/$' /proc/$(cat "+
			"/var/vcap/sys/run/a/a.pid)/cgroup | cut -d: -f3",
	); got != "0000_b.monitrc\n0001_a.monitrc\nsleep\n/system.slice/monit.service" {
		t.Errorf("in the VM: %q", got)
	}
	// An unmonitored process that exits is not restarted, and its instance is failing.
	must(t, a.Unmonitor(t.Context()))
	awaitState(t, a, "monit has unmonitored all", func(s State) bool {
		return strings.HasPrefix(s.Problem(), "b, a are failing (not monitored)") ||
			strings.HasPrefix(s.Problem(), "a, b are failing (not monitored)")
	})
	const unmonitored = "a is failing (not monitored)"
	sh(t, v, "kill $(cat /var/vcap/sys/run/a/a.pid); monit -c /etc/monit/monitrc monitor b")
	awaitState(t, a, "monit monitors b again", func(s State) bool {
		return strings.HasPrefix(s.Problem(), unmonitored)
	})
	awaitRestart(t, v, a, "b") // in a later cycle of monit, which has looked at a in the one before
	if state, err = a.State(t.Context()); err != nil || state.State != Failing ||
		!strings.HasPrefix(state.Problem(), unmonitored) {
		t.Errorf("unmonitored: %+v, %v", state, err)
	}
	must(t, a.Stop(t.Context()))
	if state, err = a.State(t.Context()); err != nil || state.State != Stopped {
		t.Errorf("after Stop: %+v, %v", state, err)
	}
	if got := sh(t, v, "ps -e -o comm= | grep -c sleep || true"); got != "0" {
		t.Errorf("%s processes run after Stop", got)
	}

	// monit restarts a process that exits.
	start(t, a)
	awaitRestart(t, v, a, "a")
	must(t, a.Stop(t.Context()))
	must(t, a.Apply(t.Context(), ApplySpec{Jobs: []Job{sleeper(t, "b", "j2", nil)}}))
	start(t, a)
	if state, err = a.State(t.Context()); err != nil || len(state.Processes) != 1 || state.Processes[0].Name != "b" {
		t.Errorf("after job a was removed: %+v, %v", state, err)
	}
}

// TestReloadEndsWhatIsInMonitsUnit: a process that job a has left behind in monit's control group is ended by each
// reload, one in a scope of its own lives on.
func TestReloadEndsWhatIsInMonitsUnit(t *testing.T) {
	v, a := newVM(t)
	spec := ApplySpec{Jobs: []Job{sleeper(t, "a", "j1", map[string]string{"bin/ctl": `#!/bin/sh
case $1 in
start)
  setsid sleep 1001 > /dev/null 2>&1 & echo $! > /tmp/left-behind
  setsid systemd-run --scope --quiet --unit=bosh-x-1.scope --property=Delegate=yes -- \
    sleep 1002 > /dev/null 2>&1 & echo $! > /tmp/scoped
  setsid systemd-run --description="no unit" --scope -- sleep 1003 > /dev/null 2>&1 & echo $! > /tmp/unnamed
  setsid sleep 1000 > /dev/null 2>&1 & echo $! > /var/vcap/sys/run/a/a.pid ;;
stop) kill $(cat /var/vcap/sys/run/a/a.pid); rm -f /var/vcap/sys/run/a/a.pid ;;
esac
`})}}
	must(t, a.Apply(t.Context(), spec))
	start(t, a)
	alive := func() string {
		return sh(
			t, v,
			"for f in left-behind scoped unnamed; do if kill -0 $(cat /tmp/$f) 2> /dev/null; then echo $f; fi; done",
		)
	}
	eventually.Succeeds(t, 30*time.Second, "the processes are in their scopes", func() error {
		if got := sh(
			t, v,
			"for f in scoped unnamed; do grep -o '/bosh-x-1.*\\|/run-.*' /proc/$(cat /tmp/$f)/cgroup | sed "+
				"'s/[0-9]*.scope/N.scope/'; done",
		); got != "/bosh-x-N.scope\n/run-N.scope" {
			return errors.New(got)
		}
		return nil
	})
	must(t, a.Stop(t.Context()))
	if got := alive(); got != "left-behind\nscoped\nunnamed" {
		t.Errorf("after Stop: %q", got)
	}
	must(t, a.Apply(t.Context(), spec))
	eventually.Succeeds(t, 30*time.Second, "only the scopes live on", func() error {
		if got := alive(); got != "scoped\nunnamed" {
			return errors.New(got)
		}
		return nil
	})
	sh(t, v, "kill $(cat /tmp/scoped) $(cat /tmp/unnamed)")
	start(t, a)
	if state, err := a.State(t.Context()); err != nil || state.State != Running || len(state.Processes) != 1 {
		t.Errorf("after Apply and Start: %+v, %v", state, err)
	}
}

// TestStopRightAfterUnmonitor does what a Director does around a drain that takes no time: monit may not have finished
// unmonitor when stop follows, and considers unmonitored services stopped.
func TestStopRightAfterUnmonitor(t *testing.T) {
	v, a := newVM(t)
	var jobs []Job
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		jobs = append(jobs, sleeper(t, name, "j1", nil))
	}
	must(t, a.Apply(t.Context(), ApplySpec{Jobs: jobs}))
	for range 8 {
		start(t, a)
		must(t, a.Unmonitor(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		err := a.Stop(ctx)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if got := sh(t, v, "ps -e -o comm= | grep -c sleep || true"); got != "0" {
			t.Fatalf("%s processes run after Stop", got)
		}
	}
}

// TestProblemNamesProcessAndFullDisk: the disk is no longer named once it has free space.
func TestProblemNamesProcessAndFullDisk(t *testing.T) {
	v, a := newVM(t)
	must(t, v.Do(func() error { return unix.Mount("tmpfs", "/var/vcap/store", "tmpfs", 0, "size=2m") }))
	broken := sleeper(
		t, "broken", "j1", map[string]string{"bin/ctl": "#!/bin/sh\necho > /var/vcap/store/file\nexit 1\n"},
	)
	must(t, a.Apply(t.Context(), ApplySpec{Jobs: []Job{broken}}))
	sh(t, v, "head -c 2M /dev/zero > /var/vcap/store/ballast")
	must(t, a.Start(t.Context()))
	state, err := a.State(t.Context())
	must(t, err)
	if problem := state.Problem(); !strings.HasPrefix(problem, "broken is ") ||
		!strings.HasSuffix(problem, "; the VM's disk is full: there is no space left on /var/vcap/store") {
		t.Errorf("the problem is %q; it must name the process and the disk", problem)
	}
	sh(t, v, "rm /var/vcap/store/ballast")
	if state, err = a.State(t.Context()); err != nil || len(state.FullDisks) > 0 || state.State == Running {
		t.Errorf("with free space: %+v, %v", state, err)
	}
}

func TestInvalidMonitFileIsRefusedAndMonitKeepsRunning(t *testing.T) {
	_, a := newVM(t)
	bad := Job{
		Name:        "bad",
		Fingerprint: "j1",
		Dir:         vmtest.Files(t, map[string]string{"monit": "check process bad with nonsense\n"}),
	}
	must(t, a.Apply(t.Context(), ApplySpec{Jobs: []Job{bad}}))
	if err := a.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "0000_bad.monitrc") {
		t.Errorf("got %v, want an error that names the file", err)
	}
	must(t, a.Apply(t.Context(), ApplySpec{Jobs: []Job{sleeper(t, "good", "j1", nil)}}))
	start(t, a)
}

func TestScriptsRunInParallelWithTheAgentsEnvironment(t *testing.T) {
	v, a := newVM(t)
	// Each script waits for the other's file, so neither succeeds unless both run at the same time.
	meet := func(me, other string) string {
		return "#!/bin/bash\ntouch /tmp/" + me + "\nfor i in {1..100}; do [ -e /tmp/" + other + " ] && break; sleep " +
			"0.05; done\n[ -e /tmp/" + other + " ] || exit 1\nenv | sort\n"
	}
	none := Job{Name: "none", Fingerprint: "j1", Dir: vmtest.Files(t, map[string]string{"config/x": ""})}
	must(t, a.Apply(t.Context(), ApplySpec{Jobs: []Job{
		sleeper(
			t,
			"a",
			"j1",
			map[string]string{
				"bin/pre-start":  meet("a", "b"),
				"bin/post-start": "#!/bin/sh\necho gone wrong >&2\nexit 7\n",
			},
		),
		sleeper(t, "b", "j1", map[string]string{"bin/pre-start": meet("b", "a"), "bin/post-start": "#!/bin/sh\n"}),
		none,
	}}))
	must(t, a.RunScript(t.Context(), "pre-start", map[string]string{"BOSH_X": "1"}))
	if got := sh(
		t, v,
		"grep -v -e ^_= -e ^PWD= -e ^SHLVL= /var/vcap/sys/log/a/pre-start.stdout.log; test -f "+
			"/var/vcap/sys/log/a/pre-start.stderr.log",
	); got != "BOSH_X=1\nPATH=/usr/sbin:/usr/bin:/sbin:/bin" {
		t.Errorf("environment: %q", got)
	}
	err := a.RunScript(t.Context(), "post-start", nil)
	var failed *ScriptError
	if !errors.As(err, &failed) || len(failed.Failed) != 1 || failed.Failed[0].Job != "a" || len(failed.Finished) != 1 {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{
		"1 of 2 post-start", "job a", "exited with 7", "gone wrong", "/var/vcap/sys/log/a/post-start.stderr.log",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
	must(t, a.RunScript(t.Context(), "post-deploy", nil)) // no job has it
}

func TestRunErrandReturnsExitCodeAndOutput(t *testing.T) {
	_, a := newVM(t)
	must(
		t,
		a.Apply(
			t.Context(),
			ApplySpec{
				Jobs: []Job{
					{
						Name:        "smoke",
						Fingerprint: "j1",
						Dir: vmtest.Files(
							t,
							map[string]string{
								"bin/run": "#!/bin/sh\necho out; echo err >&2; exit 4\n",
								"monit":   "\n# none\n",
							},
						),
					},
				},
			},
		),
	)
	start(t, a) // nothing to start
	var stdout, stderr bytes.Buffer
	code, err := a.RunErrand(t.Context(), "smoke", &stdout, &stderr)
	if code != 4 || err != nil || stdout.String() != "out\n" || stderr.String() != "err\n" {
		t.Errorf("got %d, %v, %q, %q", code, err, stdout.String(), stderr.String())
	}
	if _, err := a.RunErrand(t.Context(), "smokee", &stdout, &stderr); err == nil ||
		!strings.Contains(err.Error(), "[smoke]") {
		t.Errorf("unknown errand: got %v, want an error that lists the errands", err)
	}
}

func TestDrainWaitsAsScriptsAsk(t *testing.T) {
	v, a := newVM(t)
	dynamic := "#!/bin/bash\necho $1 $BOSH_JOB_NEXT_STATE >> /tmp/calls\nif [ $(wc -l < /tmp/calls) -lt 3 ]; then " +
		"echo -1; else echo 0; fi\n"
	must(t, a.Apply(t.Context(), ApplySpec{Jobs: []Job{
		sleeper(t, "dynamic", "j1", map[string]string{"bin/drain": dynamic}),
		sleeper(t, "static", "j1", map[string]string{"bin/drain": "#!/bin/sh\necho draining >&2\necho 1\nexit 3\n"}),
	}}))
	started := time.Now()
	must(t, a.Drain(t.Context(), map[string]string{"BOSH_JOB_NEXT_STATE": "{}"}))
	if d := time.Since(started); d < 2*time.Second {
		t.Errorf("drained in %s, want at least the two seconds that the dynamic script asked for", d)
	}
	if got := sh(t, v, "cat /tmp/calls"); got != "job_shutdown {}\njob_check_status {}\njob_check_status {}" {
		t.Errorf("calls: %q", got)
	}

	must(
		t,
		a.Apply(
			t.Context(),
			ApplySpec{
				Jobs: []Job{
					sleeper(
						t, "bad", "j1",
						map[string]string{"bin/drain": "#!/bin/sh\necho pods are left >&2\necho done\nexit 3\n"},
					),
				},
			},
		),
	)
	err := a.Drain(t.Context(), nil)
	for _, want := range []string{`"done"`, "exited with 3", "pods are left"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %s", err, want)
		}
	}
	if logs := sh(t, v, "find /var/vcap/sys/log -name 'drain*'"); logs != "" {
		t.Errorf("the agent wrote %s; bosh-agent writes no output of drain to the logs of jobs", logs)
	}
}

func TestParseDrainOutput(t *testing.T) {
	for _, c := range []struct {
		out   string
		wait  time.Duration
		again bool
		valid bool
	}{
		{"0\n", 0, false, true}, {" 10 ", 10 * time.Second, false, true}, {"-5", 5 * time.Second, true, true},
		{"", 0, false, false}, {"1.5", 0, false, false}, {"draining\n0", 0, false, false},
	} {
		wait, again, err := parseDrainOutput(c.out)
		if wait != c.wait || again != c.again || (err == nil) != c.valid {
			t.Errorf("%q: got %s, %v, %v", c.out, wait, again, err)
		}
	}
}

func TestStateFromMonitStatus(t *testing.T) {
	for _, c := range []struct {
		what     string
		services []monitService
		stopped  bool
		want     RunState
	}{
		{"nothing", nil, false, Running},
		{"running", []monitService{{Type: 3, Monitor: 1, PID: 9}}, false, Running},
		{"system alone", []monitService{{Type: 5, Monitor: 1}}, false, Running},
		{"initializing", []monitService{{Type: 3, Monitor: 1, PID: 9}, {Type: 3, Monitor: 2}}, false, Starting},
		{"pending start", []monitService{{Type: 3, Monitor: 0, PendingAction: 4}}, false, Starting},
		{"errored", []monitService{{Type: 3, Monitor: 1, PID: 9, Status: 512}}, false, Failing},
		{"unmonitored", []monitService{{Type: 3, Monitor: 0}}, false, Failing},
		{"no process", []monitService{{Type: 3, Monitor: 1}}, false, Failing},
		{"stopped", []monitService{{Type: 3, Monitor: 0}}, true, Stopped},
		{"a file check", []monitService{{Type: 2, Monitor: 1}}, false, Running},
	} {
		if got := (monitStatus{Services: c.services}).state(c.stopped); got.State != c.want {
			t.Errorf("%s: got %+v, want %s", c.what, got, c.want)
		}
	}
}

func TestStopGivesUpAtAnError(t *testing.T) {
	for _, c := range []struct {
		what             string
		service          monitService
		pending, errored bool
	}{
		{"running", monitService{Type: 3, Name: "a", Monitor: 1, PID: 9}, false, false},
		{"to be unmonitored", monitService{Type: 3, Name: "a", Monitor: 1, PID: 9, PendingAction: 5}, true, false},
		{"failing without a message", monitService{Type: 3, Name: "a", Status: 512}, false, false},
		{"errored", monitService{Type: 3, Name: "a", Status: 512, Message: "failed to stop"}, false, true},
		{"system", monitService{Type: 5, Name: "a", Status: 512, Message: "loaded", PendingAction: 1}, false, false},
	} {
		status := monitStatus{Services: []monitService{c.service}}
		for name, got := range map[string]struct {
			err  error
			want bool
		}{"pending": {status.pending(), c.pending}, "errored": {status.errored(), c.errored}} {
			if (got.err != nil) != got.want || got.err != nil && !strings.HasSuffix(got.err.Error(), " a") {
				t.Errorf("%s: %s is %v, want an error that names the service: %t", c.what, name, got.err, got.want)
			}
		}
	}
}

func TestProblemGroupsProcessesByCondition(t *testing.T) {
	state := State{FullDisks: []string{"/"}, Processes: []Process{
		{
			Name:  "etcd",
			State: Starting,
		},
		{Name: "api", State: Failing, Message: "no pidfile"},
		{Name: "kubelet", State: Starting},
		{Name: "cni", State: Running},
	}}
	const want = "etcd, kubelet are starting; api is failing (no pidfile); the VM's disk is full: there is no space " +
		"left on /"
	if got := state.Problem(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := (State{Processes: []Process{{Name: "cni", State: Running}}}).Problem(); got != "" {
		t.Errorf("got %q although all processes run", got)
	}
}

func TestRefusesInvalidApplySpec(t *testing.T) {
	dir := t.TempDir()
	for what, s := range map[string]ApplySpec{
		"path as name":      {Jobs: []Job{{Name: "../a", Fingerprint: "1", Dir: dir}}},
		"no fingerprint":    {Jobs: []Job{{Name: "a", Dir: dir}}},
		"missing directory": {Jobs: []Job{{Name: "a", Fingerprint: "1", Dir: dir + "/none"}}},
		"same job twice": {
			Jobs: []Job{{Name: "a", Fingerprint: "1", Dir: dir}, {Name: "a", Fingerprint: "1", Dir: dir}},
		},
		"package without dir": {Packages: []Package{{Name: "a", Fingerprint: "1"}}},
	} {
		if s.check() == nil {
			t.Errorf("%s was accepted", what)
		}
	}
}

// TestLogsStayInTheVM: vcap can put a link in the place of a script's log. As with bosh-agent root follows it, but not
// out of the VM.
func TestLogsStayInTheVM(t *testing.T) {
	v, a := newVM(t)
	must(
		t,
		a.Apply(
			t.Context(),
			ApplySpec{Jobs: []Job{sleeper(t, "a", "j1", map[string]string{"bin/pre-start": "#!/bin/sh\necho out\n"})}},
		),
	)
	outside := filepath.Join(t.TempDir(), "host")
	must(t, os.WriteFile(outside, []byte("host's"), 0o600))
	sh(
		t, v,
		fmt.Sprintf("mkdir -p %s; ln -s %s /var/vcap/sys/log/a/pre-start.stdout.log", filepath.Dir(outside), outside),
	)
	must(t, a.RunScript(t.Context(), "pre-start", nil))
	if content, err := os.ReadFile(outside); err != nil || string(content) != "host's" {
		t.Errorf("the host's file holds %q, %v", content, err)
	}
	if got := sh(t, v, "cat "+outside); got != "out" {
		t.Errorf("the VM's file holds %q", got)
	}
}
