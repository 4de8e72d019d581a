package components

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Lock waits until no other process builds in the same output folder, and keeps others out until the result is
// called. The kernel gives the lock back when a process dies, however it dies.
func Lock(ctx context.Context, output string, out io.Writer) (unlock func(), err error) {
	if err := os.MkdirAll(output, 0o755); err != nil {
		return nil, err
	}
	path := filepath.Join(output, "lock")
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	begun, said := time.Now(), time.Time{}
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
		}
		if time.Since(said) > 15*time.Second {
			said = time.Now()
			holder, _ := os.ReadFile(path)
			_, _ = fmt.Fprintf(out, "another build (process %s) is at work in %s; waiting, %s so far\n",
				strings.TrimSpace(string(holder)), output, Took(time.Since(begun)))
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("wait for the build that holds %s: %w", path, ctx.Err()), file.Close())
		case <-time.After(200 * time.Millisecond):
		}
	}
	if err := errors.Join(file.Truncate(0), writeAt(file, fmt.Sprintln(os.Getpid()))); err != nil {
		return nil, errors.Join(fmt.Errorf("write %s: %w", path, err), file.Close())
	}
	return func() { _ = file.Close() }, nil
}

func writeAt(file *os.File, text string) error {
	_, err := file.WriteAt([]byte(text), 0)
	return err
}
