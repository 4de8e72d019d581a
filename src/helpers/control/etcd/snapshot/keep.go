package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"kubernetes-release/internal/poll"
)

const (
	prefix, suffix = "etcd-", ".db"
	// partial is what etcdctl adds to the name of a snapshot until it is complete (SaveWithVersion in
	// client/v3/snapshot/v3_snapshot.go).
	partial = ".part"
	// stamp is the time in the name of a snapshot, which sorts by age.
	stamp = "20060102T150405Z"
	// retryInterval is the time between two attempts of a scheduled snapshot.
	retryInterval = time.Minute
)

// Run takes a snapshot whenever the newest one is older than the interval, and uploads it, until ctx ends. What fails
// is logged and repeated. After each attempt it writes the metrics.
func (c *Config) Run(ctx context.Context, now func() time.Time, log *slog.Logger) error {
	for ctx.Err() == nil {
		wait, err := c.due(now())
		if err == nil && wait <= 0 {
			_, err = c.Take(ctx, now, log)
			wait = c.Interval.Std()
		}
		// Also if no new one can be taken: the newest one may not be uploaded yet.
		err = errors.Join(err, c.UploadNewest(ctx, now(), log))
		if err != nil {
			log.Error("no snapshot, or it is not uploaded", "error", err, "next attempt in", retryInterval)
			wait = retryInterval
		}
		if err := c.writeMetrics(now(), err); err != nil {
			log.Error("metrics of snapshots are not written", "path", c.Metrics, "error", err)
		}
		_ = poll.Sleep(ctx, wait) // fails if ctx ends
	}
	return nil
}

// due returns the time until the next snapshot.
func (c *Config) due(now time.Time) (time.Duration, error) {
	names, err := c.list(now)
	if err != nil || len(names) == 0 {
		return 0, err
	}
	newest, err := taken(names[len(names)-1])
	if err != nil || newest.After(now) { // the clock was set back
		return 0, err
	}
	return newest.Add(c.Interval.Std()).Sub(now), nil
}

// taken returns the time in the name of a snapshot. It fails for a name that was not written here.
func taken(name string) (time.Time, error) { return time.Parse(prefix+stamp+suffix, name) }

// list returns the names of the snapshots that were written here, the oldest first. Other files are the operator's.
// Snapshots from the future, when the clock was wrong, count as the oldest: they must not take the place of new ones.
func (c *Config) list(now time.Time) ([]string, error) {
	entries, err := os.ReadDir(c.Dir) // sorted by name, which is by age
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var future, past []string
	for _, e := range entries {
		switch at, err := taken(e.Name()); {
		case err != nil:
		case at.After(now):
			future = append(future, e.Name())
		default:
			past = append(past, e.Name())
		}
	}
	return append(future, past...), err
}

// Take writes a snapshot to the directory, removes the oldest ones beyond the number to keep, and returns the path of
// the new one. It takes none that would fill the disk: etcd, which has the same disk, would stop.
func (c *Config) Take(ctx context.Context, now func() time.Time, log *slog.Logger) (string, error) {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return "", err
	}
	root, err := os.OpenRoot(c.Dir)
	if err != nil {
		return "", err
	}
	defer func() { _ = root.Close() }()
	begin := now()
	if err := removeAbandoned(root, begin, log); err != nil {
		return "", err
	}
	if err := c.prune(root, begin, "", log); err != nil { // the number to keep may have been lowered
		return "", err
	}
	if err := c.sound(ctx); err != nil {
		return "", err
	}
	if err := c.makeRoom(root, begin, log); err != nil {
		return "", err
	}
	name := prefix + begin.UTC().Format(stamp) + suffix
	if err := reserve(root, name); err != nil {
		return "", err
	}
	path := filepath.Join(c.Dir, name)
	info, err := c.save(ctx, path)
	if err != nil {
		_ = root.Remove(name)
		_ = root.Remove(name + partial)
		return "", err
	}
	log.Info("snapshot taken", "path", path, "bytes", info.Size, "revisions", info.Revisions, "etcd", info.Version)
	return path, c.prune(root, now(), name, log)
}

// prune removes the oldest snapshots beyond the number to keep. The new one, which there may not be yet, is the newest,
// also if the clock was set back meanwhile.
func (c *Config) prune(root *os.Root, now time.Time, newest string, log *slog.Logger) error {
	names, err := c.list(now)
	if n := slices.Index(names, newest); n >= 0 {
		names = append(slices.Delete(names, n, n+1), newest)
	}
	for ; err == nil && len(names) > c.Keep; names = names[1:] {
		err = remove(root, names[0], log)
	}
	return err
}

// makeRoom removes the oldest snapshots, but not the newest one, while the disk has too little room for another one. It
// removes none if that would not be enough.
func (c *Config) makeRoom(root *os.Root, now time.Time, log *slog.Logger) error {
	names, err := c.list(now)
	for ; err == nil; names = names[1:] {
		lack := c.space(c.Dir, 0)
		if lack == nil || len(names) < 2 || c.space(c.Dir, size(root, names[:len(names)-1])) != nil {
			return lack
		}
		err = remove(root, names[0], log)
	}
	return err
}

// size is that of all these files that are still there.
func size(root *os.Root, names []string) int64 {
	var sum int64
	for _, name := range names {
		if info, err := root.Lstat(name); err == nil {
			sum += info.Size()
		}
	}
	return sum
}

// remove removes a snapshot, unless the errand or the schedule, which can end at the same time, has done so.
func remove(root *os.Root, name string, log *slog.Logger) error {
	err := root.Remove(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		log.Info("old snapshot removed", "name", name)
	}
	return err
}

// removeAbandoned removes what snapshots left that were killed.
func removeAbandoned(root *os.Root, now time.Time, log *slog.Logger) error {
	names, err := fs.Glob(root.FS(), prefix+"*"+suffix+partial)
	if err != nil {
		return err
	}
	for _, name := range names {
		info, err := root.Lstat(name)
		if err == nil && now.Sub(info.ModTime()) > saveTimeout {
			log.Info("removing an incomplete snapshot", "name", name)
			err = root.Remove(name)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // the other snapshot is complete now
			return err
		}
	}
	return nil
}

// reserve creates the file to which etcdctl writes a snapshot, unless the errand and the schedule start in the same
// second, or the clock was set back: neither may write or remove what belongs to the other.
func reserve(root *os.Root, name string) error {
	part, err := root.OpenFile(name+partial, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("begin snapshot %s: %w", name, err)
	}
	if err := part.Close(); err != nil {
		return err
	}
	if _, err := root.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(fmt.Errorf("%s exists already", filepath.Join(root.Name(), name)), root.Remove(name+partial))
	}
	return nil
}

// space fails if the disk of a directory has less room than twice the size of the database, even with so many bytes
// removed from it.
func (c *Config) space(dir string, removed int64) error {
	stat, err := os.Stat(filepath.Join(c.members.DataDir, "member", "snap", "db"))
	if err != nil {
		return err
	}
	var disk syscall.Statfs_t
	if err := syscall.Statfs(dir, &disk); err != nil {
		return err
	}
	if free := int64(disk.Bavail) * disk.Bsize; free+removed < 2*stat.Size() {
		return fmt.Errorf(
			"%s has %d bytes left, less than twice the size of the database (%d): a snapshot could fill the disk of "+
				"etcd; enlarge the persistent disk, or remove what else is on it, such as old snapshots",
			dir, free, stat.Size(),
		)
	}
	return nil
}
