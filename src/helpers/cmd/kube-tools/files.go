package main

import (
	"github.com/spf13/cobra"

	"kubernetes-release/control/jobfiles"
)

func writeFiles() *cobra.Command {
	command := &cobra.Command{Use: "write-files", Short: "Make a directory hold exactly the files of an operator"}
	files := requirePath(command, "files", "JSON file with the content of each file, by its name")
	directory := requirePath(command, "directory", "directory of the files; others in it are removed")
	command.RunE = func(*cobra.Command, []string) error { return jobfiles.Write(*files, *directory) }
	return command
}
