package aws

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"sync"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing"
	elbv2 "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"

	"kubernetes-release/helpers/preflight"
)

// source is one thing that is asked for. Checks say which they rest on, so that only those are asked for again.
type source uint

const (
	fromMetadata source = 1 << iota
	fromProfile
	fromCredentials
	fromInstance
	fromSubnets
	fromRouteTables
	fromZones
	fromGroups
	fromProbes
	fromPolicies
	fromRegistry
	fromNode
	everything source = 1<<iota - 1
)

// fromEC2 are the sources that need credentials.
const fromEC2 = fromInstance | fromSubnets | fromRouteTables | fromZones | fromGroups | fromProbes | fromPolicies

// notAsked is the error of a source that could not be asked because another one failed; it says which.
type notAsked string

func (n notAsked) Error() string { return string(n) }

// probe is a permission that was tried out.
type probe struct {
	check    string   // the id of the check that reports it
	action   string   // the call made, such as ec2:CreateSecurityGroup
	covers   []string // the permissions that the call needs
	resource string
	err      error // nil: allowed
}

// facts is all that one round has found out. A source that failed has its error here, and its value is empty.
type facts struct {
	request preflight.Config
	conf    *cloudConfig // never nil
	confErr error
	now     time.Time

	metadata       instanceMetadata
	metadataErr    error
	profile        string
	profileErr     error
	credentials    roleCredentials
	credentialsErr error

	instance     *types.Instance
	instanceErr  error
	subnets      []types.Subnet
	subnetsErr   error
	tables       []types.RouteTable
	tablesErr    error
	zones        []types.AvailabilityZone
	zonesErr     error
	groups       []types.SecurityGroup
	groupsErr    error
	probes       []probe
	policies     *policyAnswers
	policiesErr  error
	routeTables  []types.RouteTable // the cluster's, for cloud routes
	routesErr    error
	registryHost string
	registryErr  error

	nodeProviderID string // of the Node object
	nodeErr        error

	skew      time.Duration
	skewKnown bool
	local     []netip.Addr
	localErr  error
}

func (f *facts) cluster() string    { return f.request.Cluster }
func (f *facts) tagKey() string     { return TagPrefix + f.request.Cluster }
func (f *facts) isControl() bool    { return f.request.Role == preflight.Control }
func (f *facts) instanceID() string { return f.metadata.InstanceID }

// region is the one that calls go to.
func (f *facts) region() string {
	if f.conf.Region != "" {
		return f.conf.Region
	}
	return f.metadata.Region
}

func (f *facts) vpcID() string {
	switch {
	case f.conf.VPC != "":
		return f.conf.VPC
	case f.metadata.VPC != "":
		return f.metadata.VPC
	case f.instance != nil:
		return awssdk.ToString(f.instance.VpcId)
	}
	return ""
}

func (f *facts) subnetID() string {
	if f.metadata.Subnet == "" && f.instance != nil {
		return awssdk.ToString(f.instance.SubnetId)
	}
	return f.metadata.Subnet
}

func (f *facts) groupIDs() []string {
	if len(f.metadata.Groups) > 0 || f.instance == nil {
		return f.metadata.Groups
	}
	var ids []string
	for _, g := range f.instance.SecurityGroups {
		if id := awssdk.ToString(g.GroupId); id != "" {
			ids = append(ids, id)
		}
	}
	return ids
}

func (f *facts) vpc() vpc {
	return vpc{cluster: f.cluster(), ownSubnet: f.subnetID(), subnets: f.subnets, tables: f.tables, zones: f.zones}
}

// subnet finds one of the subnets that were described.
func (f *facts) subnet(id string) *types.Subnet {
	for i := range f.subnets {
		if awssdk.ToString(f.subnets[i].SubnetId) == id {
			return &f.subnets[i]
		}
	}
	return nil
}

// gatherer asks for facts.
type gatherer struct {
	provider *Provider
	metadata *metadataClient
	recorder *recorder
	api      *api
	log      func(msg string, args ...any)
	facts    *facts

	mu      sync.Mutex
	secrets []string
}

