package account

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"time"

	"kubernetes-release/internal/logging"
	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/lab/dns"
	"kubernetes-release/testbed/lab/names"
	"kubernetes-release/testbed/lab/network"
	"kubernetes-release/testbed/lab/volume"
	"kubernetes-release/testbed/openstacksim"
)

// healthPath returns 200 on the port of the API as soon as the process is ready.
const healthPath = "/_lab/health"

// plumbing adds the addresses of the simulated load balancers to the bridge.
type plumbing struct{ network network.Network }

// Add implements forward.Plumbing.
func (p plumbing) Add(a netip.Addr) error { return p.network.AddAddress(a) }

// Remove implements forward.Plumbing.
func (p plumbing) Remove(a netip.Addr) error { return p.network.RemoveAddress(a) }

// Serve is the process: the APIs of AWS and OpenStack, instance metadata, load balancers, registry and DNS. It runs
// inside the cloud namespace until ctx ends.
func (a Account) Serve(ctx context.Context) error {
	log := logging.New(os.Stderr)
	settings, err := a.settings()
	if err != nil {
		return err
	}
	world, err := settings.world(a.Network.Number)
	if err != nil {
		return fmt.Errorf("creating the simulated cloud: %w", err)
	}
	simulator, err := awssim.New(world, awssim.Options{
		StateFile:  a.path(worldFile),
		RecordFile: a.path(callsFile),
		Registry:   a.Network.Gateway(),
		Plumbing:   plumbing{a.Network},
		Disks:      volume.Store{StateDir: a.Dir},
		Router:     a.Network,
		Log:        log,
	})
	if err != nil {
		return fmt.Errorf("starting the simulated cloud: %w", err)
	}
	// Both clouds keep their volumes in one store, but a lab's VMs are in one of them only.
	project, err := openstacksim.New(openstacksim.LabWorld(a.Network.Prefix()), openstacksim.Options{
		StateFile: a.path(projectFile), Plumbing: plumbing{a.Network}, Disks: volume.Store{StateDir: a.Dir},
		Settle: time.Second, Log: log,
	})
	if err != nil {
		return errors.Join(fmt.Errorf("starting the simulated OpenStack: %w", err), simulator.Close())
	}
	bosh := names.NewResolvers(a.Dir, log)
	resolver := &dns.Server{Log: log, Lookups: []dns.Lookup{bosh.Lookup, func(name string) ([]netip.Addr, bool) {
		addresses := simulator.Lookup(name)
		return addresses, len(addresses) > 0
	}}}
	api := http.NewServeMux()
	api.HandleFunc(healthPath, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	api.Handle("/", simulator.Handler())
	for _, path := range openstacksim.Paths {
		api.Handle(path, project.Handler())
	}
	gateway := a.Network.Gateway().String()
	metadata := simulator.MetadataServer()
	metadata.Addr = net.JoinHostPort(network.Metadata.String(), "80")
	both := http.NewServeMux()
	both.Handle("/", metadata.Handler)
	both.Handle("/openstack/", project.MetadataHandler())
	metadata.Handler = both
	registry, err := a.registryServer(simulator)
	if err != nil {
		return errors.Join(err, simulator.Close(), project.Close())
	}
	servers := []*http.Server{
		{
			Addr:              net.JoinHostPort(gateway, strconv.Itoa(port)),
			Handler:           api,
			ReadHeaderTimeout: 10 * time.Second,
		},
		metadata,
		registry,
	}
	go bosh.Run(ctx)
	log.Info("cloud started", "network", a.Network.Prefix(), "api", URL(a.Network), "cluster", settings.Cluster)
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	answered := make(chan error, 1)
	go func() {
		err := resolver.ListenAndServe(ctx, net.JoinHostPort(gateway, "53"))
		stop(err) // nothing works without DNS
		answered <- err
	}()
	err = serve(ctx, servers)
	stop(err)
	err = errors.Join(err, <-answered, simulator.Close(), project.Close())
	log.Info("cloud stopped", "error", err)
	return err
}

// serve runs the servers until one fails or ctx ends. The end of ctx is not an error.
func serve(ctx context.Context, servers []*http.Server) error {
	failed := make(chan error, len(servers))
	for _, server := range servers {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", server.Addr)
		if err != nil {
			return fmt.Errorf("serving on %s: %w", server.Addr, err)
		}
		if server.TLSConfig != nil {
			listener = tls.NewListener(listener, server.TLSConfig)
		}
		go func() { failed <- server.Serve(listener) }()
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	shutdown, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	for _, server := range servers {
		if server.Shutdown(shutdown) != nil {
			server.Close()
		}
	}
	return err
}
