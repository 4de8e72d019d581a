// Command kube-launcher checks, starts and stops the processes of this release; see package launcher.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

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
	root.AddCommand(asCommand(l), bpmCommand(l))
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

// bpmCommand is what monit runs for the processes of bpm.
func bpmCommand(l *launcher.Launcher) *cobra.Command {
	return &cobra.Command{
		Use:   "bpm start|stop JOB [PROCESS]",
		Short: "Start or stop a process by bpm, which follows no link of another user's then",
		Args:  cobra.RangeArgs(2, 3),
		RunE: func(_ *cobra.Command, arguments []string) error {
			if arguments[0] != "start" && arguments[0] != "stop" {
				return fmt.Errorf("%q is no action: use start or stop", arguments[0])
			}
			return l.BPM(arguments[0], arguments[1], strings.Join(arguments[2:], ""))
		},
	}
}
