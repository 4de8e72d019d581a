// Command components builds the upstream projects that the release ships.
package main

import (
	"context"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"kubernetes-release/internal/cli"
	"kubernetes-release/release/components"
	"kubernetes-release/release/workspace"
)

func main() {
	var root workspace.Root
	command := &cobra.Command{
		Use:   "components [NAME...]",
		Short: "Build the upstream projects that the release ships",
		Long: "Build the named components, or all, from src/components into .build/components/NAME/bin. " +
			"Components that are up to date are skipped.",
		Args:      cli.KnownArgs,
		ValidArgs: components.Names(),
		RunE:      root.Locked(".build/components", build),
	}
	root.AddFlag(command)
	cli.Main(command)
}

func build(ctx context.Context, root string, names []string) error {
	builder := components.Builder{
		Source: filepath.Join(root, "src/components"),
		Output: filepath.Join(root, ".build/components"),
		Log:    os.Stdout,
	}
	return builder.Build(ctx, components.Named(names...))
}
