package rootfile

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// own is the user who gets what vcap has.
const own = 1_900_000_003

// owners returns the user, group and permissions of what is at a path, without following a link.
func owners(t *testing.T, path string) (user, group int, mode os.FileMode) {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	stat := info.Sys().(*syscall.Stat_t)
	return int(stat.Uid), int(stat.Gid), info.Mode().Perm()
}

func (s *scene) own(path string, want os.FileMode) {
	s.t.Helper()
	if user, group, mode := owners(s.t, path); user != own || group != own || mode != want {
		s.t.Errorf("%s belongs to %d:%d with mode %o, want %d and mode %o", path, user, group, mode, own, want)
	}
}

// store is a directory with data of vcap's, as bpm and etcd have made it.
func (s *scene) store() (dir, file string) {
	s.t.Helper()
	dir = filepath.Join(s.job, "store")
	file = filepath.Join(dir, "member", "wal", "0.wal")
	s.must(os.MkdirAll(filepath.Dir(file), 0o770))
	s.must(os.WriteFile(file, []byte("data"), 0o660)) //nolint:gosec // it loses these permissions
	for _, path := range []string{dir, filepath.Dir(filepath.Dir(file)), filepath.Dir(file), file} {
		s.must(os.Chown(path, vcap, vcap))
	}
	return dir, file
}

func TestGiveTree(t *testing.T) {
	requireRoot(t)
	s := newScene(t)
	dir, file := s.store()
	for range 2 { // with each deploy
		s.must(GiveTree(dir, own))
		s.own(dir, 0o700)
		s.own(filepath.Dir(file), 0o700)
		s.own(file, 0o600)
	}
	if content, err := os.ReadFile(file); err != nil || string(content) != "data" {
		t.Errorf("the file has %q, %v", content, err)
	}
	missing := filepath.Join(s.job, "missing")
	s.must(GiveTree(missing, own))
	s.own(missing, 0o700)
	err := GiveTree(filepath.Join(s.job, "disk", "etcd"), own)
	if err == nil || !strings.Contains(err.Error(), "persistent_disk_type") {
		t.Errorf("without a disk: %v", err)
	}
}

// TestGiveTreeSkipsWhatTheUserHas: the user's own socket is left by a process that was killed.
func TestGiveTreeSkipsWhatTheUserHas(t *testing.T) {
	requireRoot(t)
	s := newScene(t)
	dir, _ := s.store()
	socket := filepath.Join(dir, "kms.sock")
	s.must(unix.Mknod(socket, unix.S_IFSOCK|0o600, 0))
	if err := GiveTree(dir, own); err == nil {
		t.Error("a socket of root's was accepted")
	}
	s.must(os.Lchown(socket, own, own))
	s.must(GiveTree(dir, own))
}

// TestGiveRefusesWhatAnAttackerPlants: what vcap has put into its directory gives nobody a file of root's.
func TestGiveRefusesWhatAnAttackerPlants(t *testing.T) {
	requireRoot(t)
	for what, c := range map[string]struct {
		plant func(s *scene, path string) error
		want  string
	}{
		"link to file": {func(s *scene, path string) error { return os.Symlink(s.file, path) }, "symbolic link"},
		"link to dir":  {func(s *scene, path string) error { return os.Symlink(s.outside, path) }, "symbolic link"},
		"other name":   {func(s *scene, path string) error { return os.Link(s.file, path) }, "another name"},
		"pipe":         {func(_ *scene, path string) error { return unix.Mkfifo(path, 0o600) }, "regular file"},
	} {
		t.Run(what, func(t *testing.T) {
			s := newScene(t)
			dir, _ := s.store()
			path := filepath.Join(dir, "member", "audit.log")
			s.must(c.plant(s, path))
			if err := GiveTree(dir, own); err == nil || !strings.Contains(err.Error(), c.want) ||
				!strings.Contains(err.Error(), path) {
				t.Errorf("got %v, want %q and %s", err, c.want, path)
			}
			s.untouched()
			if user, _, _ := owners(t, s.file); user != 0 {
				t.Errorf("root's file was given to %d", user)
			}
		})
	}
	t.Run("directory itself", func(t *testing.T) {
		s := newScene(t)
		dir := filepath.Join(s.job, "store")
		s.must(os.Symlink(s.outside, dir))
		if err := GiveTree(dir, own); err == nil {
			t.Error("accepted")
		}
		if user, _, _ := owners(t, s.outside); user != 0 {
			t.Errorf("root's directory was given to %d", user)
		}
	})
}

// TestHandFiles: vcap lists the directory, and reads what is written there for everybody later, but no key.
func TestHandFiles(t *testing.T) {
	requireRoot(t)
	s := newScene(t)
	key := filepath.Join(s.outside, "files", "server.key")
	s.must(os.Mkdir(filepath.Dir(key), 0o750))
	s.must(os.WriteFile(key, nil, 0o640)) //nolint:gosec // as the agent has it
	for _, path := range []string{s.outside, filepath.Dir(key), key} {
		s.must(os.Chown(path, 0, vcap))
	}
	s.must(HandFiles(s.outside, own))
	for path, want := range map[string]int{s.outside: vcap, filepath.Dir(key): vcap, key: own} {
		if user, group, mode := owners(t, path); user != 0 || group != want || mode&0o027 != 0 {
			t.Errorf("%s belongs to %d:%d with mode %o, want group %d", path, user, group, mode, want)
		}
	}
}

func requireRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("requires root")
	}
}
