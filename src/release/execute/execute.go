// Package execute runs the programs that a build needs, such as go, git and gcc.
package execute

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"

	"kubernetes-release/internal/tail"
)

// maxLines is how many lines of standard error an error includes.
const maxLines = 20

// Output runs a command and returns its standard output. An error includes the command line and the end of standard
// error.
func Output(command *exec.Cmd) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return nil, fmt.Errorf(
			"%s: %w: %s", strings.Join(command.Args, " "), err, tail.Lines(stderr.String(), maxLines),
		)
	}
	return stdout.Bytes(), nil
}
