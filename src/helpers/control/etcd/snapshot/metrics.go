package snapshot

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"kubernetes-release/internal/atomicfile"
	"kubernetes-release/internal/exposition"
)

// writeMetrics writes, in Prometheus' text format for the textfile collector of node_exporter, the newest snapshot and
// whether the last attempt to take or upload one failed. What it says of the newest snapshot is read from the
// directory, so it is right after a restart too, and absent while there is none; so is a time in the future, which is
// that of a wrong clock. That the directory cannot be read counts as a failure. Everybody can read the file.
func (c *Config) writeMetrics(now time.Time, failed error) error {
	if c.Metrics == "" {
		return nil
	}
	names, unreadable := c.list(now)
	var text exposition.Text
	text.Gauge("kubernetes_bosh_etcd_snapshot_interval_seconds", "Time between two scheduled snapshots.").
		Add(c.Interval.Std().Seconds())
	text.Gauge(
		"kubernetes_bosh_etcd_snapshot_failed", "Whether the last attempt to take or upload a snapshot failed.",
	).Add(exposition.Bool(failed != nil || unreadable != nil))
	if len(names) > 0 {
		newest := names[len(names)-1]
		if at, err := taken(newest); err == nil && !at.After(now) {
			text.Gauge(
				"kubernetes_bosh_etcd_snapshot_timestamp_seconds", "Time at which the newest snapshot was taken.",
			).Add(float64(at.Unix()))
		}
		info, err := os.Stat(filepath.Join(c.Dir, newest))
		switch {
		case err == nil:
			text.Gauge("kubernetes_bosh_etcd_snapshot_size_bytes", "Size of the newest snapshot.").
				Add(float64(info.Size()))
		case !errors.Is(err, fs.ErrNotExist): // the errand etcd-snapshot removes old ones too
			unreadable = err
		}
	}
	return errors.Join(unreadable, atomicfile.Write(c.Metrics, []byte(text.String()), 0o644))
}
