package main

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"kubernetes-release/control/etcd/snapshot"
)

func etcdSnapshot() *cobra.Command {
	command := &cobra.Command{
		Use:   "etcd-snapshot",
		Short: "Take and restore snapshots of etcd",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return fmt.Errorf("give one of take, save, restore; see %s --help", command.CommandPath())
		},
	}
	add := func(name, short string, run func(*cobra.Command, *snapshot.Config) error) *cobra.Command {
		step := &cobra.Command{Use: name, Short: short, Args: cobra.NoArgs}
		path := requirePath(
			step, "config", "JSON file that says where snapshots are, config/snapshots.json of the job etcd",
		)
		step.RunE = func(step *cobra.Command, _ []string) error {
			config, err := snapshot.Load(*path)
			if err != nil {
				return err
			}
			return run(step, config)
		}
		command.AddCommand(step)
		return step
	}
	add(
		"take",
		"Take a snapshot, remove old ones beyond the number to keep, print the path of the new one, and upload it",
		func(step *cobra.Command, c *snapshot.Config) error {
			path, err := c.Take(step.Context(), time.Now, slog.Default())
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintln(step.OutOrStdout(), path); err != nil {
				return err
			}
			return c.UploadNewest(step.Context(), time.Now(), slog.Default())
		},
	)
	var to, from *string
	to = requirePath(add("save", "Write a snapshot to a file", func(step *cobra.Command, c *snapshot.Config) error {
		info, err := c.Save(step.Context(), *to)
		if err == nil {
			slog.Info("snapshot saved", "path", *to, "bytes", info.Size, "revisions", info.Revisions)
		}
		return err
	}), "to", "path of the new file")
	from = requirePath(
		add(
			"restore", "Replace the data of etcd, which must be stopped on all VMs, by that of a snapshot",
			func(step *cobra.Command, c *snapshot.Config) error {
				return c.Restore(step.Context(), *from, slog.Default())
			},
		),
		"from",
		"path of the snapshot",
	)
	return command
}
