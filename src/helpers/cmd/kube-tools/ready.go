package main

import (
	"errors"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"kubernetes-release/internal/readywait"
)

func waitReady() *cobra.Command {
	command := &cobra.Command{
		Use:   "wait-ready",
		Short: "Wait until a check succeeds, unless too few etcd members run for a quorum",
		Long: `Run a check every second until it succeeds. While half or more of the etcd members do not accept
connections on port ` + readywait.EtcdPeerPort + `, no quorum is possible: after three such rounds the command stops
waiting and exits with status 0, so that a deploy creates the other VMs.`,
	}
	check := requirePath(command, "check", "program that exits with status 0 when the job is ready")
	members := etcdMembersFlag(command)
	timeout := command.Flags().Duration("timeout", 10*time.Minute, "how long to wait; 0s is not at all")
	command.RunE = func(command *cobra.Command, _ []string) error {
		addresses, err := members()
		if err != nil {
			return err
		}
		return readywait.Wait(
			command.Context(), readywait.Options{Check: *check, Members: addresses, Timeout: *timeout},
			command.OutOrStdout(),
		)
	}
	return command
}

// etcdMembersFlag adds a flag for the hosts of etcd's members and returns a function that reads their addresses.
func etcdMembersFlag(command *cobra.Command) func() ([]string, error) {
	path := command.Flags().
		String("etcd-members", "", "JSON `FILE` with a list of the hosts of etcd's members, a job's "+
			"config/etcd_members.json. Without a quorum of them the command does not wait")
	return func() ([]string, error) { return readywait.LoadMembers(*path) }
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
