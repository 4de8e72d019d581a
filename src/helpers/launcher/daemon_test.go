package launcher

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kubernetes-release/internal/eventually"
)

// stopAtEnd stops the daemon when the test ends.
func (b *bench) stopAtEnd() {
	b.t.Cleanup(func() { b.launch("stop") })
}

func (b *bench) circumstances(path string) circumstances {
	b.t.Helper()
	var c circumstances
	if err := json.Unmarshal([]byte(b.read(path)), &c); err != nil {
		b.t.Fatal(err)
	}
	return c
}

func TestStartAndStop(t *testing.T) {
	b := newBench(t)
	b.config("fake-daemon", map[string]any{
		"flags": map[string]any{"report": b.path("report.json"), "after": "200ms"},
		"ready": map[string]any{
			"command": []string{"/usr/bin/test", "-e", b.path("report.json")},
			"timeout": "10s",
		},
		"environment":      map[string]any{"COLOR": "blue", "COUNT": 3, "HOME": nil, "HTTP2_PING_TIMEOUT_SECONDS": 7},
		"node":             b.node(""),
		"node_environment": map[string]any{"NODE_NAME": "name", "ZONE": "zone"},
	})
	b.stopAtEnd()
	b.must("start")
	c := b.circumstances("report.json") // exists, because start waited for it
	if c.PID != b.pid() || !alive(c.PID) {
		t.Errorf("pidfile says %d, the process is %d", b.pid(), c.PID)
	}
	if c.Session != c.PID {
		t.Errorf("session %d, want one of its own, %d", c.Session, c.PID)
	}
	if c.Stdin != "/dev/null" || c.Dir != "/" {
		t.Errorf("stdin %q, directory %q", c.Stdin, c.Dir)
	}
	environment := strings.Join(c.Environment, "\n") + "\n"
	contains(
		t, environment, "COLOR=blue\n", "COUNT=3\n", "NODE_NAME=a-0\n", "HTTP2_READ_IDLE_TIMEOUT_SECONDS=10\n",
		"HTTP2_PING_TIMEOUT_SECONDS=7\n",
	)
	if strings.Contains(environment, "HOME=") || strings.Contains(environment, "ZONE=") {
		t.Errorf("unexpected variables: %s", environment)
	}
	contains(t, b.read("log/fake.stdout.log"), "on standard output")
	contains(t, b.read("log/fake.stderr.log"), `msg=starting`, "fake-daemon --after=200ms --report=")

	contains(t, b.must("start"), "already running")
	if b.pid() != c.PID {
		t.Errorf("a second start replaced %d by %d", c.PID, b.pid())
	}
	b.must("stop")
	if alive(c.PID) {
		t.Errorf("process %d still runs after stop", c.PID)
	}
	if _, err := os.Stat(b.path("run/fake.pid")); !os.IsNotExist(err) {
		t.Errorf("pidfile after stop: %v", err)
	}
	contains(t, b.must("stop"), "not running")
	if err := os.Remove(b.path("report.json")); err != nil { // or the new process would count as ready too early
		t.Fatal(err)
	}
	b.must("start") // again: the log is appended to
	contains(t, b.read("log/fake.stdout.log"), "on standard output\non standard output\n")
}

func TestStartNoticesAnEarlyExit(t *testing.T) {
	b := newBench(t)
	b.config("fake-daemon", map[string]any{"flags": map[string]any{"fail": true}})
	output := b.refuses(
		"start", "fake did not start: it exited: exit status 7", b.path("log/fake.stderr.log"),
		"cannot bind: address in use",
	)
	if strings.Contains(output, "panic") {
		t.Error(output)
	}
	if _, err := os.Stat(b.path("run/fake.pid")); !os.IsNotExist(err) {
		t.Errorf("pidfile left behind: %v", err)
	}
}

