package main

import (
	"log/slog"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"kubernetes-release/cloud"
	"kubernetes-release/cloud/aws"
	"kubernetes-release/internal/cli"
	"kubernetes-release/interruption"
)

// interrupters are the clouds that announce interruptions.
var interrupters = []cloud.Interrupter{&aws.Provider{}}

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
		for _, i := range interrupters {
			if i.Name() != *provider {
				continue
			}
			return interruption.New(interruption.Options{
				Announced: i.Interruptions,
				Node: interruption.KubernetesNode{
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
		}
		return cli.Usagef("--provider is %q; interruptions are known of aws only", *provider)
	}
	return command
}
