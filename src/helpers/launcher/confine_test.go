package launcher

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kubernetes-release/internal/eventually"
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
	for set, want := range map[string]uint64{
		"CapInh": 0, "CapPrm": want, "CapEff": want, "CapBnd": want, "CapAmb": 0, "NoNewPrivs": 1,
	} {
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

// TestOwnUser runs a process as a user of its own, on files as the agent leaves them, and reads its key as vcap.
func TestOwnUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("requires root")
	}
	t.Run("without capabilities", func(t *testing.T) { testOwnUser(t, []string{}, 0) })
	t.Run("with a low port", func(t *testing.T) {
		testOwnUser(t, []string{"NET_BIND_SERVICE"}, 1<<unix.CAP_NET_BIND_SERVICE)
	})
}

func testOwnUser(t *testing.T, capabilities []string, want uint64) {
	const vcap, own = 1000, 1_900_000_001
	b := newBench(t)
	key := b.path("job/config/ca.key")
	b.lay("job/config/ca.key", "the key")
	for path, mode := range map[string]os.FileMode{"job": 0o750, "job/config": 0o750, "job/config/ca.key": 0o640} {
		if err := errors.Join(os.Chown(b.path(path), 0, vcap), os.Chmod(b.path(path), mode)); err != nil {
			t.Fatal(err)
		}
	}
	// The directories of the test itself.
	for dir := b.dir; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // as /var/vcap is
			t.Fatal(err)
		}
	}
	readAs := func(user uint32, path string) error {
		command := exec.Command("cat", path)
		command.SysProcAttr = &syscall.SysProcAttr{
			Credential: &syscall.Credential{Uid: user, Gid: user, Groups: []uint32{vcap}},
		}
		output, err := command.CombinedOutput()
		if err == nil && string(output) != "the key" {
			t.Fatalf("%s contains %q", path, output)
		}
		return err
	}
	if err := readAs(vcap, key); err != nil {
		t.Fatalf("vcap cannot read what the agent has written: %v", err)
	}
	b.config("fake-daemon", map[string]any{
		"executable": "/bin/sh",
		"arguments": []string{
			"-c", "id -u; id -G; cat " + key + "; echo; touch " + b.dir + "/x; while :; do sleep 1; done",
		},
		"user_id":        own,
		"capabilities":   capabilities,
		"writable_paths": []string{},
		"private_dir":    b.path("job/config"),
	})
	b.stopAtEnd()
	b.must("start")
	eventually.Succeeds(t, 30*time.Second, "output of the process", func() error {
		if got, want := b.read("log/fake.stdout.log"), fmt.Sprintf("%d\n%[1]d %d\nthe key\n", own, vcap); got != want {
			return fmt.Errorf("it printed %q, want %q", got, want)
		}
		return nil
	})
	contains(t, b.read("log/fake.stderr.log"), "/x") // it could not write
	pid := strings.TrimSpace(b.read("run/fake.pid"))
	for _, path := range []string{key, "/proc/" + pid + "/root" + key} {
		if readAs(vcap, path) == nil {
			t.Errorf("vcap reads %s", path)
		}
	}
	status, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		if got := statusField(t, string(status), set); got != want {
			t.Errorf("%s is %x, want %x", set, got, want)
		}
	}
	b.must("start") // again, as monit does, on files that are handed over already
	if err := readAs(own, key); err != nil {
		t.Errorf("the process's user: %v", err)
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
		got := statusField(t, b.circumstances("report.json").Status, set)
		if want := statusField(t, string(own), set); got != want {
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
		"user with capabilities": {
			`"user_id": 7, "private_dir": "/x", "capabilities": ["NET_RAW"]`, "user_id requires capabilities",
		},
		"user without directory": {`"user_id": 7, "capabilities": []`, "private_dir"},
		"negative user":          {`"user_id": -1, "capabilities": [], "private_dir": "/x"`, "user_id is -1"},
		"all capabilities":       {`"writable_paths": []`, "SYS_ADMIN"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(`{`+minimal+`, `+test.fields+`}`), "/config/flags.json")
			if err == nil {
				t.Fatal("accepted")
			}
			contains(t, err.Error(), test.want)
		})
	}
}
