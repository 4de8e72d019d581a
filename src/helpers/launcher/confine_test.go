package launcher

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// TestConfinement runs a process with few capabilities and one directory to write to, as root.
func TestConfinement(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("requires root")
	}
	b := newBench(t)
	for _, dir := range []string{"state", "elsewhere"} {
		if err := os.Mkdir(b.path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	confined := map[string]any{
		"flags": map[string]any{
			"report": b.path("state/report.json"),
			"write":  []string{b.path("state"), b.path("elsewhere"), b.path("elsewhere/x.lock")},
		},
		"ready":          map[string]any{"command": []string{"/usr/bin/test", "-e", b.path("state/report.json")}},
		"capabilities":   []string{"NET_ADMIN", "NET_RAW"},
		"writable_paths": []string{b.path("state"), b.path("absent"), b.path("elsewhere/x.lock")},
		"lock_files":     []string{b.path("elsewhere/x.lock")},
	}
	b.config("fake-daemon", confined)
	b.stopAtEnd()
	b.must("start")
	c := b.circumstances("state/report.json")
	want := uint64(1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_NET_RAW)
	for set, want := range map[string]uint64{"CapInh": 0, "CapPrm": want, "CapEff": want, "CapBnd": want, "CapAmb": 0, "NoNewPrivs": 1} {
		if got := statusField(t, c.Status, set); got != want {
			t.Errorf("%s is %x, want %x", set, got, want)
		}
	}
	if want := []string{b.path("state"), b.path("elsewhere/x.lock")}; !slices.Equal(c.Writable, want) {
		t.Errorf("writes to %v, want %v", c.Writable, want)
	}
	// The VM itself stays as it was.
	if err := os.WriteFile(b.path("elsewhere/written"), nil, 0o600); err != nil {
		t.Error(err)
	}
}

func TestProcessesAreNotConfinedWithoutTheField(t *testing.T) {
	b := newBench(t)
	b.config("fake-daemon", map[string]any{
		"flags": map[string]any{"report": b.path("report.json")},
		"ready": map[string]any{"command": []string{"/usr/bin/test", "-e", b.path("report.json")}},
	})
	b.stopAtEnd()
	b.must("start")
	own, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range []string{"CapPrm", "CapBnd", "NoNewPrivs"} {
		if got, want := statusField(
			t, b.circumstances("report.json").Status, set,
		), statusField(t, string(own), set); got != want {
			t.Errorf("%s is %x, want %x", set, got, want)
		}
	}
}

func statusField(t *testing.T, status, name string) uint64 {
	t.Helper()
	match := regexp.MustCompile(fmt.Sprintf(`(?m)^%s:\s*([0-9a-f]+)$`, name)).FindStringSubmatch(status)
	if match == nil {
		t.Fatalf("no %s in\n%s", name, status)
	}
	value, err := strconv.ParseUint(match[1], 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func TestConfinementIsValidated(t *testing.T) {
	for name, test := range map[string]struct{ fields, want string }{
		"unknown capability": {`"capabilities": ["CAP_NET_ADMIN"]`, `capabilities has "CAP_NET_ADMIN"`},
		"relative path":      {`"capabilities": [], "writable_paths": ["run"]`, "writable_paths[0]"},
		"could be undone":    {`"capabilities": ["SYS_ADMIN"], "writable_paths": []`, "SYS_ADMIN"},
		"all capabilities":   {`"writable_paths": []`, "SYS_ADMIN"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(`{"process": "a", "executable": "/bin/true", ` + test.fields + `}`))
			if err == nil {
				t.Fatal("accepted")
			}
			contains(t, err.Error(), test.want)
		})
	}
}
