package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"time"

	"kubernetes-release/helpers/cloud/aws"
	"kubernetes-release/helpers/preflight"
	"kubernetes-release/internal/atomicfile"
	"kubernetes-release/internal/logging"
	"kubernetes-release/lab/awssim"
	"kubernetes-release/lab/cpi"
	"kubernetes-release/lab/dns"
	"kubernetes-release/lab/network"
)

// HealthPath answers 200 on the API's port as soon as the cloud process serves all it has to.
const HealthPath = "/_lab/health"

const (
	worldFile        = "aws.json"
	recordFile       = "log/aws-calls.jsonl"
	cloudSettingFile = "cloud-settings.json"
)

// cloudSettings are what the cloud is made with; later changes have no effect on a cloud that is there already.
type cloudSettings struct {
	// Cluster is the name in the tags of the simulated subnets, and in the policies of the VMs' roles.
	Cluster string `json:"cluster"`
	// CloudRoutes says that the cloud controller writes pod routes, for which its role needs more.
	CloudRoutes bool `json:"cloud_routes,omitempty"`
}

// world is the account that the simulator begins with. The roles of its VMs may do what the policies allow that operators
// are told to attach, and nothing else.
func (c cloudSettings) world(number int) (*awssim.World, error) {
	world := awssim.LabWorld(number, c.Cluster)
	for _, role := range []preflight.Role{preflight.Control, preflight.Worker} {
		policy, err := aws.NewPolicy(aws.PolicyOptions{Role: role, Cluster: c.Cluster, CloudRoutes: c.CloudRoutes})
		if err != nil {
			return nil, fmt.Errorf("policy of the role %s: %w", role, err)
		}
		document, err := policy.JSON()
		if err != nil {
			return nil, err
		}
		if err := world.SetPolicy(aws.DefaultRoleName(role), document); err != nil {
			return nil, err
		}
	}
	return world, nil
}

// settleCloud writes down the cluster's name for a cloud that does not exist yet.
func (s *session) settleCloud() error {
	if _, err := os.Stat(s.path(worldFile)); err == nil {
		return nil
	}
	text, err := json.Marshal(cloudSettings{Cluster: s.clusterName(), CloudRoutes: s.cloudRoutes()})
	if err != nil {
		return err
	}
	return atomicfile.Write(s.path(cloudSettingFile), append(text, '\n'), 0o644)
}

// clusterName finds what the deployment calls its cluster.
func (s *session) clusterName() string {
	for _, group := range s.plan.Groups {
		for _, job := range group.Jobs {
			if name, ok := dig(job.Properties, "cluster", "name").(string); ok {
				return name
			}
		}
	}
	return clusterName
}

// cloudRoutes finds whether the deployment's cloud controller writes pod routes.
func (s *session) cloudRoutes() bool {
	for _, group := range s.plan.Groups {
		for _, job := range group.Jobs {
			if routes, ok := dig(job.Properties, "configure_cloud_routes").(bool); ok && routes {
				return true
			}
		}
	}
	return false
}

// cloud gives the CPI's view of the simulated cloud.
func (l *Lab) cloud() cpi.Cloud {
	return cpi.NewAWS(APIURL(l.Network), awssim.LabRegion, awssim.LabAccessKeyID, awssim.LabSecretAccessKey)
}

// plumbing gives the load balancers of the simulated cloud their addresses, on the bridge.
type plumbing struct{ network network.Network }

// Add implements forward.Plumbing.
func (p plumbing) Add(a netip.Addr) error { return p.network.AddAddress(a) }

// Remove implements forward.Plumbing.
func (p plumbing) Remove(a netip.Addr) error { return p.network.RemoveAddress(a) }

// RunCloud is the process that plays the cloud: AWS's API, instance metadata, load balancers, and DNS. It runs inside the cloud
// namespace until ctx ends.
func (l *Lab) RunCloud(ctx context.Context) error {
	log := logging.New(os.Stderr)
	var settings cloudSettings
	text, err := os.ReadFile(l.path(cloudSettingFile))
	if err == nil {
		err = json.Unmarshal(text, &settings)
	}
	if err != nil {
		return fmt.Errorf("reading the cloud's settings: %w", err)
	}
	world, err := settings.world(l.Network.Number)
	if err != nil {
		return fmt.Errorf("making the simulated cloud: %w", err)
	}
	simulator, err := awssim.New(world, awssim.Options{
		StateFile: l.path(worldFile), RecordFile: l.path(recordFile), Plumbing: plumbing{l.Network}, Log: log,
	})
	if err != nil {
		return fmt.Errorf("starting the simulated cloud: %w", err)
	}
	watcher := newWatcher(l, log)
	directory := newDirectory()
	watcher.changed = directory.set
	watcher.read()
	resolver := &dns.Server{Log: log, Lookups: []dns.Lookup{directory.lookup, func(name string) ([]netip.Addr, bool) {
		addresses := simulator.Lookup(name)
		return addresses, len(addresses) > 0
	}}}
	api := http.NewServeMux()
	api.HandleFunc(HealthPath, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	api.Handle("/", simulator.Handler())
	gateway := l.Network.Gateway().String()
	metadata := simulator.MetadataServer()
	metadata.Addr = net.JoinHostPort(network.Metadata.String(), "80")
	servers := []*http.Server{
		{Addr: net.JoinHostPort(gateway, strconv.Itoa(APIPort)), Handler: api, ReadHeaderTimeout: 10 * time.Second}, metadata,
	}
	go watcher.run(ctx)
	log.Info("the cloud is up", "network", l.Network.Prefix(), "api", APIURL(l.Network), "cluster", settings.Cluster)
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	answered := make(chan error, 1)
	go func() {
		err := resolver.ListenAndServe(ctx, net.JoinHostPort(gateway, "53"))
		stop(err) // without names nothing works
		answered <- err
	}()
	err = serve(ctx, servers)
	stop(err)
	err = errors.Join(err, <-answered, simulator.Close())
	log.Info("the cloud ends", "error", err)
	return err
}

// serve runs the servers until one fails or ctx ends; the end of ctx is no error.
func serve(ctx context.Context, servers []*http.Server) error {
	failed := make(chan error, len(servers))
	for _, server := range servers {
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", server.Addr)
		if err != nil {
			return fmt.Errorf("serving on %s: %w", server.Addr, err)
		}
		go func() { failed <- server.Serve(listener) }()
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	for _, server := range servers {
		if server.Shutdown(end) != nil {
			server.Close()
		}
	}
	return err
}
