package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"kubernetes-release/control/etcd/members"
	"kubernetes-release/internal/duration"
	"kubernetes-release/internal/eventually"
)

const timeout = time.Minute

// member is an etcd of one member with its configuration.
type member struct {
	t       *testing.T
	config  *Config
	program string
	client  string
	stop    func()
}

func newMember(t *testing.T) *member {
	t.Helper()
	program := os.Getenv("ETCD_BIN")
	if program == "" {
		t.Skip("ETCD_BIN is not set: there is no etcd to take snapshots of")
	}
	dir := t.TempDir()
	identity := members.Identity{
		CA:          filepath.Join(dir, "ca.pem"),
		Certificate: filepath.Join(dir, "cert.pem"),
		PrivateKey:  filepath.Join(dir, "key.pem"),
	}
	writeCertificate(t, identity)
	peer, client := "http://127.0.0.1:"+unusedPort(t), "http://127.0.0.1:"+unusedPort(t)
	data := filepath.Join(dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	members := members.Config{
		Self:        peer,
		DataDir:     data,
		WALDir:      filepath.Join(data, "member", "wal"),
		LeftFile:    filepath.Join(data, "left"),
		CA:          identity.CA,
		Certificate: identity.Certificate,
		PrivateKey:  identity.PrivateKey,
		Client:      identity,
		Instances: []members.Instance{
			{Name: "control/id-0", PeerURL: peer, ClientURL: client, Address: "127.0.0.1", Bootstrap: true},
		},
	}
	config := Config{
		Members:  write(t, filepath.Join(dir, "members.json"), members),
		Domain:   "127.0.0.1",
		Endpoint: client,
		Programs: filepath.Dir(program),
		Dir:      filepath.Join(data, "snapshots"),
		Interval: duration.Duration(time.Hour),
		Keep:     2,
	}
	loaded, err := Load(write(t, filepath.Join(dir, "snapshots.json"), config))
	if err != nil {
		t.Fatal(err)
	}
	return &member{t: t, config: loaded, program: program, client: client, stop: func() {}}
}

func write(t *testing.T, path string, value any) string {
	t.Helper()
	content, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// writeCertificate writes files that can be read; the members of this test use no TLS.
func writeCertificate(t *testing.T, to members.Identity) {
	t.Helper()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	pair := server.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{
		to.CA:          {Type: "CERTIFICATE", Bytes: pair.Certificate[0]},
		to.Certificate: {Type: "CERTIFICATE", Bytes: pair.Certificate[0]},
		to.PrivateKey:  {Type: "PRIVATE KEY", Bytes: key},
	} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func unusedPort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	return port
}

// start starts etcd as the bootstrap instance does, with these flags too.
func (m *member) start(flags ...string) {
	m.t.Helper()
	members := m.config.members
	command := exec.Command(m.program, append(
		flags, "--name="+members.Name(), "--data-dir="+members.DataDir, "--unsafe-no-fsync", "--log-level=error",
		"--listen-client-urls="+m.client, "--advertise-client-urls="+m.client, "--listen-peer-urls="+members.Self,
		"--initial-advertise-peer-urls="+members.Self, "--initial-cluster="+members.Name()+"="+members.Self,
	)...)
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		m.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = command.Wait()
		close(ended)
	}()
	m.stop = func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		<-ended
	}
	m.t.Cleanup(m.stop)
	eventually.Succeeds(m.t, timeout, "a read", func() error { // endpoint health fails with the alarm NOSPACE
		_, err := m.etcdctl("get", "/")
		return err
	})
}

func (m *member) etcdctl(arguments ...string) (string, error) {
	out, err := exec.Command(
		filepath.Join(m.config.Programs, "etcdctl"), append([]string{"--endpoints=" + m.client}, arguments...)...,
	).
		CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return string(out), err
}

func (m *member) put(key string) {
	m.t.Helper()
	if _, err := m.etcdctl("put", key, "value of "+key); err != nil {
		m.t.Fatal(err)
	}
}

func (m *member) keys() []string {
	m.t.Helper()
	out, err := m.etcdctl("get", "", "--prefix", "--keys-only")
	if err != nil {
		m.t.Fatal(err)
	}
	return strings.Fields(out)
}

// take takes a snapshot at a time of the test's own.
func (m *member) take(minutes int) string {
	m.t.Helper()
	path, err := m.config.Take(m.t.Context(), at(time.Date(2026, 1, 1, 0, minutes, 0, 0, time.UTC)), quiet())
	if err != nil {
		m.t.Fatal(err)
	}
	return path
}

