package main

import (
	"github.com/spf13/cobra"

	"kubernetes-release/node/ipset"
)

func ipSet() *cobra.Command {
	return &cobra.Command{
		Use:   "ipset -- COMMAND [ARGUMENT...]",
		Short: "Read and write the kernel's sets of addresses, as network-policy does",
		Long: `The part of ipset(8) that the job network-policy runs: save writes all sets in ipset's format to
standard output, restore runs the commands create, destroy, flush, swap and add from standard input, which can also
be given as arguments.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(command *cobra.Command, arguments []string) error {
			return ipset.Run(arguments, command.InOrStdin(), command.OutOrStdout())
		},
	}
}
