// Command smoke-server runs in the pods of the smoke tests: without arguments as a web server, and with a command by
// exec, so that the tests can resolve names and fetch URLs inside the cluster without a proxy that others could reach.
//
// Its image must hold the statically linked binary as /smoke-server and run it as its entry point. It requires no other
// file and no privilege.
package main

import (
	"log/slog"
	"net"
	"os"

	"github.com/spf13/cobra"

	"kubernetes-release/internal/cli"
	"kubernetes-release/internal/logging"
)

func main() {
	slog.SetDefault(logging.New(os.Stderr))
	cli.Main(newCommand())
}

func newCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "smoke-server",
		Short: "Serve HTTP on " + address + "; the response is the host name, which in a pod is the pod's name",
		RunE: func(command *cobra.Command, _ []string) error {
			listener, err := net.Listen("tcp", address)
			if err != nil {
				return err
			}
			return serve(command.Context(), listener, lingerTime)
		},
	}
	root.AddCommand(resolve(), get(), hostname(), store(), show())
	return root
}
