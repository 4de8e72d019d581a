package main

import (
	"net/netip"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"kubernetes-release/internal/cli"
	"kubernetes-release/testbed/awssim"
)

func worldCommand() *cobra.Command {
	var network, cluster string
	command := &cobra.Command{
		Use: "world", Short: "Print the lab's world as YAML, a starting point for a world file",
		RunE: func(command *cobra.Command, _ []string) error {
			prefix, err := netip.ParsePrefix(network)
			if err != nil || !prefix.Addr().Is4() || prefix.Bits() != 16 || prefix != prefix.Masked() {
				return cli.Usagef("--network %q: must be an IPv4 /16 such as 10.7.0.0/16", network)
			}
			text, err := yaml.Marshal(awssim.NewLabWorld(awssim.LabOptions{Network: prefix, Cluster: cluster}))
			if err != nil {
				return err
			}
			_, err = command.OutOrStdout().Write(text)
			return err
		},
	}
	command.Flags().StringVar(&network, "network", "10.0.0.0/16", "the VPC's `CIDR`, an IPv4 /16")
	command.Flags().
		StringVar(&cluster, "cluster", "kubernetes", "cluster `name` for the tags of subnets and security group; "+
			"empty for no tags")
	return command
}
