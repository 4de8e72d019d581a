package workspace

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"
)

func TestLockedBuildsInTheRepository(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	var root Root
	var got []string
	command := &cobra.Command{
		Use:  "build",
		Args: cobra.ArbitraryArgs,
		RunE: root.Locked("out", func(_ context.Context, path string, arguments []string) error {
			got = append([]string{path}, arguments...)
			return nil
		}),
	}
	root.AddFlag(command)
	command.SetArgs([]string{"--root", link, "etcd"})
	if err := command.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0] != dir || got[1] != "etcd" {
		t.Errorf("got %q, want %s and etcd", got, dir)
	}
	if _, err := os.Stat(filepath.Join(dir, "out", "lock")); err != nil {
		t.Errorf("the output folder is not locked: %v", err)
	}
}
