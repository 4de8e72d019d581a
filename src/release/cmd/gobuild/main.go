// Command gobuild builds programs of our own for this machine and shows how far it is.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"kubernetes-release/internal/cli"
	"kubernetes-release/release/components"
)

func main() {
	cli.Main(&cobra.Command{
		Use:   "gobuild STEP OUTPUT PACKAGE...",
		Short: "Build programs of this module for this machine",
		Long: "Build programs of the module in the working directory. STEP names what is done in progress lines, " +
			"OUTPUT is the folder for the programs.",
		Args: cobra.MinimumNArgs(3),
		RunE: func(command *cobra.Command, arguments []string) error {
			return components.Programs{
				Step:     arguments[0],
				Output:   arguments[1],
				Packages: arguments[2:],
				Source:   ".",
			}.Build(command.Context(), os.Stdout)
		},
	})
}
