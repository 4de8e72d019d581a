package launcher

import (
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// bpmMain becomes bpm, for which cat stands in, on a kernel that answers mount_setattr with an error, or on this one.
func bpmMain() {
	runtime.LockOSThread() // the filter is this thread's
	dir := os.Args[1]
	number, err := strconv.ParseUint(os.Args[2], 10, 16)
	if err == nil && number != 0 {
		err = refuse(unix.SYS_MOUNT_SETATTR, uint16(number))
	}
	if err != nil {
		panic(err)
	}
	l := New(os.Stderr)
	err = becomeBPM([]string{"/bin/cat", filepath.Join(dir, "link")}, nil, []string{dir}, func(err error) {
		l.logBPM(filepath.Join(filepath.Dir(dir), "log"), "web", func(log *slog.Logger) {
			warnOfLinks(log, []string{dir}, err)
		})
	})
	panic(err)
}

// refuse has the kernel answer a system call of this thread with an error (seccomp(2)).
func refuse(call uint32, number uint16) error {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the number of the call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: call},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(number)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	return errors.Join(
		unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
		unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0),
	)
}

// TestBPMOnAnOldKernel: where the kernel can, bpm follows no links. Where it cannot, bpm runs all the same, and the log
// says what that means.
func TestBPMOnAnOldKernel(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("requires root")
	}
	const warning = `level=WARN msg="bpm follows links of user vcap" process=web error="mount`
	for _, c := range []struct {
		errno                unix.Errno
		stdout, stderr, file string
	}{
		{0, "", "link: Too many levels of symbolic links", ""},
		{unix.ENOSYS, "root's", "mount_setattr: function not implemented", warning},
		{unix.EINVAL, "root's", "mount_setattr: invalid argument", warning},
		{unix.EPERM, "root's", "mount_setattr: operation not permitted", warning},
		{unix.EIO, "", "without links: input/output error", ""},
	} {
		b := newBench(t)
		b.lay("secret", "root's")
		b.lay("dir/file", "")
		if err := os.Symlink(b.path("secret"), b.path("dir/link")); err != nil {
			t.Fatal(err)
		}
		var stdout, stderr strings.Builder
		command := exec.Command(b.path("fake-bpm"), b.path("dir"), strconv.Itoa(int(c.errno)))
		command.Stdout, command.Stderr = &stdout, &stderr
		err := command.Run()
		ran := c.file != ""
		if stdout.String() != c.stdout || !strings.Contains(stderr.String(), c.stderr) || (err == nil) != ran {
			t.Errorf(
				"errno %d: it printed %q, %v\n%s\nwant %q and %q",
				c.errno, stdout.String(), err, stderr.String(), c.stdout, c.stderr,
			)
		}
		file, _ := os.ReadFile(b.path("log"))
		if !strings.Contains(string(file), c.file) || (len(file) > 0) != ran {
			t.Errorf("errno %d: the file has %q, want %q", c.errno, file, c.file)
		}
	}
}
