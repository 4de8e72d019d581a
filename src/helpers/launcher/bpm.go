package launcher

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"kubernetes-release/internal/bosh"
	"kubernetes-release/internal/rootfile"
)

// bpmDirs are directories of bpm's in which root keeps what it runs, the PIDs of processes and runc's state. To the
// agent they are those of a job as any other, with mode 0770 and group vcap. /var/vcap/sys/run, which is empty after a
// reboot, is one to which everybody can write. vcap could put its own in the place of bundles, the configurations from
// which runc starts containers as root (bpm-release, src/bpm/config/bpm_config.go), and of runc's state, which names
// the process to end and hooks that runc runs as root when it deletes the container (runc, delete.go). The last is the
// job's own, which bpm gives to vcap when it is there. To stop a process bpm reads no more than the state: whatever is
// in the other directories must not keep a process running.
func bpmDirs(root bosh.Root, action, job string) []string {
	state := []string{root.Run("bpm"), root.Run("bpm-runc")}
	if action != "start" {
		return state
	}
	return append(state, root.Data("bpm"), root.Run(job))
}

// BPM starts or stops a process of a job by bpm; it is what monit runs. It returns only with an error.
//
// bpm opens its own log and those of the process as root, and gives them to vcap, and so the job's directory for
// temporary files, by paths in directories that vcap can write to (bpm-release, src/bpm/commands/root.go, setupBpmLogs,
// and src/bpm/runc/adapter/adapter.go, createFileFor and createDirFor). A symbolic link of vcap's there would give vcap
// whatever file of root's it names. So bpm gets a view of these directories in which nobody follows links, and what
// vcap changes meanwhile makes no difference.
func (l *Launcher) BPM(action, job, process string) error {
	line := []string{bosh.DefaultRoot.Job("bpm", "bin/bpm"), action, job}
	if process != "" {
		line = append(line, "-p", process)
	}
	process = cmp.Or(process, job)
	dirs := []string{bosh.DefaultRoot.Log(job), bosh.DefaultRoot.Data(job), bosh.DefaultRoot.Run("")}
	path := bosh.DefaultRoot.Log(job, "kube-launcher.stderr.log")
	err := becomeBPM(line, bpmDirs(bosh.DefaultRoot, action, job), dirs, func(err error) {
		l.logBPM(path, process, func(log *slog.Logger) { warnOfLinks(log, dirs, err) })
	})
	l.logBPM(path, process, func(log *slog.Logger) { log.Error("bpm was not run", "action", action, "error", err) })
	return fmt.Errorf("bpm %s %s: %w; see %s", action, process, err, path)
}

// logBPM writes to the standard error, which monit discards, and to a file, which exists only where there was
// something to log.
func (l *Launcher) logBPM(path, process string, write func(*slog.Logger)) {
	out := l.Stderr
	if file, err := openLog(path); err == nil {
		defer func() { _ = file.Close() }()
		out = io.MultiWriter(l.Stderr, file)
	}
	write(logger(out, process))
}

// errLinks means that the kernel lacks what followNoLinks requires.
var errLinks = errors.New("this kernel cannot keep a program from following links; Linux 5.14 or later can")

func warnOfLinks(log *slog.Logger, dirs []string, err error) {
	log.Warn(
		"bpm follows links of user vcap", "error", err, "directories", strings.Join(dirs, " "),
		"consequence", "user vcap can become root: by a link in these directories it gets any file of root's from bpm",
		"fix", "use a stemcell with Linux 5.14 or later, as Ubuntu Jammy and Noble have",
	)
}

// becomeBPM claims directories and becomes bpm, in whose view no links are followed in others. A kernel that cannot do
// that is no reason not to run the control plane: unprotected is called then. It returns only with an error.
func becomeBPM(line, claims, dirs []string, unprotected func(error)) error {
	var problems []error
	for _, path := range claims {
		problems = append(problems, rootfile.Claim(path, 0o755))
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	runtime.LockOSThread() // exec keeps the namespace of this thread
	if err := followNoLinks(dirs); errors.Is(err, errLinks) {
		unprotected(err)
	} else if err != nil {
		return err
	}
	return fmt.Errorf("%s cannot be run: %w", line[0], syscall.Exec(line[0], line, syscall.Environ()))
}

// followNoLinks gives the thread a mount namespace of its own, in which no link below these directories is followed.
// Those that do not exist yet are in directories of root's. What is mounted or unmounted on the VM later is seen in the
// namespace too.
func followNoLinks(paths []string) error {
	if err := privateMounts(); err != nil {
		return err
	}
	for _, path := range paths {
		resolved, err := filepath.EvalSymlinks(path) // /var/vcap/sys is a link of the stemcell's
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = unix.Mount(resolved, resolved, "", unix.MS_BIND|unix.MS_REC, "")
		}
		if err == nil {
			err = noLinks(resolved)
		}
		if err != nil {
			return fmt.Errorf("mount %s without links: %w", path, err)
		}
	}
	return nil
}

// noLinks makes a mount, with those in it, one in which no links are followed. A kernel before Linux 5.12 does not know
// the call, one before 5.14 not this attribute. Filters of system calls, such as those of containers, answer with EPERM
// for a call that they do not know; that root may mount was shown just before.
func noLinks(mount string) error {
	err := unix.MountSetattr(
		unix.AT_FDCWD, mount, unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSYMFOLLOW},
	)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w (mount_setattr: %w)", errLinks, err)
	}
	return err
}
