package main

import (
	"context"
	"flag"
	"log/slog"

	"kubernetes-release/helpers/etcdmembers"
)

func checkEtcdStart(ctx context.Context, flags *flag.FlagSet, arguments []string) error {
	config, err := etcdMembers(flags, arguments)
	if err != nil {
		return err
	}
	return config.CheckStart(ctx, slog.Default())
}

func checkEtcdLeave(ctx context.Context, flags *flag.FlagSet, arguments []string) error {
	config, err := etcdMembers(flags, arguments)
	if err != nil {
		return err
	}
	return config.CheckLeave(ctx, slog.Default())
}

func etcdMembers(flags *flag.FlagSet, arguments []string) (*etcdmembers.Config, error) {
	path := flags.String("config", "", "JSON file with this instance and all instances of the deployment that run etcd")
	if err := parse(flags, arguments, "config"); err != nil {
		return nil, err
	}
	return etcdmembers.Load(*path)
}
