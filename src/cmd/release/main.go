// Command release builds the BOSH release and what it is made of.
package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"kubernetes-release/internal/cli"
	"kubernetes-release/release/boshrelease"
	"kubernetes-release/release/workspace"
)

func main() {
	var root workspace.Root
	command := &cobra.Command{
		Use: "release", Short: "Build the BOSH release and what it is made of",
		Long: "Build the BOSH release and what it is made of. The command components builds the upstream projects first.\nWhat is up to date is skipped.",
	}
	root.AddFlag(command)
	for _, step := range []struct {
		name, short string
		build       func(boshrelease.Builder, context.Context) error
	}{
		{"helpers", "Build our programs that jobs run, into .build/helpers/bin", boshrelease.Builder.BuildHelpers},
		{"images", "Write the container images, into .build/images", boshrelease.Builder.BuildImages},
		{"tarball", "Write the dev release, .build/release/NAME.tgz", boshrelease.Builder.BuildTarball},
	} {
		run := func(ctx context.Context, root string, _ []string) error {
			return step.build(boshrelease.Builder{Root: root, Log: os.Stdout}, ctx)
		}
		command.AddCommand(&cobra.Command{Use: step.name, Short: step.short, RunE: root.Locked(".build", run)})
	}
	cli.Main(command)
}
