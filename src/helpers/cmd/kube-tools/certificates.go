package main

import (
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"kubernetes-release/internal/pki"
	"kubernetes-release/launcher"
)

func checkRotation() *cobra.Command {
	return deployedCommand(
		"check-rotation",
		"Fail if VMs with these certificates and VMs with those of the last deploy would not trust each other",
		func(deployed pki.Deployed, record string) error { return deployed.CheckRotation(record, time.Now()) },
	)
}

func startKeys() *cobra.Command {
	return deployedCommand(
		"start-keys",
		"Record the keys that are used from now on, whether or not the deploy succeeds",
		func(deployed pki.Deployed, record string) error { return deployed.Start(record) },
	)
}

func keepCertificates() *cobra.Command {
	return deployedCommand(
		"keep-certificates",
		"Record the certificates that the cluster is deployed with, unless check-rotation refuses them",
		func(deployed pki.Deployed, record string) error {
			return deployed.Keep(record, time.Now(), slog.Default())
		},
	)
}

func deployedCommand(name, short string, run func(deployed pki.Deployed, record string) error) *cobra.Command {
	command := &cobra.Command{Use: name, Short: short}
	path := requirePath(
		command, "config", "configuration of the job's process, config/flags.json, which names its certificates",
	)
	record := requirePath(command, "record", "file with those of the last successful deploy")
	issuer := command.Flags().String("default-issuer", "", "`URL` of the issuer of a deploy that has recorded none")
	command.RunE = func(*cobra.Command, []string) error {
		config, err := launcher.Load(*path)
		if err != nil {
			return err
		}
		if err := config.CheckDisk(); err != nil {
			return err
		}
		deployed := config.Deployed()
		deployed.DefaultIssuer = *issuer
		return run(deployed, *record)
	}
	return command
}
