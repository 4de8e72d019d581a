package main

import (
	"log/slog"

	"github.com/spf13/cobra"

	"kubernetes-release/internal/boshdns"
)

func checkAlias() *cobra.Command {
	command := &cobra.Command{
		Use:   "check-alias",
		Short: "Fail if the name of the API leads to VMs of a deployment that has had it for longer",
	}
	records := command.Flags().String(
		"records", "/var/vcap/instance/dns/records.json", "`PATH` of what the Director tells of instances",
	)
	name := command.Flags().String("name", "", "host `NAME` of the API")
	deployment := command.Flags().String("deployment", "", "`NAME` of this deployment")
	require(command, "name", "deployment")
	command.RunE = func(*cobra.Command, []string) error {
		return boshdns.CheckAlias(*records, *name, *deployment, slog.Default())
	}
	return command
}
