// Command kube-launcher checks, starts and stops the processes of this release; see package launcher.
package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"kubernetes-release/internal/cli"
	"kubernetes-release/launcher"
)

func main() {
	l := launcher.New(os.Stderr)
	root := &cobra.Command{
		Use:   "kube-launcher",
		Short: "Check, start and stop the process of a job",
		Long: "Check, start and stop the process of a job. CONFIG is the job's flags file, " +
			"/var/vcap/jobs/JOB/config/flags.json.",
	}
	add := func(name, short string, run func(context.Context, string) error) {
		root.AddCommand(
			&cobra.Command{
				Use:   name + " CONFIG",
				Short: short,
				Args:  cobra.ExactArgs(1),
				RunE: func(c *cobra.Command, arguments []string) error {
					return run(c.Context(), arguments[0])
				},
			},
		)
	}
	add("check", "Check configuration, certificates and flags, without starting or stopping anything", l.Check)
	add("exec", "Wait for what the process needs, then become the process", l.Exec)
	root.AddCommand(asCommand(l))
	add("start", "Run the process as a daemon and return when it is ready", l.Start)
	add("stop", "Stop the process that start started", l.Stop)
	cli.MainUninterrupted(root)
}

// asCommand passes all that follows CONFIG on, flags too.
func asCommand(l *launcher.Launcher) *cobra.Command {
	command := &cobra.Command{
		Use:   "as CONFIG COMMAND [ARGUMENT...]",
		Short: "Become a command, given by its path, as the user of the process",
		Args:  cobra.MinimumNArgs(2),
		RunE:  func(_ *cobra.Command, arguments []string) error { return l.As(arguments[0], arguments[1:]) },
	}
	command.Flags().SetInterspersed(false)
	return command
}
