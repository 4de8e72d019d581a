package main

import (
	"log/slog"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"kubernetes-release/control/etcd/members"
	"kubernetes-release/control/etcd/snapshot"
)

func etcdMaintenance() *cobra.Command {
	command := &cobra.Command{
		Use:   "etcd-maintenance",
		Short: "Take snapshots of etcd and defragment its members",
	}
	command.AddCommand(maintainEtcd(), makeEtcdSpace())
	return command
}

func maintainEtcd() *cobra.Command {
	command := &cobra.Command{
		Use: "run", Args: cobra.NoArgs,
		Short: "Take snapshots on a schedule, and defragment members whenever that is worth it, until stopped",
	}
	path := requirePath(
		command, "config", "JSON file that says where snapshots are, config/snapshots.json of the job etcd",
	)
	defragment := command.Flags().Bool("defragment", true, "defragment members")
	command.RunE = func(command *cobra.Command, _ []string) error {
		config, err := snapshot.Load(*path)
		if err != nil {
			return err
		}
		var tasks errgroup.Group
		if config.Interval > 0 {
			tasks.Go(func() error { return config.Run(command.Context(), time.Now, slog.Default()) })
		}
		if *defragment {
			tasks.Go(func() error { return config.Cluster().KeepDefragmented(command.Context(), slog.Default()) })
		}
		return tasks.Wait()
	}
	return command
}

func makeEtcdSpace() *cobra.Command {
	return etcdStep(
		"make-space",
		"Remove old revisions, defragment all members, and clear the alarm with which etcd refuses writes",
		(*members.Config).MakeSpace,
	)
}
