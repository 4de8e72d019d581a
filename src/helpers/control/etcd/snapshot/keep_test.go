package snapshot

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"kubernetes-release/control/etcd/members"
	"kubernetes-release/internal/duration"
)

// tebibyte is the unit of files without content whose size no disk has left.
const tebibyte = 1 << 40

// onFullDisk keeps two snapshots, and has a database of four tebibytes, which etcdctl says is sound.
func onFullDisk(t *testing.T) *Config {
	t.Helper()
	dir := t.TempDir()
	c := &Config{
		Programs: filepath.Join(dir, "bin"), Dir: filepath.Join(dir, "snapshots"), Keep: 2,
		members: &members.Config{DataDir: filepath.Join(dir, "etcd")},
	}
	if err := errors.Join(
		os.MkdirAll(c.Programs, 0o700),
		os.WriteFile(filepath.Join(c.Programs, "etcdctl"), []byte("#!/bin/sh\n"), 0o700),
	); err != nil {
		t.Fatal(err)
	}
	sparse(t, filepath.Join(c.members.DataDir, "member", "snap", "db"), 4*tebibyte)
	return c
}

func sparse(t *testing.T, path string, size int64) {
	t.Helper()
	if err := errors.Join(
		os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600), os.Truncate(path, size),
	); err != nil {
		t.Fatal(err)
	}
}

// TestRoomForASnapshot: what is beyond the number to keep is removed in any case, other old ones if that makes room,
// and never the newest one.
func TestRoomForASnapshot(t *testing.T) {
	const first, second, third, fourth, fifth = "etcd-20260101T000000Z.db", "etcd-20260102T000000Z.db",
		"etcd-20260103T000000Z.db", "etcd-20260104T000000Z.db", "etcd-20260105T000000Z.db"
	now := time.Date(2026, 1, 6, 0, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		size   int64 // of the snapshots
		alarms string
		want   []string
		fails  string
	}{
		"removing more is not enough": {1, "", []string{fourth, fifth}, "less than twice the size of the database"},
		"removing more could be enough": {
			8 * tebibyte, "", []string{fifth}, "less than twice the size of the database",
		},
		"corrupt data": {8 * tebibyte, "memberID:1 alarm:CORRUPT", []string{fourth, fifth}, "CORRUPT"},
	} {
		t.Run(name, func(t *testing.T) {
			c := onFullDisk(t)
			for _, snapshot := range []string{first, second, third, fourth, fifth} {
				sparse(t, filepath.Join(c.Dir, snapshot), test.size)
			}
			if err := os.WriteFile(
				filepath.Join(c.Programs, "etcdctl"), []byte("#!/bin/sh\necho "+test.alarms+"\n"), 0o700,
			); err != nil {
				t.Fatal(err)
			}
			_, err := c.Take(t.Context(), at(now), quiet())
			if err == nil || !strings.Contains(err.Error(), test.fails) {
				t.Errorf("%v, want %q", err, test.fails)
			}
			if names, err := c.list(now); err != nil || !slices.Equal(names, test.want) {
				t.Errorf("%v %v, want %v", names, err, test.want)
			}
		})
	}
}

// TestSaveRefusesToFillTheDisk: bbr has its backup on the disk of etcd, whose reserve root may use.
func TestSaveRefusesToFillTheDisk(t *testing.T) {
	c := onFullDisk(t)
	called := filepath.Join(c.Programs, "called")
	if err := os.WriteFile(
		filepath.Join(c.Programs, "etcdctl"), []byte("#!/bin/sh\ntouch "+called+"\n"), 0o700,
	); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if _, err := c.Save(t.Context(), filepath.Join(dir, "etcd.db")); err == nil ||
		!strings.Contains(err.Error(), dir+" has ") || !strings.Contains(err.Error(), "enlarge the persistent disk") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(called); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("etcdctl was called: %v", err)
	}
}

