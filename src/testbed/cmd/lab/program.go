package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"kubernetes-release/internal/cli"
	"kubernetes-release/testbed/lab"
	"kubernetes-release/testbed/lab/instances"
)

// program is what all commands share.
type program struct {
	state   string // the lab's directory
	name    string // of a further deployment; empty for the first one
	verbose bool   // show each variable, package and step
}

// effect is what a command does to the lab.
type effect int

const (
	reads   effect = iota
	changes        // it needs the lock
	creates        // it needs the lock, and creates a lab where there is none
	removes        // it needs the lock, has nothing to do where there is no lab, and must work on a full disk
)

// interrupted is the last line of a command that was stopped by a signal.
const interrupted = "Interrupted. Run the same command again to continue."

// run returns what cobra calls for a command. do returns the exit code of something that it ran, 0 if it did not run
// anything.
func (p *program) run(
	e effect, do func(context.Context, *lab.Lab, []string) (int, error),
) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, arguments []string) error {
		code, err := p.withLab(c.Name(), e, func(l *lab.Lab) (int, error) { return do(c.Context(), l, arguments) })
		if err != nil && c.Context().Err() != nil {
			err = fmt.Errorf("%w\n\n%s", err, interrupted)
		}
		switch {
		case err != nil:
			return &cli.ExitError{Code: max(code, 1), Err: err}
		case code != 0:
			return &cli.ExitError{Code: code}
		}
		return nil
	}
}

func (p *program) open(create bool) (*lab.Lab, error) {
	return lab.OpenDeployment(p.state, p.name, create)
}

// withLab opens the lab for a command.
func (p *program) withLab(command string, e effect, do func(*lab.Lab) (int, error)) (int, error) {
	if os.Geteuid() != 0 {
		return 0, errors.New("the lab creates namespaces and network interfaces, which requires root")
	}
	l, err := p.open(false)
	switch {
	case lab.IsNoLab(err) && e == removes:
		fmt.Printf("There is no lab in %s; nothing to remove.\n", l.Dir)
		return 0, nil
	case err != nil && !(lab.IsNoLab(err) && e == creates):
		return 0, err
	}
	if e != reads {
		release, err := l.Lock(command)
		if err != nil {
			return 0, err
		}
		defer release()
		if l, err = p.open(e == creates); err != nil { // again, now that no other command can change it
			return 0, err
		}
		if err := l.OpenLog(); err != nil && e != removes {
			return 0, err
		}
		l.Verbose = p.verbose
		defer l.StartDisplay()()
	}
	return do(l)
}

// completeInstance completes the first argument.
func (p *program) completeInstance(
	_ *cobra.Command, arguments []string, _ string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(arguments) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return p.completions(instances.Names)
}

// completeInstances completes every argument.
func (p *program) completeInstances(
	_ *cobra.Command, _ []string, _ string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	return p.completions(instances.Names)
}

// completeInstanceAndJob completes the first argument and the second.
func (p *program) completeInstanceAndJob(
	c *cobra.Command, arguments []string, toComplete string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(arguments) == 1 {
		return p.completions(func(l *lab.Lab) []string { return instances.JobNames(l, arguments[0]) })
	}
	return p.completeInstance(c, arguments, toComplete)
}

func (p *program) completions(names func(*lab.Lab) []string) ([]cobra.Completion, cobra.ShellCompDirective) {
	l, err := p.open(false)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return names(l), cobra.ShellCompDirectiveNoFileComp
}
