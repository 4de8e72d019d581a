package main

import (
	"github.com/spf13/cobra"

	"kubernetes-release/internal/kubeconfig"
	"kubernetes-release/smoke"
)

func smokeTest() *cobra.Command {
	command := &cobra.Command{
		Use:   "smoke-test",
		Short: "Test a cluster as its users use it",
	}
	path := requirePath(command, "config", "JSON file with the configuration of the tests")
	command.RunE = func(command *cobra.Command, _ []string) error {
		config, err := smoke.LoadConfig(*path)
		if err != nil {
			return err
		}
		restConfig, err := kubeconfig.Load(config.Kubeconfig)
		if err != nil {
			return err
		}
		return smoke.Run(command.Context(), restConfig, config, command.OutOrStdout())
	}
	return command
}
