package main

import (
	"context"
	"flag"
	"os"

	"kubernetes-release/helpers/smoke"
)

func smokeTest(ctx context.Context, flags *flag.FlagSet, arguments []string) error {
	path := flags.String("config", "", "JSON file with the tests' configuration")
	if err := parse(flags, arguments, "config"); err != nil {
		return err
	}
	config, err := smoke.LoadConfig(*path)
	if err != nil {
		return err
	}
	restConfig, err := loadKubeconfig(config.Kubeconfig)
	if err != nil {
		return err
	}
	return smoke.Run(ctx, restConfig, config, os.Stdout)
}
