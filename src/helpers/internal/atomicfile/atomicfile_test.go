package atomicfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

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
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != want.content || info.Mode() != want.mode {
			t.Errorf("got %q with mode %s, want %q with %s", got, info.Mode(), want.content, want.mode)
		}
	}
}

func TestFailureKeepsTheOldFileAndLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := Write(path, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("the disk is full")
	err := WriteFrom(path, 0o644, func(w io.Writer) error {
		if _, err := io.WriteString(w, "half of the n"); err != nil {
			t.Fatal(err)
		}
		return broken
	})
	if !errors.Is(err, broken) {
		t.Errorf("got error %v, want %v", err, broken)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "old" {
		t.Errorf("got %q, %v; want the old content", got, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("got %v, %v; want the one file", entries, err)
	}
}
