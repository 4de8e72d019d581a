package aws

import (
	"context"
	"slices"
	"sync"
	"time"

	"kubernetes-release/cloud/aws/awsclient"
	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/cloud/aws/cloudconfig"
	"kubernetes-release/cloud/aws/identity"
	"kubernetes-release/cloud/aws/metadata"
	"kubernetes-release/internal/poll"
	"kubernetes-release/preflight"
)

// gatherer asks for facts.
type gatherer struct {
	provider *Provider
	metadata *metadata.Client
	recorder *recorder
	api      *api
	log      func(msg string, args ...any)
	facts    *facts

	secrets *preflight.Secrets
	mu      sync.Mutex // guards the credentials
}

// gather asks the given sources again and leaves the values of the others unchanged. Instance metadata that does not
// reply is asked again until the deadline, because nothing else can be asked without it.
func (g *gatherer) gather(ctx context.Context, wanted source, deadline time.Time) {
	f := g.facts
	g.gatherRole(ctx, wanted)
	backoff := g.provider.roundPause()
	for f.metadataFailure() != nil && g.provider.now().Before(deadline) {
		g.log("waiting", "for", "instance metadata", "last", f.metadataFailure().Error())
		if poll.Sleep(ctx, backoff.Next()) != nil {
			break
		}
		g.gatherRole(ctx, fromProfile|fromCredentials)
	}
	if wanted&fromRegistry != 0 && f.metadataErr == nil {
		f.registryHost, f.registryErr = awsclient.HostPort(awsclient.RegistryEndpoint(f.metadata.Region)), nil
	}
	registry := make(chan error, 1)
	go func() {
		if wanted&fromRegistry == 0 || f.registryHost == "" {
			registry <- nil
			return
		}
		registry <- g.provider.reachable(ctx, awsclient.RegistryEndpoint(f.metadata.Region))
	}()
	tokens := make(chan struct{})
	go func() {
		defer close(tokens)
		if wanted&fromTokenService != 0 && f.metadataErr == nil {
			g.gatherTokenService(ctx)
		}
	}()
	node := make(chan struct{})
	go func() {
		defer close(node)
		if wanted&fromNode != 0 && f.metadataErr == nil && f.request.NodeKubeconfig != "" {
			f.nodeProviderID, f.nodeErr = g.provider.nodeProviderID(ctx, f.request.NodeKubeconfig, f.metadata.Hostname)
		}
	}()
	if wanted&fromEC2 != 0 {
		g.gatherEC2(ctx, wanted)
	}
	<-node
	<-tokens
	if err := <-registry; wanted&fromRegistry != 0 {
		f.registryErr = err
	}
	f.skew, f.skewKnown = g.recorder.clockSkew()
	f.medianReply = g.metadata.Replies.Median()
	f.local, f.localErr = g.provider.localAddresses()
}

// gatherTokenService connects to the endpoint of STS that the job kubelet-csr-approver uses, which the same SDK
// chooses.
func (g *gatherer) gatherTokenService(ctx context.Context) {
	f := g.facts
	if f.credentialsErr != nil {
		return
	}
	endpoint, err := identity.TokenServiceEndpoint(ctx, f.metadata.Region, g.currentCredentials)
	if err != nil {
		f.tokenErr = err
		return
	}
	f.tokenHost, f.tokenErr = awsclient.HostPort(endpoint), g.provider.reachable(ctx, endpoint)
}

// gatherMetadata reads the identity of the machine and optionally its role. The identity document is read first:
// without a session token, or on a machine that has no metadata, nothing else can be read.
func (g *gatherer) gatherMetadata(ctx context.Context, role bool) {
	f := g.facts
	if f.metadata, f.metadataErr = g.metadata.Instance(ctx); f.metadataErr != nil {
		return
	}
	_ = awsclient.InParallel(
		func() error {
			f.metadata, f.metadataErr = g.metadata.Network(ctx, f.metadata)
			return nil
		},
		func() error {
			if role {
				g.gatherRole(ctx, fromProfile|fromCredentials)
			}
			return nil
		})
}