// at is a clock that stands.
func at(t time.Time) func() time.Time { return func() time.Time { return t } }

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// TestRestore restores into the same cluster and into a fresh one.
func TestRestore(t *testing.T) {
	for _, name := range []string{"same cluster", "fresh cluster"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			from := newMember(t)
			from.start()
			from.put("/registry/secrets/a")
			from.put("/registry/pods/b")
			snapshot := from.take(0)
			from.put("/registry/pods/later")
			to := from
			if name == "fresh cluster" {
				to = newMember(t)
				to.start()
				to.put("/registry/pods/fresh")
			}
			if err := to.config.Restore(t.Context(), snapshot, quiet()); err == nil ||
				!strings.Contains(err.Error(), "etcd still runs on [control/id-0]") {
				t.Fatalf("next to a running etcd: %v", err)
			}
			to.stop()
			if err := to.config.Restore(t.Context(), snapshot, quiet()); err != nil {
				t.Fatal(err)
			}
			to.start()
			if got := to.keys(); !slices.Equal(got, []string{"/registry/pods/b", "/registry/secrets/a"}) {
				t.Errorf("keys: %v", got)
			}
			// Who has read a newer revision than the snapshot's must not take what is written now for older.
			if out, err := to.etcdctl("get", "x", "-w", "json"); err != nil ||
				!strings.Contains(out, `"revision":1000000`) {
				t.Errorf("revision: %s %v", out, err)
			}
			for _, path := range []string{"before-restore/wal", "snapshots"} {
				if _, err := os.Stat(filepath.Join(to.config.members.DataDir, path)); err != nil &&
					!(path == "snapshots" && to != from) {
					t.Error(err)
				}
			}
			// It can be repeated.
			to.stop()
			if err := to.config.Restore(t.Context(), snapshot, quiet()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestRestoreOnAnotherInstance(t *testing.T) {
	m := newMember(t)
	m.start()
	snapshot := m.take(0)
	m.stop()
	m.config.members.Instances[0].Bootstrap = false
	// The bootstrap instance runs again already.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	url := "http://" + listener.Addr().String()
	m.config.members.Instances = append(
		m.config.members.Instances,
		members.Instance{Name: "control/id-1", PeerURL: url, ClientURL: url, Address: "127.0.0.1"},
	)
	before := m.content()
	if err := m.config.Restore(t.Context(), snapshot, quiet()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(m.config.members.LeftFile); err != nil {
		t.Error(err)
	}
	if err := os.Remove(m.config.members.LeftFile); err != nil || m.content() != before {
		t.Errorf("data was changed (%v)", err)
	}
}

// content lists the data directory with the size of files.
func (m *member) content() string {
	var list strings.Builder
	err := filepath.WalkDir(
		filepath.Dir(m.config.members.DataDir),
		func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := entry.Info()
			fmt.Fprintln(&list, path, info.Size(), info.Mode(), info.ModTime().Equal(time.Time{}))
			return err
		},
	)
	if err != nil {
		m.t.Fatal(err)
	}
	return list.String()
}

// TestRefusedBeforeAnythingIsTouched restores files that must not be restored.
func TestRefusedBeforeAnythingIsTouched(t *testing.T) {
	m := newMember(t)
	m.start()
	m.put("/registry/pods/kept")
	good := m.take(0)
	m.stop()
	content, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		file []byte
		want string
	}{
		"truncated":                {content[:len(content)-100], "it is truncated"},
		"truncated at a page":      {content[:len(content)/2/512*512+sha256.Size], "its checksum is wrong"},
		"empty":                    {nil, "it is truncated"},
		"one bit differs":          {flipped(content), "its checksum is wrong"},
		"copy of a data directory": {content[:len(content)-sha256.Size], "not written by etcdctl snapshot save"},
		"another cluster": {edited(t, content, func(tx *bbolt.Tx) error {
			return tx.Bucket(membersBucket).Put([]byte("1"), []byte(`{"peerURLs": ["https://id.etcd.other:2380"]}`))
		}), "another cluster"},
		"newer etcd": {
			edited(
				t, content,
				func(tx *bbolt.Tx) error { return tx.Bucket(metaBucket).Put(storageVersion, []byte("3.99.0")) },
			),
			"newer than this one",
		},
		"newer cluster": {
			edited(
				t, content,
				func(tx *bbolt.Tx) error { return tx.Bucket(clusterBucket).Put(clusterVersion, []byte("4.0.0")) },
			),
			"newer than this one",
		},
		"no version": {edited(t, content, func(tx *bbolt.Tx) error {
			return errors.Join(
				tx.Bucket(metaBucket).Delete(storageVersion), tx.Bucket(clusterBucket).Delete(clusterVersion),
			)
		}), "no version"},
		"another program's": {
			edited(t, content, func(tx *bbolt.Tx) error { return tx.DeleteBucket(keyBucket) }),
			"not a database of etcd",
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "bad.db")
			if err := os.WriteFile(path, test.file, 0o600); err != nil {
				t.Fatal(err)
			}
			before := m.content()
			err := m.config.Restore(t.Context(), path, quiet())
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("%v, want %q", err, test.want)
			}
			if after := m.content(); after != before {
				t.Errorf("touched: before\n%s\nafter\n%s", before, after)
			}
		})
	}
	m.start()
	if got := m.keys(); !slices.Equal(got, []string{"/registry/pods/kept"}) {
		t.Errorf("keys: %v", got)
	}
}

