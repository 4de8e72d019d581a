package main

import (
	"github.com/spf13/cobra"

	"kubernetes-release/control/corefile"
)

func checkCorefile() *cobra.Command {
	command := &cobra.Command{
		Use:   "check-corefile",
		Short: "Fail if CoreDNS refuses the Corefile of a manifest",
	}
	manifest := requirePath(command, "manifest", "YAML file with the ConfigMap coredns")
	image := requirePath(command, "image", "OCI archive of CoreDNS's image")
	command.RunE = func(command *cobra.Command, _ []string) error {
		return corefile.Check(command.Context(), *manifest, *image)
	}
	return command
}
