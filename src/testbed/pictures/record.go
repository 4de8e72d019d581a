// Package pictures draws what a command leaves on a terminal, and dashboards, for the documentation.
package pictures

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/creack/pty"
	"github.com/hinshun/vt10x"
)

// terminalRows is the height of the terminal that commands see. The picture has all lines, also those that scrolled out
// of sight.
const terminalRows = 50

// Record runs a command on a terminal of so many columns and returns everything that it wrote, and its exit code. What
// it writes is copied to live meanwhile.
func Record(ctx context.Context, argv []string, columns int, live io.Writer) ([]byte, int, error) {
	command := exec.CommandContext(ctx, argv[0], argv[1:]...)
	command.Env = append(os.Environ(), "TERM=xterm-256color", fmt.Sprintf("COLUMNS=%d", columns))
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	command.WaitDelay = time.Minute
	master, err := pty.StartWithSize(command, &pty.Winsize{Rows: terminalRows, Cols: uint16(columns)})
	if err != nil {
		return nil, 0, fmt.Errorf("starting %s on a terminal: %w", argv[0], err)
	}
	defer master.Close()
	var output bytes.Buffer
	// Linux reports the end of the output as EIO, once the last process has closed the terminal.
	if _, err := io.Copy(io.MultiWriter(&output, live), master); err != nil && !errors.Is(err, syscall.EIO) {
		return nil, 0, fmt.Errorf("reading what %s writes: %w", argv[0], err)
	}
	err = command.Wait()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) && failed.ExitCode() >= 0 {
		return output.Bytes(), failed.ExitCode(), nil
	}
	return output.Bytes(), 0, err
}

// Line is a line of the screen as runs of cells that look the same. Blanks at its end are left out.
type Line []Run

// Run is some text in one style, at a column.
type Run struct {
	Column                 int
	Text                   string
	Foreground, Background vt10x.Color
	Bold                   bool
}

// bold is the bit of vt10x's Glyph.Mode for bold text, which it does not export.
const bold = 1 << 2

// Screen interprets the output of a command and returns the lines that it leaves on a terminal of so many columns,
// without blank lines at the end.
func Screen(output []byte, columns int) []Line {
	rows := bytes.Count(output, []byte("\n")) + terminalRows
	terminal := vt10x.New(vt10x.WithSize(columns, rows))
	_, _ = terminal.Write(output) // never fails
	lines := make([]Line, rows)
	used := 0
	for y := range lines {
		if lines[y] = readLine(terminal, y, columns); len(lines[y]) > 0 {
			used = y + 1
		}
	}
	return lines[:used]
}

func readLine(terminal vt10x.View, y, columns int) Line {
	var line Line
	var text strings.Builder
	current := Run{}
	end := func() {
		current.Text = text.String()
		if current.Background == vt10x.DefaultBG {
			current.Text = strings.TrimRight(current.Text, " ")
		}
		if current.Text != "" {
			line = append(line, current)
		}
		text.Reset()
	}
	for x := range columns {
		cell := terminal.Cell(x, y)
		style := Run{Foreground: cell.FG, Background: cell.BG, Bold: cell.Mode&bold != 0}
		if x == 0 || style.Foreground != current.Foreground || style.Background != current.Background ||
			style.Bold != current.Bold {
			end()
			current, current.Column = style, x
		}
		text.WriteRune(cell.Char)
	}
	end()
	return line
}

// Last returns the last n lines, after one that stands for those left out; all of them if n is 0.
func Last(lines []Line, n int) []Line {
	if n <= 0 || len(lines) <= n {
		return lines
	}
	omitted := Line{{Text: "…", Foreground: vt10x.DarkGrey, Background: vt10x.DefaultBG}}
	return append([]Line{omitted}, lines[len(lines)-n+1:]...)
}
