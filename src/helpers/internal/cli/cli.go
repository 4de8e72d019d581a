// Package cli gives the command lines of all our programs one shape: cobra's help and completion, one sentence of error
// on standard error, and the same exit codes.
//
//	0  done
//	1  what was asked for did not succeed
//	2  wrong arguments
//
// A command that has other codes returns an ExitError.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"kubernetes-release/internal/printable"
	"kubernetes-release/internal/spelling"
)

const (
	exitFailed = 1
	exitUsage  = 2
)

// ExitError ends a program with a code of the command's own. With a nil Err nothing is printed.
type ExitError struct {
	Code int
	Err  error
}

func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit status %d", e.Code)
	}
	return e.Err.Error()
}

func (e *ExitError) Unwrap() error { return e.Err }

// UsageError marks wrong arguments: exit code 2 and a pointer to the command's help.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }

func (e *UsageError) Unwrap() error { return e.Err }

// Usagef is fmt.Errorf for a UsageError.
func Usagef(format string, arguments ...any) error {
	return &UsageError{Err: fmt.Errorf(format, arguments...)}
}

// Main runs a program and ends the process. SIGINT and SIGTERM end the command's context; a second one ends the process
// at once.
func Main(root *cobra.Command) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(Run(ctx, root, os.Args[1:], root.ErrOrStderr()))
}

// MainUninterrupted is Main for programs that must remove what they made: a second signal changes nothing.
func MainUninterrupted(root *cobra.Command) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := Run(ctx, root, os.Args[1:], root.ErrOrStderr())
	stop()
	os.Exit(code)
}

// Run runs a program, prints its error and returns its exit code. Commands must return errors and print none.
func Run(ctx context.Context, root *cobra.Command, arguments []string, stderr io.Writer) int {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetArgs(arguments)
	prepare(root)
	command, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	var exit *ExitError
	if errors.As(err, &exit) {
		if exit.Err != nil {
			printError(stderr, exit.Err)
		}
		return exit.Code
	}
	printError(stderr, err)
	var usage *UsageError
	if errors.As(err, &usage) {
		fmt.Fprintf(stderr, "See '%s --help'.\n", command.CommandPath())
		return exitUsage
	}
	return exitFailed
}

// printError writes an error for a terminal: it can have what a node or a cloud says.
func printError(stderr io.Writer, err error) {
	fmt.Fprintln(stderr, "Error:", printable.Text(err.Error()))
}

// prepare makes cobra's own errors about flags and arguments, of a command and those below it, UsageErrors.
func prepare(command *cobra.Command) {
	command.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &UsageError{Err: err} })
	if command.HasSubCommands() && !command.Runnable() {
		command.Args = cobra.ArbitraryArgs
		command.RunE = chooseCommand
	}
	check := command.Args
	if check == nil {
		check = cobra.NoArgs
	}
	command.Args = func(c *cobra.Command, arguments []string) error {
		err := check(c, arguments)
		if err == nil {
			err = errors.Join(c.ValidateRequiredFlags(), c.ValidateFlagGroups())
		}
		if err != nil && !errors.As(err, new(*UsageError)) {
			err = &UsageError{Err: err}
		}
		return err
	}
	for _, child := range command.Commands() {
		prepare(child)
	}
}

// KnownArgs is cobra.OnlyValidArgs with an error that lists the command's ValidArgs.
func KnownArgs(command *cobra.Command, arguments []string) error {
	for _, argument := range arguments {
		if !slices.Contains(command.ValidArgs, argument) {
			return Usagef(
				"unknown argument %q%s; there are %s", argument, spelling.Hint(argument, command.ValidArgs),
				strings.Join(command.ValidArgs, ", "),
			)
		}
	}
	return nil
}

// chooseCommand is what a command does that only holds others.
func chooseCommand(command *cobra.Command, arguments []string) error {
	var names []string
	for _, child := range command.Commands() {
		if child.IsAvailableCommand() {
			names = append(names, child.Name())
		}
	}
	if len(arguments) == 0 {
		return Usagef("no command given; there are %s", strings.Join(names, ", "))
	}
	return Usagef(
		"unknown command %q%s; there are %s", arguments[0], spelling.Hint(arguments[0], names),
		strings.Join(names, ", "),
	)
}
