package rootfile

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// vcap is the ID of the user who is the attacker.
const vcap = 1000

// scene is a directory of a job as the agent leaves it, and next to it what an attacker wants root to write.
type scene struct {
	t *testing.T
	// job is what vcap can write to; outside and its file are what vcap cannot write to.
	job, outside, file string
}

func newScene(t *testing.T) *scene {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := &scene{t: t, job: filepath.Join(base, "sys", "job"), outside: filepath.Join(base, "etc")}
	s.file = filepath.Join(s.outside, "shadow")
	for _, dir := range []string{s.job, s.outside} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(s.file, []byte("root's\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.must(os.Chmod(s.job, 0o770)) //nolint:gosec // as the agent has it
	if os.Geteuid() == 0 {
		s.must(os.Chown(s.job, 0, vcap))
	}
	return s
}

func (s *scene) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// untouched fails the test if anything outside was created or changed.
func (s *scene) untouched() {
	s.t.Helper()
	content, err := os.ReadFile(s.file)
	if err != nil || string(content) != "root's\n" {
		s.t.Errorf("%s: %q (%v)", s.file, content, err)
	}
	info, err := os.Stat(s.outside)
	s.must(err)
	if info.Mode().Perm() != 0o755 {
		s.t.Errorf("%s has mode %s", s.outside, info.Mode())
	}
	entries, err := os.ReadDir(s.outside)
	s.must(err)
	if len(entries) != 1 {
		s.t.Errorf("created outside: %v", entries)
	}
}

func (s *scene) path(name string) string { return filepath.Join(s.job, name) }

// attacks plant something at path "log", or replace the directory "dir" above it.
var attacks = map[string]struct {
	plant func(s *scene) error
	// path is what root opens.
	path string
	want string
}{
	"link to a file": {
		func(s *scene) error { return os.Symlink(s.file, s.path("log")) },
		"log",
		"symbolic link",
	},
	"link to a new file": {
		func(s *scene) error { return os.Symlink(s.outside+"/evil", s.path("log")) },
		"log",
		"symbolic link",
	},
	"link within the directory": {
		func(s *scene) error { return os.Symlink("other", s.path("log")) },
		"log",
		"symbolic link",
	},
	"hard link": {func(s *scene) error { return os.Link(s.file, s.path("log")) }, "log", "hard link"},
	"pipe":      {func(s *scene) error { return unix.Mkfifo(s.path("log"), 0o666) }, "log", "pipe"},
	"directory": {
		func(s *scene) error { return os.Mkdir(s.path("log"), 0o755) },
		"log",
		"is a directory",
	},
	"link instead of the parent": {
		func(s *scene) error { return os.Symlink(s.outside, s.path("dir")) },
		"dir/log",
		"symbolic link",
	},
	"link above the parent": {
		func(s *scene) error { return os.Symlink(s.outside, s.path("dir")) },
		"dir/new/log",
		"symbolic link",
	},
	"file instead of the parent": {
		func(s *scene) error { return os.WriteFile(s.path("dir"), nil, 0o600) },
		"dir/log",
		"not a directory",
	},
}

// within fails the test if f hangs, as opening a pipe does.
func within(t *testing.T, f func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-time.After(time.Minute):
		t.Fatal("hangs")
		return nil
	}
}

func TestAppendRefusesWhatAnAttackerPlants(t *testing.T) {
	for name, attack := range attacks {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.must(attack.plant(s))
			err := within(t, func() error {
				file, err := Append(s.path(attack.path), 0o640)
				if err == nil {
					_, _ = file.WriteString("from root\n")
					_ = file.Close()
				}
				return err
			})
			if err == nil || !strings.Contains(err.Error(), attack.want) {
				t.Errorf("error = %v, want %q", err, attack.want)
			}
			s.untouched()
		})
	}
}

// TestAPipeWithAReader opens at once, and must still be refused.
func TestAPipeWithAReader(t *testing.T) {
	s := newScene(t)
	s.must(unix.Mkfifo(s.path("log"), 0o666))
	reader, err := os.OpenFile(s.path("log"), os.O_RDWR, 0)
	s.must(err)
	defer func() { _ = reader.Close() }()
	if _, err := Append(s.path("log"), 0o640); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("error = %v", err)
	}
}