func flipped(content []byte) []byte {
	changed := bytes.Clone(content)
	changed[len(changed)/2] ^= 1
	return changed
}

// edited changes a snapshot, and gives it a valid checksum.
func edited(t *testing.T, content []byte, edit func(*bbolt.Tx) error) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	if err := os.WriteFile(path, content[:len(content)-sha256.Size], 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Update(edit), db.Close()); err != nil {
		t.Fatal(err)
	}
	changed, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(changed)
	return append(changed, sum[:]...)
}

// TestRestoreNoticesWhoComesBack: an instance that was down starts with the old data while the snapshot is restored.
func TestRestoreNoticesWhoComesBack(t *testing.T) {
	m := newMember(t)
	m.start()
	m.put("/registry/pods/a")
	snapshot := m.take(0)
	m.stop()
	peer := "127.0.0.1:" + unusedPort(t)
	m.config.members.Instances = append(m.config.members.Instances, members.Instance{
		Name: "control/id-1", PeerURL: "http://" + peer, ClientURL: "http://" + peer, Address: "127.0.0.1",
	})
	dir := t.TempDir()
	built, back := filepath.Join(dir, "built"), filepath.Join(dir, "back")
	script := fmt.Sprintf(`#!/bin/sh
%s/etcdutl "$@" || exit
test "$2" = restore || exit 0
touch %s
for i in $(seq 600); do test -e %s && exit; sleep 0.05; done`, m.config.Programs, built, back)
	if err := errors.Join(
		os.WriteFile(filepath.Join(dir, "etcdutl"), []byte(script), 0o755),
		os.Symlink(filepath.Join(m.config.Programs, "etcdctl"), filepath.Join(dir, "etcdctl")),
	); err != nil {
		t.Fatal(err)
	}
	m.config.Programs = dir
	go func() {
		for ; t.Context().Err() == nil; time.Sleep(10 * time.Millisecond) {
			if _, err := os.Stat(built); err == nil {
				break
			}
		}
		if listener, err := net.Listen("tcp", peer); err == nil {
			context.AfterFunc(t.Context(), func() { _ = listener.Close() })
		}
		_ = os.WriteFile(back, nil, 0o600)
	}()
	if err := m.config.Restore(t.Context(), snapshot, quiet()); err == nil ||
		!strings.Contains(err.Error(), "etcd still runs on [control/id-1]") {
		t.Errorf("restored although another instance has come back: %v", err)
	}
	m.start()
	if got := m.keys(); !slices.Equal(got, []string{"/registry/pods/a"}) {
		t.Errorf("the old data has %v", got)
	}
}

// TestKeep takes more snapshots than are kept.
func TestKeep(t *testing.T) {
	m := newMember(t)
	if wait, err := m.config.due(time.Now()); err != nil || wait > 0 {
		t.Errorf("the first snapshot is due after %s %v", wait, err)
	}
	m.start()
	for minute := range 4 {
		m.take(minute)
	}
	names, err := m.config.list(time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC))
	if want := []string{"etcd-20260101T000200Z.db", "etcd-20260101T000300Z.db"}; err != nil ||
		!slices.Equal(names, want) {
		t.Errorf("%v %v, want %v", names, err, want)
	}
	for now, want := range map[string]time.Duration{
		"2026-01-01T00:13:00Z": 50 * time.Minute, "2026-01-01T02:03:00Z": -time.Hour, "2025-01-01T00:00:00Z": 0,
	} {
		at, err := time.Parse(time.RFC3339, now)
		if err != nil {
			t.Fatal(err)
		}
		if wait, err := m.config.due(at); err != nil || wait != want {
			t.Errorf("at %s the next is due after %s (%v), want %s", now, wait, err, want)
		}
	}
	// A snapshot that fails leaves nothing, and removes none.
	m.stop()
	m.config.Endpoint = "http://127.0.0.1:" + unusedPort(t)
	if _, err := m.config.Take(t.Context(), time.Now, quiet()); err == nil {
		t.Error("a snapshot without etcd succeeded")
	}
	if after, err := os.ReadDir(m.config.Dir); err != nil || len(after) != 2 {
		t.Errorf("%v %v", after, err)
	}
}

