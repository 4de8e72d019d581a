// Package workspace holds what the commands that build have in common: the repository that they work in, and one build
// at a time.
package workspace

import (
	"context"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"kubernetes-release/release/components"
)

// Root is the repository that a command works in, set by its flag --root.
type Root struct{ dir string }

// AddFlag adds --root to a command and its subcommands.
func (r *Root) AddFlag(command *cobra.Command) {
	command.PersistentFlags().StringVar(&r.dir, "root", ".", "root `directory` of the repository")
	_ = command.MarkPersistentFlagDirname("root") // fails for an unknown flag only
}

// Path returns the repository as an absolute path without symbolic links.
func (r *Root) Path() (string, error) {
	absolute, err := filepath.Abs(r.dir)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(absolute)
}

// Locked returns what a command runs: build, with the path of the repository, while no other process builds in output,
// a directory below the repository.
func (r *Root) Locked(
	output string, build func(ctx context.Context, root string, arguments []string) error,
) func(*cobra.Command, []string) error {
	return func(command *cobra.Command, arguments []string) error {
		root, err := r.Path()
		if err != nil {
			return err
		}
		unlock, err := components.Lock(command.Context(), filepath.Join(root, output), os.Stdout)
		if err != nil {
			return err
		}
		defer unlock()
		return build(command.Context(), root, arguments)
	}
}