// gather asks for the given sources again and leaves the others as they are. Instance metadata that does not reply is
// asked again until the deadline, since nothing else can be asked without it.
func (g *gatherer) gather(ctx context.Context, wanted source, deadline time.Time) {
	f := g.facts
	g.gatherRole(ctx, wanted)
	backoff := g.provider.roundPause()
	for f.silence() != nil && g.provider.now().Before(deadline) {
		g.log("waiting", "for", "instance metadata", "last", f.silence().Error())
		if preflight.Sleep(ctx, backoff.Next()) != nil {
			break
		}
		g.gatherRole(ctx, fromProfile|fromCredentials)
	}
	if wanted&fromRegistry != 0 && f.metadataErr == nil {
		f.registryHost, f.registryErr = registryAddress(f.metadata.Region), nil
	}
	registry := make(chan error, 1)
	go func() {
		if wanted&fromRegistry == 0 || f.registryHost == "" {
			registry <- nil
			return
		}
		registry <- g.provider.reachable(f.registryHost)
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
	if err := <-registry; wanted&fromRegistry != 0 {
		f.registryErr = err
	}
	f.skew, f.skewKnown = g.recorder.clockSkew()
	f.local, f.localErr = g.provider.localAddresses()
}

// silence is the fault of instance metadata that kept the profile or the credentials from being read and may pass.
func (f *facts) silence() *metadataFault {
	for _, err := range []error{f.profileErr, f.credentialsErr} {
		var fault *metadataFault
		if errors.As(err, &fault) && fault.passing() {
			return fault
		}
	}
	return nil
}

// gatherMetadata reads who the machine is and, where that is wanted, what role it has. The identity document comes first:
// without a session token, or on a machine that has no metadata, nothing else is worth asking.
func (g *gatherer) gatherMetadata(ctx context.Context, role bool) {
	f := g.facts
	if f.metadata, f.metadataErr = g.metadata.instance(ctx); f.metadataErr != nil {
		return
	}
	_ = inParallel(
		func() error {
			f.metadata, f.metadataErr = g.metadata.network(ctx, f.metadata)
			return nil
		},
		func() error {
			if role {
				g.gatherRole(ctx, fromProfile|fromCredentials)
			}
			return nil
		})
}

// gatherRole asks again for the instance profile and the role's credentials, as wanted, and for credentials that are about
// to expire.
func (g *gatherer) gatherRole(ctx context.Context, wanted source) {
	f := g.facts
	f.now = g.provider.now()
	_ = inParallel(
		func() error {
			if wanted&fromProfile != 0 {
				f.profile, f.profileErr = g.metadata.profile(ctx)
			}
			return nil
		},
		func() error {
			expiring := f.credentialsErr == nil && f.credentials.Expires.Before(f.now.Add(time.Minute))
			if wanted&fromCredentials != 0 || expiring {
				c, err := g.metadata.credentials(ctx, f.now)
				f.credentialsErr = err
				g.setCredentials(c)
			}
			return nil
		})
}

func (g *gatherer) setCredentials(c roleCredentials) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.facts.credentials = c
	g.secrets = append(g.secrets, c.SecretAccessKey, c.Token, c.AccessKeyID)
}

func (g *gatherer) currentCredentials() roleCredentials {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.facts.credentials
}

func isNotAsked(err error) bool {
	var n notAsked
	return errors.As(err, &n)
}

