package accounts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials/ec2rolecreds"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing/types"
	elbv2 "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbv2types "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/aws/smithy-go"

	"kubernetes-release/preflight"
	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/awssim/store"
)

// Problem is something that does not work in an account.
type Problem struct {
	Action   string // IAM action that is denied, or ""
	Required bool   // the release requires it; a cloud controller can do without
	Text     string
}

func (p Problem) String() string { return strings.TrimSpace(p.Action + " " + p.Text) }

// Problems returns what is wrong in the account: what the release requires and what it lacks (the tags of the three
// checks, names of instances, the settings that the deployment asks for), and the first call that fails. On a control
// VM these are calls that the cloud controller manager 1.37 makes to initialize a node, to create, update and delete a
// classic and a network load balancer, and to write a pod route; those of a rarely used feature are left out. On a
// worker they are those for the tags of the three checks. The world of the account is not changed.
func (a *Account) Problems(ctx context.Context) ([]Problem, error) {
	sim, err := awssim.New(a.World, awssim.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { _ = sim.Close() }()
	problems := a.unmet()
	if p := newController(ctx, sim, a).run(); p != nil {
		problems = append(problems, *p)
	}
	return problems, nil
}

// unmet is what the release requires and the account does not have.
func (a *Account) unmet() (problems []Problem) {
	missing := func(unmet bool, text string) {
		if unmet {
			problems = append(problems, Problem{Text: text, Required: true})
		}
	}
	i := a.instance()
	has := func(t store.Tags) bool { return t[a.key()] != "" || t[legacyTag] == a.Config.Cluster }
	missing(!has(i.Tags), "the instance has no tag")
	missing(!has(a.World.Subnets[0].Tags), "the node's subnet has no tag")
	missing(a.hasOnlyForeignGroups(), "the instance has no security group of the cluster")
	missing(a.World.VPCs[0].NoDNSHostnames, "the instance has no name")
	missing(
		i.Metadata.HopLimit > 1 || i.Metadata.HTTPTokens == "optional",
		"pods reach the credentials of the instance's role",
	)
	missing(
		a.Config.UnencapsulatedPodNetwork && !a.Config.ConfigureCloudRoutes && i.SourceDestCheck != nil &&
			*i.SourceDestCheck,
		"packets of pods are dropped",
	)
	missing(a.Config.ConfigureCloudRoutes && !a.admitsPods(), "packets of pods are not admitted")
	return problems
}

// hasOnlyForeignGroups reports whether all of the instance's groups are another cluster's, whose rules the cloud
// controller would change.
func (a *Account) hasOnlyForeignGroups() bool {
	return !slices.ContainsFunc(a.World.SecurityGroups, func(g store.SecurityGroup) bool {
		foreign := slices.ContainsFunc(
			slices.Collect(maps.Keys(g.Tags)), func(key string) bool { return strings.HasPrefix(key, tagPrefix) },
		)
		ours := g.Tags[a.key()] != "" || g.Tags[legacyTag] == a.Config.Cluster
		return slices.Contains(a.instance().SecurityGroups, g.ID) && (ours || !foreign)
	})
}

// admitsPods reports whether one of the instance's groups has the rule for cloud routes.
func (a *Account) admitsPods() bool {
	return slices.ContainsFunc(a.World.SecurityGroups, func(g store.SecurityGroup) bool {
		return slices.Contains(a.instance().SecurityGroups, g.ID) &&
			slices.ContainsFunc(
				g.Ingress, func(r store.Rule) bool { return r.CIDR == PodNetwork && r.Protocol == "-1" },
			)
	})
}

// inProcess lets clients call a handler without a connection.
type inProcess struct {
	handler http.Handler
	source  string
}

func (p inProcess) Do(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.RemoteAddr, r.RequestURI = p.source, r.URL.RequestURI()
	if r.Host == "" {
		r.Host = r.URL.Host
	}
	if r.Body == nil {
		r.Body = io.NopCloser(strings.NewReader(""))
	}
	w := httptest.NewRecorder()
	p.handler.ServeHTTP(w, r)
	response := w.Result()
	response.Request = r
	return response, nil
}

// controller makes the calls of a cloud controller manager.
type controller struct {
	ctx      context.Context
	account  *Account
	metadata *imds.Client
	ec2      *ec2.Client
	elb      *elb.Client
	elbv2    *elbv2.Client

	problem *Problem // the first one; nothing is called after it
	vpc     string
	self    types.Instance
}

func newController(ctx context.Context, sim *awssim.Simulator, a *Account) *controller {
	source := netip.AddrPortFrom(a.instance().Address, 1024).String()
	metadata := imds.New(
		imds.Options{
			Endpoint:   "http://169.254.169.254",
			HTTPClient: inProcess{sim.MetadataServer().Handler, source},
			Retryer:    aws.NopRetryer{},
		},
	)
	conf := aws.Config{
		Region:       a.World.Region,
		BaseEndpoint: aws.String("http://aws.internal"),
		HTTPClient:   inProcess{sim.Handler(), source},
		Credentials:  aws.NewCredentialsCache(ec2rolecreds.New(func(o *ec2rolecreds.Options) { o.Client = metadata })),
		Retryer:      func() aws.Retryer { return aws.NopRetryer{} },
	}
	return &controller{
		ctx:      ctx,
		account:  a,
		metadata: metadata,
		ec2:      ec2.NewFromConfig(conf),
		elb:      elb.NewFromConfig(conf),
		elbv2:    elbv2.NewFromConfig(conf),
	}
}

func (c *controller) fail(format string, args ...any) {
	if c.problem == nil {
		c.problem = &Problem{Text: fmt.Sprintf(format, args...)}
	}
}

// call makes a call unless there is a problem already, and returns the output, which is empty after a failure.
func call[In, Out, Option any](
	c *controller, action string, do func(context.Context, *In, ...func(*Option)) (*Out, error), in *In,
) *Out {
	if c.problem != nil {
		return new(Out)
	}
	out, err := do(c.ctx, in)
	var api smithy.APIError
	switch {
	case err == nil:
		return out
	case errors.As(err, &api) && (api.ErrorCode() == "UnauthorizedOperation" || api.ErrorCode() == "AccessDenied"):
		c.problem = &Problem{Action: action, Text: err.Error()}
	default:
		c.fail("%s: %v", action, err)
	}
	return new(Out)
}

func (c *controller) run() *Problem {
	id, err := c.metadata.GetInstanceIdentityDocument(c.ctx, nil)
	if err != nil {
		return &Problem{Text: "instance metadata: " + err.Error()}
	}
	described := call(
		c, "ec2:DescribeInstances", c.ec2.DescribeInstances,
		&ec2.DescribeInstancesInput{InstanceIds: []string{id.InstanceID}},
	)
	if c.problem == nil && len(described.Reservations) == 1 {
		c.self = described.Reservations[0].Instances[0]
		c.vpc = aws.ToString(c.self.VpcId)
	}
	if c.account.Config.Role == preflight.Worker {
		c.nodeGroup(c.account.securityGroups())
		c.readTags()
		return c.problem
	}
	subnets := call(
		c, "ec2:DescribeSubnets", c.ec2.DescribeSubnets, &ec2.DescribeSubnetsInput{Filters: filter("vpc-id", c.vpc)},
	).Subnets
	groups := call(
		c, "ec2:DescribeSecurityGroups", c.ec2.DescribeSecurityGroups,
		&ec2.DescribeSecurityGroupsInput{Filters: filter("vpc-id", c.vpc)},
	).SecurityGroups
	nodes := c.nodeGroup(groups)
	c.identify()
	call(c, "ec2:DescribeAvailabilityZones", c.ec2.DescribeAvailabilityZones, &ec2.DescribeAvailabilityZonesInput{})
	tables := call(
		c, "ec2:DescribeRouteTables", c.ec2.DescribeRouteTables,
		&ec2.DescribeRouteTablesInput{Filters: filter("vpc-id", c.vpc)},
	).RouteTables
	public := c.chooseSubnets(subnets, tables, false)
	c.chooseSubnets(subnets, tables, true)
	c.classic(public, nodes)
	c.network(public)
	if c.account.Config.ConfigureCloudRoutes {
		c.routes()
	}
	return c.problem
}

// readTags finds out the tags of a worker's subnet and security groups, as its role allows: by one call, or by two,
// which also have the rules of groups.
func (c *controller) readTags() {
	if c.problem != nil {
		return
	}
	subnet := aws.ToString(c.self.SubnetId)
	call(c, "ec2:DescribeTags", c.ec2.DescribeTags, &ec2.DescribeTagsInput{Filters: filter("resource-id", subnet)})
	conf := c.account.Config
	rules := conf.UnencapsulatedPodNetwork || conf.ConfigureCloudRoutes
	onlyTags := c.problem == nil && !rules
	c.problem = nil
	if onlyTags {
		return
	}
	call(c, "ec2:DescribeSubnets", c.ec2.DescribeSubnets, &ec2.DescribeSubnetsInput{SubnetIds: []string{subnet}})
	if len(c.self.SecurityGroups) == 1 && !rules {
		return
	}
	call(
		c, "ec2:DescribeSecurityGroups", c.ec2.DescribeSecurityGroups,
		&ec2.DescribeSecurityGroupsInput{GroupIds: c.account.instance().SecurityGroups},
	)
}

// securityGroups are those of the account, as EC2 describes them to who may ask.
func (a *Account) securityGroups() (groups []types.SecurityGroup) {
	for _, g := range a.World.SecurityGroups {
		described := types.SecurityGroup{GroupId: aws.String(g.ID)}
		for key, value := range g.Tags {
			described.Tags = append(described.Tags, types.Tag{Key: aws.String(key), Value: aws.String(value)})
		}
		groups = append(groups, described)
	}
	return groups
}

func filter(name, value string) []types.Filter {
	return []types.Filter{{Name: aws.String(name), Values: []string{value}}}
}

func tag(tags []types.Tag, key string) (value string, ok bool) {
	at := slices.IndexFunc(tags, func(t types.Tag) bool { return aws.ToString(t.Key) == key })
	if at < 0 {
		return "", false
	}
	return aws.ToString(tags[at].Value), true
}

// ours is hasClusterTag in tags.go of cloud-provider-aws.
func (c *controller) ours(tags []types.Tag) bool {
	legacy, _ := tag(tags, legacyTag)
	_, ok := tag(tags, c.account.key())
	return ok || legacy == c.account.Config.Cluster
}

// foreign: subnets with another cluster's tag and without ours are ignored (findSubnets in aws.go).
func (c *controller) foreign(tags []types.Tag) bool {
	return !c.ours(tags) &&
		slices.ContainsFunc(tags, func(t types.Tag) bool { return strings.HasPrefix(aws.ToString(t.Key), tagPrefix) })
}

// identify determines the cluster that the controller runs for from the instance's tags (findClusterIDs and init in
// tags.go).
func (c *controller) identify() {
	var ids []string
	for _, t := range c.self.Tags {
		if id, ok := strings.CutPrefix(aws.ToString(t.Key), tagPrefix); ok {
			ids = append(ids, id)
		}
	}
	if legacy, ok := tag(c.self.Tags, legacyTag); ok && (len(ids) == 0 || ids[0] != legacy) {
		ids = append(ids, legacy)
	}
	if len(ids) != 1 || ids[0] != c.account.Config.Cluster {
		c.fail("the controller finds the clusters %q in the instance's tags", ids)
	}
}

// nodeGroup is the security group that is opened for load balancers (findSecurityGroupForInstance in aws.go).
func (c *controller) nodeGroup(groups []types.SecurityGroup) string {
	var tagged, untagged []string
	for _, attached := range c.self.SecurityGroups {
		id := aws.ToString(attached.GroupId)
		if slices.ContainsFunc(
			groups, func(g types.SecurityGroup) bool { return aws.ToString(g.GroupId) == id && c.ours(g.Tags) },
		) {
			tagged = append(tagged, id)
		} else {
			untagged = append(untagged, id)
		}
	}
	if len(tagged) > 1 || len(tagged) == 0 && len(untagged) != 1 {
		c.fail("security groups of the instance: %v are tagged, %v are not", tagged, untagged)
		return ""
	}
	return append(tagged, untagged...)[0]
}

// chooseSubnets is findELBSubnets in aws.go: the preferred subnet of each zone. The release also requires the cluster's
// tag on the public ones.
func (c *controller) chooseSubnets(subnets []types.Subnet, tables []types.RouteTable, internal bool) []string {
	role := publicRoleTag
	if internal {
		role = internalRoleTag
	}
	better := func(a, b types.Subnet) bool {
		_, aRole := tag(a.Tags, role)
		_, bRole := tag(b.Tags, role)
		switch {
		case aRole != bRole:
			return aRole
		case c.ours(a.Tags) != c.ours(b.Tags):
			return c.ours(a.Tags)
		}
		return aws.ToString(a.SubnetId) < aws.ToString(b.SubnetId)
	}
	usable := slices.DeleteFunc(slices.Clone(subnets), func(s types.Subnet) bool { return c.foreign(s.Tags) })
	if len(usable) == 0 { // then the controller takes the subnet of its instance
		usable = slices.DeleteFunc(
			slices.Clone(subnets),
			func(s types.Subnet) bool { return aws.ToString(s.SubnetId) != aws.ToString(c.self.SubnetId) },
		)
	}
	chosen := map[string]types.Subnet{}
	for _, s := range usable {
		zone := aws.ToString(s.AvailabilityZone)
		if before, ok := chosen[zone]; (internal || leadsOut(tables, aws.ToString(s.SubnetId))) &&
			(!ok || better(s, before)) {
			chosen[zone] = s
		}
	}
	var ids []string
	for _, s := range chosen {
		ids = append(ids, aws.ToString(s.SubnetId))
		if !internal && !c.ours(s.Tags) {
			c.fail("the public subnet %s has no tag", aws.ToString(s.SubnetId))
			c.problem.Required = true
		}
	}
	if len(ids) == 0 {
		c.fail("no subnet for load balancers (internal: %v)", internal)
	}
	slices.Sort(ids)
	return ids
}

// leadsOut is isSubnetPublic in aws.go.
func leadsOut(tables []types.RouteTable, subnet string) bool {
	return slices.ContainsFunc(
		tableOf(tables, subnet).Routes,
		func(r types.Route) bool { return strings.HasPrefix(aws.ToString(r.GatewayId), "igw") },
	)
}

// tableOf is the route table of a subnet: its own, or else the VPC's main one.
func tableOf(tables []types.RouteTable, subnet string) (table types.RouteTable) {
	for _, t := range tables {
		for _, a := range t.Associations {
			if aws.ToString(a.SubnetId) == subnet {
				return t
			}
			if aws.ToBool(a.Main) {
				table = t
			}
		}
	}
	return table
}

func (c *controller) allow(group, from string) {
	call(
		c, "ec2:AuthorizeSecurityGroupIngress", c.ec2.AuthorizeSecurityGroupIngress,
		&ec2.AuthorizeSecurityGroupIngressInput{GroupId: &group, IpPermissions: everythingFrom(from)},
	)
}

func (c *controller) revoke(group, from string) {
	call(
		c, "ec2:RevokeSecurityGroupIngress", c.ec2.RevokeSecurityGroupIngress,
		&ec2.RevokeSecurityGroupIngressInput{GroupId: &group, IpPermissions: everythingFrom(from)},
	)
}

func everythingFrom(group string) []types.IpPermission {
	return []types.IpPermission{
		{IpProtocol: aws.String("-1"), UserIdGroupPairs: []types.UserIdGroupPair{{GroupId: &group}}},
	}
}

// createGroup creates a load balancer's security group (createSecurityGroup in aws.go).
func (c *controller) createGroup(name string) string {
	tags := []types.Tag{{Key: aws.String(c.account.key()), Value: aws.String("owned")}}
	out := call(c, "ec2:CreateSecurityGroup", c.ec2.CreateSecurityGroup, &ec2.CreateSecurityGroupInput{
		GroupName:         &name,
		Description:       &name,
		VpcId:             &c.vpc,
		TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypeSecurityGroup, Tags: tags}},
	})
	return aws.ToString(out.GroupId)
}

