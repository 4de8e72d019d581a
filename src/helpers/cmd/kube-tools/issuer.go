package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"kubernetes-release/cloud/aws/issuer"
)

func publishIssuer() *cobra.Command {
	command := &cobra.Command{
		Use:   "publish-issuer",
		Short: "Publish the keys that verify tokens of service accounts in a bucket of S3",
		Args:  cobra.NoArgs,
	}
	path := requirePath(command, "config", "what is published, and where: config/issuer.json of the job pod-roles")
	record := requirePath(command, "record", "file with what was published last")
	timeout := timeoutFlag(command, 3*time.Minute, "how long to try")
	command.RunE = func(command *cobra.Command, _ []string) error {
		config, err := issuer.Load(*path)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(command.Context(), *timeout)
		defer cancel()
		return config.Publish(ctx, *record, slog.Default())
	}
	return command
}
