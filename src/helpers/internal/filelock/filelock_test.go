package filelock

import (
	"context"
	"errors"
	"path/filepath"
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

func TestFolderInTheWay(t *testing.T) {
	if _, err := Acquire(t.Context(), t.TempDir(), "me", nil); err == nil {
		t.Error("want an error for a directory")
	}
}
