// Package gather asks instance metadata and AWS for facts.
package gather

import (
	"context"
	"errors"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"

	"kubernetes-release/cloud/aws/awsapi"
	"kubernetes-release/cloud/aws/awsclient"
	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/cloud/aws/cloudconfig"
	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/cloud/aws/iampolicy"
	"kubernetes-release/cloud/aws/identity"
	"kubernetes-release/cloud/aws/leftbehind"
	"kubernetes-release/cloud/aws/metadata"
	"kubernetes-release/cloud/aws/resource"
	"kubernetes-release/cloud/owners"
	"kubernetes-release/internal/poll"
	"kubernetes-release/node"
	"kubernetes-release/preflight"
)

// Environment is what a gatherer uses besides AWS. All of it but the endpoint is set.
type Environment struct {
	Endpoint       string // URL of all APIs; empty: from the SDK's environment variables
	Now            func() time.Time
	LocalAddresses func() ([]netip.Addr, error)
	Reachable      func(ctx context.Context, endpoint *url.URL) error
	NodeProviderID func(ctx context.Context, kubeconfig, name string) (string, error)
	RoundPause     func() *preflight.Backoff
	ThrottleSpan   time.Duration // over which throttled calls are spread at first
	BeforeCalls    func()        // before the first call of EC2
}

// Gatherer asks for facts.
type Gatherer struct {
	environment Environment
	metadata    *metadata.Client
	Recorder    *awsapi.Recorder
	api         *awsapi.Client
	own         *awsapi.Client // as the role of the instance profile, if api is another one
	log         func(msg string, args ...any)
	Facts       *facts.Facts

	Secrets *preflight.Secrets
	mu      sync.Mutex // guards the credentials
}

// New returns what asks for the facts of one run. It logs what it waits for, and adds the credentials that it
// reads to the secrets.
func New(
	e Environment, client *metadata.Client, f *facts.Facts, secrets *preflight.Secrets,
	log func(msg string, args ...any),
) *Gatherer {
	return &Gatherer{
		environment: e, metadata: client, Recorder: awsapi.NewRecorder(e.Now, secrets), log: log, Facts: f,
		Secrets: secrets,
	}
}

// Close closes the connections to AWS that are idle.
func (g *Gatherer) Close() {
	if g.api != nil {
		g.api.HTTP.CloseIdleConnections()
	}
}

// Gather asks the given sources again and leaves the values of the others unchanged. Instance metadata that does not
// reply is asked again until the deadline, because nothing else can be asked without it.
func (g *Gatherer) Gather(ctx context.Context, wanted facts.Source, deadline time.Time) {
	f := g.Facts
	g.gatherRole(ctx, wanted)
	backoff := g.environment.RoundPause()
	for f.MetadataFailure() != nil && g.environment.Now().Before(deadline) {
		g.log("waiting", "for", "instance metadata", "last", f.MetadataFailure().Error())
		if poll.Sleep(ctx, backoff.Next()) != nil {
			break
		}
		g.gatherRole(ctx, facts.FromProfile|facts.FromCredentials)
	}
	registryEndpoint := awsclient.RegistryEndpoint(f.Metadata.Region, g.environment.Endpoint)
	if wanted&facts.FromRegistry != 0 && f.MetadataErr == nil {
		f.RegistryHost, f.RegistryErr = awsclient.HostPort(registryEndpoint), nil
	}
	registry := make(chan error, 1)
	go func() {
		if wanted&facts.FromRegistry == 0 || f.RegistryHost == "" {
			registry <- nil
			return
		}
		registry <- g.environment.Reachable(ctx, registryEndpoint)
	}()
	tokens := make(chan struct{})
	go func() {
		defer close(tokens)
		if wanted&facts.FromTokenService != 0 && f.MetadataErr == nil && f.IsControl() {
			g.gatherTokenService(ctx)
		}
	}()
	node := make(chan struct{})
	go func() {
		defer close(node)
		if wanted&facts.FromNode != 0 && f.MetadataErr == nil && f.Settings.NodeKubeconfig != "" {
			f.NodeProviderID, f.NodeErr = g.environment.NodeProviderID(
				ctx,
				f.Settings.NodeKubeconfig,
				f.Metadata.Hostname,
			)
		}
	}()
	if wanted&facts.FromEC2 != 0 {
		g.gatherEC2(ctx, wanted)
	}
	<-node
	<-tokens
	if err := <-registry; wanted&facts.FromRegistry != 0 {
		f.RegistryErr = err
	}
	f.Skew, f.SkewKnown = g.Recorder.ClockSkew()
	f.MedianReply = g.metadata.Replies.Median()
	f.Local, f.LocalErr = g.environment.LocalAddresses()
}

