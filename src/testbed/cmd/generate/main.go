// Command generate writes what is generated from specs, rules, the manifest and the tables of cloud providers.
package main

import (
	"github.com/spf13/cobra"

	"kubernetes-release/internal/cli"
	"kubernetes-release/testbed/generate"
)

func main() {
	var root, components string
	write := func(command *cobra.Command, files map[string]string, err error) error {
		if err != nil {
			return err
		}
		return generate.Write(root, files, command.OutOrStdout())
	}
	command := &cobra.Command{
		Use: "generate", Short: "Write what is generated", Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			files, err := generate.Outdated(root)
			return write(command, files, err)
		},
	}
	list := &cobra.Command{
		Use: "list", Short: "Write the list of cloud providers, which the program that generates the rest must have",
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			files, err := generate.OutdatedList(root)
			return write(command, files, err)
		},
	}
	flags := &cobra.Command{
		Use: "flags", Short: "Write the lists of the flags that built programs know", Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			files, err := generate.OutdatedFlags(root, components)
			return write(command, files, err)
		},
	}
	flags.Flags().StringVar(&components, "components", "", "`folder` of built components")
	_ = flags.MarkFlagRequired("components") // fails for an unknown flag only
	command.PersistentFlags().StringVar(&root, "root", "../..", "`folder` of the repository")
	command.AddCommand(list, flags)
	cli.Main(command)
}
