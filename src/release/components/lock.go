package components

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"kubernetes-release/internal/filelock"
	"kubernetes-release/release/progress"
)

// Lock waits until no other process builds in the same output folder, and keeps others out until unlock is called.
func Lock(ctx context.Context, output string, out io.Writer) (unlock func(), err error) {
	started, stop := time.Now(), func() {}
	holder := fmt.Sprintf("process %d", os.Getpid())
	unlock, err = filelock.Acquire(ctx, filepath.Join(output, "lock"), holder, func(holder string) {
		report := func(waited time.Duration) {
			_, _ = fmt.Fprintf(
				out, "another build (%s) is running in %s; waiting, %s so far\n", holder, output, progress.Took(waited),
			)
		}
		report(time.Since(started))
		stop = every(heartbeat, report)
	})
	stop()
	return unlock, err
}
