package etcdmembers

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"kubernetes-release/internal/poll"
)

// BeforeRestore is the directory in DataDir to which the restore of a snapshot moves the data that it replaces.
const BeforeRestore = "before-restore"

// create lets an instance without data create a cluster, unless a restore was interrupted after it had moved the data
// away: the other members would discard theirs, and join the empty cluster.
func (c *Config) create(log *slog.Logger) error {
	aside := filepath.Join(c.DataDir, BeforeRestore)
	if _, err := os.Lstat(aside); !errors.Is(err, os.ErrNotExist) {
		return poll.Permanent(c.restoreInterrupted(aside))
	}
	log.Info("no other member runs; this instance creates a new cluster")
	return nil
}

func (c *Config) restoreInterrupted(aside string) error {
	return fmt.Errorf(`etcd was not started: the restore of a snapshot was interrupted on this instance.
  instance: %s, which has no data (no *.wal in %s); what it had before the restore is in %s
  why:      it would create an empty cluster, and the other instances would discard their data and join it.
  do now:   run the script restore (bin/bbr/restore of the job etcd) again on this instance. To undo the restore, move
            %s to %s. If you want an empty cluster, move it away. Then deploy, or run bin/bbr/post-restore-unlock; see
            docs/operations.md of the release, "Restore"`,
		c.self(), c.WALDir, aside, aside, filepath.Join(c.DataDir, "member"))
}
