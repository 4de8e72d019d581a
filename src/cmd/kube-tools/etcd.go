package main

import (
	"context"
	"log/slog"

	"github.com/spf13/cobra"

	"kubernetes-release/helpers/etcdmembers"
)

func checkEtcdStart() *cobra.Command {
	return etcdCheck("check-etcd-start", "Fail if etcd must not start on this VM", (*etcdmembers.Config).CheckStart)
}

func checkEtcdLeave() *cobra.Command {
	return etcdCheck("check-etcd-leave", "Fail if this VM must not be deleted because the etcd cluster needs it", (*etcdmembers.Config).CheckLeave)
}

func etcdCheck(name, short string, check func(*etcdmembers.Config, context.Context, *slog.Logger) error) *cobra.Command {
	command := &cobra.Command{Use: name, Short: short}
	path := requirePath(command, "config", "JSON file with this instance and all instances of the deployment that run etcd")
	command.RunE = func(command *cobra.Command, _ []string) error {
		config, err := etcdmembers.Load(*path)
		if err != nil {
			return err
		}
		return check(config, command.Context(), slog.Default())
	}
	return command
}
