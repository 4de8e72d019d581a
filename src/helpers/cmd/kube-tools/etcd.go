package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"kubernetes-release/control/etcd/members"
	"kubernetes-release/launcher"
)

func prepareEtcd() *cobra.Command {
	return etcdStep(
		"prepare-etcd", "Make this VM a member of the etcd cluster, or fail if etcd must not start on it",
		(*members.Config).Prepare,
	)
}

func settleEtcd() *cobra.Command {
	return etcdStep(
		"settle-etcd",
		"Remove etcd members whose VMs no longer exist, and fail if etcd refuses writes for lack of space",
		func(c *members.Config, ctx context.Context, log *slog.Logger) error {
			if err := c.Settle(ctx, log); err != nil {
				return err
			}
			return c.CheckSpace(ctx, log)
		},
	)
}

func checkEtcdSpace() *cobra.Command {
	return etcdStep(
		"check-etcd-space", "Fail if etcd refuses writes because its database has reached its quota",
		(*members.Config).CheckSpace,
	)
}

func leaveEtcd() *cobra.Command {
	return etcdStep(
		"leave-etcd", "Remove this VM from the etcd cluster, or fail if the cluster needs it",
		(*members.Config).Leave,
	)
}

func joinEtcd() *cobra.Command {
	var flags *string
	command := etcdStep(
		"join-etcd", "Run etcd without clients until this VM has a vote in the cluster",
		func(c *members.Config, ctx context.Context, log *slog.Logger) error {
			return c.Join(
				ctx, func(values map[string]string) ([]string, error) { return launcher.CommandLine(*flags, values) },
				log,
			)
		},
	)
	flags = requirePath(command, "flags", "etcd's flags, config/flags.json of the job etcd")
	return command
}

func moveEtcdLeader() *cobra.Command {
	command := &cobra.Command{
		Use:   "move-etcd-leader",
		Short: "Make another etcd member the leader if the one on this VM is",
	}
	path := etcdConfig(command)
	timeout := timeoutFlag(command, 20*time.Second, "how long to try")
	logged(command, "the leadership is not moved", func(ctx context.Context, log *slog.Logger) error {
		ctx, cancel := context.WithTimeoutCause(ctx, *timeout, fmt.Errorf("not done after %s", *timeout))
		defer cancel()
		config, err := members.Load(*path)
		if err != nil {
			return err
		}
		return config.MoveLeader(ctx, log)
	})
	return command
}

func etcdStep(name, short string, step func(*members.Config, context.Context, *slog.Logger) error) *cobra.Command {
	command := &cobra.Command{Use: name, Short: short}
	path := etcdConfig(command)
	command.RunE = func(command *cobra.Command, _ []string) error {
		config, err := members.Load(*path)
		if err != nil {
			return err
		}
		return step(config, command.Context(), slog.Default())
	}
	return command
}

func etcdConfig(command *cobra.Command) *string {
	return requirePath(
		command, "config", "JSON file with this instance and all instances of the deployment that run etcd",
	)
}