func (c *controller) deleteGroup(id string) {
	call(c, "ec2:DeleteSecurityGroup", c.ec2.DeleteSecurityGroup, &ec2.DeleteSecurityGroupInput{GroupId: &id})
}

// classic creates, changes and deletes a classic load balancer (ensureLoadBalancer in aws_loadbalancer.go).
func (c *controller) classic(subnets []string, nodes string) {
	name := aws.String("a0123456789")
	group := c.createGroup("k8s-elb-a0123456789")
	listener := func(port int32) elbtypes.Listener {
		return elbtypes.Listener{
			Protocol:         aws.String("TCP"),
			LoadBalancerPort: port,
			InstancePort:     aws.Int32(30000 + port),
		}
	}
	instance := []elbtypes.Instance{{InstanceId: c.self.InstanceId}}
	owned := []elbtypes.Tag{{Key: aws.String(c.account.key()), Value: aws.String("owned")}}
	const prefix = "elasticloadbalancing:"
	call(c, prefix+"DescribeLoadBalancers", c.elb.DescribeLoadBalancers, &elb.DescribeLoadBalancersInput{})
	call(c, prefix+"CreateLoadBalancer", c.elb.CreateLoadBalancer, &elb.CreateLoadBalancerInput{
		LoadBalancerName: name,
		Subnets:          subnets,
		SecurityGroups:   []string{group},
		Listeners:        []elbtypes.Listener{listener(8080)},
		Tags:             owned,
	})
	call(c, prefix+"AddTags", c.elb.AddTags, &elb.AddTagsInput{LoadBalancerNames: []string{*name}, Tags: owned})
	call(
		c,
		prefix+"ConfigureHealthCheck",
		c.elb.ConfigureHealthCheck,
		&elb.ConfigureHealthCheckInput{LoadBalancerName: name, HealthCheck: &elbtypes.HealthCheck{
			Target:             aws.String("TCP:38080"),
			Interval:           aws.Int32(10),
			Timeout:            aws.Int32(5),
			HealthyThreshold:   aws.Int32(2),
			UnhealthyThreshold: aws.Int32(6),
		}},
	)
	call(
		c, prefix+"DescribeLoadBalancerAttributes", c.elb.DescribeLoadBalancerAttributes,
		&elb.DescribeLoadBalancerAttributesInput{LoadBalancerName: name},
	)
	call(
		c,
		prefix+"ModifyLoadBalancerAttributes",
		c.elb.ModifyLoadBalancerAttributes,
		&elb.ModifyLoadBalancerAttributesInput{
			LoadBalancerName: name,
			LoadBalancerAttributes: &elbtypes.LoadBalancerAttributes{
				ConnectionSettings: &elbtypes.ConnectionSettings{IdleTimeout: aws.Int32(90)},
			},
		},
	)
	call(
		c, prefix+"RegisterInstancesWithLoadBalancer", c.elb.RegisterInstancesWithLoadBalancer,
		&elb.RegisterInstancesWithLoadBalancerInput{LoadBalancerName: name, Instances: instance},
	)
	c.allow(nodes, group)

	call(
		c, prefix+"CreateLoadBalancerListeners", c.elb.CreateLoadBalancerListeners,
		&elb.CreateLoadBalancerListenersInput{LoadBalancerName: name, Listeners: []elbtypes.Listener{listener(8081)}},
	)
	call(
		c, prefix+"DeleteLoadBalancerListeners", c.elb.DeleteLoadBalancerListeners,
		&elb.DeleteLoadBalancerListenersInput{LoadBalancerName: name, LoadBalancerPorts: []int32{8080}},
	)
	call(
		c, prefix+"ApplySecurityGroupsToLoadBalancer", c.elb.ApplySecurityGroupsToLoadBalancer,
		&elb.ApplySecurityGroupsToLoadBalancerInput{LoadBalancerName: name, SecurityGroups: []string{group}},
	)
	call(
		c, prefix+"AttachLoadBalancerToSubnets", c.elb.AttachLoadBalancerToSubnets,
		&elb.AttachLoadBalancerToSubnetsInput{LoadBalancerName: name, Subnets: subnets},
	)
	if len(subnets) > 1 {
		call(
			c, prefix+"DetachLoadBalancerFromSubnets", c.elb.DetachLoadBalancerFromSubnets,
			&elb.DetachLoadBalancerFromSubnetsInput{LoadBalancerName: name, Subnets: subnets[:1]},
		)
	}
	call(
		c, prefix+"DeregisterInstancesFromLoadBalancer", c.elb.DeregisterInstancesFromLoadBalancer,
		&elb.DeregisterInstancesFromLoadBalancerInput{LoadBalancerName: name, Instances: instance},
	)

	c.revoke(nodes, group)
	call(c, prefix+"DeleteLoadBalancer", c.elb.DeleteLoadBalancer, &elb.DeleteLoadBalancerInput{LoadBalancerName: name})
	c.deleteGroup(group)
}

