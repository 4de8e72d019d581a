package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubernetes-release/node"
	"kubernetes-release/node/flannel"
	"kubernetes-release/node/object"
)

// networkTimeout is for a VM that has joined already.
const networkTimeout = 10 * time.Minute

func prepareFlannel() *cobra.Command {
	command := &cobra.Command{
		Use:   "prepare-flannel",
		Short: "Create flannel's device, and wait until flannel may announce the node's pod network",
		Long: "With the backend vxlan, create flannel's device, with a MAC address for this VM, and switch its TX " +
			"checksum offload. Wait until the VM of this Node is known and the Node has a pod subnet. Without a pod " +
			"subnet flannel would end, and be started again in monit's next cycle; before the VM is known an " +
			"admission policy refuses what flannel announces, and flannel would try again after three seconds. With " +
			"the backend host-gw, then check that all nodes are in one subnet.",
	}
	path := requirePath(command, "node", nodeUsage)
	settings := requirePath(command, "config", "flannel's configuration, config/net-conf.json of the job flannel")
	kubeconfig := requirePath(command, "kubeconfig", "kubelet's kubeconfig")
	offload := command.Flags().Bool("tx-checksum-offload", true, "whether the device leaves checksums to interfaces")
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
		if err := flannel.Prepare(config, address, *offload); err != nil {
			return err
		}
		own := object.Options{Kubeconfig: *kubeconfig, Name: identity.Name, Timeout: networkTimeout}
		if err := object.WaitNetwork(command.Context(), own, slog.Default()); err != nil {
			return err
		}
		if config.Backend.Type != flannel.HostGW {
			return nil
		}
		return checkNeighbors(command.Context(), own, address)
	}
	return command
}

func checkNeighbors(ctx context.Context, own object.Options, address netip.Addr) error {
	client, err := own.Client()
	if err != nil {
		return err
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list the Nodes, to check that all are in one subnet: %w", err)
	}
	return flannel.CheckNeighbors(nodes.Items, own.Name, address)
}