// gatherEC2 makes all calls that do not depend on each other at once. What depends on the instance's description
// waits for it only where instance metadata did not say enough.
func (g *gatherer) gatherEC2(ctx context.Context, wanted source) {
	f := g.facts
	if f.credentialsErr != nil {
		g.giveUp(wanted, notAsked("there are no credentials"))
		return
	}
	if g.api == nil {
		a, err := newAPI(ctx, f.region(), g.currentCredentials, g.recorder)
		if err != nil {
			g.giveUp(wanted, err)
			return
		}
		a.pace, a.log = newPace(g.provider.now, g.provider.throttleSpan()), g.log
		g.api = a
		if g.provider.BeforeCalls != nil {
			g.provider.BeforeCalls()
		}
	}
	ask := func(s source, roles ...preflight.Role) bool {
		return wanted&s != 0 && (len(roles) == 0 || slices.Contains(roles, f.request.Role))
	}
	if ask(fromInstance) && needsInstanceFirst(f) {
		f.instance, f.instanceErr = g.describeInstance(ctx)
		wanted &^= fromInstance
	}
	tasks := []func() error{}
	add := func(when bool, task func()) {
		if when {
			tasks = append(tasks, func() error { task(); return nil })
		}
	}
	// Ids are taken before the calls start, since one of the calls fills in what they are taken from.
	vpcID, subnetID, groupIDs := f.vpcID(), f.subnetID(), f.groupIDs()
	add(ask(fromInstance), func() { f.instance, f.instanceErr = g.describeInstance(ctx) })
	add(ask(fromSubnets), func() { f.subnets, f.subnetsErr = g.describeSubnets(ctx, vpcID, subnetID) })
	add(ask(fromRouteTables, preflight.Control), func() { f.tables, f.tablesErr = g.describeRouteTables(ctx, "vpc-id", vpcID) })
	add(ask(fromRouteTables, preflight.Control) && f.request.ConfigureCloudRoutes, func() {
		if f.conf.RouteTableID != "" {
			f.routeTables, f.routesErr = g.describeRouteTables(ctx, "route-table-id", f.conf.RouteTableID)
			return
		}
		f.routeTables, f.routesErr = g.describeRouteTables(ctx, "tag-key", f.tagKey())
	})
	add(ask(fromZones, preflight.Control), func() { f.zones, f.zonesErr = g.describeZones(ctx) })
	// A worker with one group needs no call: the group counts, tagged or not.
	add(ask(fromGroups) && (f.isControl() || len(groupIDs) > 1 || f.request.Thorough), func() { f.groups, f.groupsErr = g.describeGroups(ctx, groupIDs) })
	if ask(fromProbes, preflight.Control) {
		probes := g.permissionProbes(vpcID, groupIDs)
		f.probes = make([]probe, len(probes))
		for i, p := range probes {
			add(true, func() { f.probes[i] = p(ctx) })
		}
	}
	add(ask(fromPolicies) && (f.isControl() || f.request.Thorough), func() { f.policies, f.policiesErr = g.askPolicies(ctx) })
	_ = inParallel(tasks...)
}

// needsInstanceFirst tells whether instance metadata left out an id that other calls take.
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
	if wanted&fromProbes != 0 {
		f.probes = nil
	}
	if wanted&fromPolicies != 0 {
		f.policies, f.policiesErr = nil, err
	}
}

// emptyAnswer is the error of an answer that lacks what was asked for by id.
type emptyAnswer string

func (e emptyAnswer) Error() string { return string(e) }

func (g *gatherer) describeInstance(ctx context.Context) (*types.Instance, error) {
	id := g.facts.instanceID()
	out, err := call(ctx, g.api, "ec2:DescribeInstances", func(ctx context.Context) (*ec2.DescribeInstancesOutput, error) {
		return g.api.ec2.DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{id}})
	})
	if err != nil {
		return nil, err
	}
	for _, reservation := range out.Reservations {
		for i := range reservation.Instances {
			if awssdk.ToString(reservation.Instances[i].InstanceId) == id {
				return &reservation.Instances[i], nil
			}
		}
	}
	return nil, emptyAnswer("an answer without the instance")
}

// pageSize is how many subnets or route tables one call returns at most.
const pageSize = 1000

func (g *gatherer) describeSubnets(ctx context.Context, vpcID, subnetID string) ([]types.Subnet, error) {
	input := &ec2.DescribeSubnetsInput{SubnetIds: []string{subnetID}}
	if g.facts.isControl() {
		if vpcID == "" {
			return nil, notAsked("the VPC is not known")
		}
		input = &ec2.DescribeSubnetsInput{Filters: []types.Filter{filter("vpc-id", vpcID)}, MaxResults: awssdk.Int32(pageSize)}
	} else if subnetID == "" {
		return nil, notAsked("the instance's subnet is not known")
	}
	var subnets []types.Subnet
	for {
		out, err := call(ctx, g.api, "ec2:DescribeSubnets", func(ctx context.Context) (*ec2.DescribeSubnetsOutput, error) {
			return g.api.ec2.DescribeSubnets(ctx, input)
		})
		if err != nil {
			return nil, err
		}
		subnets = append(subnets, out.Subnets...)
		if awssdk.ToString(out.NextToken) == "" {
			return subnets, nil
		}
		input.NextToken = out.NextToken
	}
}