// gatherTokenService asks STS who this machine is, as the job node-controller asks it about machines that join.
func (g *Gatherer) gatherTokenService(ctx context.Context) {
	f := g.Facts
	if f.CredentialsErr != nil {
		return
	}
	f.TokenHost, f.TokenErr = identity.Rehearse(
		ctx, f.Metadata.Region, g.environment.Endpoint, f.Request.Cluster, g.currentCredentials(), g.environment.Now(),
	)
	var refusal *node.Refusal
	f.TokenRefused = errors.As(f.TokenErr, &refusal)
}

// GatherMetadata reads the identity of the machine and optionally its role. The identity document is read first:
// without a session token, or on a machine that has no metadata, nothing else can be read.
func (g *Gatherer) GatherMetadata(ctx context.Context, role bool) {
	f := g.Facts
	if f.Metadata, f.MetadataErr = g.metadata.Instance(ctx); f.MetadataErr != nil {
		return
	}
	_ = awsclient.InParallel(
		func() error {
			f.Metadata, f.MetadataErr = g.metadata.Network(ctx, f.Metadata)
			return nil
		},
		func() error {
			if role {
				g.gatherRole(ctx, facts.FromProfile|facts.FromCredentials)
			}
			return nil
		})
}

// PrivateDNSName asks EC2 for the name of this instance, with the role of its profile. Others find the instance by this
// name, also without the cloud controller's configuration.
func (g *Gatherer) PrivateDNSName(ctx context.Context) (string, error) {
	f := g.Facts
	g.gatherRole(ctx, facts.FromCredentials)
	if f.CredentialsErr != nil {
		return "", f.CredentialsErr
	}
	api, err := g.client(ctx, f.Metadata.Region, g.ownCredentials(), nil)
	if err != nil {
		return "", err
	}
	defer api.HTTP.CloseIdleConnections()
	instance, err := api.DescribeInstance(ctx, f.InstanceID())
	if err != nil {
		return "", err
	}
	named := f.Metadata
	named.Hostname = strings.ToLower(instance.PrivateDNSName)
	return named.Hostname, named.Identity().Validate()
}

// gatherRole asks again for the instance profile and the role's credentials, as wanted, and for credentials that are
// about to expire.
func (g *Gatherer) gatherRole(ctx context.Context, wanted facts.Source) {
	f := g.Facts
	f.Now = g.environment.Now()
	_ = awsclient.InParallel(
		func() error {
			if wanted&facts.FromProfile != 0 {
				f.Profile, f.ProfileErr = g.metadata.Profile(ctx)
			}
			return nil
		},
		func() error {
			expiring := f.CredentialsErr == nil && f.Credentials.Expires.Before(f.Now.Add(time.Minute))
			if wanted&facts.FromCredentials != 0 || expiring {
				c, err := g.metadata.Credentials(ctx, f.Now)
				f.CredentialsErr = err
				g.setCredentials(c)
			}
			return nil
		})
}

func (g *Gatherer) setCredentials(c metadata.Credentials) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.Facts.Credentials = c
	g.Secrets.Add(c.SecretAccessKey, c.Token, c.AccessKeyID)
}

func (g *Gatherer) currentCredentials() metadata.Credentials {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.Facts.Credentials
}

