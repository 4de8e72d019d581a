package main

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"

	"kubernetes-release/helpers/csrapproval"
	"kubernetes-release/helpers/kubeconfig"
)

func approveKubeletCSRs() *cobra.Command {
	command := &cobra.Command{
		Use:   "approve-kubelet-csrs",
		Short: "Approve the serving certificates of kubelets until stopped",
	}
	path := requirePath(command, "kubeconfig", "kubeconfig of the identity that approves")
	command.RunE = func(command *cobra.Command, _ []string) error {
		hostname, err := os.Hostname()
		if err != nil {
			return err
		}
		config, err := kubeconfig.Load(*path)
		if err != nil {
			return err
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		// The random part is needed: in containers, two VMs may have the same host name, and both would lead.
		identity := fmt.Sprintf("%s_%s", hostname, uuid.NewUUID())
		return csrapproval.RunElected(command.Context(), client, identity, slog.Default())
	}
	return command
}
