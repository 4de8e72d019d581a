// Package filelock lets one process at a time do something. The kernel releases a lock when its holder ends, however it
// ends.
package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gofrs/flock"
)

// HeldError says who holds a lock that could not be had in time.
type HeldError struct {
	Path string
	// Holder is what the holder wrote into the file; empty if nothing.
	Holder string
	Err    error
}

func (e *HeldError) Error() string {
	if e.Holder == "" {
		return fmt.Sprintf("lock %s is held by another process: %v", e.Path, e.Err)
	}
	return fmt.Sprintf("lock %s is held by %s: %v", e.Path, e.Holder, e.Err)
}

func (e *HeldError) Unwrap() error { return e.Err }

// Acquire waits for the lock on a file until ctx ends; then the error is a *HeldError. It creates the file with mode
// 0600 if it is missing: who can read a file can lock it, and so keep all others waiting (flock(2)). It writes holder
// into the file, for the errors of others; that this fails, as on a full disk, is no error. waiting, if not nil, is
// called once with the present holder when the lock cannot be had at once.
func Acquire(ctx context.Context, path, holder string, waiting func(holder string)) (release func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	lock := flock.New(path, flock.SetFlag(os.O_CREATE|os.O_RDWR), flock.SetPermissions(0o600))
	locked, err := lock.TryLock()
	if err == nil && !locked {
		if waiting != nil {
			waiting(readHolder(path))
		}
		locked, err = await(ctx, lock)
	}
	switch {
	case ctx.Err() != nil && !locked && errors.Is(err, ctx.Err()):
		return nil, &HeldError{Path: path, Holder: readHolder(path), Err: context.Cause(ctx)}
	case err != nil:
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	_ = os.WriteFile(path, []byte(holder+"\n"), 0o600)
	return func() { _ = lock.Unlock() }, nil
}

// await blocks in the kernel: many that look again and again keep a VM busy that has no processor time to spare.
func await(ctx context.Context, lock *flock.Flock) (locked bool, err error) {
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	result := make(chan error, 1)
	go func() { result <- lock.Lock() }()
	select {
	case err := <-result:
		return err == nil, err
	case <-ctx.Done():
		go func() {
			if <-result == nil {
				_ = lock.Unlock()
			}
		}()
		return false, ctx.Err()
	}
}

func readHolder(path string) string {
	content, _ := os.ReadFile(path)
	return strings.TrimSpace(string(content))
}