// TestWriteIsNotLedElsewhere: what is in the place of the file is replaced, and links above it are refused.
func TestWriteIsNotLedElsewhere(t *testing.T) {
	for name, attack := range attacks {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.must(attack.plant(s))
			err := within(t, func() error { return Write(s.path(attack.path), []byte("from root\n"), 0o644) })
			if attack.path == "log" && name != "directory" {
				s.must(err)
				info, err := os.Lstat(s.path("log"))
				s.must(err)
				if content, _ := os.ReadFile(s.path("log")); !info.Mode().IsRegular() ||
					string(content) != "from root\n" {
					t.Errorf("%s: %q", info.Mode(), content)
				}
			} else if err == nil {
				t.Error("accepted")
			}
			s.untouched()
		})
	}
}

func TestClaimIsNotLedElsewhere(t *testing.T) {
	s := newScene(t)
	s.must(os.Symlink(s.outside, s.path("dir")))
	for _, claim := range []func() error{
		func() error { return Claim(s.path("dir"), 0o700) },
		func() error { return Claim(s.path("dir/new"), 0o700) },
		func() error { return Protect(s.path("dir")) },
	} {
		if err := claim(); err == nil || !strings.Contains(err.Error(), "symbolic link") {
			t.Errorf("error = %v", err)
		}
		s.untouched()
	}
}

func TestClaimTakesTheDirectory(t *testing.T) {
	s := newScene(t)
	s.must(os.WriteFile(s.path("state"), nil, 0o600))
	s.must(Claim(s.job, 0o711))
	info, err := os.Stat(s.job)
	s.must(err)
	if info.Mode().Perm() != 0o711 {
		t.Errorf("mode %s", info.Mode())
	}
	if os.Geteuid() != 0 {
		t.Skip("requires root to act as another user")
	}
	var stat unix.Stat_t
	s.must(unix.Stat(s.job, &stat))
	if stat.Uid != 0 || stat.Gid != 0 {
		t.Errorf("belongs to %d:%d", stat.Uid, stat.Gid)
	}
	for name, plant := range map[string]func(string) error{
		"file": func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"link": func(path string) error { return os.Symlink(s.file, path) },
		"dir":  func(path string) error { return os.Mkdir(path, 0o755) },
	} {
		planted := s.path(name)
		s.must(plant(planted))
		s.must(os.Lchown(planted, vcap, vcap))
		if err := Claim(s.job, 0o755); err == nil ||
			!strings.Contains(err.Error(), planted+" belongs to the user with ID 1000") {
			t.Errorf("error = %v", err)
		}
		s.must(os.Remove(planted))
		s.must(Claim(s.job, 0o755))
	}
	s.untouched()
}

// TestClaimMovesAsideWhereEverybodyCanWrite: another user who is the first in such a directory keeps root from nothing.
func TestClaimMovesAsideWhereEverybodyCanWrite(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("requires root to act as another user")
	}
	s := newScene(t)
	run := s.path("run")
	s.must(os.Mkdir(run, 0o700))
	s.must(os.Chmod(run, 0o777|fs.ModeSticky)) //nolint:gosec // like /var/vcap/sys/run
	theirs := func(path string) { s.must(os.Lchown(path, vcap, vcap)) }

	dir := filepath.Join(run, "node-firewall")
	s.must(os.Mkdir(dir, 0o755))
	s.must(os.Symlink(s.file, filepath.Join(dir, "node-firewall.pid")))
	s.must(os.MkdirAll(filepath.Join(dir, "more", "of-it"), 0o755))
	s.must(os.WriteFile(filepath.Join(dir, "own"), nil, 0o600))
	for _, path := range []string{dir, dir + "/node-firewall.pid", dir + "/more"} {
		theirs(path)
	}
	s.must(Claim(dir, 0o755))
	entries, err := os.ReadDir(dir)
	s.must(err)
	if len(entries) != 1 || entries[0].Name() != "own" {
		t.Errorf("the directory holds %v", entries)
	}
	link := filepath.Join(run, "kubelet")
	s.must(os.Symlink(s.outside, link))
	theirs(link)
	s.must(Claim(link, 0o755))
	for _, path := range []string{dir, link} {
		info, err := os.Lstat(path)
		s.must(err)
		if stat, ok := info.Sys().(*syscall.Stat_t); !ok || !info.IsDir() || stat.Uid != 0 {
			t.Errorf("%s is %s", path, info.Mode())
		}
	}
	if aside, err := filepath.Glob(run + "/.*.of-another-user.*"); err != nil || len(aside) != 3 {
		t.Errorf("moved aside: %v (%v)", aside, err)
	}
	s.untouched()
}