// gatherRole asks again for the instance profile and the role's credentials, as wanted, and for credentials that are
// about to expire.
func (g *gatherer) gatherRole(ctx context.Context, wanted source) {
	f := g.facts
	f.now = g.provider.now()
	_ = awsclient.InParallel(
		func() error {
			if wanted&fromProfile != 0 {
				f.profile, f.profileErr = g.metadata.Profile(ctx)
			}
			return nil
		},
		func() error {
			expiring := f.credentialsErr == nil && f.credentials.Expires.Before(f.now.Add(time.Minute))
			if wanted&fromCredentials != 0 || expiring {
				c, err := g.metadata.Credentials(ctx, f.now)
				f.credentialsErr = err
				g.setCredentials(c)
			}
			return nil
		})
}

func (g *gatherer) setCredentials(c metadata.Credentials) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.facts.credentials = c
	g.secrets.Add(c.SecretAccessKey, c.Token, c.AccessKeyID)
}

func (g *gatherer) currentCredentials() metadata.Credentials {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.facts.credentials
}

// gatherEC2 makes all calls in parallel that do not depend on each other. Calls that depend on the instance's
// description wait for it only if instance metadata does not have what they need.
func (g *gatherer) gatherEC2(ctx context.Context, wanted source) {
	f := g.facts
	if f.credentialsErr != nil {
		g.giveUp(wanted, awserr.NotAsked("there are no credentials"))
		return
	}
	if g.api == nil {
		if err := g.connect(ctx); err != nil {
			g.giveUp(wanted, err)
			return
		}
		if g.provider.BeforeCalls != nil {
			g.provider.BeforeCalls()
		}
	}
	ask := func(s source, roles ...preflight.Role) bool {
		return wanted&s != 0 && (len(roles) == 0 || slices.Contains(roles, f.request.Role))
	}
	if ask(fromInstance) && needsInstanceFirst(f) {
		f.instance, f.instanceErr = g.api.describeInstance(ctx, f.instanceID())
		wanted &^= fromInstance
	}
	// Which of several groups permissions are tested on depends on their tags.
	if ask(fromGroups, preflight.Control) && len(f.groupIDs()) > 1 {
		f.groups, f.groupsErr = g.describeGroups(ctx, f.groupIDs())
		wanted &^= fromGroups
	}
	// IAM is asked about the keys that volumes are encrypted with.
	if ask(fromStorage, preflight.Control) && f.storage() {
		f.encryption, f.encryptionErr = g.api.encryption(ctx)
	}
	// Pod routes are tested on the table that the cloud controller writes them to.
	if ask(fromRouteTables, preflight.Control) && f.request.ConfigureCloudRoutes {
		f.routeTables, f.routesErr = g.describeClusterTables(ctx)
	}
	tasks := []func() error{}
	add := func(when bool, task func()) {
		if when {
			tasks = append(tasks, func() error { task(); return nil })
		}
	}
	// The ids are read before the calls start, because one of the calls changes what they are read from.
	vpcID, subnetID, groupIDs := f.vpcID(), f.subnetID(), f.groupIDs()
	add(ask(fromInstance), func() { f.instance, f.instanceErr = g.api.describeInstance(ctx, f.instanceID()) })
	add(ask(fromSubnets), func() { f.subnets, f.subnetsErr = g.describeSubnets(ctx, vpcID, subnetID) })
	add(
		ask(fromRouteTables, preflight.Control),
		func() { f.tables, f.tablesErr = g.describeRouteTables(ctx, "vpc-id", vpcID) },
	)
	add(
		ask(fromGroups, preflight.Control) && f.conf.ElbSecurityGroup != "",
		func() { f.balancers, f.balancersErr = g.describeBalancersGroup(ctx) },
	)
	add(ask(fromZones, preflight.Control), func() { f.zones, f.zonesErr = g.api.describeZones(ctx) })
	add(
		ask(fromCluster, preflight.Control),
		func() { f.machines, f.machinesErr = g.api.describeMachines(ctx, f.tagKey(), f.storage()) },
	)
	// A worker with one group needs no call, unless its rules matter: the cloud controller uses that group, tagged or
	// not.
	add(
		ask(fromGroups) &&
			(f.isControl() || len(groupIDs) > 1 || f.request.Thorough || f.conf.NoIngressManagement || f.podsRouted()),
		func() { f.groups, f.groupsErr = g.describeGroups(ctx, groupIDs) },
	)
	if ask(fromProbes, preflight.Control) {
		probes := g.permissionProbes(vpcID, groupIDs)
		f.probes = make([]probe, len(probes))
		for i, p := range probes {
			add(true, func() { f.probes[i] = p.run(ctx) })
		}
	}
	add(
		ask(fromPolicies) && (f.isControl() || f.request.Thorough),
		func() { f.policies, f.policiesErr = g.askPolicies(ctx) },
	)
	_ = awsclient.InParallel(tasks...)
}

