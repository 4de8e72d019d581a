package etcdmembers

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
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
