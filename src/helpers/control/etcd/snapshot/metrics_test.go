package snapshot

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"kubernetes-release/control/etcd/members"
	"kubernetes-release/internal/duration"
	"kubernetes-release/internal/eventually"
)

func TestMetrics(t *testing.T) {
	now := time.Now().UTC().Truncate(time.Second)
	old := now.Add(-3 * time.Hour)
	none := func(int64) string { return "" }
	newest := func(unix int64) string {
		return "# HELP kubernetes_bosh_etcd_snapshot_timestamp_seconds " +
			"Time at which the newest snapshot was taken.\n" + fmt.Sprintf(
			`# TYPE kubernetes_bosh_etcd_snapshot_timestamp_seconds gauge
kubernetes_bosh_etcd_snapshot_timestamp_seconds %d
# HELP kubernetes_bosh_etcd_snapshot_size_bytes Size of the newest snapshot.
# TYPE kubernetes_bosh_etcd_snapshot_size_bytes gauge
kubernetes_bosh_etcd_snapshot_size_bytes 8
`, unix,
		)
	}
	for name, test := range map[string]struct {
		snapshots []time.Time
		failed    int
		newest    func(int64) string
	}{
		"none, and there is no etcd":       {nil, 1, none},
		"a recent one":                     {[]time.Time{old, now}, 0, newest},
		"an old one, and there is no etcd": {[]time.Time{old}, 1, newest},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			config := &Config{
				Dir: filepath.Join(dir, "snapshots"), Interval: duration.Duration(time.Hour), Keep: 2,
				Metrics: filepath.Join(dir, "data", "snapshots.prom"),
				members: &members.Config{DataDir: filepath.Join(dir, "etcd")},
			}
			if err := os.Mkdir(config.Dir, 0o700); err != nil {
				t.Fatal(err)
			}
			var last time.Time
			for _, last = range test.snapshots {
				path := filepath.Join(config.Dir, prefix+last.Format(stamp)+suffix)
				if err := os.WriteFile(path, []byte("database"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- config.Run(ctx, func() time.Time { return now }, quiet()) }()
			defer func() {
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}()
			want := `# HELP kubernetes_bosh_etcd_snapshot_interval_seconds Time between two scheduled snapshots.
# TYPE kubernetes_bosh_etcd_snapshot_interval_seconds gauge
kubernetes_bosh_etcd_snapshot_interval_seconds 3600
# HELP kubernetes_bosh_etcd_snapshot_failed Whether the last attempt to take or upload a snapshot failed.
# TYPE kubernetes_bosh_etcd_snapshot_failed gauge
kubernetes_bosh_etcd_snapshot_failed ` + strconv.Itoa(test.failed) + "\n" + test.newest(last.Unix())
			eventually.Succeeds(t, timeout, "metrics", func() error {
				content, err := os.ReadFile(config.Metrics)
				if got := string(content); err == nil && got != want {
					t.Fatalf("the metrics are\n%s\nwant\n%s", got, want)
				}
				return err
			})
			if info, err := os.Stat(config.Metrics); err != nil || info.Mode() != 0o644 {
				t.Errorf("mode %v, %v", info.Mode(), err)
			}
		})
	}
}

// TestUnreadableDirectoryIsAFailure: the metrics of an attempt that succeeded must not stay.
func TestUnreadableDirectoryIsAFailure(t *testing.T) {
	dir := t.TempDir()
	config := &Config{
		Dir: filepath.Join(dir, "snapshots"), Interval: duration.Duration(time.Hour),
		Metrics: filepath.Join(dir, "snapshots.prom"),
	}
	if err := config.writeMetrics(time.Now(), nil); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config.Dir, nil, 0o600); err != nil { // which cannot be listed
		t.Fatal(err)
	}
	if err := config.writeMetrics(time.Now(), nil); err == nil {
		t.Error("the file was listed")
	}
	content, err := os.ReadFile(config.Metrics)
	if err != nil || !strings.Contains(string(content), "kubernetes_bosh_etcd_snapshot_failed 1\n") {
		t.Errorf("the metrics are\n%s(%v)", content, err)
	}
}
