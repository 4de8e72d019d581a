package runner

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"kubernetes-release/internal/bosh"
)

// TestLogsOfAJobAreRoots: the agent opens logs beside preflight.log as root, where vcap could put links.
func TestLogsOfAJobAreRoots(t *testing.T) {
	root := t.TempDir()
	for dir, want := range map[string]fs.FileMode{
		"sys/log/cloud-provider": 0o750, "elsewhere/log/cloud-provider": 0o770,
	} {
		dir = filepath.Join(root, dir)
		if err := os.MkdirAll(dir, 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o770); err != nil { //nolint:gosec // as the agent has it
			t.Fatal(err)
		}
		path := filepath.Join(dir, "preflight.log")
		options := Options{Output: Output{Stderr: io.Discard}, Log: path, Root: bosh.Root(root)}
		if _, closeLog, err := options.openLog(); err != nil {
			t.Errorf("%s: %v", dir, err)
		} else {
			closeLog()
		}
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has mode %v (%v), want %o", dir, info.Mode(), err, want)
		}
	}
}
