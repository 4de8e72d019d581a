package director

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// progressOf returns a Progress whose clock stands still, and what it writes and logs.
func progressOf() (p *Progress, out, log *bytes.Buffer) {
	out, log = &bytes.Buffer{}, &bytes.Buffer{}
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	p = &Progress{Out: out, Log: slog.New(slog.NewTextHandler(log, nil)), Now: func() time.Time { return now }}
	return p, out, log
}

func TestVariablesAndPackagesAreOneLineEach(t *testing.T) {
	p, out, log := progressOf()
	for _, name := range []string{"ca", "admin", "etcd"} {
		p.Begin("Generating variables", name).End(nil)
	}
	one, two := p.Begin("Compiling packages", "etcd/1"), p.Begin("Compiling packages", "runc/2")
	one.End(nil)
	two.End(nil)
	p.Flush()
	p.Flush()
	want := "12:00:00 | Generating variables: 3 variables (00:00:00)\n12:00:00 | Compiling packages: 2 packages " +
		"(00:00:00)\n"
	if out.String() != want {
		t.Errorf("wrote\n%s\nwant\n%s", out, want)
	}
	for _, name := range []string{"Generating variables: admin", "Compiling packages: runc/2"} {
		if !strings.Contains(log.String(), `"`+name+`"`) || !strings.Contains(log.String(), `"`+name+` (00:00:00)"`) {
			t.Errorf("the log does not tell when %q began and ended:\n%s", name, log)
		}
	}
}

func TestVerboseWritesEachVariable(t *testing.T) {
	p, out, _ := progressOf()
	p.Verbose = true
	p.Begin("Generating variables", "ca").End(nil)
	p.Flush()
	const want = "12:00:00 | Generating variables: ca\n12:00:00 | Generating variables: ca (00:00:00)\n"
	if out.String() != want {
		t.Errorf("wrote\n%s\nwant\n%s", out, want)
	}
}

func TestFailedPackageIsNamed(t *testing.T) {
	p, out, _ := progressOf()
	p.Begin("Compiling packages", "etcd/1").End(nil)
	p.Begin("Compiling packages", "runc/2").End(errors.New("no space"))
	p.Flush()
	want := "12:00:00 | Compiling packages: runc/2 (00:00:00) FAILED\n12:00:00 | Compiling packages: 1 package " +
		"(00:00:00)\n"
	if out.String() != want {
		t.Errorf("wrote\n%s\nwant\n%s", out, want)
	}
}

func TestStatusIsShort(t *testing.T) {
	p, _, _ := progressOf()
	if got, want := p.Begin("Compiling packages", "etcd/"+strings.Repeat("0a", 20)).
		status(),
		"Compiling packages: etcd, 0.0s"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	task := p.Begin("Updating instance control", "control/b5d1f2a0-0f3b-4c1e-9a55-1d2f3c4b5a69 (0) (canary)")
	task.Step("executing pre-start")
	const want = "Updating instance control: control/0 (canary): executing pre-start, 0.0s"
	if got := task.status(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
