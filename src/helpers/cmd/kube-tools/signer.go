package main

import (
	"log/slog"

	"github.com/spf13/cobra"

	"kubernetes-release/control/nodes/signer"
	"kubernetes-release/internal/kubeconfig"
)

func signKubeletCSRs() *cobra.Command {
	command := &cobra.Command{
		Use:   "sign-kubelet-csrs",
		Short: "Sign the certificates of kubelets that were approved, until stopped",
	}
	path := requirePath(command, "kubeconfig", "kubeconfig of the identity that signs")
	certificate := requirePath(command, "ca-certificate", "certificate of the CA")
	key := requirePath(command, "ca-private-key", "private key of the CA")
	duration := command.Flags().Duration("duration", 0, "how long a certificate is valid at most; required")
	require(command, "duration")
	command.RunE = func(command *cobra.Command, _ []string) error {
		authority, err := signer.LoadAuthority(*certificate, *key, *duration)
		if err != nil {
			return err
		}
		client, err := kubeconfig.Client(*path)
		if err != nil {
			return err
		}
		return signer.Run(command.Context(), client, authority, slog.Default())
	}
	return command
}
