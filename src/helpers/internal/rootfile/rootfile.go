// Package rootfile opens files for root in directories to which another user may write, without being led elsewhere.
//
// The directories of a job below /var/vcap/sys/log, /var/vcap/sys/run and /var/vcap/data have mode 0770 and group vcap
// when the agent creates them (bosh-agent, agent/applier/models/job.go). vcap can put a symbolic link, a hard link or a
// pipe in the place of a file that root is about to write.
//
// A path is walked one directory at a time, each opened relative to the one before. A symbolic link is followed only
// where nobody but root can have made it: /var/vcap/sys is a link of the stemcell's. What is opened must be a regular
// file with a single name.
package rootfile

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLinks is how many links one path can have, as in the kernel (path_resolution(7)).
const maxLinks = 40

// Append opens a file for appending. It creates a missing file with this mode, and missing directories with mode 0755.
// A file of another user is taken from that user. The error says what is wrong with a file that is refused.
func Append(path string, mode fs.FileMode) (*os.File, error) {
	dir, err := makeDir(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	// Without O_NONBLOCK the call would wait for a reader of a pipe.
	file, err := openRegular(dir, path, unix.O_WRONLY|unix.O_APPEND|unix.O_CREAT, mode)
	if err != nil {
		return nil, err
	}
	if err := takeFile(file, mode); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return file, nil
}

// Write replaces a file as a whole, synced to the disk, with exactly this mode whatever the umask is. It creates
// missing directories with mode 0755. On an error the old file stays and nothing is left behind. A link at path is
// replaced, not followed. Of a file that is like this already only the time changes: on a full disk, a process must
// start that writes what it wrote at its last start.
func Write(path string, content []byte, mode fs.FileMode) error {
	if rewritten(path, content, mode) {
		return nil
	}
	return WriteFrom(path, mode, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
}

// rewritten reports whether a file is what Write would make of it. Then it has the time of now.
func rewritten(path string, content []byte, mode fs.FileMode) bool {
	dir, err := openMode(filepath.Dir(path), 0)
	if err != nil {
		return false
	}
	defer func() { _ = dir.Close() }()
	file, err := openRegular(dir, path, unix.O_RDONLY, 0)
	if err != nil {
		return false
	}
	defer func() { _ = file.Close() }()
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil || int(stat.Uid) != os.Geteuid() ||
		int(stat.Gid) != os.Getegid() || fs.FileMode(stat.Mode&0o7777) != mode {
		return false
	}
	found, err := io.ReadAll(io.LimitReader(file, int64(len(content))+1))
	return err == nil && bytes.Equal(found, content) && unix.Futimes(int(file.Fd()), nil) == nil
}

// WriteFrom is Write for content that is produced by a function, which replaces the file in any case. An error of write
// is returned as it is, wrapped.
func WriteFrom(path string, mode fs.FileMode, write func(io.Writer) error) error {
	dir, err := makeDir(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	name := filepath.Base(path)
	temporary := "." + name + "." + rand.Text()
	fd, err := unix.Openat(
		int(dir.Fd()), temporary, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600,
	)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	file := os.NewFile(uintptr(fd), filepath.Join(filepath.Dir(path), temporary))
	err = write(file)
	if err == nil {
		err = file.Chmod(mode)
	}
	if err == nil {
		err = file.Sync()
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = unix.Renameat(int(dir.Fd()), temporary, int(dir.Fd()), name)
	}
	if err != nil {
		_ = unix.Unlinkat(int(dir.Fd()), temporary, 0)
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// Read reads a file that root can trust: neither the file nor its directory can be written by anybody but root. Errors
// name the file, and wrap fs.ErrNotExist where there is none, and ErrUntrusted where another user could have written
// it.
func Read(path string) ([]byte, error) {
	dir, err := openMode(filepath.Dir(path), 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	if err := trusted(int(dir.Fd()), filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	file, err := openRegular(dir, path, unix.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	if err := trusted(int(file.Fd()), path); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	content, err := io.ReadAll(file)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return content, nil
}

// ErrUntrusted means that a user other than root could have written what root would believe.
var ErrUntrusted = errors.New("another user can write to it")

// Claim creates a directory, or takes it from the user or group that it belongs to, with exactly this mode. It refuses
// a link, whoever made it, and a directory that holds anything of another user: that was put there before the claim,
// and root would use it. Where all users can write to the directory above, as to /var/vcap/sys/run, any of them could
// be the first and keep root from starting anything: there, what another user has put is moved aside, into the
// directory above.
func Claim(path string, mode fs.FileMode) error {
	above, err := shared(path)
	if err != nil {
		return err
	}
	if above != nil {
		defer func() { _ = above.Close() }()
		if err := moveLink(above, path); err != nil {
			return err
		}
	}
	dir, err := openItself(path, mode)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	if err := errors.Join(dir.Chown(os.Geteuid(), os.Getegid()), dir.Chmod(mode)); err != nil {
		return fmt.Errorf("directory %s: %w", path, err)
	}
	return eachForeign(dir, path, func(name string, user uint32) error {
		if above != nil {
			return moveAside(dir, name, above)
		}
		return fmt.Errorf(
			"%s belongs to the user with ID %d, but only root has anything to write there: find out where it "+
				"comes from, and remove it, or give it to root if you trust its content",
			filepath.Join(path, name), user,
		)
	})
}

// shared opens the directory above, if it exists and all users can write to it.
func shared(path string) (*os.File, error) {
	above, err := openMode(filepath.Dir(path), 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // the directory above will be created, for root alone
	}
	if err != nil {
		return nil, err
	}
	info, err := above.Stat()
	if err != nil || info.Mode()&0o002 == 0 {
		_ = above.Close()
		return nil, err
	}
	return above, nil
}

// moveLink moves what is no directory and belongs to another user out of the way.
func moveLink(above *os.File, path string) error {
	var stat unix.Stat_t
	err := unix.Fstatat(int(above.Fd()), filepath.Base(path), &stat, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, fs.ErrNotExist) || err == nil && (ours(stat.Uid) || stat.Mode&unix.S_IFMT == unix.S_IFDIR) {
		return nil
	}
	if err != nil {
		return &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return moveAside(above, filepath.Base(path), above)
}

// moveAside gives what is in one directory a name in another one that says what it is.
func moveAside(dir *os.File, name string, above *os.File) error {
	aside := "." + name + ".of-another-user." + rand.Text()
	if err := unix.Renameat(int(dir.Fd()), name, int(above.Fd()), aside); err != nil {
		return fmt.Errorf("move %s of another user aside: %w", filepath.Join(dir.Name(), name), err)
	}
	return nil
}

// eachForeign calls a function for each name in a directory that belongs to another user, until one fails.
func eachForeign(dir *os.File, path string, do func(name string, user uint32) error) error {
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return fmt.Errorf("directory %s: %w", path, err)
	}
	for _, name := range names {
		var stat unix.Stat_t
		err := unix.Fstatat(int(dir.Fd()), name, &stat, unix.AT_SYMLINK_NOFOLLOW)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since
		}
		if err != nil {
			return fmt.Errorf("directory %s: %w", path, err)
		}
		if ours(stat.Uid) {
			continue
		}
		if err := do(name, stat.Uid); err != nil {
			return err
		}
	}
	return nil
}

// Protect creates a directory with mode 0750, or takes from its group and from other users the permission to write to
// it; those who can read it still can. It refuses a link, whoever made it, and a directory to which all users can
// write: such a one is shared on purpose.
func Protect(path string) error {
	dir, err := openItself(path, 0o750)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	info, err := dir.Stat()
	if err != nil {
		return err
	}
	if info.Mode()&0o002 != 0 {
		return fmt.Errorf(
			"directory %s: %w: all users can (mode %s); use a directory of root's", path, ErrUntrusted, info.Mode(),
		)
	}
	return errors.Join(dir.Chown(os.Geteuid(), -1), dir.Chmod(info.Mode().Perm()&^0o022))
}

// Seal takes a directory and everything below it from all users but root: those who could read it no longer can. It is
// for the directories of jobs in /var/vcap/jobs, where only root can write. Links below it are left alone.
func Seal(path string) error { return restrict(path, 0o700, os.Getegid(), os.Getegid()) }

// Hand is Seal, but for the members of this group, who can read what its members could read before.
func Hand(path string, group int) error { return restrict(path, 0o750, group, group) }

// HandFiles is Hand, but the directories stay with their groups: their members see the names of files, and read those
// that are written for everybody later.
func HandFiles(path string, group int) error { return restrict(path, 0o750, group, -1) }

// restrict leaves of the permissions of a directory, and of everything below it, those in mode, and gives it to root
// and to these groups; -1 leaves the group as it is.
func restrict(path string, mode fs.FileMode, group, groupOfDirs int) error {
	dir, err := openMode(path, 0)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	if err := trusted(int(dir.Fd()), path); err != nil {
		return fmt.Errorf("directory %s: %w", path, err)
	}
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	return filepath.WalkDir(resolved, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Type()&fs.ModeSymlink != 0 {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		owner := group
		if entry.IsDir() {
			owner = groupOfDirs
		}
		// The group first: nobody can read it in between who could not before.
		return errors.Join(
			os.Lchown(path, os.Geteuid(), owner), os.Chmod(path, info.Mode().Perm()&mode),
		)
	})
}

// openRegular opens a file of a directory, which must be a regular file with one name.
func openRegular(dir *os.File, path string, flags int, mode fs.FileMode) (*os.File, error) {
	fd, err := unix.Openat(
		int(dir.Fd()), filepath.Base(path), flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, uint32(mode.Perm()),
	)
	switch {
	case errors.Is(err, unix.ELOOP):
		return nil, refusal(path, "it is a symbolic link")
	case errors.Is(err, unix.ENXIO):
		return nil, refusal(path, "it is a pipe or a socket")
	case err != nil:
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		_ = unix.Close(fd)
		return nil, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	problem := ""
	switch {
	case stat.Mode&unix.S_IFMT != unix.S_IFREG:
		problem = "it is no regular file"
	case stat.Nlink > 1:
		problem = "it is a hard link: the same file has another name"
	}
	if problem != "" {
		_ = unix.Close(fd)
		return nil, refusal(path, problem)
	}
	if err := unix.SetNonblock(fd, false); err != nil {
		_ = unix.Close(fd)
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

func refusal(path, problem string) error {
	return fmt.Errorf(
		"open %s: %s, which root does not use here: find out where it comes from, and remove it", path, problem,
	)
}

// takeFile makes a file root's own if it is another user's.
func takeFile(file *os.File, mode fs.FileMode) error {
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return err
	}
	if ours(stat.Uid) {
		return nil
	}
	return errors.Join(file.Chown(os.Geteuid(), os.Getegid()), file.Chmod(mode))
}

// ours reports whether a user is this process's or root.
func ours(uid uint32) bool { return uid == 0 || int(uid) == os.Geteuid() }

// trusted returns an ErrUntrusted if anybody but root can write to an open file or directory.
func trusted(fd int, path string) error {
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return err
	}
	if !ours(stat.Uid) || stat.Mode&0o022 != 0 {
		return fmt.Errorf(
			"%s has mode %04o and belongs to %d:%d: %w", path, stat.Mode&0o7777, stat.Uid, stat.Gid, ErrUntrusted,
		)
	}
	return nil
}

// makeDir opens a directory, and creates it with mode 0755 if it is missing.
func makeDir(path string) (*os.File, error) { return openMode(path, 0o755) }

// openItself is openMode for a directory whose owner or mode will be changed: the last part of its path must not be a
// link. This finds links of root's; the walk finds those of others, and no other can be made between the two.
func openItself(path string, mode fs.FileMode) (*os.File, error) {
	if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		return nil, refusal(path, "it is a symbolic link")
	}
	return openMode(path, mode)
}

// openMode opens a directory. It creates what is missing if mode is not 0: the directory itself with this mode, those
// above with 0755.
func openMode(path string, mode fs.FileMode) (*os.File, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	w := walker{fd: -1, rest: split(absolute), mode: mode}
	defer w.close()
	if err := w.walk(); err != nil {
		return nil, fmt.Errorf("open directory %s: %w", path, err)
	}
	// The walk's descriptor is O_PATH, with which the directory can be neither read nor changed.
	fd, err := unix.Openat(w.fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

func split(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == filepath.Separator })
}

// walker opens the directories of a path one after the other.
type walker struct {
	// fd is the directory that was reached, at its path.
	fd   int
	at   string
	rest []string
	// mode is that of the last directory if it is missing; 0 creates none.
	mode  fs.FileMode
	links int
}

func (w *walker) close() {
	if w.fd >= 0 {
		_ = unix.Close(w.fd)
	}
}

// enter continues at another directory.
func (w *walker) enter(fd int, path string) {
	w.close()
	w.fd, w.at = fd, path
}

func (w *walker) enterRoot() error {
	fd, err := unix.Open("/", locate|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	w.enter(fd, "/")
	return nil
}

func (w *walker) walk() error {
	if err := w.enterRoot(); err != nil {
		return err
	}
	for len(w.rest) > 0 {
		name := w.rest[0]
		w.rest = w.rest[1:]
		fd, err := w.open(name)
		if err != nil {
			return &fs.PathError{Op: "open", Path: filepath.Join(w.at, name), Err: err}
		}
		if err := w.step(fd, name); err != nil {
			return err
		}
	}
	return nil
}

// open opens the next component, whatever it is, and creates it as a directory if it is missing and may be created.
func (w *walker) open(name string) (int, error) {
	for {
		fd, err := unix.Openat(w.fd, name, locate|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if !errors.Is(err, unix.ENOENT) || w.mode == 0 {
			return fd, err
		}
		mode := uint32(0o755)
		if len(w.rest) == 0 {
			mode = uint32(w.mode.Perm())
		}
		if err := unix.Mkdirat(w.fd, name, mode); err != nil && !errors.Is(err, unix.EEXIST) {
			return -1, err
		}
	}
}

// step goes to the component, which is open.
func (w *walker) step(fd int, name string) error {
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		_ = unix.Close(fd)
		return err
	}
	path := filepath.Join(w.at, name)
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		w.enter(fd, path)
		return nil
	case unix.S_IFLNK:
		defer func() { _ = unix.Close(fd) }()
		return w.follow(fd, path)
	default:
		_ = unix.Close(fd)
		return &fs.PathError{Op: "open", Path: path, Err: unix.ENOTDIR}
	}
}

// follow goes on with the target of a link, if the link is root's.
func (w *walker) follow(fd int, path string) error {
	if err := trusted(w.fd, w.at); err != nil {
		return fmt.Errorf(
			"%s is a symbolic link, which root does not follow where other users can write (%w): find out where it "+
				"comes from, and remove it",
			path, err,
		)
	}
	if w.links++; w.links > maxLinks {
		return &fs.PathError{Op: "open", Path: path, Err: unix.ELOOP}
	}
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", target)
	if err != nil {
		return &fs.PathError{Op: "readlink", Path: path, Err: err}
	}
	w.rest = append(split(string(target[:n])), w.rest...)
	if filepath.IsAbs(string(target[:n])) {
		return w.enterRoot()
	}
	return nil
}
