package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"
)

// requirePath adds a required flag for a file or directory.
func requirePath(command *cobra.Command, name, usage string) *string {
	value := new(pathValue)
	command.Flags().Var(value, name, usage)
	require(command, name)
	return (*string)(value)
}

// require marks flags of the command as required.
func require(command *cobra.Command, names ...string) {
	for _, name := range names {
		if err := command.MarkFlagRequired(name); err != nil {
			panic(err) // there is no such flag
		}
	}
}

// pathValue is a string flag that must not be empty.
type pathValue string

func (p *pathValue) String() string { return string(*p) }
func (p *pathValue) Type() string   { return "path" }
func (p *pathValue) Set(text string) error {
	if text == "" {
		return errors.New("must not be empty")
	}
	*p = pathValue(text)
	return nil
}

// timeoutFlag adds a flag --timeout, which must be positive if it is given.
func timeoutFlag(command *cobra.Command, standard time.Duration, usage string) *time.Duration {
	value := timeoutValue(standard)
	command.Flags().Var(&value, "timeout", usage)
	return (*time.Duration)(&value)
}

type timeoutValue time.Duration

func (d *timeoutValue) String() string { return time.Duration(*d).String() }
func (d *timeoutValue) Type() string   { return "duration" }
func (d *timeoutValue) Set(text string) error {
	parsed, err := time.ParseDuration(text)
	if err != nil || parsed <= 0 {
		return errors.New("must be a duration of more than 0, such as 90s or 5m")
	}
	*d = timeoutValue(parsed)
	return nil
}
