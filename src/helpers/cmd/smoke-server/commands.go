package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"kubernetes-release/smoke/fetch"
)

// resolveTimeout limits the lookup of a name.
const resolveTimeout = 10 * time.Second

func resolve() *cobra.Command {
	return &cobra.Command{
		Use:   "resolve NAME",
		Short: "Print the addresses of a name, one per line",
		Args:  cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			ctx, cancel := context.WithTimeout(command.Context(), resolveTimeout)
			defer cancel()
			addresses, err := net.DefaultResolver.LookupHost(ctx, arguments[0])
			if err != nil {
				return err
			}
			slices.Sort(addresses)
			for _, address := range addresses {
				if _, err := fmt.Fprintln(command.OutOrStdout(), address); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func get() *cobra.Command {
	return &cobra.Command{
		Use:   "fetch URL",
		Short: "Print the body of an HTTP response with status 200",
		Args:  cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			body, err := fetch.Get(command.Context(), arguments[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(command.OutOrStdout(), body)
			return err
		},
	}
}

func hostname() *cobra.Command {
	return &cobra.Command{
		Use:   "hostname",
		Short: "Print the host name",
		RunE: func(command *cobra.Command, _ []string) error {
			name, err := os.Hostname()
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(command.OutOrStdout(), name)
			return err
		},
	}
}

func store() *cobra.Command {
	return &cobra.Command{
		Use:   "store FILE TEXT",
		Short: "Write a text to a file, and wait until it is on the disk",
		Args:  cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, arguments []string) error {
			file, err := os.Create(arguments[0])
			if err != nil {
				return err
			}
			_, err = file.WriteString(arguments[1])
			return errors.Join(err, file.Sync(), file.Close())
		},
	}
}

func show() *cobra.Command {
	return &cobra.Command{
		Use:   "show FILE",
		Short: "Print a file",
		Args:  cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			text, err := os.ReadFile(arguments[0])
			if err != nil {
				return err
			}
			_, err = command.OutOrStdout().Write(text)
			return err
		},
	}
}