// network creates, changes and deletes a network load balancer (ensureLoadBalancerv2 in aws_loadbalancer.go).
func (c *controller) network(subnets []string) {
	owned := []elbv2types.Tag{{Key: aws.String(c.account.key()), Value: aws.String("owned")}}
	const prefix = "elasticloadbalancing:"
	call(c, prefix+"DescribeLoadBalancers", c.elbv2.DescribeLoadBalancers, &elbv2.DescribeLoadBalancersInput{})
	balancers := call(c, prefix+"CreateLoadBalancer", c.elbv2.CreateLoadBalancer, &elbv2.CreateLoadBalancerInput{
		Name:    aws.String("a9876543210"),
		Type:    elbv2types.LoadBalancerTypeEnumNetwork,
		Subnets: subnets,
		Tags:    owned,
	}).LoadBalancers
	targets := call(c, prefix+"CreateTargetGroup", c.elbv2.CreateTargetGroup, &elbv2.CreateTargetGroupInput{
		Name:       aws.String("k8s-default-web-0123456789"),
		Protocol:   elbv2types.ProtocolEnumTcp,
		Port:       aws.Int32(38080),
		VpcId:      &c.vpc,
		TargetType: elbv2types.TargetTypeEnumInstance,
		Tags:       owned,
	}).TargetGroups
	if len(balancers) != 1 || len(targets) != 1 {
		c.fail("no load balancer or target group was created")
		return
	}
	balancer, group := balancers[0].LoadBalancerArn, targets[0].TargetGroupArn
	forward := []elbv2types.Action{{Type: elbv2types.ActionTypeEnumForward, TargetGroupArn: group}}
	instance := []elbv2types.TargetDescription{{Id: c.self.InstanceId, Port: aws.Int32(38080)}}
	call(
		c, prefix+"DescribeTargetGroups", c.elbv2.DescribeTargetGroups,
		&elbv2.DescribeTargetGroupsInput{LoadBalancerArn: balancer},
	)
	call(
		c, prefix+"DescribeTargetGroupAttributes", c.elbv2.DescribeTargetGroupAttributes,
		&elbv2.DescribeTargetGroupAttributesInput{TargetGroupArn: group},
	)
	call(
		c,
		prefix+"ModifyTargetGroupAttributes",
		c.elbv2.ModifyTargetGroupAttributes,
		&elbv2.ModifyTargetGroupAttributesInput{
			TargetGroupArn: group,
			Attributes: []elbv2types.TargetGroupAttribute{
				{Key: aws.String("preserve_client_ip.enabled"), Value: aws.String("false")},
			},
		},
	)
	call(
		c, prefix+"RegisterTargets", c.elbv2.RegisterTargets,
		&elbv2.RegisterTargetsInput{TargetGroupArn: group, Targets: instance},
	)
	call(
		c, prefix+"DescribeTargetHealth", c.elbv2.DescribeTargetHealth,
		&elbv2.DescribeTargetHealthInput{TargetGroupArn: group},
	)
	listeners := call(c, prefix+"CreateListener", c.elbv2.CreateListener, &elbv2.CreateListenerInput{
		LoadBalancerArn: balancer,
		Protocol:        elbv2types.ProtocolEnumTcp,
		Port:            aws.Int32(8082),
		DefaultActions:  forward,
		Tags:            owned,
	}).Listeners
	if len(listeners) != 1 {
		c.fail("no listener was created")
		return
	}
	listener := listeners[0].ListenerArn
	call(
		c, prefix+"DescribeListeners", c.elbv2.DescribeListeners,
		&elbv2.DescribeListenersInput{LoadBalancerArn: balancer},
	)
	call(
		c, prefix+"ModifyListener", c.elbv2.ModifyListener,
		&elbv2.ModifyListenerInput{ListenerArn: listener, DefaultActions: forward},
	)
	call(
		c, prefix+"ModifyTargetGroup", c.elbv2.ModifyTargetGroup,
		&elbv2.ModifyTargetGroupInput{TargetGroupArn: group, HealthyThresholdCount: aws.Int32(4)},
	)
	call(
		c, prefix+"DeregisterTargets", c.elbv2.DeregisterTargets,
		&elbv2.DeregisterTargetsInput{TargetGroupArn: group, Targets: instance},
	)
	call(c, prefix+"DeleteListener", c.elbv2.DeleteListener, &elbv2.DeleteListenerInput{ListenerArn: listener})
	call(
		c, prefix+"DeleteLoadBalancer", c.elbv2.DeleteLoadBalancer,
		&elbv2.DeleteLoadBalancerInput{LoadBalancerArn: balancer},
	)
	call(c, prefix+"DeleteTargetGroup", c.elbv2.DeleteTargetGroup, &elbv2.DeleteTargetGroupInput{TargetGroupArn: group})
}