// TestPidfileOfAnEndedProcess writes the pidfile of a process that has ended and is not reaped: how it ended is told
// after that, and it does not count as running.
func TestPidfileOfAnEndedProcess(t *testing.T) {
	command := exec.Command("true")
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = command.Wait() })
	pid := command.Process.Pid
	if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	c := Config{Pidfile: filepath.Join(t.TempDir(), "fake.pid")}
	if err := c.writePidfile(pid); err != nil {
		t.Fatal(err)
	}
	if running, err := c.running(); running != 0 || err != nil {
		t.Errorf("process %d runs: %v", running, err)
	}
}

func TestStartLeavesNothingBehindWhenNotReady(t *testing.T) {
	b := newBench(t)
	b.config("fake-daemon", map[string]any{
		"flags": map[string]any{"report": b.path("report.json"), "stubborn": true},
		"ready": map[string]any{
			"command": []string{"/bin/sh", "-c", "echo no pause image; exit 4"},
			"timeout": "2s",
		},
		"stop_timeout": "300ms",
	})
	b.refuses("start", "not ready", "exit status 4: no pause image", "fake.stderr.log", "SIGKILL")
	if pid := b.circumstances("report.json").PID; alive(pid) {
		t.Errorf("process %d was left behind", pid)
	}
	if _, err := os.Stat(b.path("run/fake.pid")); !os.IsNotExist(err) {
		t.Errorf("pidfile left behind: %v", err)
	}
}

func TestInterruptedStartLeavesNothingBehind(t *testing.T) {
	b := newBench(t)
	b.config("fake-daemon", map[string]any{
		"flags": map[string]any{"report": b.path("report.json")},
		"ready": map[string]any{"command": []string{"/bin/sh", "-c", "sleep 60"}, "timeout": "60s"},
	})
	b.stopAtEnd()
	start := exec.Command(b.path("kube-launcher"), "start", b.path("flags.json"))
	if err := start.Start(); err != nil {
		t.Fatal(err)
	}
	eventually.Succeeds(
		t, 30*time.Second, "report of the process",
		func() error { _, err := os.Stat(b.path("report.json")); return err },
	)
	if err := start.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := start.Wait(); err == nil {
		t.Error("an interrupted start succeeded")
	}
	if pid := b.circumstances("report.json").PID; alive(pid) {
		t.Errorf("process %d was left behind", pid)
	}
}

func TestStopKeepsChildrenRunning(t *testing.T) {
	b := newBench(t)
	b.config("fake-daemon", map[string]any{
		"flags": map[string]any{"report": b.path("report.json"), "child": b.path("child")},
		"ready": map[string]any{"command": []string{"/usr/bin/test", "-e", b.path("report.json")}},
	})
	b.stopAtEnd()
	b.must("start")
	child, err := strconv.Atoi(b.read("child"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(child, syscall.SIGKILL) })
	b.must("stop")
	if !alive(child) {
		t.Error("stop stopped the child too")
	}
}

func TestStopKillsAProcessThatIgnoresSIGTERM(t *testing.T) {
	b := newBench(t)
	b.config("fake-daemon", map[string]any{
		"flags":        map[string]any{"report": b.path("report.json"), "stubborn": true},
		"ready":        map[string]any{"command": []string{"/usr/bin/test", "-e", b.path("report.json")}},
		"stop_timeout": "300ms",
	})
	b.stopAtEnd()
	b.must("start")
	pid := b.pid()
	contains(t, b.must("stop"), "sending SIGKILL")
	if alive(pid) {
		t.Error("the process still runs")
	}
}

