package etcdsnapshot

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"kubernetes-release/etcdmembers"
)

// tebibyte is the unit of files without content whose size no disk has left.
const tebibyte = 1 << 40

// onFullDisk keeps two snapshots, and has a database of four tebibytes, which etcdctl says is sound.
func onFullDisk(t *testing.T) *Config {
	t.Helper()
	dir := t.TempDir()
	c := &Config{
		Programs: filepath.Join(dir, "bin"), Dir: filepath.Join(dir, "snapshots"), Keep: 2,
		members: &etcdmembers.Config{DataDir: filepath.Join(dir, "etcd")},
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
			_, err := c.Take(t.Context(), time.Date(2026, 1, 6, 0, 0, 0, 0, time.UTC), quiet())
			if err == nil || !strings.Contains(err.Error(), test.fails) {
				t.Errorf("%v, want %q", err, test.fails)
			}
			if names, err := c.list(); err != nil || !slices.Equal(names, test.want) {
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
