package main

import (
	"log/slog"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"kubernetes-release/cloud"
	"kubernetes-release/cloud/providers"
	"kubernetes-release/internal/cli"
	"kubernetes-release/node/termination"
)

func handleInterruptions() *cobra.Command {
	command := &cobra.Command{
		Use:   "handle-interruptions",
		Short: "Drain this VM's node before the cloud takes the VM away, until stopped",
	}
	provider := command.Flags().String("provider", "", "cloud that announces interruptions")
	config := requirePath(command, "kubeconfig", "kubelet's kubeconfig, which may appear later")
	path := requirePath(command, "node", nodeUsage)
	marker := requirePath(command, "marker", "file that says for which interruption the node was drained")
	lead := command.Flags().Duration("maintenance-lead", 0, "how long before maintenance to drain; 0s does not drain")
	risk := command.Flags().Bool("drain-at-risk", false, "also drain when the cloud recommends to replace the VM")
	require(command, "provider", "maintenance-lead")
	command.RunE = func(command *cobra.Command, _ []string) error {
		i, ok := providers.All().Get(*provider).(cloud.Interrupter)
		if !ok {
			return cli.Usagef("--provider is %q, a cloud whose interruptions are not known", *provider)
		}
		termination.New(termination.Options{
			Announced: i.Interruptions,
			Node: termination.KubernetesNode{
				Connect: func() (kubernetes.Interface, string, error) { return nodeClient(*config, *path) },
				Clock:   clock.RealClock{},
				Log:     slog.Default(),
			},
			Marker:      *marker,
			Lead:        *lead,
			DrainAtRisk: *risk,
			Clock:       clock.RealClock{},
			Log:         slog.Default(),
		}).Run(command.Context())
		return nil
	}
	return command
}
