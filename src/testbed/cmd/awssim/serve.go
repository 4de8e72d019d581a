package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"kubernetes-release/internal/cli"
	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/awssim/device"
	"kubernetes-release/testbed/awssim/store"
)

// server is what the flags of awssim serve set.
type server struct {
	world, api, metadata, state, record, device string
	verbose                                     bool
}

func serveCommand() *cobra.Command {
	var s server
	command := &cobra.Command{
		Use: "serve", Short: "Run the simulator until it gets SIGINT or SIGTERM",
		RunE: func(command *cobra.Command, _ []string) error { return s.run(command.Context()) },
	}
	flags := command.Flags()
	flags.StringVar(&s.world, "world", "", "world `file` (YAML); required unless the state file exists")
	flags.StringVar(&s.api, "api", "127.0.0.1:4566", "`address` of the API and, under /_sim/, of the admin API")
	flags.StringVar(&s.metadata, "metadata", "127.0.0.1:4567", "`address` of instance metadata")
	flags.StringVar(&s.state, "state", "", "`file` that keeps the world; if it exists, the simulator resumes from it")
	flags.StringVar(&s.record, "record", "", "`file` that every call is appended to as a line of JSON")
	flags.StringVar(
		&s.device,
		"listen-device",
		"",
		"network `interface` that gets the load balancers' addresses; without it they must exist already",
	)
	flags.BoolVar(&s.verbose, "verbose", false, "log every call")
	return command
}

func (s server) run(ctx context.Context) error {
	level := slog.LevelInfo
	if s.verbose {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	options := awssim.Options{StateFile: s.state, RecordFile: s.record, Log: log}
	if s.device != "" {
		plumbing, err := device.Open(s.device)
		if err != nil {
			return fmt.Errorf("--listen-device: %w", err)
		}
		options.Plumbing = plumbing
	}
	world, err := s.startWorld()
	if err != nil {
		return err
	}
	sim, err := awssim.New(world, options)
	if err != nil {
		return err
	}
	return errors.Join(sim.Serve(ctx, s.api, s.metadata), sim.Close())
}

// startWorld reads the world file; with a state file to resume from, none is needed.
func (s server) startWorld() (*store.World, error) {
	if s.world != "" {
		return store.LoadWorld(s.world)
	}
	if _, err := os.Stat(s.state); s.state == "" || err != nil {
		return nil, cli.Usagef("--world is required; awssim world prints a world file")
	}
	return nil, nil
}
