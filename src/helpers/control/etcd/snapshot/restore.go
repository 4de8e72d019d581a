package snapshot

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"kubernetes-release/control/etcd/members"
)

const (
	// restoring is the directory next to etcd's data in which the data of a snapshot is built. Its parent belongs to
	// root.
	restoring = "etcd-restoring"
	// bumpedRevisions is by how much a restore raises the revision, so that nothing that was read after the snapshot
	// has a newer revision than what is written after the restore. It is what etcd's documentation recommends.
	bumpedRevisions = 1_000_000_000
)

// Restore replaces the data of this VM's member by that of a snapshot. On the bootstrap instance the snapshot becomes a
// new cluster of this member alone; another instance is marked, so that it discards its data and joins that cluster
// when it is prepared the next time. etcd must be stopped on all instances before the first of them is restored.
// Everything is checked, and the new data is complete, before anything is touched.
func (c *Config) Restore(ctx context.Context, path string, log *slog.Logger) error {
	info, err := c.Check(ctx, path)
	if err != nil {
		return err
	}
	if err := c.mustNotRun(ctx); err != nil {
		return err
	}
	if !c.members.Bootstrap() {
		log.Info("this instance joins the cluster that the bootstrap instance restores", "snapshot", path)
		return c.members.MarkRestored()
	}
	if inside, err := filepath.Rel(c.members.DataDir, c.members.WALDir); err != nil ||
		inside != filepath.Join("member", "wal") {
		return fmt.Errorf(
			"wal-dir of extra_args is %s: remove the flag and deploy (if this is the only member, stop etcd and move "+
				"the files to %s before); a restore replaces %s only",
			c.members.WALDir, filepath.Join(c.members.DataDir, "member", "wal"),
			filepath.Join(c.members.DataDir, "member"),
		)
	}
	log.Info(
		"restoring", "snapshot", path, "bytes", info.Size, "revisions", info.Revisions, "etcd", info.Version, "members",
		info.Members,
	)
	parent, err := os.OpenRoot(filepath.Dir(c.members.DataDir))
	if err != nil {
		return err
	}
	defer func() { _ = parent.Close() }()
	if err := parent.RemoveAll(restoring); err != nil { // of an interrupted restore
		return err
	}
	defer func() { _ = parent.RemoveAll(restoring) }()
	name := c.members.Name()
	if _, err := c.run(
		ctx,
		"etcdutl",
		"snapshot",
		"restore",
		"--name="+name,
		"--initial-cluster="+name+"="+c.members.Self,
		"--initial-advertise-peer-urls="+c.members.Self,
		"--initial-cluster-token="+rand.Text(), // members of the old cluster are strangers
		"--bump-revision="+strconv.Itoa(bumpedRevisions),
		"--mark-compacted",
		"--data-dir="+filepath.Join(parent.Name(), restoring),
		path,
	); err != nil {
		return err
	}
	// An instance that was down may be back, with the old data.
	if err := c.mustNotRun(ctx); err != nil {
		return err
	}
	if err := replace(parent, filepath.Base(c.members.DataDir)); err != nil {
		return fmt.Errorf("replace the data in %s: %w", c.members.DataDir, err)
	}
	if err := c.members.ForgetLeft(); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	log.Info("restored", "previous data", filepath.Join(c.members.DataDir, members.BeforeRestore))
	return nil
}

// mustNotRun fails if etcd runs on any instance, or, on others than the bootstrap instance, on this one: the bootstrap
// instance serves as soon as it is restored, perhaps before the others are.
func (c *Config) mustNotRun(ctx context.Context) error {
	running, err := c.members.Running(ctx, c.members.Bootstrap())
	if err != nil {
		return err
	}
	if len(running) == 0 {
		return nil
	}
	return fmt.Errorf(
		"etcd still runs on %v: stop it on all instances of the deployment first (bin/bbr/pre-restore-lock of "+
			"the job etcd)",
		running,
	)
}

// replace moves the new data into the data directory, and what was there aside, until the next restore. etcd's user
// owns the data directory; parent belongs to root.
func replace(parent *os.Root, dataDir string) error {
	stat, err := parent.Stat(dataDir)
	if err != nil {
		return err
	}
	owner := stat.Sys().(*syscall.Stat_t)
	if err := fs.WalkDir(parent.FS(), restoring, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return parent.Lchown(path, int(owner.Uid), int(owner.Gid))
	}); err != nil {
		return err
	}
	aside, current := filepath.Join(dataDir, members.BeforeRestore), filepath.Join(dataDir, "member")
	restored := filepath.Join(restoring, "member")
	switch _, err := parent.Lstat(current); {
	case errors.Is(err, fs.ErrNotExist):
		// Either there was no data, or a restore that was interrupted has moved it away: what is aside is kept.
		return parent.Rename(restored, current)
	case err != nil:
		return err
	}
	if err := parent.RemoveAll(aside); err != nil {
		return err
	}
	if err := parent.Rename(current, aside); err != nil {
		return err
	}
	if err := parent.Rename(restored, current); err != nil {
		return errors.Join(err, parent.Rename(aside, current))
	}
	return nil
}
