// Command pictures runs a command on a terminal and draws what it leaves there.
package main

import (
	"os"
	"time"

	"github.com/spf13/cobra"

	"kubernetes-release/internal/cli"
	"kubernetes-release/testbed/pictures"
)

func main() {
	var d pictures.Drawing
	command := &cobra.Command{
		Use:   "pictures -o FILE [flags] -- COMMAND...",
		Short: "Run a command on a terminal and draw what it leaves there as SVG",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			return d.Draw(command.Context(), arguments, os.Stdout)
		},
	}
	flags := command.Flags()
	flags.StringVarP(&d.File, "output", "o", "", "`file` to write")
	flags.StringVar(&d.Title, "title", "", "title of the window (default the command)")
	flags.StringVar(&d.Shown, "shown", "", "the command as the picture shows it (default the command)")
	flags.IntVar(&d.Columns, "columns", 120, "width of the terminal")
	flags.IntVar(&d.Last, "last", 0, "draw this many lines of the end only (default all)")
	flags.IntVar(&d.ExitCode, "exit-code", 0, "exit code that the command must have; otherwise nothing is written")
	flags.DurationVar(&d.Timeout, "timeout", time.Hour, "time limit of the command")
	_ = command.MarkFlagRequired("output") // fails for an unknown flag only
	cli.Main(command)
}
