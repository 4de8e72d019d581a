package filelock

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestSecondWaitsForTheFirst(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "lock")
	release, err := Acquire(t.Context(), path, "the first", nil)
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	var held *HeldError
	if _, err := Acquire(short, path, "the second", nil); !errors.As(err, &held) || held.Holder != "the first" ||
		!errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v, want the holder and the deadline", err)
	}
	var told string
	second, err := Acquire(t.Context(), path, "the second", func(holder string) { told = holder; release() })
	if err != nil || told != "the first" {
		t.Fatalf("got %v; told %q", err, told)
	}
	second()
}

// TestOthersCannotLock: another user who can open the file could hold the lock for ever.
func TestOthersCannotLock(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("requires root to act as another user")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "lock")
	release, err := Acquire(t.Context(), path, "root", nil)
	if err != nil {
		t.Fatal(err)
	}
	release()
	for _, above := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(above, 0o755); err != nil { //nolint:gosec // as the directories of pidfiles
			t.Fatal(err)
		}
	}
	other := exec.Command("flock", "--nonblock", path, "true")
	other.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}
	if out, err := other.CombinedOutput(); err == nil || !strings.Contains(string(out), "Permission denied") {
		t.Errorf("another user has the lock: %v\n%s", err, out)
	}
}

func TestFolderInTheWay(t *testing.T) {
	if _, err := Acquire(t.Context(), t.TempDir(), "me", nil); err == nil {
		t.Error("want an error for a directory")
	}
}
