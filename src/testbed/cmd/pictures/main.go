// Command pictures runs a command on a terminal and draws what it leaves there.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"al.essio.dev/pkg/shellescape"
	"github.com/spf13/cobra"

	"kubernetes-release/internal/atomicfile"
	"kubernetes-release/internal/cli"
	"kubernetes-release/testbed/pictures"
)

type options struct {
	file, title, shown string
	columns, last      int
	exitCode           int
	timeout            time.Duration
}

func main() {
	var o options
	command := &cobra.Command{
		Use:   "pictures -o FILE [flags] -- COMMAND...",
		Short: "Run a command on a terminal and draw what it leaves there as SVG",
		Args:  cobra.MinimumNArgs(1),
		RunE:  func(command *cobra.Command, arguments []string) error { return o.draw(command.Context(), arguments) },
	}
	flags := command.Flags()
	flags.StringVarP(&o.file, "output", "o", "", "`file` to write")
	flags.StringVar(&o.title, "title", "", "title of the window (default the command)")
	flags.StringVar(&o.shown, "shown", "", "the command as the picture shows it (default the command)")
	flags.IntVar(&o.columns, "columns", 120, "width of the terminal")
	flags.IntVar(&o.last, "last", 0, "draw this many lines of the end only (default all)")
	flags.IntVar(&o.exitCode, "exit-code", 0, "exit code that the command must have; otherwise nothing is written")
	flags.DurationVar(&o.timeout, "timeout", time.Hour, "time limit of the command")
	_ = command.MarkFlagRequired("output") // fails for an unknown flag only
	cli.Main(command)
}

func (o options) draw(ctx context.Context, argv []string) error {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	output, code, err := pictures.Record(ctx, argv, o.columns, os.Stdout)
	if err != nil {
		return err
	}
	if code != o.exitCode {
		return fmt.Errorf(
			"%s ended with exit code %d, not %d; %s was not written", shellescape.QuoteCommand(argv), code, o.exitCode,
			o.file,
		)
	}
	shown := o.shown
	if shown == "" {
		shown = shellescape.QuoteCommand(argv)
	}
	title := o.title
	if title == "" {
		title = shown
	}
	picture := pictures.Picture{
		Title:   title,
		Command: shown,
		Columns: o.columns,
		Lines:   pictures.Last(pictures.Screen(output, o.columns), o.last),
	}
	return atomicfile.Write(o.file, picture.SVG(), 0o644)
}
