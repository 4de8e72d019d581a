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
		Use:   "release",
		Short: "Build the BOSH release and what it is made of",
		Long: "Build the BOSH release and what it is made of. The command components builds the upstream projects " +
			"first.\nWhat is up to date is skipped.",
	}
	root.AddFlag(command)
	var version string
	check := func(b boshrelease.Builder, ctx context.Context) error { return b.CheckFinal(ctx, version) }
	final := func(b boshrelease.Builder, ctx context.Context) error {
		_, err := b.BuildFinal(ctx, version)
		return err
	}
	for _, step := range []struct {
		name, short string
		versioned   bool
		build       func(boshrelease.Builder, context.Context) error
	}{
		{"helpers", "Build our programs that jobs run, into .build/helpers/bin", false,
			boshrelease.Builder.BuildHelpers},
		{"images", "Write the container images, into .build/images", false, boshrelease.Builder.BuildImages},
		{"tarball", "Write the dev release, .build/release/NAME.tgz", false, boshrelease.Builder.BuildTarball},
		{"blobs", "Write blobs and config/blobs.yml, for bosh create-release", false, boshrelease.Builder.WriteBlobs},
		{"check-final", "Check whether a final release can be built", true, check},
		{"final", "Upload a final release to the blobstore, and write .build/release/NAME-VERSION.tgz", true, final},
	} {
		run := func(ctx context.Context, root string, _ []string) error {
			return step.build(boshrelease.Builder{Root: root, Log: os.Stdout}, ctx)
		}
		child := &cobra.Command{Use: step.name, Short: step.short, RunE: root.Locked(".build", run)}
		if step.versioned {
			child.Flags().StringVar(&version, "version", "", "`version` of the final release, such as 1.2.0")
		}
		command.AddCommand(child)
	}
	cli.Main(command)
}