// gatherEC2 makes all calls in parallel that do not depend on each other. Calls that depend on the instance's
// description wait for it only if instance metadata does not have what they need.
func (g *Gatherer) gatherEC2(ctx context.Context, wanted facts.Source) {
	f := g.Facts
	if f.CredentialsErr != nil {
		g.GiveUp(wanted, awserr.NotAsked("there are no credentials"))
		return
	}
	if g.api == nil {
		if err := g.connect(ctx); err != nil {
			g.GiveUp(wanted, err)
			return
		}
		g.environment.BeforeCalls()
	}
	ask := func(s facts.Source, roles ...preflight.Role) bool {
		return wanted&s != 0 && (len(roles) == 0 || slices.Contains(roles, f.Request.Role))
	}
	if ask(facts.FromInstance) && needsInstanceFirst(f) {
		f.Instance, f.InstanceErr = g.api.DescribeInstance(ctx, f.InstanceID())
		wanted &^= facts.FromInstance
	}
	// Which of several groups permissions are tested on depends on their tags.
	if ask(facts.FromGroups, preflight.Control) && len(f.GroupIDs()) > 1 {
		f.Groups, f.GroupsErr = g.describeGroups(ctx, f.GroupIDs())
		wanted &^= facts.FromGroups
	}
	// IAM is asked about the keys that volumes are encrypted with.
	if ask(facts.FromStorage, preflight.Control) && f.Storage() {
		f.Encryption, f.EncryptionErr = g.api.Encryption(ctx)
		f.KeyAnswers = g.describeKeys(ctx)
	}
	// Pod routes are tested on the table that the cloud controller writes them to.
	if ask(facts.FromRouteTables, preflight.Control) && f.Settings.ConfigureCloudRoutes {
		f.RouteTables, f.RoutesErr = g.describeClusterTables(ctx)
	}
	tasks := []func() error{}
	add := func(when bool, task func()) {
		if when {
			tasks = append(tasks, func() error { task(); return nil })
		}
	}
	// The ids are read before the calls start, because one of the calls changes what they are read from.
	vpcID, subnetID, groupIDs := f.VPCID(), f.SubnetID(), f.GroupIDs()
	if ask(facts.FromSubnets|facts.FromGroups, preflight.Worker) && !needsInstanceFirst(f) && !f.NeedsRules() {
		add(true, func() { g.describeTags(ctx, subnetID, groupIDs) })
		wanted &^= facts.FromSubnets | facts.FromGroups
	}
	add(ask(facts.FromInstance), func() { f.Instance, f.InstanceErr = g.api.DescribeInstance(ctx, f.InstanceID()) })
	add(ask(facts.FromSubnets), func() { f.Subnets, f.SubnetsErr = g.describeSubnets(ctx, vpcID, subnetID) })
	add(
		ask(facts.FromRouteTables, preflight.Control),
		func() { f.Tables, f.TablesErr = g.describeRouteTables(ctx, "vpc-id", vpcID) },
	)
	add(
		ask(facts.FromGroups, preflight.Control) && f.Conf.ElbSecurityGroup != "",
		func() { f.Balancers, f.BalancersErr = g.describeBalancersGroup(ctx) },
	)
	add(ask(facts.FromZones, preflight.Control), func() { f.Zones, f.ZonesErr = g.api.DescribeZones(ctx) })
	add(
		ask(facts.FromCluster, preflight.Control),
		func() { f.Machines, f.MachinesErr = g.api.DescribeMachines(ctx, f.TagKey(), f.Storage()) },
	)
	add(ask(facts.FromEncryption, preflight.Control) && f.AsksEncryptionKey(), func() {
		f.EncryptionUse.Action, f.EncryptionUse.Err = g.own.UseKey(ctx, f.Settings.EncryptionKey, f.Cluster())
	})
	// In a deployment, pre-start of job pod-roles publishes at the same time, and verifies what it has published.
	add(ask(facts.FromIssuer, preflight.Control) && f.Issuer != nil && f.Request.Thorough, func() {
		f.IssuerErrs = f.Issuer.Problems(ctx)
	})
	// In a deployment it would take too many calls, and control VMs that are new have no API server yet.
	add(ask(facts.FromLeftBehind, preflight.Control) && f.Request.Thorough, func() {
		f.LeftBehind, f.LeftBehindErr = g.sweep(ctx, vpcID, groupIDs)
	})
	add(ask(facts.FromGroups), func() { f.Groups, f.GroupsErr = g.describeGroups(ctx, groupIDs) })
	if ask(facts.FromProbes, preflight.Control) {
		probes := g.permissionProbes(vpcID, groupIDs)
		f.Probes = make([]facts.Probe, len(probes))
		for i, p := range probes {
			add(true, func() { f.Probes[i] = p.run(ctx) })
		}
	}
	add(
		ask(facts.FromPolicies) && (f.IsControl() || f.Request.Thorough),
		func() { f.Policies, f.PoliciesErr = g.askPolicies(ctx) },
	)
	_ = awsclient.InParallel(tasks...)
	// What a role may do with the group of another cluster is not asked: IAM answers about one of this cluster.
	f.Probes = slices.DeleteFunc(f.Probes, func(p facts.Probe) bool {
		return f.Group(p.Resource).OnlyForeign(f.Cluster())
	})
}

