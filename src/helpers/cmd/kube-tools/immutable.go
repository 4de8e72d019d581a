package main

import (
	"log/slog"

	"github.com/spf13/cobra"

	"kubernetes-release/control/immutable"
)

func checkSettings() *cobra.Command {
	return settingsCommand(
		"check-settings", "Fail if a setting differs from what the cluster was deployed with", immutable.Settings.Check,
	)
}

func keepSettings() *cobra.Command {
	return settingsCommand(
		"keep-settings", "Record the settings that the cluster is deployed with, unless check-settings refuses them",
		func(s immutable.Settings, record string) error { return s.Keep(record, slog.Default()) },
	)
}

func settingsCommand(name, short string, run func(immutable.Settings, string) error) *cobra.Command {
	command := &cobra.Command{Use: name, Short: short}
	path := requirePath(command, "settings", "JSON file with settings that cannot change, by property")
	record := requirePath(command, "record", "file with those of the last successful deploy")
	command.RunE = func(*cobra.Command, []string) error {
		loaded, err := immutable.Load(*path)
		if err != nil {
			return err
		}
		return run(loaded, *record)
	}
	return command
}
