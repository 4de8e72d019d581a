package rootfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// GiveTree gives a directory with everything in it to a user and the group of the same number, from whoever had it, and
// takes all permissions of others. It creates a missing directory in one that exists. Each directory is given away
// before what is in it: then its previous owner cannot exchange that any more. Of others than the user, it refuses
// links, files that have another name, and what is neither file nor directory: vcap could make such of files that are
// not its own.
func GiveTree(path string, user int) error {
	parent := filepath.Dir(path)
	if _, err := os.Stat(parent); err != nil {
		return fmt.Errorf(
			"directory %s: %w; if it is on the persistent disk, set persistent_disk_type of the instance group",
			path, err,
		)
	}
	dir, err := openItself(path, 0o700)
	if err != nil {
		return err
	}
	return giveDir(dir, user)
}

// giveDir gives away an open directory, and closes it.
func giveDir(dir *os.File, user int) error {
	defer func() { _ = dir.Close() }()
	if err := give(dir, user); err != nil {
		return err
	}
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return fmt.Errorf("directory %s: %w", dir.Name(), err)
	}
	for _, name := range names {
		if err := giveEntry(dir, filepath.Join(dir.Name(), name), user); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// giveEntry gives away what is at a path in an open directory.
func giveEntry(dir *os.File, path string, user int) error {
	fd, err := unix.Openat(
		int(dir.Fd()), filepath.Base(path), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0,
	)
	if err == nil {
		return giveDir(os.NewFile(uintptr(fd), path), user)
	}
	if !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.ELOOP) {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	var stat unix.Stat_t
	if err := unix.Fstatat(int(dir.Fd()), filepath.Base(path), &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if int(stat.Uid) == user { // such as a socket of its own
		return nil
	}
	return giveFile(dir, path, user)
}

// giveFile gives away a regular file with a single name.
func giveFile(dir *os.File, path string, user int) error {
	file, err := openRegular(dir, path, unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	return give(file, user)
}

// give takes all permissions of others from an open file or directory, and gives it to the user.
func give(file *os.File, user int) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if err := errors.Join(file.Chown(user, user), file.Chmod(info.Mode().Perm()&0o700)); err != nil {
		return fmt.Errorf("give %s to user %d: %w", file.Name(), user, err)
	}
	return nil
}