// TestPidfileOfAnotherProcess has a pidfile with the PID of another running process, as after a reboot.
func TestPidfileOfAnotherProcess(t *testing.T) {
	for name, birthFile := range map[string]func(pid int) string{
		"without birth":    func(int) string { return "" },
		"birth of another": func(int) string { return `{"pid": 1, "start_ticks": 1, "boot_id": "x"}` },
		"birth before boot": func(pid int) string {
			return `{"pid": ` + strconv.Itoa(pid) + `, "start_ticks": 1, "boot_id": "x"}`
		},
		"broken birth": func(int) string { return "{" },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.config("fake-daemon", map[string]any{
				"flags": map[string]any{"report": b.path("report.json")},
				"ready": map[string]any{"command": []string{"/usr/bin/test", "-e", b.path("report.json")}},
			})
			other := exec.Command("sleep", "60")
			if err := other.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = other.Process.Kill(); _ = other.Wait() })
			pid := other.Process.Pid
			lay := func() {
				if err := os.MkdirAll(b.path("run"), 0o755); err != nil {
					t.Fatal(err)
				}
				b.write("run/fake.pid", strconv.Itoa(pid))
				if content := birthFile(pid); content != "" {
					b.write("run/fake.pid.json", content)
				}
			}
			lay()
			b.must("stop")
			if _, err := os.Stat(b.path("run/fake.pid")); !os.IsNotExist(err) {
				t.Error("stop left the stale pidfile")
			}
			lay()
			b.stopAtEnd()
			b.must("start")
			if b.pid() == pid || b.pid() != b.circumstances("report.json").PID {
				t.Errorf("start treated process %d as its own", pid)
			}
			if !alive(pid) {
				t.Error("the other process was stopped")
			}
		})
	}
}

// TestPidfileWithoutBirth has only the pidfile: the command line identifies the process.
func TestPidfileWithoutBirth(t *testing.T) {
	b := newBench(t)
	b.config("fake-daemon", map[string]any{})
	b.stopAtEnd()
	b.must("start")
	pid := b.pid()
	if err := os.Remove(b.path("run/fake.pid.json")); err != nil {
		t.Fatal(err)
	}
	contains(t, b.must("start"), "already running")
	b.must("stop")
	if alive(pid) {
		t.Error("the process still runs")
	}
}

func TestInvalidPidfile(t *testing.T) {
	for _, content := range []string{"", "x", "-5", "0", "99999999999999999999", "4194304000"} {
		t.Run(content, func(t *testing.T) {
			b := newBench(t)
			b.config("fake-daemon", map[string]any{})
			if err := os.MkdirAll(b.path("run"), 0o755); err != nil {
				t.Fatal(err)
			}
			b.write("run/fake.pid", content)
			b.must("stop")
			b.stopAtEnd()
			b.must("start")
			if !alive(b.pid()) {
				t.Error("the process does not run")
			}
		})
	}
}

// TestExecLooksAlive watches a process that execs a hundred times: it never looks as if it had ended.
func TestExecLooksAlive(t *testing.T) {
	command := exec.Command(newBench(t).path("fake-exec"), "100")
	stdin, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(time.Minute)
	for words := []string{}; !slices.Equal(words, []string{command.Path, "0"}); words = cmdline(command.Process.Pid) {
		if _, err := birthOf(command.Process.Pid); err != nil || time.Now().After(deadline) {
			t.Errorf("at %q: %v", words, err)
			break
		}
	}
	_ = stdin.Close() // the last program waits for it
	if err := command.Wait(); err != nil {
		t.Error(err)
	}
}

