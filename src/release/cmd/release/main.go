// Command release builds the BOSH release and what it is made of.
package main

import (
	"context"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"kubernetes-release/internal/cli"
	"kubernetes-release/release/boshrelease"
	"kubernetes-release/release/vulnerabilities"
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
	command.AddCommand(lookForVulnerabilities())
	cli.Main(command)
}

// lookForVulnerabilities returns the command that looks into a tarball.
func lookForVulnerabilities() *cobra.Command {
	var database, accepted string
	command := &cobra.Command{
		Use:   "vulnerabilities TARBALL",
		Short: "List what is known of the modules in the programs of a release",
		Long:  "List what is known of the modules in the programs of a release. What is not accepted is an error.",
		Args:  cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			list, err := vulnerabilities.ReadAccepted(accepted)
			if err != nil {
				return err
			}
			report, err := vulnerabilities.Look(command.Context(), arguments[0], database)
			if err != nil {
				return err
			}
			return report.Write(os.Stdout, list)
		},
	}
	command.Flags().StringVar(
		&database, "database", "https://vuln.go.dev", "`URL` of a Go vulnerability database; also file:///FOLDER",
	)
	command.Flags().StringVar(
		&accepted, "accepted", filepath.Join("config", "vulnerabilities.yml"), "`file` with what is accepted",
	)
	return command
}