func (g *gatherer) describeRouteTables(ctx context.Context, name, value string) ([]types.RouteTable, error) {
	if value == "" {
		return nil, notAsked("the VPC is not known")
	}
	input := &ec2.DescribeRouteTablesInput{Filters: []types.Filter{filter(name, value)}, MaxResults: awssdk.Int32(100)}
	var tables []types.RouteTable
	for {
		out, err := call(ctx, g.api, "ec2:DescribeRouteTables", func(ctx context.Context) (*ec2.DescribeRouteTablesOutput, error) {
			return g.api.ec2.DescribeRouteTables(ctx, input)
		})
		if err != nil {
			return nil, err
		}
		tables = append(tables, out.RouteTables...)
		if awssdk.ToString(out.NextToken) == "" {
			return tables, nil
		}
		input.NextToken = out.NextToken
	}
}

func (g *gatherer) describeZones(ctx context.Context) ([]types.AvailabilityZone, error) {
	out, err := call(ctx, g.api, "ec2:DescribeAvailabilityZones", func(ctx context.Context) (*ec2.DescribeAvailabilityZonesOutput, error) {
		return g.api.ec2.DescribeAvailabilityZones(ctx, &ec2.DescribeAvailabilityZonesInput{})
	})
	if err != nil {
		return nil, err
	}
	return out.AvailabilityZones, nil
}

func (g *gatherer) describeGroups(ctx context.Context, ids []string) ([]types.SecurityGroup, error) {
	if len(ids) == 0 {
		return nil, notAsked("the instance's security groups are not known")
	}
	out, err := call(ctx, g.api, "ec2:DescribeSecurityGroups", func(ctx context.Context) (*ec2.DescribeSecurityGroupsOutput, error) {
		return g.api.ec2.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{GroupIds: ids})
	})
	if err != nil {
		return nil, err
	}
	return out.SecurityGroups, nil
}

func filter(name string, values ...string) types.Filter {
	return types.Filter{Name: awssdk.String(name), Values: values}
}

