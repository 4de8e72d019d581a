package main

import (
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	"kubernetes-release/node"
	"kubernetes-release/vxlan"
)

func prepareVXLAN() *cobra.Command {
	command := &cobra.Command{
		Use:   "prepare-vxlan",
		Short: "Create flannel's device, with a MAC address that follows from this VM's address",
	}
	path := requirePath(command, "node", nodeUsage)
	settings := requirePath(command, "config", "flannel's configuration, config/net-conf.json of the job flannel")
	command.RunE = func(*cobra.Command, []string) error {
		identity, err := node.Load(*path)
		if err != nil {
			return err
		}
		config, err := vxlan.Load(*settings)
		if err != nil {
			return err
		}
		address, err := netip.ParseAddr(identity.Address)
		if err != nil {
			return fmt.Errorf("address of the VM: %w", err)
		}
		return vxlan.Prepare(config, address)
	}
	return command
}
