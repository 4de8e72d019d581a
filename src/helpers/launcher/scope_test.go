package launcher

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"kubernetes-release/internal/eventually"
)

// systemd makes the VM one that systemd manages, with a systemd-run that records its arguments and, as the real one
// with --scope, becomes the command after a moment.
func (b *bench) systemd() {
	b.t.Helper()
	b.lay("vm/run/systemd/system/x", "")
	b.lay("bin/systemd-run", `#!/bin/sh
echo "$*" >>`+b.path("scopes")+`
sleep 0.2
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
`)
	if err := os.Chmod(b.path("bin/systemd-run"), 0o755); err != nil {
		b.t.Fatal(err)
	}
}

// TestStartsInAScope: "systemctl kill monit" signals all that is in monit's cgroup.
func TestStartsInAScope(t *testing.T) {
	b := newBench(t)
	environment := b.vm()
	b.systemd()
	b.config("fake-daemon", map[string]any{
		"flags": map[string]any{"report": b.path("report.json")},
		"ready": map[string]any{"command": []string{"/usr/bin/test", "-e", b.path("report.json")}},
	})
	b.stopAtEnd()
	for range 2 {
		if status, output := b.launch("start", environment...); status != 0 {
			t.Fatalf("exit status %d:\n%s", status, output)
		}
		c := b.circumstances("report.json")
		if c.PID != b.pid() || c.Session != c.PID || !alive(c.PID) {
			t.Errorf("pidfile says %d, the process is %d in session %d", b.pid(), c.PID, c.Session)
		}
		if status, output := b.launch(
			"start",
			environment...); status != 0 ||
			!strings.Contains(output, "already running") {
			t.Errorf("a second start: exit status %d:\n%s", status, output)
		}
		b.must("stop")
		if alive(c.PID) {
			t.Error("the process still runs after stop")
		}
		if err := os.Remove(b.path("report.json")); err != nil {
			t.Fatal(err)
		}
	}
	units := map[string]bool{}
	for _, line := range strings.Split(strings.TrimSpace(b.read("scopes")), "\n") {
		contains(
			t, line, "--scope ", "--collect ", "--property=Delegate=yes",
			"-- "+b.path("kube-launcher")+" exec "+b.path("flags.json"),
		)
		for _, word := range strings.Fields(line) {
			if unit, ok := strings.CutPrefix(word, "--unit="); ok {
				units[unit] = true
			}
		}
	}
	if len(units) != 2 {
		t.Errorf("scopes %v, want a new one for each of two starts", units)
	}
}

// TestPidfileOfAScopeThatStarts has only the pidfile to go by, of a process that is still systemd-run.
func TestPidfileOfAScopeThatStarts(t *testing.T) {
	b := newBench(t)
	b.config("fake-daemon", nil)
	config, err := Load(b.path("flags.json"))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"systemd-run": true, "tail": false} {
		command := exec.Command(
			"sh", "-c", "read x", name, "--scope", "--", b.path("kube-launcher"), "exec", config.path,
		)
		command.Args[0] = name
		stdin, err := command.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		eventually.Succeeds(t, 30*time.Second, "exec of "+name, func() error {
			if words := cmdline(command.Process.Pid); len(words) < 2 {
				return fmt.Errorf("its command line is %q", words)
			}
			return nil
		})
		if got := config.launches(command.Process.Pid); got != want {
			t.Errorf("%s is treated as the launcher: %t, want %t", name, got, want)
		}
		_ = stdin.Close()
		_ = command.Wait()
	}
}

func TestStartRefusesSystemdWithoutSystemdRun(t *testing.T) {
	b := newBench(t)
	environment := append(b.vm(), "PATH="+b.path("bin"))
	b.lay("vm/run/systemd/system/x", "")
	b.config("fake-daemon", map[string]any{})
	b.stopAtEnd()
	for command, want := range map[string]string{"check": "fake cannot run like this", "start": "fake did not start"} {
		status, output := b.launch(command, environment...)
		if status != 1 {
			t.Errorf("%s: exit status %d", command, status)
		}
		contains(t, output, want, "/run/systemd/system exists", "systemd-run", "install it")
	}
}
