package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"kubernetes-release/internal/cli"
	"kubernetes-release/testbed/bpm"
)

// jobCommand is a command with the arguments of bpm-release's: a job's name, and --process where it differs from the
// job's.
func jobCommand(name, short string, run func(*cobra.Command, *bpm.Process) error) *cobra.Command {
	var process string
	command := &cobra.Command{
		Use: name + " JOB", Short: short,
		Args: func(_ *cobra.Command, arguments []string) error {
			if len(arguments) != 1 {
				return cli.Usagef("got %d arguments; must specify a job", len(arguments))
			}
			return nil
		},
		RunE: func(command *cobra.Command, arguments []string) error {
			p, err := bpm.Find(arguments[0], process)
			if err != nil {
				return err
			}
			return run(command, p)
		},
	}
	command.Flags().StringVarP(&process, "process", "p", "", "`name` of the process; defaults to the job's")
	return command
}

func start(_ *cobra.Command, p *bpm.Process) error {
	if err := p.EnterScope(); err != nil {
		return err
	}
	return p.Start()
}

func stop(_ *cobra.Command, p *bpm.Process) error { return p.Stop() }

func printPID(command *cobra.Command, p *bpm.Process) error {
	pid := p.PID()
	if pid == 0 {
		return fmt.Errorf("process %s of job %s is not running", p.Config.Name, p.Job)
	}
	_, err := fmt.Fprintln(command.OutOrStdout(), pid)
	return err
}

func runCommand() *cobra.Command {
	var env []string
	command := jobCommand(
		"run", "Run a process in the foreground and exit with its exit code",
		func(command *cobra.Command, p *bpm.Process) error {
			code, err := p.Run(
				command.Context(), env, command.InOrStdin(), command.OutOrStdout(), command.ErrOrStderr(),
			)
			return exit(code, err)
		},
	)
	command.Flags().
		StringArrayVarP(&env, "env", "e", nil, "additional environment variable, `NAME=VALUE`; can be repeated")
	return command
}

func runInit(_ *cobra.Command, argv []string) error { return exit(bpm.RunInit(argv)) }

// exit is the error with which the program exits with a code.
func exit(code int, err error) error {
	if err != nil || code == 0 {
		return err
	}
	return &cli.ExitError{Code: code}
}

func list(command *cobra.Command, _ []string) error {
	processes, err := bpm.List()
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(command.OutOrStdout(), 0, 0, 3, ' ', 0)
	_, _ = fmt.Fprintln(table, "Name\tPid\tStatus")
	for _, p := range processes {
		name, pid, status := p.Job, "-", "stopped"
		if p.Process != p.Job {
			name += ":" + p.Process
		}
		if p.PID != 0 {
			pid, status = fmt.Sprint(p.PID), "running"
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\n", name, pid, status)
	}
	return table.Flush()
}
