package main

import (
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"kubernetes-release/cloud/aws/arn"
	"kubernetes-release/cloud/aws/clustertags"
	"kubernetes-release/control/kmsplugin"
	"kubernetes-release/internal/cli"
)

func kmsPlugin() *cobra.Command {
	command := &cobra.Command{
		Use:   "kms-plugin",
		Short: "Encrypt the API server's keys with a key of AWS KMS",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return fmt.Errorf("give one of serve, check; see %s --help", command.CommandPath())
		},
	}
	serve := &cobra.Command{Use: "serve", Short: "Answer the API server until stopped", Args: cobra.NoArgs}
	key := serve.Flags().String("key", "", "`ARN` of the key")
	cluster := serve.Flags().String("cluster", "", "`NAME` of the cluster, which becomes the encryption context")
	require(serve, "key", "cluster")
	socket := requirePath(serve, "socket", "Unix socket to listen on")
	serve.RunE = func(serve *cobra.Command, _ []string) error {
		parsed, err := arn.ParseKey(*key)
		if err != nil {
			return cli.Usagef("--key %w", err)
		}
		if err := clustertags.ValidateName(*cluster); err != nil {
			return cli.Usagef("--cluster: %w", err)
		}
		cipher, err := kmsplugin.Connect(serve.Context(), parsed)
		if err != nil {
			return err
		}
		return kmsplugin.New(parsed, *cluster, cipher, slog.Default()).Serve(serve.Context(), *socket)
	}
	check := &cobra.Command{
		Use: "check", Short: "Succeed if KMS encrypts and decrypts with the plugin's key", Args: cobra.NoArgs,
	}
	of := requirePath(check, "socket", "Unix socket of the plugin")
	check.RunE = func(check *cobra.Command, _ []string) error { return kmsplugin.Check(check.Context(), *of) }
	command.AddCommand(serve, check)
	return command
}
