// Cloud-preflight runs on a machine before anything of the cluster starts: it determines the identity of the machine in
// its cloud, and checks what the cluster requires there, which changes nothing in the cloud. Where an operator works,
// its command account prepares the cloud.
package main

import (
	"github.com/spf13/cobra"

	"kubernetes-release/cloud"
	"kubernetes-release/cloud/providers"
	"kubernetes-release/internal/cli"
)

func main() {
	cli.Main(newCommand(providers.All()))
}

// newCommand returns the program for the given cloud providers.
func newCommand(registry *cloud.Registry) *cobra.Command {
	root := newCheckCommand(registry)
	root.AddCommand(newPolicyCommand(), newAccountCommand(), newListCommand(registry))
	return root
}
