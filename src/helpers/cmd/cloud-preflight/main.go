// Cloud-preflight runs on a machine before anything of the cluster starts: it determines the identity of the machine in
// its cloud, and checks what the cluster requires there, which changes nothing in the cloud. Where an operator works,
// its command account prepares the cloud.
package main

import (
	"github.com/spf13/cobra"

	"kubernetes-release/cloud"
	"kubernetes-release/cloud/aws"
	"kubernetes-release/internal/cli"
)

func main() {
	cli.Main(newCommand(&aws.Provider{}))
}

// newCommand returns the program for the given cloud providers.
func newCommand(providers ...cloud.Provider) *cobra.Command {
	root := newCheckCommand(cloud.NewRegistry(providers...))
	root.AddCommand(newPolicyCommand(), newAccountCommand(), newListCommand(providers))
	return root
}