func TestConcurrentStarts(t *testing.T) {
	b := newBench(t)
	b.config("fake-daemon", map[string]any{})
	b.stopAtEnd()
	starts := make([]*exec.Cmd, 4)
	for i := range starts {
		starts[i] = exec.Command(b.path("kube-launcher"), "start", b.path("flags.json"))
		if err := starts[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	for _, start := range starts {
		if err := start.Wait(); err != nil {
			t.Error(err)
		}
	}
	if n := strings.Count(b.read("log/fake.stderr.log"), "msg=starting "); n != 1 {
		t.Errorf("%d processes were started, want 1", n)
	}
}

func TestStopWhileWaiting(t *testing.T) {
	b := newBench(t)
	b.config(
		"fake-daemon",
		map[string]any{"wait_for": []any{map[string]any{"url": "http://127.0.0.1:1/", "timeout": "60s"}}},
	)
	b.stopAtEnd()
	b.must("start") // without a ready command it does not wait for what the process waits for
	pid := b.pid()
	started := time.Now()
	b.must("stop")
	if alive(pid) || time.Since(started) > 30*time.Second {
		t.Errorf("stop took %s, alive: %t", time.Since(started), alive(pid))
	}
	contains(t, b.read("log/fake.stderr.log"), "http://127.0.0.1:1/", "stopped after", "connection refused")
}

// TestStartDoesNotWaitForSetup: monit starts processes one after another, and joining can require processes of this VM.
func TestStartDoesNotWaitForSetup(t *testing.T) {
	b := newBench(t)
	b.config(
		"fake-daemon",
		map[string]any{
			"setup": []string{"/bin/sh", "-c", "while [ ! -e " + b.path("joined") + " ]; do sleep 0.1; done"},
		},
	)
	b.stopAtEnd()
	b.must("start")
	if !alive(b.pid()) {
		t.Error("the process does not run")
	}
	b.write("joined", "")
}

func TestStartReportsAWaitThatTimesOut(t *testing.T) {
	b := newBench(t)
	b.config("fake-daemon", map[string]any{
		"wait_for": []any{map[string]any{"url": "http://127.0.0.1:1/", "timeout": "1s"}},
		"ready":    map[string]any{"command": []string{"/bin/true"}},
	})
	b.refuses("start", "http://127.0.0.1:1/", "timed out after 1s", "connection refused")
}

func TestLimits(t *testing.T) {
	for name, test := range map[string]struct {
		limit any
		want  uint64
	}{"lower": {512, 512}, "more than allowed": {uint64(1) << 40, 0}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.config("fake-daemon", map[string]any{
				"flags":  map[string]any{"report": b.path("report.json")},
				"limits": map[string]any{"nofile": test.limit},
				"ready":  map[string]any{"command": []string{"/usr/bin/test", "-e", b.path("report.json")}},
			})
			b.stopAtEnd()
			b.must("start")
			got := b.circumstances("report.json").NoFile
			if test.want != 0 && got != test.want {
				t.Errorf("%d open files allowed, want %d", got, test.want)
			}
			if test.want == 0 { // no kernel allows that many
				contains(
					t, b.read("log/fake.stderr.log"), "refuses a resource limit", "limit=nofile",
					"requested=1099511627776",
				)
			}
		})
	}
}

func TestExecKeepsThePid(t *testing.T) {
	b := newBench(t)
	b.config("fake-daemon", map[string]any{
		"arguments":  []string{"serve"},
		"flags":      map[string]any{"report": b.path("report.json")},
		"node_flags": map[string]any{"child": "region"}, // empty, so the flag is left out
		"node":       b.node(""),
	})
	command := exec.Command(b.path("kube-launcher"), "exec", b.path("flags.json"))
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = command.Process.Kill(); _ = command.Wait() })
	eventually.Succeeds(
		t, 30*time.Second, "report of the process",
		func() error { _, err := os.Stat(b.path("report.json")); return err },
	)
	c := b.circumstances("report.json")
	if c.PID != command.Process.Pid {
		t.Errorf("pid %d, want %d", c.PID, command.Process.Pid)
	}
	if got := strings.Join(c.Arguments, " "); got != "serve --report="+b.path("report.json") {
		t.Errorf("arguments %q", got)
	}
}

func TestExecRequiresTheIdentity(t *testing.T) {
	b := newBench(t)
	b.config("fake-daemon", map[string]any{"node": b.node(b.path("identity.json"))})
	b.refuses("exec", b.path("identity.json"), "job cloud-provider", "pre-start")
	b.must("check") // where it is tolerated
	b.write("identity.json", `{"name": "UPPER"}`)
	b.refuses("exec", b.path("identity.json"), `"UPPER"`)
	b.refuses("check", b.path("identity.json"), `"UPPER"`)
}