func TestProtect(t *testing.T) {
	s := newScene(t)
	s.must(Protect(s.job))
	info, err := os.Stat(s.job)
	s.must(err)
	if info.Mode().Perm() != 0o750 {
		t.Errorf("mode %s", info.Mode())
	}
	if os.Geteuid() == 0 {
		var stat unix.Stat_t
		s.must(unix.Stat(s.job, &stat))
		if stat.Uid != 0 || stat.Gid != vcap { // its group still reads
			t.Errorf("belongs to %d:%d", stat.Uid, stat.Gid)
		}
	}
	s.must(os.Chmod(s.job, 0o777|fs.ModeSticky)) //nolint:gosec // like /tmp
	if err := Protect(s.job); !errors.Is(err, ErrUntrusted) {
		t.Errorf("a directory of all users: %v", err)
	}
	s.must(Protect(filepath.Join(s.outside, "..", "new", "log")))
}

func TestLinksOfRootAreFollowed(t *testing.T) {
	s := newScene(t)
	s.must(os.Mkdir(filepath.Join(s.outside, "data"), 0o755))
	s.must(os.Symlink("../etc/data", filepath.Join(s.outside, "relative")))
	s.must(os.Symlink(s.outside+"/relative", filepath.Join(s.outside, "absolute")))
	s.must(os.Symlink("loop", filepath.Join(s.outside, "loop")))
	for _, link := range []string{"relative", "absolute"} {
		s.must(Write(filepath.Join(s.outside, link, "sub", link), []byte("x"), 0o600))
		if _, err := os.Stat(filepath.Join(s.outside, "data", "sub", link)); err != nil {
			t.Error(err)
		}
	}
	if err := Write(filepath.Join(s.outside, "loop", "x"), nil, 0o600); !errors.Is(err, unix.ELOOP) {
		t.Errorf("error = %v", err)
	}
}

func TestAppendKeepsWhatIsThere(t *testing.T) {
	s := newScene(t)
	for range 2 {
		file, err := Append(s.path("new/log"), 0o640)
		s.must(err)
		_, err = file.WriteString("line\n")
		s.must(errors.Join(err, file.Close()))
	}
	content, err := os.ReadFile(s.path("new/log"))
	if s.must(err); string(content) != "line\nline\n" {
		t.Errorf("%q", content)
	}
	if os.Geteuid() != 0 {
		return
	}
	s.must(os.Chown(s.path("new/log"), vcap, vcap))
	s.must(os.Chmod(s.path("new/log"), 0o666)) //nolint:gosec // what an attacker does
	file, err := Append(s.path("new/log"), 0o640)
	s.must(err)
	var stat unix.Stat_t
	s.must(errors.Join(unix.Fstat(int(file.Fd()), &stat), file.Close()))
	if stat.Uid != 0 || stat.Mode&0o777 != 0o640 {
		t.Errorf("another user's file: uid %d, mode %o", stat.Uid, stat.Mode&0o777)
	}
}

func TestReadTrustsOnlyRoot(t *testing.T) {
	s := newScene(t)
	s.must(os.WriteFile(s.path("node.json"), []byte("{}"), 0o644)) //nolint:gosec // no secret
	if _, err := Read(s.path("node.json")); !errors.Is(err, ErrUntrusted) {
		t.Errorf("in a directory of vcap: %v", err)
	}
	s.must(Protect(s.job))
	if content, err := Read(s.path("node.json")); err != nil || string(content) != "{}" {
		t.Errorf("%q, %v", content, err)
	}
	if _, err := Read(s.path("absent/node.json")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent: %v", err)
	}
	s.must(os.Chmod(s.path("node.json"), 0o664)) //nolint:gosec // what must be refused
	if _, err := Read(s.path("node.json")); !errors.Is(err, ErrUntrusted) {
		t.Errorf("a file that its group can write: %v", err)
	}
	s.must(os.Symlink(s.file, s.path("link")))
	if _, err := Read(s.path("link")); err == nil || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("link: %v", err)
	}
	s.must(unix.Mkfifo(s.path("pipe"), 0o644))
	if err := within(t, func() error { _, err := Read(s.path("pipe")); return err }); err == nil {
		t.Error("pipe accepted")
	}
}

func TestWriteReplacesContentAndMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "file")
	for _, want := range []struct {
		content string
		mode    os.FileMode
	}{{"first, longer", 0o600}, {"second", 0o644}} {
		if err := Write(path, []byte(want.content), want.mode); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		info, statErr := os.Stat(path)
		if err := errors.Join(err, statErr); err != nil {
			t.Fatal(err)
		}
		if string(got) != want.content || info.Mode() != want.mode {
			t.Errorf("got %q with mode %s, want %q with %s", got, info.Mode(), want.content, want.mode)
		}
	}
	broken := errors.New("the disk is full")
	if err := WriteFrom(
		path, 0o644, func(w io.Writer) error { _, _ = io.WriteString(w, "half"); return broken },
	); !errors.Is(err, broken) {
		t.Errorf("got error %v, want %v", err, broken)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "second" {
		t.Errorf("got %q, %v; want the old content", got, err)
	}
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("got %v, %v; want the one file", entries, err)
	}
}

func TestSeal(t *testing.T) {
	s := newScene(t)
	job := filepath.Join(s.outside, "..", "jobs", "kubelet")
	s.must(os.MkdirAll(filepath.Join(job, "config"), 0o750))
	s.must(os.MkdirAll(filepath.Join(job, "bin"), 0o750))
	s.must(os.WriteFile(filepath.Join(job, "config", "client.key"), nil, 0o640)) //nolint:gosec // as the agent has it
	s.must(os.WriteFile(filepath.Join(job, "bin", "ctl"), nil, 0o750))           //nolint:gosec // as the agent has it
	s.must(os.Symlink(s.file, filepath.Join(job, "packages")))
	s.must(os.Symlink("kubelet", filepath.Join(filepath.Dir(job), "link"))) // as in /var/vcap/jobs
	s.must(os.Chmod(s.file, 0o644))                                         //nolint:gosec // must stay
	s.must(Seal(filepath.Join(filepath.Dir(job), "link")))
	for name, want := range map[string]fs.FileMode{
		".": 0o700, "config": 0o700, "bin": 0o700, "config/client.key": 0o600, "bin/ctl": 0o700, "packages": 0o644,
	} {
		info, err := os.Stat(filepath.Join(job, name))
		if s.must(err); info.Mode().Perm() != want {
			t.Errorf("%s has mode %s, want %s", name, info.Mode(), want)
		}
	}
	if err := Seal(s.job); !errors.Is(err, ErrUntrusted) {
		t.Errorf("a directory of vcap: %v", err)
	}
	s.untouched()
}

// TestWriteKeepsWhatIsRightAlready: a full disk has no room for a second file.
func TestWriteKeepsWhatIsRightAlready(t *testing.T) {
	for name, test := range map[string]struct {
		change func(s *scene, path string) error
		kept   bool
	}{
		"the same":      {func(*scene, string) error { return nil }, true},
		"shorter":       {func(_ *scene, path string) error { return os.Truncate(path, 1) }, false},
		"longer":        {func(_ *scene, path string) error { return os.Truncate(path, 100) }, false},
		"another mode":  {func(_ *scene, path string) error { return os.Chmod(path, 0o664) }, false},
		"a second name": {func(s *scene, path string) error { return os.Link(path, s.path("second")) }, false},
		"another user": {func(s *scene, path string) error {
			requireRoot(s.t)
			return os.Chown(path, vcap, 0)
		}, false},
		"another group": {func(s *scene, path string) error {
			requireRoot(s.t)
			return os.Chown(path, 0, vcap)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			path := s.path("resolv.conf")
			s.must(Write(path, []byte("nameserver 192.0.2.1\n"), 0o644))
			before, err := os.Stat(path)
			s.must(err)
			s.must(test.change(s, path))
			long := time.Now().Add(-time.Hour)
			s.must(os.Chtimes(path, long, long))
			s.must(Write(path, []byte("nameserver 192.0.2.1\n"), 0o644))
			after, err := os.Stat(path)
			s.must(err)
			if kept := os.SameFile(before, after); kept != test.kept {
				t.Errorf("the file was kept: %t, want %t", kept, test.kept)
			}
			if age := time.Since(after.ModTime()); age > time.Minute {
				t.Errorf("the file looks as if it had been written %s ago", age)
			}
			content, err := os.ReadFile(path)
			if owner := after.Sys().(*syscall.Stat_t); err != nil || string(content) != "nameserver 192.0.2.1\n" ||
				after.Mode() != 0o644 || int(owner.Uid) != os.Geteuid() || int(owner.Gid) != os.Getegid() {
				t.Errorf("%q (%v), %s of %d:%d", content, err, after.Mode(), owner.Uid, owner.Gid)
			}
		})
	}
}
