package release_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"kubernetes-release/testbed/lab/director/release"
	"kubernetes-release/testbed/lab/director/release/releasetest"
)

// big is the tarball of a release with a package of 1.25 MiB in many files, which installs a copy of them, and another
// one whose packaging script prints tar's error about a block that was written in part.
func big(t *testing.T) string {
	t.Helper()
	source := t.TempDir()
	files := map[string][]byte{
		"jobs/j/spec":            []byte("name: j\npackages: [big, cut]\n"),
		"jobs/j/monit":           nil,
		"packages/cut/spec":      []byte("name: cut\n"),
		"packages/cut/packaging": []byte("echo tar: bin/etcd: Wrote only 7168 of 10240 bytes >&2\nexit 2\n"),
		"packages/big/spec":      []byte("name: big\n"),
		"packages/big/packaging": []byte("cp -r . ${BOSH_INSTALL_TARGET}\n"),
	}
	for n := range 20 {
		content := make([]byte, 64<<10)
		_, _ = rand.Read(content) // never fails
		files[fmt.Sprintf("packages/big/file-%d", n)] = content
	}
	for name, content := range files {
		path := filepath.Join(source, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return releasetest.Build(t, source, "x", "1")
}

// smallDisk mounts a disk of size MiB for the test.
func smallDisk(t *testing.T, size int) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", size)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestFullDiskIsReportedInOneLine wherever it occurs, without tar's error for each file.
func TestFullDiskIsReportedInOneLine(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a small disk requires root")
	}
	tarball := big(t)
	r, err := release.Read(context.Background(), tarball, t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	compile := func(dir, logs, name string) error {
		compiler := &release.Compiler{Dir: dir, Logs: logs}
		return compiler.Compile(context.Background(), r, []string{name})
	}
	for name, c := range map[string]struct {
		size int
		do   func(dir string) error
		want string
	}{
		"the release": {1, func(dir string) error {
			_, err := release.Read(context.Background(), tarball, dir, nil)
			return err
		},
			"had 1 MiB of free space, and " + tarball + " alone has 1 MiB; free some space there, or use another " +
				"directory with --state"},
		"a package's source": {
			1, func(dir string) error { return compile(dir, t.TempDir(), "big") },
			"unpacking package 'big': no space left on device",
		},
		"a compiled package": {
			2, func(dir string) error { return compile(dir, t.TempDir(), "big") },
			"compiling package 'big': no space left on device below ",
		},
		"a compiled package and its log": {2, func(dir string) error {
			logs := smallDisk(t, 1)
			if err := os.WriteFile(
				filepath.Join(logs, "ballast"), make([]byte, 2<<20), 0o600,
			); !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("the disk of logs is not full: %v", err)
			}
			return compile(dir, logs, "big")
		}, "compiling package 'big': no space left on device below "},
		"the end of a file": {
			2, func(dir string) error { return compile(dir, t.TempDir(), "cut") },
			"compiling package 'cut': no space left on device below ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.do(smallDisk(t, c.size))
			if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), c.want) ||
				strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v", err)
			}
		})
	}
}

// task records what is shown.
type task struct{ lines []string }

func (s *task) Step(format string, args ...any) {
	s.lines = append(s.lines, fmt.Sprintf(format, args...))
}
func (s *task) End(err error) { s.lines = append(s.lines, fmt.Sprintf("ended with %v", err)) }

func TestUnpackingShowsProgress(t *testing.T) {
	tarball, cache := big(t), t.TempDir()
	for n, want := range []string{
		"unpacked 0 of 1 MiB, unpacked 0 of 1 MiB, unpacked 0 of 1 MiB, unpacked 1 of 1 MiB, comparing digests with " +
			"release.MF, ended with <nil>",
		"", // it is already unpacked
	} {
		shown := &task{}
		if _, err := release.Read(
			context.Background(), tarball, cache, func() release.Task { return shown },
		); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(shown.lines, ", "); got != want {
			t.Errorf("reading it for the %d. time showed %q, want %q", n+1, got, want)
		}
	}
}