// TestTakeLeavesOtherSnapshots: the errand may take one in the same second, or the clock was set back.
func TestTakeLeavesOtherSnapshots(t *testing.T) {
	m := newMember(t)
	m.start()
	now := at(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	if err := os.Mkdir(m.config.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{"etcd-20260101T000000Z.db", "etcd-20260101T000000Z.db.part"} {
		path := filepath.Join(m.config.Dir, other)
		if err := os.WriteFile(path, []byte("other"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := m.config.Take(t.Context(), now, quiet()); err == nil || !strings.Contains(err.Error(), "exists") {
			t.Errorf("beside %s: %v", other, err)
		}
		m.has(other)
		if content, err := os.ReadFile(path); err != nil || string(content) != "other" {
			t.Errorf("%s has %q %v", other, content, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTakeRemovesWhatKilledSnapshotsLeft, but not what another one writes.
func TestTakeRemovesWhatKilledSnapshotsLeft(t *testing.T) {
	m := newMember(t)
	m.start()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	if err := os.Mkdir(m.config.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, age := range map[string]time.Duration{
		"etcd-20251231T230000Z.db.part": saveTimeout + time.Second, "etcd-20251231T235900Z.db.part": time.Second,
		"uploaded": 24 * time.Hour,
	} {
		path := filepath.Join(m.config.Dir, name)
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chtimes(path, now, now.Add(-age))); err != nil {
			t.Fatal(err)
		}
	}
	m.take(0)
	m.has("etcd-20251231T235900Z.db.part", "etcd-20260101T000000Z.db", "uploaded")
}

// has expects these files in the directory of snapshots, and no others.
func (m *member) has(want ...string) {
	m.t.Helper()
	entries, err := os.ReadDir(m.config.Dir)
	if err != nil {
		m.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if !slices.Equal(names, want) {
		m.t.Errorf("the directory of snapshots has %v, want %v", names, want)
	}
}

// TestSnapshotWhileEtcdRefusesWrites: that etcd is full is no reason to have no snapshot.
func TestSnapshotWhileEtcdRefusesWrites(t *testing.T) {
	m := newMember(t)
	m.start("--quota-backend-bytes=1")
	if _, err := m.etcdctl("put", "/registry/pods/refused", "value"); err == nil ||
		!strings.Contains(err.Error(), "database space exceeded") {
		t.Fatalf("etcd does not refuse a write: %v", err)
	}
	m.take(0)
}

// TestRestoreOfAFullEtcd: the snapshot has the alarm, so that the restored cluster refuses writes too.
func TestRestoreOfAFullEtcd(t *testing.T) {
	m := newMember(t)
	const full = "--quota-backend-bytes=1"
	m.start(full)
	if _, err := m.etcdctl("put", "/registry/pods/refused", "value"); err == nil {
		t.Fatal("etcd does not refuse a write")
	}
	snapshot := m.take(0)
	m.stop()
	if err := m.config.Restore(t.Context(), snapshot, quiet()); err != nil {
		t.Fatal(err)
	}
	m.start(full)
	if err := m.config.Cluster().CheckSpace(t.Context(), quiet()); err == nil ||
		!strings.Contains(err.Error(), "etcd refuses writes") {
		t.Errorf("after the restore: %v", err)
	}
}

// TestNoSnapshotOfCorruptData: the good ones would be removed for it.
func TestNoSnapshotOfCorruptData(t *testing.T) {
	m := newMember(t)
	m.start()
	body := strings.NewReader(`{"action": "ACTIVATE", "memberID": 1, "alarm": "CORRUPT"}`)
	answer, err := http.Post(m.client+"/v3/maintenance/alarm", "application/json", body)
	if err != nil {
		t.Fatal(err)
	}
	if err := answer.Body.Close(); err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("raise the alarm: %s %v", answer.Status, err)
	}
	if _, err := m.config.Take(t.Context(), time.Now, quiet()); err == nil ||
		!strings.Contains(err.Error(), "CORRUPT") {
		t.Errorf("a snapshot of corrupt data: %v", err)
	}
}

func TestLoadNamesTheProblem(t *testing.T) {
	good := Config{Members: "missing", Domain: "d", Endpoint: "e", Programs: "p", Dir: "d", Keep: 1}
	for name, test := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"keep":    {func(c *Config) { c.Keep = 0 }, "keep is 0"},
		"domain":  {func(c *Config) { c.Domain = "" }, "domain is empty"},
		"members": {func(*Config) {}, "missing"},
	} {
		t.Run(name, func(t *testing.T) {
			config := good
			test.change(&config)
			if _, err := Load(write(t, filepath.Join(t.TempDir(), "snapshots.json"), config)); err == nil ||
				!strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}
