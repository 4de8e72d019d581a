package main

import (
	"log/slog"

	"github.com/spf13/cobra"

	"kubernetes-release/control/nodes/labeler"
	"kubernetes-release/internal/kubeconfig"
	"kubernetes-release/node"
)

func keepNodeLabels() *cobra.Command {
	command := &cobra.Command{
		Use:   "keep-node-labels",
		Short: "Keep labels on this VM's Node until stopped",
	}
	path := requirePath(command, "kubeconfig", "kubeconfig of the identity that labels")
	file := requirePath(command, "node", nodeUsage)
	labels := command.Flags().
		StringToString("label", nil, "NAME=VALUE of a label; repeat it or separate them with commas")
	require(command, "label")
	command.RunE = func(command *cobra.Command, _ []string) error {
		identity, err := node.Load(*file)
		if err != nil {
			return err
		}
		client, err := kubeconfig.Client(*path)
		if err != nil {
			return err
		}
		return labeler.Keep(command.Context(), client, identity.Name, *labels, slog.Default())
	}
	return command
}
