package members

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"

	"kubernetes-release/internal/poll"
)

// BeforeRestore is the directory in DataDir to which the restore of a snapshot moves the data that it replaces.
const BeforeRestore = "before-restore"

// databaseFile is the path of etcd's database in DataDir.
const databaseFile = "member/snap/db"

// lockTimeout limits the wait for the lock of a database. etcd does not run when a cluster is about to be created.
const lockTimeout = time.Second

// create lets an instance without data create a cluster, unless its write-ahead log is all that is missing, or a
// restore was interrupted after it had moved the data away: the other members would discard theirs, and join the empty
// cluster.
func (c *Config) create(log *slog.Logger) error {
	ran, err := c.hasDatabase()
	if err != nil {
		return poll.Permanent(fmt.Errorf("read etcd's database: %w", err))
	}
	if ran {
		return poll.Permanent(c.lostLog())
	}
	aside := filepath.Join(c.DataDir, BeforeRestore)
	if _, err := os.Lstat(aside); !errors.Is(err, os.ErrNotExist) {
		return poll.Permanent(c.restoreInterrupted(aside))
	}
	log.Info("no other member runs; this instance creates a new cluster")
	return nil
}

// hasDatabase reports whether there is the database of a member that has run. etcd creates it before the first *.wal,
// without members (bootstrap in server/etcdserver/bootstrap.go): one without is left by a first start that was
// interrupted. etcd's user owns the directory: os.Root does not follow links out of it.
func (c *Config) hasDatabase() (bool, error) {
	root, err := os.OpenRoot(c.DataDir)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = root.Close() }()
	info, err := root.Stat(databaseFile)
	if errors.Is(err, os.ErrNotExist) || err == nil && info.Size() == 0 {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	db, err := bbolt.Open(
		databaseFile, 0o400, &bbolt.Options{ReadOnly: true, OpenFile: root.OpenFile, Timeout: lockTimeout},
	)
	if err != nil {
		return false, fmt.Errorf("%s: %w", filepath.Join(c.DataDir, databaseFile), err)
	}
	defer func() { _ = db.Close() }()
	ran := false
	err = db.View(func(tx *bbolt.Tx) error {
		if members := tx.Bucket([]byte("members")); members != nil { // server/storage/schema/bucket.go
			first, _ := members.Cursor().First()
			ran = first != nil
		}
		return nil
	})
	return ran, err
}

func (c *Config) lostLog() error {
	member := filepath.Join(c.DataDir, "member")
	return fmt.Errorf(`etcd was not started: this instance has the database of a member, but not its write-ahead log.
  instance: %s; the database is %s, and there is no *.wal in %s
  why:      etcd would create a new cluster, which does not fit the database: objects would be lost.
  do now:   if wal-dir of extra_args was added, changed or removed, set it back, or move all files of the previous
            directory to %s. If the log is lost, remove wal-dir and restore a snapshot. If you want an
            empty cluster, move %s away. Then deploy; see docs/backup-and-restore.md of the release, "Restore"`,
		c.self(), filepath.Join(c.DataDir, databaseFile), c.WALDir, c.WALDir, member)
}

func (c *Config) restoreInterrupted(aside string) error {
	return fmt.Errorf(`etcd was not started: the restore of a snapshot was interrupted on this instance.
  instance: %s, which has no data (no *.wal in %s); what it had before the restore is in %s
  why:      it would create an empty cluster, and the other instances would discard their data and join it.
  do now:   run the script restore (bin/bbr/restore of the job etcd) again on this instance. To undo the restore, move
            %s to %s. If you want an empty cluster, move it away. Then deploy, or run bin/bbr/post-restore-unlock; see
            docs/backup-and-restore.md of the release, "Restore"`,
		c.self(), c.WALDir, aside, aside, filepath.Join(c.DataDir, "member"))
}
