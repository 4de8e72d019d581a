package members

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"
)

// TestNoEmptyClusterAfterAnInterruptedRestore: the other instances would discard their data for it.
func TestNoEmptyClusterAfterAnInterruptedRestore(t *testing.T) {
	b := newBench(t)
	b.config.self().Bootstrap = true
	aside := filepath.Join(b.config.DataDir, BeforeRestore)
	if err := os.Mkdir(aside, 0o700); err != nil {
		t.Fatal(err)
	}
	steps := map[string]func() error{
		"prepare": func() error { return b.config.Prepare(t.Context(), quiet()) },
		"join":    func() error { return b.config.Join(t.Context(), nil, quiet()) },
	}
	for _, step := range steps {
		fails(t, step(), "the restore of a snapshot was interrupted")
	}
	b.hasData() // a restore that was completed
	for _, step := range steps {
		passes(t, step())
	}
	if err := errors.Join(os.RemoveAll(b.config.WALDir), os.Remove(aside)); err != nil {
		t.Fatal(err)
	}
	for _, step := range steps {
		passes(t, step())
	}
}

// TestNoEmptyClusterBesideADatabase: the write-ahead log is in another directory, since wal-dir was changed. What an
// interrupted first start leaves is no reason to refuse.
func TestNoEmptyClusterBesideADatabase(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(*bbolt.Tx) error // of an empty database; nil leaves an empty file
		refused bool
	}{
		"a member has run": {func(tx *bbolt.Tx) error {
			members, err := tx.CreateBucket([]byte("members"))
			return errors.Join(err, members.Put([]byte("1"), []byte("{}")))
		}, true},
		"killed while the file was created": {nil, false},
		"killed before there was a log": {func(tx *bbolt.Tx) error {
			_, err := tx.CreateBucket([]byte("meta"))
			return err
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.config.self().Bootstrap = true
			path := filepath.Join(b.config.DataDir, "member", "snap", "db")
			if err := errors.Join(
				os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600),
			); err != nil {
				t.Fatal(err)
			}
			if test.change != nil {
				db, err := bbolt.Open(path, 0o600, nil)
				if err != nil {
					t.Fatal(err)
				}
				if err := errors.Join(db.Update(test.change), db.Close()); err != nil {
					t.Fatal(err)
				}
			}
			for _, step := range []func() error{
				func() error { return b.config.Prepare(t.Context(), quiet()) },
				func() error { return b.config.Join(t.Context(), nil, quiet()) },
			} {
				if test.refused {
					fails(t, step(), "the database of a member, but not its write-ahead log", path, "wal-dir")
				} else {
					passes(t, step())
				}
			}
			b.hasData()
			passes(t, b.config.Prepare(t.Context(), quiet()))
		})
	}
}
