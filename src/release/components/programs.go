package components

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"kubernetes-release/release/execute"
	"kubernetes-release/release/progress"
)

// Programs are programs of our own, which are built in one step.
type Programs struct {
	// Step names the step in progress lines and in the times of the last run.
	Step string
	// Source is the folder of the module, and Packages are the programs' packages: ./cmd/NAME.
	Source   string
	Packages []string
	// Output is the folder that the programs go to.
	Output string
	// Flags are added to those of go build that all our programs have.
	Flags []string
	// Shipped says that the programs are for the release, not for this machine.
	Shipped bool
}

// Build builds the programs and shows the step on out. The go command knows what is up to date.
func (p Programs) Build(ctx context.Context, out io.Writer) error {
	var names []string
	for _, pkg := range p.Packages {
		names = append(names, path.Base(pkg))
	}
	step := progress.NewStep(out, p.Step)
	defer step.Close()
	part := step.Part(strings.Join(names, ", "), 0)
	if p.Shipped {
		err := mustBeUnset(p.environment(), func(arguments ...string) *exec.Cmd { return p.command(ctx, arguments...) })
		if err != nil {
			return err
		}
	}
	needed, err := execute.Output(p.command(ctx, append([]string{"list", "-deps"}, p.Packages...)...))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(p.Output, 0o755); err != nil {
		return err
	}
	output, err := filepath.Abs(p.Output)
	if err != nil {
		return err
	}
	arguments := append(
		[]string{"build", "-v", "-trimpath", "-buildvcs=false", "-o", output + string(filepath.Separator)},
		p.Flags...)
	if err := Compile(
		p.command(ctx, append(arguments, p.Packages...)...), part, bytes.Count(needed, []byte("\n")),
	); err != nil {
		return fmt.Errorf("building %s: %w", strings.Join(names, ", "), err)
	}
	step.Finish("built %s", strings.Join(names, ", "))
	return nil
}

func (p Programs) command(ctx context.Context, arguments ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, "go", arguments...)
	command.Dir = p.Source
	command.Env = append(os.Environ(), p.environment()...)
	return command
}

func (p Programs) environment() []string {
	environment := []string{"CGO_ENABLED=0"}
	if p.Shipped {
		environment = append(append(environment, shippedEnvironment()...), "GOFLAGS=-mod=readonly")
	}
	return environment
}
