package lab

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"time"

	"kubernetes-release/cloud/aws"
	"kubernetes-release/internal/atomicfile"
	"kubernetes-release/internal/logging"
	"kubernetes-release/preflight"
	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/awssim/store"
	"kubernetes-release/testbed/lab/cpi"
	"kubernetes-release/testbed/lab/dns"
	"kubernetes-release/testbed/lab/names"
	"kubernetes-release/testbed/lab/network"
	"kubernetes-release/testbed/lab/volume"
)

// HealthPath returns 200 on the port of the API as soon as the cloud process is ready.
const HealthPath = "/_lab/health"

const (
	worldFile         = "aws.json"
	recordFile        = "log/aws-calls.jsonl"
	cloudSettingsFile = "cloud-settings.json"
)

// cloudSettings are what the simulated cloud is created with; later changes have no effect on a cloud that exists.
type cloudSettings struct {
	// Cluster is the name in the tags of the simulated subnets, and in the policies of the VMs' roles.
	Cluster string `json:"cluster"`
	// PodNetwork is the network that the cloud controller writes routes to, for which its role needs more permissions;
	// "" without cloud routes.
	PodNetwork string `json:"pod_network,omitempty"`
	// Storage is whether the EBS CSI driver runs, which uses the role of the control VMs.
	Storage bool `json:"storage,omitempty"`
	// CloudConfig is the cloud controller's configuration file, which its role's permissions depend on.
	CloudConfig string `json:"cloud_config,omitempty"`
	// Empty is an account in which nothing is prepared for a cluster, and whose Director has a key of its own.
	Empty bool `json:"empty,omitempty"`
}

