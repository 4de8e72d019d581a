package pictures

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"al.essio.dev/pkg/shellescape"

	"kubernetes-release/internal/atomicfile"
)

// Drawing says how a command is run and drawn.
type Drawing struct {
	// File is written with the picture.
	File string
	// Title is that of the window, Shown the command as the picture shows it; both default to the command.
	Title, Shown string
	// Columns is the width of the terminal.
	Columns int
	// Last is how many lines of the end are drawn; 0: all.
	Last int
	// ExitCode is what the command must end with; otherwise nothing is written.
	ExitCode int
	// Timeout limits the command.
	Timeout time.Duration
}

// Draw runs a command on a terminal, copies its output, and draws what it leaves there.
func (d Drawing) Draw(ctx context.Context, argv []string, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, d.Timeout)
	defer cancel()
	output, code, err := Record(ctx, argv, d.Columns, out)
	if err != nil {
		return err
	}
	command := shellescape.QuoteCommand(argv)
	if code != d.ExitCode {
		return fmt.Errorf("%s ended with exit code %d, not %d; %s was not written", command, code, d.ExitCode, d.File)
	}
	shown := cmp.Or(d.Shown, command)
	picture := Picture{
		Title:   cmp.Or(d.Title, shown),
		Command: shown,
		Columns: d.Columns,
		Lines:   Last(Screen(output, d.Columns), d.Last),
	}
	return atomicfile.Write(d.File, picture.SVG(), 0o644)
}