// permissionProbes are the calls that try out permissions to change things, without changing any: DryRun for EC2,
// and describe calls for the load balancers, which know no DryRun. With cloud routes a deploy has one call less to spare,
// and leaves the permission to close a port again to what IAM says.
func (g *gatherer) permissionProbes(vpcID string, groupIDs []string) []func(context.Context) probe {
	f := g.facts
	probes := []func(context.Context) probe{
		func(ctx context.Context) probe {
			_, err := call(ctx, g.api, "elasticloadbalancing:DescribeLoadBalancers", func(ctx context.Context) (*elb.DescribeLoadBalancersOutput, error) {
				return g.api.elb.DescribeLoadBalancers(ctx, &elb.DescribeLoadBalancersInput{PageSize: awssdk.Int32(1)})
			})
			return probe{"load-balancer-permissions", "elasticloadbalancing:DescribeLoadBalancers", []string{"elasticloadbalancing:DescribeLoadBalancers"}, "classic load balancers", err}
		},
		func(ctx context.Context) probe {
			_, err := call(ctx, g.api, "elasticloadbalancing:DescribeLoadBalancers (v2)", func(ctx context.Context) (*elbv2.DescribeLoadBalancersOutput, error) {
				return g.api.elbv2.DescribeLoadBalancers(ctx, &elbv2.DescribeLoadBalancersInput{PageSize: awssdk.Int32(1)})
			})
			return probe{"load-balancer-permissions", "elasticloadbalancing:DescribeLoadBalancers", []string{"elasticloadbalancing:DescribeLoadBalancers"}, "network load balancers", err}
		},
	}
	dryRun := func(check, action, resource string, covers []string, f func(context.Context) error) {
		probes = append(probes, func(ctx context.Context) probe {
			_, err := call(ctx, g.api, action+" (DryRun)", func(ctx context.Context) (struct{}, error) { return struct{}{}, f(ctx) })
			if wouldBeAllowed(err) {
				err = nil
			}
			return probe{check, action, covers, resource, err}
		})
	}
	if vpcID != "" && f.conf.ElbSecurityGroup == "" {
		dryRun("security-group-permissions", "ec2:CreateSecurityGroup", vpcID, []string{"ec2:CreateSecurityGroup", "ec2:CreateTags"}, func(ctx context.Context) error {
			_, err := g.api.ec2.CreateSecurityGroup(ctx, &ec2.CreateSecurityGroupInput{
				DryRun: awssdk.Bool(true), GroupName: awssdk.String("k8s-elb-cloud-preflight"), Description: awssdk.String("never created: a permission is being tried out"),
				VpcId: awssdk.String(vpcID),
				TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypeSecurityGroup,
					Tags: []types.Tag{{Key: awssdk.String(f.tagKey()), Value: awssdk.String("owned")}}}},
			})
			return err
		})
	}
	if len(groupIDs) > 0 && !f.conf.NoIngressManagement {
		group := f.managedGroup(groupIDs)
		permissions := []types.IpPermission{{IpProtocol: awssdk.String("-1"),
			UserIdGroupPairs: []types.UserIdGroupPair{{GroupId: awssdk.String(group)}}}}
		dryRun("security-group-permissions", "ec2:AuthorizeSecurityGroupIngress", group, []string{"ec2:AuthorizeSecurityGroupIngress"}, func(ctx context.Context) error {
			_, err := g.api.ec2.AuthorizeSecurityGroupIngress(ctx, &ec2.AuthorizeSecurityGroupIngressInput{
				DryRun: awssdk.Bool(true), GroupId: awssdk.String(group), IpPermissions: permissions})
			return err
		})
		if !f.request.ConfigureCloudRoutes || f.request.Thorough {
			dryRun("security-group-permissions", "ec2:RevokeSecurityGroupIngress", group, []string{"ec2:RevokeSecurityGroupIngress"}, func(ctx context.Context) error {
				_, err := g.api.ec2.RevokeSecurityGroupIngress(ctx, &ec2.RevokeSecurityGroupIngressInput{
					DryRun: awssdk.Bool(true), GroupId: awssdk.String(group), IpPermissions: permissions})
				return err
			})
		}
	}
	if !f.request.Thorough {
		return probes
	}
	if len(groupIDs) > 0 {
		group := f.managedGroup(groupIDs)
		dryRun("security-group-permissions", "ec2:DeleteSecurityGroup", group, []string{"ec2:DeleteSecurityGroup"}, func(ctx context.Context) error {
			_, err := g.api.ec2.DeleteSecurityGroup(ctx, &ec2.DeleteSecurityGroupInput{DryRun: awssdk.Bool(true), GroupId: awssdk.String(group)})
			return err
		})
	}
	dryRun("other-permissions", "ec2:DescribeInstanceTopology", f.instanceID(), []string{"ec2:DescribeInstanceTopology"}, func(ctx context.Context) error {
		_, err := g.api.ec2.DescribeInstanceTopology(ctx, &ec2.DescribeInstanceTopologyInput{DryRun: awssdk.Bool(true), InstanceIds: []string{f.instanceID()}})
		return err
	})
	if f.request.ConfigureCloudRoutes {
		dryRun("other-permissions", "ec2:ModifyInstanceAttribute", f.instanceID(), []string{"ec2:ModifyInstanceAttribute"}, func(ctx context.Context) error {
			_, err := g.api.ec2.ModifyInstanceAttribute(ctx, &ec2.ModifyInstanceAttributeInput{
				DryRun: awssdk.Bool(true), InstanceId: awssdk.String(f.instanceID()), SourceDestCheck: &types.AttributeBooleanValue{Value: awssdk.Bool(false)}})
			return err
		})
	}
	return probes
}

// managedGroup is the group that rules would be added to, as far as is known by now.
func (f *facts) managedGroup(ids []string) string {
	for _, g := range f.groups {
		if belongsTo(g.Tags, f.cluster()) {
			return awssdk.ToString(g.GroupId)
		}
	}
	return ids[0]
}

// registryAddress is host:port of the region's container registry API, or of what the SDK's environment variables
// put in its place.
func registryAddress(region string) string {
	for _, name := range []string{"AWS_ENDPOINT_URL_ECR", "AWS_ENDPOINT_URL"} {
		if u, err := url.Parse(os.Getenv(name)); err == nil && u.Host != "" {
			port := u.Port()
			if port == "" {
				port = map[string]string{"http": "80"}[u.Scheme]
			}
			if port == "" {
				port = "443"
			}
			return net.JoinHostPort(u.Hostname(), port)
		}
	}
	return fmt.Sprintf("api.ecr.%s.%s:443", region, partitionOf(region).domain)
}
