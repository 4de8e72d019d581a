package main

import (
	"log/slog"

	"github.com/spf13/cobra"

	"kubernetes-release/node/firewall"
)

func keepFirewall() *cobra.Command {
	command := &cobra.Command{
		Use:   "keep-firewall",
		Short: "Keep the rules of nftables that protect this node from its pods and users, until stopped",
	}
	path := requirePath(command, "config", "configuration, config/firewall.json of the job node-firewall")
	command.RunE = func(command *cobra.Command, _ []string) error {
		config, err := firewall.Load(*path)
		if err != nil {
			return err
		}
		rules, err := firewall.New(config, slog.Default())
		if err != nil {
			return err
		}
		return rules.Keep(command.Context())
	}
	return command
}