// sweep looks for what is left behind. It lists the cluster's objects as the kubelet, which may list Services, or as
// the AWS Load Balancer Controller, which may list its Ingresses and Gateways too, the latter where it serves them.
func (g *Gatherer) sweep(ctx context.Context, vpc string, groups []string) ([]leftbehind.Thing, error) {
	settings := g.Facts.Settings
	path, others := settings.NodeKubeconfig, []owners.Kind(nil)
	if settings.LoadBalancerKubeconfig != "" {
		path, others = settings.LoadBalancerKubeconfig, []owners.Kind{owners.Ingresses, owners.Gateways}
	}
	switch {
	case vpc == "":
		return nil, awserr.NotAsked("the VPC is unknown")
	case path == "":
		return nil, awserr.NotAsked("there is no kubeconfig")
	}
	list, err := owners.As(path, others...)
	if err != nil {
		return nil, err
	}
	cluster := leftbehind.Cluster{Name: g.Facts.Cluster(), VPC: vpc, Groups: groups}
	return leftbehind.Sweep(ctx, g.api, list, cluster, g.environment.Now())
}

// describeClusterTables returns the route tables that the cloud controller chooses from for pod routes.
func (g *Gatherer) describeClusterTables(ctx context.Context) (resource.RouteTables, error) {
	if id := g.Facts.Conf.RouteTableID; id != "" {
		return g.describeRouteTables(ctx, "route-table-id", id)
	}
	return g.describeRouteTables(ctx, "tag-key", g.Facts.TagKey())
}

// describeKeys asks KMS about the customer managed keys of volumes that can be keys of the region.
func (g *Gatherer) describeKeys(ctx context.Context) map[string]facts.KeyAnswer {
	answers := map[string]facts.KeyAnswer{}
	var mu sync.Mutex
	var tasks []func() error
	for _, name := range g.Facts.Keys() {
		if !g.Facts.IsInRegion(name) {
			continue
		}
		tasks = append(tasks, func() error {
			key, err := g.api.DescribeKey(ctx, name)
			mu.Lock()
			defer mu.Unlock()
			answers[name] = facts.KeyAnswer{Key: key, Err: err}
			return nil
		})
	}
	_ = awsclient.InParallel(tasks...)
	return answers
}

func (g *Gatherer) describeBalancersGroup(ctx context.Context) (*resource.SecurityGroup, error) {
	groups, err := g.api.DescribeGroups(ctx, []string{g.Facts.Conf.ElbSecurityGroup})
	if err != nil {
		return nil, err
	}
	return &groups[0], nil
}

// needsInstanceFirst reports whether instance metadata lacks an id that other calls require.
func needsInstanceFirst(f *facts.Facts) bool {
	return f.VPCID() == "" || f.SubnetID() == "" || len(f.GroupIDs()) == 0
}

// GiveUp sets the error of sources that cannot be asked.
func (g *Gatherer) GiveUp(wanted facts.Source, err error) {
	f := g.Facts
	for s, target := range map[facts.Source]*error{
		facts.FromInstance: &f.InstanceErr, facts.FromSubnets: &f.SubnetsErr, facts.FromRouteTables: &f.TablesErr,
		facts.FromZones: &f.ZonesErr, facts.FromGroups: &f.GroupsErr,
	} {
		if wanted&s != 0 {
			*target = err
		}
	}
	if wanted&facts.FromRouteTables != 0 {
		f.RoutesErr = err
	}
	if wanted&facts.FromGroups != 0 {
		f.BalancersErr = err
	}
	if wanted&facts.FromStorage != 0 {
		f.EncryptionErr = err
	}
	if wanted&facts.FromCluster != 0 {
		f.MachinesErr = err
	}
	if wanted&facts.FromEncryption != 0 {
		f.EncryptionUse = facts.KeyUse{Err: err}
	}
	if wanted&facts.FromIssuer != 0 {
		f.IssuerErrs = []error{err}
	}
	if wanted&facts.FromLeftBehind != 0 {
		f.LeftBehindErr = err
	}
	if wanted&facts.FromProbes != 0 {
		f.Probes = nil
	}
	if wanted&facts.FromPolicies != 0 {
		f.Policies, f.PoliciesErr = nil, err
	}
}

