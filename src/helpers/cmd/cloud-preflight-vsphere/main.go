// Cloud-preflight-vsphere asks vCenter for cloud-preflight. It is a program of its own, in a package that only VMs of
// vSphere unpack, because VMware's library is larger than all else that cloud-preflight consists of.
package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"kubernetes-release/cloud/vsphere"
	"kubernetes-release/cloud/vsphere/vcenter"
	"kubernetes-release/internal/cli"
	"kubernetes-release/internal/logging"
	"kubernetes-release/internal/strictjson"
)

func main() { cli.Main(newCommand()) }

func newCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "cloud-preflight-vsphere",
		Short: "Ask vCenter what the checks of cloud-preflight require",
		Long: `Ask vCenter what the checks of cloud-preflight require.

The program cloud-preflight starts it, writes a question to its standard input, and reads the results from its
standard output, both as JSON.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			content, err := io.ReadAll(command.InOrStdin())
			if err != nil {
				return fmt.Errorf("read the question: %w", err)
			}
			var question vsphere.Question
			if err := strictjson.Unmarshal(content, &question); err != nil {
				return fmt.Errorf("question: %w", err)
			}
			log := logging.New(command.ErrOrStderr())
			outcome := vcenter.Runner{}.Run(command.Context(), question, log)
			return json.NewEncoder(command.OutOrStdout()).Encode(outcome)
		},
	}
}