// world returns the account that the simulator starts with. The roles of its VMs have the policies that operators
// attach, and nothing else.
func (c cloudSettings) world(number int) (*store.World, error) {
	if c.Empty {
		return awssim.EmptyWorld(network.Network{Number: number}.Prefix()), nil
	}
	world := awssim.LabWorld(number, c.Cluster)
	if c.PodNetwork != "" {
		pods, err := netip.ParsePrefix(c.PodNetwork)
		if err != nil {
			return nil, fmt.Errorf("pod network: %w", err)
		}
		awssim.RoutePods(world, c.Cluster, pods)
	}
	for _, role := range []preflight.Role{preflight.Control, preflight.Worker} {
		policy, err := aws.NewPolicy(
			aws.PolicyOptions{
				Role:        role,
				Cluster:     c.Cluster,
				VPC:         awssim.LabVPC,
				CloudRoutes: c.PodNetwork != "",
				Storage:     c.Storage,
				CloudConfig: []byte(c.CloudConfig),
			},
		)
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

// writeCloudSettings writes the settings of a cloud that does not exist yet.
func (l *Lab) writeCloudSettings(settings cloudSettings) error {
	if _, err := os.Stat(l.path(worldFile)); err == nil {
		return nil
	}
	text, err := json.Marshal(settings)
	if err != nil {
		return err
	}
	return atomicfile.Write(l.path(cloudSettingsFile), append(text, '\n'), 0o644)
}

func (l *Lab) readCloudSettings() (settings cloudSettings, err error) {
	text, err := os.ReadFile(l.path(cloudSettingsFile))
	if err == nil {
		err = json.Unmarshal(text, &settings)
	}
	if err != nil {
		return settings, fmt.Errorf("reading the cloud's settings: %w", err)
	}
	return settings, nil
}

// CreateEmptyAccount starts the simulated cloud of a lab in which nothing is deployed yet. Nothing in its account is
// prepared for a cluster, and the Director may not pass roles to VMs. Later deploys use this account.
func (l *Lab) CreateEmptyAccount(ctx context.Context) error {
	if _, err := os.Stat(l.path(cloudSettingsFile)); err == nil {
		return fmt.Errorf("the lab in %s has an account; `bin/lab down` removes the lab", l.Dir)
	}
	if err := l.writeCloudSettings(cloudSettings{Empty: true}); err != nil {
		return err
	}
	if err := l.ensureCloud(ctx, l.progress()); err != nil {
		return err
	}
	return l.writeAWS()
}

// cloudSettings are those of the deployment's cloud.
func (s *session) cloudSettings() cloudSettings {
	return cloudSettings{
		Cluster:     s.clusterName(),
		PodNetwork:  s.routedPodNetwork(),
		Storage:     s.storage(),
		CloudConfig: s.cloudConfig(),
	}
}

// clusterName returns the name of the deployment's cluster.
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

// cloudConfig returns the cloud controller's configuration file in the deployment.
func (s *session) cloudConfig() string {
	for _, group := range s.plan.Groups {
		for _, job := range group.Jobs {
			if config, ok := dig(job.Properties, "config").(string); ok && job.Job.Name == "cloud-provider" {
				return config
			}
		}
	}
	return ""
}

// routedPodNetwork returns the pod network if the deployment's cloud controller manages routes to it.
func (s *session) routedPodNetwork() string {
	var network string
	var routed bool
	for _, group := range s.plan.Groups {
		for _, job := range group.Jobs {
			if cidr, ok := dig(job.Properties, "cluster", "pod_cidr").(string); ok {
				network = cidr
			}
			if routes, ok := dig(job.Properties, "configure_cloud_routes").(bool); ok && routes {
				routed = true
			}
		}
	}
	if !routed {
		return ""
	}
	return network
}

// storage reports whether the deployment has the EBS CSI driver.
func (s *session) storage() bool {
	for _, group := range s.plan.Groups {
		for _, job := range group.Jobs {
			if job.Job.Name == "ebs-csi-controller" {
				return true
			}
		}
	}
	return false
}

// cloud returns the CPI's client of the simulated cloud. In an account that was empty it has the Director's key.
func (l *Lab) cloud() cpi.Cloud {
	id, secret := awssim.LabAccessKeyID, awssim.LabSecretAccessKey
	if settings, err := l.readCloudSettings(); err == nil && settings.Empty {
		id, secret = awssim.DirectorAccessKeyID, awssim.DirectorSecretAccessKey
	}
	return cpi.NewAWS(APIURL(l.Network), awssim.LabRegion, id, secret)
}

// plumbing adds the addresses of the simulated load balancers to the bridge.
type plumbing struct{ network network.Network }

// Add implements forward.Plumbing.
func (p plumbing) Add(a netip.Addr) error { return p.network.AddAddress(a) }

// Remove implements forward.Plumbing.
func (p plumbing) Remove(a netip.Addr) error { return p.network.RemoveAddress(a) }

// RunCloud is the cloud process: AWS's API, instance metadata, load balancers, registry and DNS. It runs inside the
// cloud namespace until ctx ends.
func (l *Lab) RunCloud(ctx context.Context) error {
	log := logging.New(os.Stderr)
	settings, err := l.readCloudSettings()
	if err != nil {
		return err
	}
	world, err := settings.world(l.Network.Number)
	if err != nil {
		return fmt.Errorf("creating the simulated cloud: %w", err)
	}
	simulator, err := awssim.New(world, awssim.Options{
		StateFile:  l.path(worldFile),
		RecordFile: l.path(recordFile),
		Registry:   l.Network.Gateway(),
		Plumbing:   plumbing{l.Network},
		Disks:      volume.Store{StateDir: l.Dir},
		Router:     l.Network,
		Log:        log,
	})
	if err != nil {
		return fmt.Errorf("starting the simulated cloud: %w", err)
	}
	bosh := names.NewResolver(l.Dir, log)
	resolver := &dns.Server{Log: log, Lookups: []dns.Lookup{bosh.Lookup, func(name string) ([]netip.Addr, bool) {
		addresses := simulator.Lookup(name)
		return addresses, len(addresses) > 0
	}}}
	api := http.NewServeMux()
	api.HandleFunc(HealthPath, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	api.Handle("/", simulator.Handler())
	gateway := l.Network.Gateway().String()
	metadata := simulator.MetadataServer()
	metadata.Addr = net.JoinHostPort(network.Metadata.String(), "80")
	registry, err := l.registryServer(simulator)
	if err != nil {
		return errors.Join(err, simulator.Close())
	}
	servers := []*http.Server{
		{
			Addr:              net.JoinHostPort(gateway, strconv.Itoa(APIPort)),
			Handler:           api,
			ReadHeaderTimeout: 10 * time.Second,
		},
		metadata,
		registry,
	}
	go bosh.Run(ctx)
	log.Info("cloud started", "network", l.Network.Prefix(), "api", APIURL(l.Network), "cluster", settings.Cluster)
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
	err = errors.Join(err, <-answered, simulator.Close())
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
