package main

import (
	"fmt"
	"log/slog"
	"net"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"kubernetes-release/internal/exposition"
	"kubernetes-release/node/dns"
)

const interceptionUsage = "configuration, config/interception/interception.json of the job node-local-dns"

func addDNSAddress() *cobra.Command {
	command := &cobra.Command{
		Use:   "add-dns-address",
		Short: "Give this node the address of the cluster's DNS, at which only its own server answers",
	}
	path := requirePath(command, "config", interceptionUsage)
	command.RunE = func(command *cobra.Command, _ []string) error {
		config, err := dns.Load(*path)
		if err != nil {
			return err
		}
		return config.AddAddress(command.Context())
	}
	return command
}

func interceptDNS() *cobra.Command {
	command := &cobra.Command{
		Use:   "intercept-dns",
		Short: "Let this node's own server answer queries to the cluster's DNS while it can, until stopped",
	}
	path := requirePath(command, "config", interceptionUsage)
	address := command.Flags().String("metrics-bind-address", "", "ADDRESS:PORT that serves metrics; required")
	require(command, "metrics-bind-address")
	command.RunE = func(command *cobra.Command, _ []string) error {
		config, err := dns.Load(*path)
		if err != nil {
			return err
		}
		interception, err := dns.New(config, slog.Default())
		if err != nil {
			return err
		}
		listener, err := net.Listen("tcp", *address)
		if err != nil {
			return fmt.Errorf("metrics: %w", err)
		}
		group, ctx := errgroup.WithContext(command.Context())
		group.Go(func() error { return exposition.Serve(ctx, listener, interception.Metrics) })
		group.Go(func() error { return interception.Keep(ctx) })
		return group.Wait()
	}
	return command
}
