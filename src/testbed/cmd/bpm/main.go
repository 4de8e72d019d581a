// Command bpm stands in for bpm-release's program in the lab; see package bpm.
package main

import (
	"github.com/spf13/cobra"

	"kubernetes-release/internal/cli"
	"kubernetes-release/testbed/bpm"
)

func main() {
	root := &cobra.Command{Use: "bpm", Short: "Start and stop the processes of BOSH jobs"}
	root.AddCommand(
		jobCommand("start", "Start a process in the background", start),
		jobCommand("stop", "Stop a process", stop),
		jobCommand("pid", "Print the process id of a running process", printPID),
		runCommand(),
		&cobra.Command{Use: "list", Short: "List the processes of all jobs", RunE: list},
		&cobra.Command{
			Use: bpm.SandboxCommand, Hidden: true, Args: cobra.ExactArgs(1),
			RunE: func(_ *cobra.Command, arguments []string) error { return bpm.RunSandbox(arguments[0]) },
		},
		&cobra.Command{Use: bpm.InitCommand, Hidden: true, Args: cobra.MinimumNArgs(1), RunE: runInit},
	)
	cli.Main(root)
}
