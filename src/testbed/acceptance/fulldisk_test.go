package acceptance

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"kubernetes-release/internal/tail"
)

// TestFullDiskIsReported fills the disk at several stages of a deploy. Each time the message must name the reason. With
// space again, `up` completes, and `down` leaves nothing behind.
func TestFullDiskIsReported(t *testing.T) {
	l := own(t)
	before := l.readHost(t, 0)
	disk := l.state
	unmount := smallDisk(t, disk)
	l.state = filepath.Join(disk, "lab")
	ballast := filepath.Join(disk, "ballast")
	for _, c := range []struct {
		name string
		free int64 // MiB
	}{
		{"no space at all", 0},
		{"no space for the release", 60},
		{"no space for packages", 300}, {"no space for the VM", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "no space for the VM" { // let it reach that stage
				leaveFree(t, ballast, diskSize)
				l.interrupt(t, interruption{line: "L creating VM", signal: syscall.SIGINT})
			}
			leaveFree(t, ballast, c.free<<20)
			started := time.Now()
			out, err := l.up()
			if err == nil {
				t.Fatalf("it was deployed:\n%s", tail.Lines(out, 20))
			}
			t.Logf("refused after %s:\n%s", time.Since(started).Round(100*time.Millisecond), tail.Lines(out, 3))
			if !strings.Contains(strings.ToLower(tail.Lines(out, 20)), "no space left on device") {
				t.Errorf("the end of the output does not say that there is no space left on the device")
			}
		})
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	l.mustUp(t)
	if got := l.mustKubectl(t, "", "get", "nodes", "--no-headers"); !strings.Contains(got, " Ready ") {
		t.Errorf("node is not Ready: %s", got)
	}
	if quota := l.etcdQuota(t, "control/0"); quota < 0.9*diskSize/3 || quota > diskSize/3 {
		t.Errorf("etcd's database can have %.0f bytes, want about a third of a disk of %d", quota, diskSize)
	}
	number := l.networkNumber()
	leaveFree(t, ballast, 0) // a full disk must not prevent down
	l.mustRun(t, 2*time.Minute, "down")
	unmount()
	before.mustEqual(t, l, number)
}

// etcdQuota returns the size in bytes at which a member refuses writes.
func (l *lab) etcdQuota(t *testing.T, instance string) float64 {
	t.Helper()
	metrics := l.ssh(t, instance, "curl", "-sS", "--fail", "http://127.0.0.1:2381/metrics")
	for line := range strings.Lines(metrics) {
		if value, ok := strings.CutPrefix(line, "etcd_server_quota_backend_bytes "); ok {
			quota, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				t.Fatal(err)
			}
			return quota
		}
	}
	t.Fatalf("%s: no quota in the metrics of etcd:\n%s", instance, tail.Lines(metrics, 20))
	return 0
}

// smallDisk mounts a file system of diskSize at dir, and returns the function that unmounts it.
func smallDisk(t *testing.T, dir string) func() {
	t.Helper()
	image := filepath.Join(t.TempDir(), "disk")
	sh := func(argv ...string) {
		t.Helper()
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", argv, err, out)
		}
	}
	sh("truncate", "--size", strconv.Itoa(diskSize), image)
	sh("mkfs.ext4", "-q", "-m", "0", image)
	sh("mount", "-o", "loop", image, dir) // unmounting removes the loop device
	unmount := sync.OnceFunc(func() { sh("umount", "--lazy", dir) })
	t.Cleanup(unmount)
	return unmount
}

// leaveFree writes a file that leaves that many bytes of its disk free.
func leaveFree(t *testing.T, file string, free int64) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	var disk syscall.Statfs_t
	if err := syscall.Fstatfs(int(f.Fd()), &disk); err != nil {
		t.Fatal(err)
	}
	size := info.Size() + int64(disk.Bavail)*disk.Bsize - free
	if size < info.Size() {
		if err := f.Truncate(max(size, 0)); err != nil {
			t.Fatal(err)
		}
		return
	}
	// The file system keeps some blocks for itself, so the last ones may not be available.
	if err := syscall.Fallocate(int(f.Fd()), 0, 0, size); err != nil && !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}
