package main

import (
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"kubernetes-release/flannel"
	"kubernetes-release/node"
	"kubernetes-release/nodeobject"
)

// networkTimeout is for a VM that has joined already.
const networkTimeout = 10 * time.Minute

func prepareFlannel() *cobra.Command {
	command := &cobra.Command{
		Use:   "prepare-flannel",
		Short: "Create flannel's device, and wait until flannel may announce it",
		Long: "Create flannel's device, with a MAC address for this VM, and wait until the VM of this Node is known " +
			"and the Node has a pod subnet. Without a pod subnet flannel would end, and be started again in monit's " +
			"next cycle; before the VM is known an admission policy refuses what flannel announces, and flannel " +
			"would try again after three seconds.",
	}
	path := requirePath(command, "node", nodeUsage)
	settings := requirePath(command, "config", "flannel's configuration, config/net-conf.json of the job flannel")
	kubeconfig := requirePath(command, "kubeconfig", "kubelet's kubeconfig")
	command.RunE = func(command *cobra.Command, _ []string) error {
		identity, err := node.Load(*path)
		if err != nil {
			return err
		}
		config, err := flannel.Load(*settings)
		if err != nil {
			return err
		}
		address, err := netip.ParseAddr(identity.Address)
		if err != nil {
			return fmt.Errorf("address of the VM: %w", err)
		}
		if err := flannel.Prepare(config, address); err != nil {
			return err
		}
		return nodeobject.WaitNetwork(command.Context(), nodeobject.Options{
			Kubeconfig: *kubeconfig, Name: identity.Name, Timeout: networkTimeout,
		}, slog.Default())
	}
	return command
}