// describeSubnets returns all subnets of the VPC on a control VM, and the instance's own on a worker.
func (g *Gatherer) describeSubnets(ctx context.Context, vpcID, subnetID string) ([]resource.Subnet, error) {
	switch {
	case g.Facts.IsControl() && vpcID == "":
		return nil, awserr.NotAsked("the VPC is unknown")
	case g.Facts.IsControl():
		return g.api.DescribeSubnetsOf(ctx, vpcID)
	case subnetID == "":
		return nil, awserr.NotAsked("the instance's subnet is unknown")
	}
	return g.api.DescribeSubnets(ctx, subnetID)
}

// describeTags finds out the tags of the instance's subnet and security groups, in one call. If the role may not do
// that, it describes both, as policies of earlier versions of this release allow.
func (g *Gatherer) describeTags(ctx context.Context, subnet string, groups []string) {
	f := g.Facts
	tags, err := g.api.DescribeTags(ctx, append([]string{subnet}, groups...))
	if f.TagsOnly = awserr.Classify(err) != awserr.Denied; !f.TagsOnly {
		_ = awsclient.InParallel(
			func() error { f.Subnets, f.SubnetsErr = g.api.DescribeSubnets(ctx, subnet); return nil },
			func() error { f.Groups, f.GroupsErr = g.api.DescribeGroups(ctx, groups); return nil },
		)
		return
	}
	f.Subnets, f.SubnetsErr, f.Groups, f.GroupsErr = nil, err, nil, err
	if err != nil {
		return
	}
	f.Subnets = []resource.Subnet{{ID: subnet, Tags: tags[subnet]}}
	for _, id := range groups {
		f.Groups = append(f.Groups, resource.SecurityGroup{ID: id, Tags: tags[id]})
	}
}

func (g *Gatherer) describeRouteTables(ctx context.Context, filterName, value string) (resource.RouteTables, error) {
	if value == "" {
		return nil, awserr.NotAsked("the VPC is unknown")
	}
	return g.api.DescribeRouteTables(ctx, filterName, value)
}

func (g *Gatherer) describeGroups(ctx context.Context, ids []string) ([]resource.SecurityGroup, error) {
	if len(ids) == 0 {
		return nil, awserr.NotAsked("the instance's security groups are unknown")
	}
	return g.api.DescribeGroups(ctx, ids)
}

// connect creates the clients, which authenticate as the role that the cloud controller uses.
func (g *Gatherer) connect(ctx context.Context) error {
	f := g.Facts
	own, err := g.client(ctx, f.Region(), g.ownCredentials(), f.Overrides())
	if g.own = own; err != nil || !f.AssumesRole() {
		g.api = own
		return err
	}
	role := own.Role(f.Conf.RoleARN, f.Conf.SourceARN)
	assumed, err := awsapi.Call(ctx, own, iampolicy.AssumeAction, role.Retrieve)
	if f.AssumeErr = err; err != nil {
		return awserr.NotAsked("the cloud controller cannot assume its role (see assumed-role)")
	}
	g.Secrets.Add(assumed.SecretAccessKey, assumed.SessionToken, assumed.AccessKeyID)
	g.api, err = g.client(ctx, f.Region(), role, f.Overrides())
	return err
}

func (g *Gatherer) client(
	ctx context.Context, region string, credentials awssdk.CredentialsProvider, overrides []cloudconfig.Override,
) (*awsapi.Client, error) {
	a, err := awsapi.New(ctx, region, g.environment.Endpoint, credentials, overrides, g.Recorder)
	if err == nil {
		a.Pace, a.Log = awsapi.NewPace(g.environment.Now, g.environment.ThrottleSpan), g.log
	}
	return a, err
}

// ownCredentials are those of the role of the instance profile.
func (g *Gatherer) ownCredentials() awssdk.CredentialsProvider {
	return awssdk.CredentialsProviderFunc(
		func(context.Context) (awssdk.Credentials, error) { return g.currentCredentials().SDK(), nil },
	)
}
