// Command awssim simulates the parts of AWS that a Kubernetes cluster on BOSH touches. See package awssim.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"

	"sigs.k8s.io/yaml"

	"kubernetes-release/lab/awssim"
	"kubernetes-release/lab/awssim/device"
)

const usage = `Usage:
  awssim serve --world FILE [flags]              run the simulator until a signal ends it
  awssim world --network CIDR --cluster NAME     print the lab's world as YAML, a starting point for a world file
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		return errors.New("no command\n" + usage)
	}
	switch args[0] {
	case "serve":
		return serve(ctx, args[1:])
	case "world":
		return printWorld(args[1:], out)
	case "help", "-h", "--help":
		_, err := io.WriteString(out, usage)
		return err
	}
	return fmt.Errorf("unknown command %q\n%s", args[0], usage)
}

func serve(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("awssim serve", flag.ContinueOnError)
	worldFile := flags.String("world", "", "world file (YAML); required unless the state file exists")
	api := flags.String("api", "127.0.0.1:4566", "address of the API and, under /_sim/, of the admin API")
	metadata := flags.String("metadata", "127.0.0.1:4567", "address of instance metadata")
	state := flags.String("state", "", "file that the world is kept in; resumed from at start if it exists")
	record := flags.String("record", "", "file that every call is appended to as a line of JSON")
	listenDevice := flags.String("listen-device", "", "interface that gets the load balancers' addresses; without it they must be there already")
	verbose := flags.Bool("verbose", false, "log every call")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	level := slog.LevelInfo
	if *verbose {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	options := awssim.Options{StateFile: *state, RecordFile: *record, Log: log}
	if *listenDevice != "" {
		plumbing, err := device.Open(*listenDevice)
		if err != nil {
			return fmt.Errorf("--listen-device: %w", err)
		}
		options.Plumbing = plumbing
	}
	world, err := startWorld(*worldFile, *state)
	if err != nil {
		return err
	}
	sim, err := awssim.New(world, options)
	if err != nil {
		return err
	}
	return errors.Join(listenAndServe(ctx, log, map[string]*http.Server{*api: sim.APIServer(), *metadata: sim.MetadataServer()}), sim.Close())
}

// startWorld reads the world file; with a state file to resume from, none is needed.
func startWorld(worldFile, state string) (*awssim.World, error) {
	if worldFile != "" {
		return awssim.LoadWorld(worldFile)
	}
	if _, err := os.Stat(state); state == "" || err != nil {
		return nil, errors.New("--world is required: a world file, such as `awssim world` prints")
	}
	return nil, nil
}

// listenAndServe serves until the context ends or a server fails.
func listenAndServe(ctx context.Context, log *slog.Logger, servers map[string]*http.Server) error {
	failed := make(chan error, len(servers))
	for address, server := range servers {
		listener, err := net.Listen("tcp4", address)
		if err != nil {
			return err
		}
		defer server.Close()
		log.Info("listening", "address", listener.Addr().String())
		go func() { failed <- server.Serve(listener) }()
	}
	select {
	case <-ctx.Done():
	case err := <-failed:
		return err
	}
	shutdown, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	for _, server := range servers {
		server.Shutdown(shutdown) // what does not end in time is cut off by Close
	}
	return nil
}

func printWorld(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("awssim world", flag.ContinueOnError)
	network := flags.String("network", "10.0.0.0/16", "the VPC's network, a /16")
	cluster := flags.String("cluster", "kubernetes", "cluster name for the tags of subnets and security group; empty for none")
	if err := flags.Parse(args); err != nil {
		return err
	}
	prefix, err := netip.ParsePrefix(*network)
	if err != nil || !prefix.Addr().Is4() || prefix.Bits() != 16 || prefix != prefix.Masked() {
		return fmt.Errorf("--network %q: want an IPv4 /16 such as 10.7.0.0/16", *network)
	}
	data, err := yaml.Marshal(awssim.NewLabWorld(awssim.LabOptions{Network: prefix, Cluster: *cluster}))
	if err != nil {
		return err
	}
	_, err = out.Write(data)
	return err
}