// overrides are the endpoints that the configuration replaces. Only the cloud controller reads them.
func (f *facts) overrides() []cloudconfig.Override {
	if !f.isControl() {
		return nil
	}
	return f.conf.Overrides
}

// describeClusterTables returns the route tables that the cloud controller chooses from for pod routes.
func (g *gatherer) describeClusterTables(ctx context.Context) ([]routeTable, error) {
	if id := g.facts.conf.RouteTableID; id != "" {
		return g.describeRouteTables(ctx, "route-table-id", id)
	}
	return g.describeRouteTables(ctx, "tag-key", g.facts.tagKey())
}

func (g *gatherer) describeBalancersGroup(ctx context.Context) (*securityGroup, error) {
	groups, err := g.api.describeGroups(ctx, []string{g.facts.conf.ElbSecurityGroup})
	if err != nil {
		return nil, err
	}
	return &groups[0], nil
}

// needsInstanceFirst reports whether instance metadata lacks an id that other calls require.
func needsInstanceFirst(f *facts) bool {
	return f.vpcID() == "" || f.subnetID() == "" || len(f.groupIDs()) == 0
}

func (g *gatherer) giveUp(wanted source, err error) {
	f := g.facts
	for s, target := range map[source]*error{
		fromInstance: &f.instanceErr, fromSubnets: &f.subnetsErr, fromRouteTables: &f.tablesErr, fromZones: &f.zonesErr, fromGroups: &f.groupsErr,
	} {
		if wanted&s != 0 {
			*target = err
		}
	}
	if wanted&fromRouteTables != 0 {
		f.routesErr = err
	}
	if wanted&fromGroups != 0 {
		f.balancersErr = err
	}
	if wanted&fromStorage != 0 {
		f.encryptionErr = err
	}
	if wanted&fromCluster != 0 {
		f.machinesErr = err
	}
	if wanted&fromProbes != 0 {
		f.probes = nil
	}
	if wanted&fromPolicies != 0 {
		f.policies, f.policiesErr = nil, err
	}
}

// describeSubnets returns all subnets of the VPC on a control VM, and the instance's own on a worker.
func (g *gatherer) describeSubnets(ctx context.Context, vpcID, subnetID string) ([]subnet, error) {
	switch {
	case g.facts.isControl() && vpcID == "":
		return nil, awserr.NotAsked("the VPC is unknown")
	case g.facts.isControl():
		return g.api.describeSubnetsOf(ctx, vpcID)
	case subnetID == "":
		return nil, awserr.NotAsked("the instance's subnet is unknown")
	}
	return g.api.describeSubnet(ctx, subnetID)
}

func (g *gatherer) describeRouteTables(ctx context.Context, filterName, value string) ([]routeTable, error) {
	if value == "" {
		return nil, awserr.NotAsked("the VPC is unknown")
	}
	return g.api.describeRouteTables(ctx, filterName, value)
}

func (g *gatherer) describeGroups(ctx context.Context, ids []string) ([]securityGroup, error) {
	if len(ids) == 0 {
		return nil, awserr.NotAsked("the instance's security groups are unknown")
	}
	return g.api.describeGroups(ctx, ids)
}
