package main

import (
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/spf13/cobra"

	"kubernetes-release/readywait"
)

// etcdPeerPort is the port at which etcd's members listen for each other.
const etcdPeerPort = "2380"

func waitReady() *cobra.Command {
	command := &cobra.Command{
		Use:   "wait-ready",
		Short: "Wait until a check succeeds, unless too few etcd members run for a quorum",
		Long: `Run a check every second until it succeeds. While half or more of the etcd members do not accept
connections on port ` + etcdPeerPort + `, no quorum is possible: after three such rounds the command stops waiting
and exits with status 0, so that a deploy creates the other VMs.`,
	}
	check := requirePath(command, "check", "program that exits with status 0 when the job is ready")
	members := etcdMembersFlag(command)
	timeout := timeoutFlag(command, 10*time.Minute, "how long to wait")
	command.RunE = func(command *cobra.Command, _ []string) error {
		return readywait.Wait(
			command.Context(), readywait.Options{Check: *check, Members: members(), Timeout: *timeout},
			command.OutOrStdout(),
		)
	}
	return command
}

// etcdMembersFlag adds a flag for the hosts of etcd's members and returns a function that returns their addresses.
func etcdMembersFlag(command *cobra.Command) func() []string {
	hosts := command.Flags().
		StringArray("etcd-member", nil, "host name or address of an etcd member; repeat it for each member. Without "+
			"a quorum of them the command does not wait")
	return func() []string {
		var addresses []string
		for _, host := range *hosts {
			addresses = append(addresses, net.JoinHostPort(host, etcdPeerPort))
		}
		return addresses
	}
}

// noQuorumIsNoError logs the end of a wait because etcd has no quorum, as on the first VMs of a new cluster.
func noQuorumIsNoError(err error) error {
	var none *readywait.NoQuorumError
	if errors.As(err, &none) {
		slog.Info("not waiting", "reason", none)
		return nil
	}
	return err
}
