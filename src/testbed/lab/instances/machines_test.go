package instances

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kubernetes-release/internal/atomicfile"
)

func TestLogFilesAreSortedByTime(t *testing.T) {
	root := t.TempDir()
	for n, name := range []string{"b/late.log", "a/early.log", "a/empty.log"} {
		path := filepath.Join(root, name)
		if err := atomicfile.Write(path, bytes.Repeat([]byte("x\n"), 2-n%3), 0o644); err != nil {
			t.Fatal(err)
		}
		stamp := time.Unix(int64(1000-n), 0)
		if err := os.Chtimes(path, stamp, stamp); err != nil {
			t.Fatal(err)
		}
	}
	for job, want := range map[string]string{"": "a/early.log b/late.log", "a": "a/early.log", "none": ""} {
		got, err := logFiles(root, job)
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("job %q: got %v, %v; want %s", job, got, err, want)
		}
	}
}
