package main

import (
	"net"
	"time"

	"github.com/spf13/cobra"

	"kubernetes-release/helpers/readywait"
)

// etcdPeerPort is the port at which etcd's members listen for each other.
const etcdPeerPort = "2380"

func waitReady() *cobra.Command {
	command := &cobra.Command{
		Use:   "wait-ready",
		Short: "Wait until a check succeeds, unless too few etcd members run for a quorum",
		Long: `Run a check every second until it succeeds. While half or more of the etcd members do not accept connections on
port ` + etcdPeerPort + `, no quorum is possible: after three such rounds the command stops waiting and exits with status 0, so that
a deploy creates the other VMs.`,
	}
	check := requirePath(command, "check", "program that exits with status 0 when the job is ready")
	hosts := command.Flags().StringArray("etcd-member", nil, "host name or address of an etcd member; repeat it for each member")
	timeout := timeoutFlag(command, 10*time.Minute, "how long to wait")
	command.RunE = func(command *cobra.Command, _ []string) error {
		options := readywait.Options{Check: *check, Timeout: *timeout}
		for _, host := range *hosts {
			options.Members = append(options.Members, net.JoinHostPort(host, etcdPeerPort))
		}
		return readywait.Wait(command.Context(), options, command.OutOrStdout())
	}
	return command
}
