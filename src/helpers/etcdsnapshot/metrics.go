package etcdsnapshot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"kubernetes-release/internal/atomicfile"
)

// writeMetrics writes, in Prometheus' text format for the textfile collector of node_exporter, the newest snapshot and
// whether the last attempt to take or upload one failed. What it says of the newest snapshot is read from the
// directory, so it is right after a restart too, and absent while there is none. Everybody can read the file.
func (c *Config) writeMetrics(failed error) error {
	if c.Metrics == "" {
		return nil
	}
	names, err := c.list()
	if err != nil {
		return err
	}
	var text string
	gauge := func(name, help string, value any) {
		text += fmt.Sprintf("# HELP %s %s\n# TYPE %s gauge\n%s %v\n", name, help, name, name, value)
	}
	gauge(
		"kubernetes_bosh_etcd_snapshot_interval_seconds", "Time between two scheduled snapshots.",
		c.Interval.Std().Seconds(),
	)
	attempt := 0
	if failed != nil {
		attempt = 1
	}
	gauge(
		"kubernetes_bosh_etcd_snapshot_failed", "Whether the last attempt to take or upload a snapshot failed.",
		attempt,
	)
	if len(names) > 0 {
		newest := names[len(names)-1]
		if at, err := taken(newest); err == nil {
			gauge(
				"kubernetes_bosh_etcd_snapshot_timestamp_seconds", "Time at which the newest snapshot was taken.",
				at.Unix(),
			)
		}
		info, err := os.Stat(filepath.Join(c.Dir, newest))
		switch {
		case err == nil:
			gauge("kubernetes_bosh_etcd_snapshot_size_bytes", "Size of the newest snapshot.", info.Size())
		case !errors.Is(err, fs.ErrNotExist): // the errand etcd-snapshot removes old ones too
			return err
		}
	}
	return atomicfile.Write(c.Metrics, []byte(text), 0o644)
}