// TestUploadWhileNoneCanBeTaken: while the disk is full, the newest snapshot is the last one for long.
func TestUploadWhileNoneCanBeTaken(t *testing.T) {
	c := onFullDisk(t)
	c.Interval = duration.Duration(time.Hour)
	sparse(t, filepath.Join(c.Dir, "etcd-20260101T000000Z.db"), 1)
	uploads := make(chan string, 1)
	bucket := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case uploads <- r.Method + " " + r.URL.Path:
		default:
		}
	}))
	defer bucket.Close()
	credentials := filepath.Join(t.TempDir(), "credentials")
	if err := os.WriteFile(
		credentials, []byte("[default]\naws_access_key_id = a\naws_secret_access_key = b\n"), 0o600,
	); err != nil {
		t.Fatal(err)
	}
	c.Bucket = &Bucket{
		Name: "snapshots", Region: "us-east-1", Instance: "control-a", Endpoint: bucket.URL,
		CredentialsFile: credentials,
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx, at(time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)), quiet()) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	select {
	case got := <-uploads:
		if want := "PUT /snapshots/etcd-20260101T000000Z-control-a.db"; got != want {
			t.Errorf("the bucket got %s, want %s", got, want)
		}
	case <-time.After(timeout):
		t.Error("the newest snapshot is not uploaded")
	}
}

// TestOtherNamesAreNotNewest: the name of a copy, or one that was given while the clock was wrong, sorts last.
func TestOtherNamesAreNotNewest(t *testing.T) {
	c := onFullDisk(t)
	c.Metrics = filepath.Join(t.TempDir(), "snapshots.prom")
	const newest, future, future2, copied = "etcd-20260101T000000Z.db", "etcd-20990101T000000Z.db",
		"etcd-20990102T000000Z.db", "etcd-before-upgrade.db"
	now := time.Date(2026, 1, 1, 1, 0, 0, 0, time.UTC)
	for _, name := range []string{newest, future, future2, copied} {
		sparse(t, filepath.Join(c.Dir, name), 1)
	}
	if names, err := c.list(now); err != nil || !slices.Equal(names, []string{future, future2, newest}) {
		t.Errorf("%v %v", names, err)
	}
	c.Interval = duration.Duration(6 * time.Hour)
	if wait, err := c.due(now); err != nil || wait != 5*time.Hour {
		t.Errorf("the next one is due after %s %v", wait, err)
	}
	for _, newestIs := range []bool{true, false} {
		if err := c.writeMetrics(now, nil); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(c.Metrics)
		if err != nil || strings.Contains(string(content), "snapshot_timestamp_seconds") != newestIs {
			t.Errorf("there is a good one: %v, metrics (%v):\n%s", newestIs, err, content)
		}
		if err := os.RemoveAll(filepath.Join(c.Dir, newest)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTakeBesideOtherNames: the new snapshot stays, and so does what the operator has copied.
func TestTakeBesideOtherNames(t *testing.T) {
	m := newMember(t)
	m.start()
	m.config.Keep = 1
	for _, name := range []string{"etcd-20990101T000000Z.db", "etcd-x.db"} {
		sparse(t, filepath.Join(m.config.Dir, name), 1)
	}
	m.take(0)
	m.has("etcd-20260101T000000Z.db", "etcd-x.db")
	// The clock is set back while a snapshot is taken.
	times := []time.Time{time.Date(2026, 1, 1, 0, 1, 0, 0, time.UTC), time.Date(2026, 1, 1, 0, 0, 30, 0, time.UTC)}
	back := func() time.Time {
		first := times[0]
		times = times[len(times)-1:]
		return first
	}
	if _, err := m.config.Take(t.Context(), back, quiet()); err != nil {
		t.Fatal(err)
	}
	m.has("etcd-20260101T000100Z.db", "etcd-x.db")
}

// TestRemovedByAnother: the errand and the schedule remove the same snapshots.
func TestRemovedByAnother(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = root.Close() }()
	if err := remove(root, "etcd-20260101T000000Z.db", quiet()); err != nil {
		t.Error(err)
	}
}
