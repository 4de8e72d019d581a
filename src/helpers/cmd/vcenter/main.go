// Vcenter asks vCenter for other programs of a control VM. It is a program of its own, in a package that only VMs of
// vSphere unpack, because VMware's library is larger than all else that these programs consist of.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"kubernetes-release/cloud"
	"kubernetes-release/cloud/vsphere"
	"kubernetes-release/cloud/vsphere/vcenter"
	"kubernetes-release/internal/cli"
	"kubernetes-release/internal/logging"
	"kubernetes-release/internal/strictjson"
)

func main() { cli.Main(newCommand()) }

func newCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "vcenter",
		Short: "Ask vCenter",
		Long: `Ask vCenter.

Other programs start it. Each command reads a question from its standard input, and writes the answer to its
standard output, both as JSON.`,
	}
	command.AddCommand(
		answering(vsphere.CheckCommand, "Run the checks of cloud-preflight that ask vCenter",
			func(ctx context.Context, question vsphere.Question, log *slog.Logger) (*cloud.Outcome, error) {
				return vcenter.Runner{}.Run(ctx, question, log), nil
			}),
		answering(vsphere.LocateCommand, "Find the VM of an instance of BOSH", vcenter.Locate),
	)
	return command
}

// answering returns a command that answers one question.
func answering[Q, A any](
	name, short string, answer func(context.Context, Q, *slog.Logger) (A, error),
) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: short, Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			content, err := io.ReadAll(command.InOrStdin())
			if err != nil {
				return fmt.Errorf("read the question: %w", err)
			}
			var question Q
			if err := strictjson.Unmarshal(content, &question); err != nil {
				return fmt.Errorf("question: %w", err)
			}
			reply, err := answer(command.Context(), question, logging.New(command.ErrOrStderr()))
			if err != nil {
				return err
			}
			return json.NewEncoder(command.OutOrStdout()).Encode(reply)
		},
	}
}