// routes writes and removes a pod route (aws_routes.go). The release requires that the node's packets find it.
func (c *controller) routes() {
	var ours []types.RouteTable
	tables := call(
		c, "ec2:DescribeRouteTables", c.ec2.DescribeRouteTables, &ec2.DescribeRouteTablesInput{},
	).RouteTables
	for _, table := range tables {
		if c.ours(table.Tags) {
			ours = append(ours, table)
		}
	}
	if len(ours) != 1 {
		c.fail("%d route tables have the cluster's tag", len(ours))
		return
	}
	used := tableOf(tables, aws.ToString(c.self.SubnetId)).RouteTableId
	if aws.ToString(used) != aws.ToString(ours[0].RouteTableId) {
		c.fail("pod routes are in %s, and the node's packets go by %s", *ours[0].RouteTableId, aws.ToString(used))
		return
	}
	pods := aws.String("10.200.0.0/24")
	call(c, "ec2:ModifyInstanceAttribute", c.ec2.ModifyInstanceAttribute, &ec2.ModifyInstanceAttributeInput{
		InstanceId: c.self.InstanceId, SourceDestCheck: &types.AttributeBooleanValue{Value: aws.Bool(false)}})
	call(
		c,
		"ec2:CreateRoute",
		c.ec2.CreateRoute,
		&ec2.CreateRouteInput{
			RouteTableId:         ours[0].RouteTableId,
			DestinationCidrBlock: pods,
			InstanceId:           c.self.InstanceId,
		},
	)
	call(
		c, "ec2:DeleteRoute", c.ec2.DeleteRoute,
		&ec2.DeleteRouteInput{RouteTableId: ours[0].RouteTableId, DestinationCidrBlock: pods},
	)
}
