package shutdown

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
)

var quiet = slog.New(slog.DiscardHandler)

// bpm writes a stand-in of bpm that prints a PID, or fails if there is none.
func bpm(t *testing.T, output string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bpm")
	text := "#!/bin/sh\ntest \"$*\" = 'pid web' || exit 2\n" + output + "\n"
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestStop stops a process at the first signal, at the second one, and gives up on one that ignores both.
func TestStop(t *testing.T) {
	for name, test := range map[string]struct {
		script string
		again  time.Duration
		want   string
	}{
		"exits":                      {`trap 'exit 0' TERM`, 0, ""},
		"exits at the second signal": {`n=0; trap 'n=$((n+1)); [ $n = 2 ] && exit 0' TERM`, 300 * time.Millisecond, ""},
		"hangs":                      {`trap '' TERM`, 0, "did not exit"},
	} {
		t.Run(name, func(t *testing.T) {
			ready := filepath.Join(t.TempDir(), "ready")
			command := exec.Command("sh", "-c", test.script+"; touch "+ready+"; while :; do sleep 0.05; done")
			if err := command.Start(); err != nil {
				t.Fatal(err)
			}
			exited := make(chan struct{})
			go func() { _ = command.Wait(); close(exited) }()
			t.Cleanup(func() { _ = command.Process.Kill(); <-exited })
			eventually.Succeeds(t, 30*time.Second, "the process", func() error { _, err := os.Stat(ready); return err })
			options := Options{
				BPM:        bpm(t, fmt.Sprintf("echo %d", command.Process.Pid)),
				Job:        "web",
				Timeout:    2 * time.Second,
				AgainAfter: test.again,
				Progress:   time.Second,
				Clock:      clock.RealClock{},
			}
			if test.want == "" {
				options.Timeout = time.Minute
			}
			var log bytes.Buffer
			err := Stop(t.Context(), options, slog.New(slog.NewTextHandler(&log, nil)))
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			if err != nil && !strings.Contains(log.String(), `"waiting for the process to exit" job=web`) {
				t.Errorf("the log does not say what was waited for:\n%s", log.String())
			}
		})
	}
}

func TestStopWithoutProcess(t *testing.T) {
	for name, test := range map[string]struct{ output, want string }{
		"not running": {"echo 'process is not running or could not be found' >&2; exit 1", ""},
		"ended":       {"echo 4194303", ""},
		"nonsense":    {"echo -1", "no process id"},
		"init":        {"echo 1", "no process id"},
	} {
		t.Run(name, func(t *testing.T) {
			err := Stop(t.Context(), Options{BPM: bpm(t, test.output), Job: "web", Timeout: time.Second}, quiet)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

// TestReleaseLease releases a lease as the user that holds it, and not that of another host.
func TestReleaseLease(t *testing.T) {
	cluster := kubetest.Start(t, kubetest.Options{})
	leases := cluster.Admin().CoordinationV1().Leases(metav1.NamespaceSystem)
	client := cluster.ClientFor("system:kube-controller-manager")
	eventually.Succeeds(t, 30*time.Second, "the lease", func() error {
		_, err := leases.Create(
			t.Context(),
			&coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Name: "kube-controller-manager"},
				Spec: coordinationv1.LeaseSpec{
					HolderIdentity:       new("host-10_1234"),
					LeaseDurationSeconds: new(int32(15)),
				},
			},
			metav1.CreateOptions{},
		)
		return err
	})
	now := time.Date(2026, time.March, 4, 5, 6, 7, 0, time.UTC)
	for _, test := range []struct{ host, holder string }{{"host-1", "host-10_1234"}, {"host-10", ""}, {"host-10", ""}} {
		eventually.Succeeds(t, 30*time.Second, "release", func() error { // the roles are created late
			return ReleaseLease(t.Context(), client, "kube-controller-manager", test.host, now, quiet)
		})
		lease, err := leases.Get(t.Context(), "kube-controller-manager", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := *lease.Spec.HolderIdentity; got != test.holder {
			t.Errorf("after the release by %s the holder is %q, want %q", test.host, got, test.holder)
		}
		if released := lease.Spec.RenewTime; test.holder == "" && (released == nil || !released.Time.Equal(now)) {
			t.Errorf("released at %v, want %s", released, now)
		}
	}
}
