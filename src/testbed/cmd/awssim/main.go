// Command awssim simulates the parts of AWS that a Kubernetes cluster on BOSH uses; see package awssim.
package main

import (
	"github.com/spf13/cobra"

	"kubernetes-release/internal/cli"
)

func main() { cli.Main(rootCommand()) }

func rootCommand() *cobra.Command {
	root := &cobra.Command{Use: "awssim", Short: "Simulate the parts of AWS that a Kubernetes cluster on BOSH uses"}
	root.AddCommand(serveCommand(), worldCommand())
	return root
}
