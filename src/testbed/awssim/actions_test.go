package awssim_test

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing/types"
	elbv2 "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbv2types "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"kubernetes-release/cloud/aws/iampolicy"
	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/awssim/store"
)

// step is a call in a sequence; got is compared with want as text, which shows both on failure.
type step struct {
	action string // service:Action, for the check that every action is called
	call   func(context.Context) (got any, err error)
	want   any
	code   string
}

func run(t *testing.T, covered map[string]bool, steps []step) {
	t.Helper()
	for i, s := range steps {
		covered[s.action] = true
		got, err := s.call(t.Context())
		what := fmt.Sprintf("step %d, %s", i, s.action)
		wantCode(t, what, err, s.code)
		if err == nil && fmt.Sprint(got) != fmt.Sprint(s.want) {
			t.Errorf("%s:\n got  %v\n want %v", what, got, s.want)
		}
	}
}

func list[T any](items []T, get func(T) *string) []string {
	var out []string
	for _, item := range items {
		out = append(out, aws.ToString(get(item)))
	}
	return out
}

func ec2Filter(name string, values ...string) []ec2types.Filter {
	return []ec2types.Filter{{Name: &name, Values: values}}
}

func tcp(port int32) *ec2types.IpPermission {
	return &ec2types.IpPermission{
		IpProtocol: aws.String("tcp"),
		FromPort:   &port,
		ToPort:     &port,
		IpRanges:   []ec2types.IpRange{{CidrIp: aws.String("10.0.0.0/8"), Description: aws.String("in")}},
	}
}

// TestActions calls every action of every API with the real clients.
func TestActions(t *testing.T) {
	world := testWorld(t)
	b := start(t, world, awssim.Options{})
	c := newClients(b.operator())
	covered := map[string]bool{}
	dnsName := "ip-" + replaceDots(world.Instances[1].Address.String()) + ".ec2.internal"
	checkDescribedInstances(t, covered, c, dnsName)
	checkDescribedNetworks(t, covered, c, world)
	checkIdentities(t, covered, c)
	checkAttributes(t, covered, c, dnsName)
	checkTags(t, covered, c)
	checkSecurityGroups(t, covered, c)
	checkRoutes(t, covered, c)
	checkInstances(t, covered, c, b)
	checkClassicBalancers(t, covered, c)
	checkNetworkBalancers(t, covered, c)
	checkApplicationBalancers(t, covered, c)
	checkCertificates(t, covered, c)
	checkRouting(t, covered, c)
	checkNetworkACLs(t, covered, c)
	checkProfiles(t, covered, c)
	checkPolicies(t, covered, c)
	checkRoles(t, covered, c)
	checkProviders(t, covered, c)
	checkVolumes(t, covered)

	var forgotten []string
	for _, action := range awssim.Actions() {
		// Those of ecr are in registry_test.go, and of kms in keys_test.go.
		if !covered[action] && !strings.HasPrefix(action, "ecr:") && !strings.HasPrefix(action, "kms:") {
			forgotten = append(forgotten, action)
		}
	}
	if len(forgotten) > 0 {
		t.Errorf("actions that no step calls: %v", forgotten)
	}
}

// TestActionsOfPoliciesAreSimulated: what a generated policy allows is answered, or here is why not.
func TestActionsOfPoliciesAreSimulated(t *testing.T) {
	const checked, public = "no program calls it; CreateLoadBalancer checks it", "public.ecr.aws is not simulated"
	const layers = "the registry has an API of its own, which checks it"
	left := map[string]string{
		"ec2:DescribeAccountAttributes":       checked,
		"ec2:DescribeAddresses":               "no program calls it, and there are no elastic addresses",
		"ec2:GetSecurityGroupsForVpc":         checked,
		"ecr-public:GetAuthorizationToken":    public,
		"ecr:BatchGetImage":                   layers,
		"ecr:GetDownloadUrlForLayer":          layers,
		"iam:CreateServiceLinkedRole":         checked,
		"kms:GenerateDataKeyWithoutPlaintext": "no program calls it; CreateVolume checks it",
		"s3:PutObject":                        "objects have an API of their own, which checks it",
		"sts:GetServiceBearerToken":           public,
	}
	simulated := map[string]bool{}
	for _, action := range awssim.Actions() {
		simulated[regexp.MustCompile("^elb(v2)?:").ReplaceAllString(action, "elasticloadbalancing:")] = true
	}
	for _, p := range iampolicy.Permissions {
		if simulated[p.Action] == (left[p.Action] != "") {
			t.Errorf("%s is simulated: %v, and left out: %q", p.Action, simulated[p.Action], left[p.Action])
		}
	}
}

func checkDescribedInstances(t *testing.T, covered map[string]bool, c clients, dnsName string) {
	instances := func(in *ec2.DescribeInstancesInput) func(context.Context) (any, error) {
		return func(ctx context.Context) (any, error) {
			out, err := c.ec2.DescribeInstances(ctx, in)
			if err != nil {
				return nil, err
			}
			var ids []string
			for _, r := range out.Reservations {
				ids = append(ids, list(r.Instances, func(i ec2types.Instance) *string { return i.InstanceId })...)
			}
			return ids, nil
		}
	}
	const missing = "i-00000000000000fff"
	run(t, covered, []step{
		{
			action: "ec2:DescribeInstances",
			call:   instances(&ec2.DescribeInstancesInput{}),
			want:   []string{controlID, workerID, bareID},
		},
		{
			action: "ec2:DescribeInstances",
			call:   instances(&ec2.DescribeInstancesInput{InstanceIds: []string{workerID}}),
			want:   []string{workerID},
		},
		{
			action: "ec2:DescribeInstances",
			call:   instances(&ec2.DescribeInstancesInput{InstanceIds: []string{workerID, missing}}),
			code:   "InvalidInstanceID.NotFound",
		},
		{
			action: "ec2:DescribeInstances",
			call:   instances(&ec2.DescribeInstancesInput{InstanceIds: []string{"worker"}}),
			code:   "InvalidInstanceID.Malformed",
		},
		{
			action: "ec2:DescribeInstances",
			call:   instances(&ec2.DescribeInstancesInput{InstanceIds: []string{workerID}, MaxResults: aws.Int32(5)}),
			code:   "InvalidParameterCombination",
		},
		{
			action: "ec2:DescribeInstances",
			call:   instances(&ec2.DescribeInstancesInput{Filters: ec2Filter("private-dns-name", dnsName)}),
			want:   []string{workerID},
		},
		{
			action: "ec2:DescribeInstances",
			call:   instances(&ec2.DescribeInstancesInput{Filters: ec2Filter("tag-key", "kubernetes.io/cluster/*")}),
			want:   []string{controlID, workerID},
		},
		{
			action: "ec2:DescribeInstances",
			call:   instances(&ec2.DescribeInstancesInput{Filters: ec2Filter("tag:Name", "work?r/*")}),
			want:   []string{workerID},
		},
		{
			action: "ec2:DescribeInstances",
			call:   instances(&ec2.DescribeInstancesInput{Filters: ec2Filter("tag:Name", `work\?r/*`)}),
			want:   []string(nil),
		},
		{
			action: "ec2:DescribeInstances",
			call: instances(
				&ec2.DescribeInstancesInput{Filters: ec2Filter("instance-state-name", "running", "stopped")},
			),
			want: []string{controlID, workerID, bareID},
		},
		{
			action: "ec2:DescribeInstances",
			call: instances(
				&ec2.DescribeInstancesInput{
					Filters: append(ec2Filter("tag:Name", "worker/0"), ec2Filter("vpc-id", "vpc-other")...),
				},
			),
			want: []string(nil),
		},
		{
			action: "ec2:DescribeInstances",
			call:   instances(&ec2.DescribeInstancesInput{Filters: ec2Filter("color", "red")}),
			code:   "InvalidParameterValue",
		},
		{
			action: "ec2:DescribeInstances",
			call:   instances(&ec2.DescribeInstancesInput{MaxResults: aws.Int32(2)}),
			code:   "InvalidParameterValue",
		},
		{
			action: "ec2:DescribeInstances",
			call:   instances(&ec2.DescribeInstancesInput{NextToken: aws.String("junk")}),
			code:   "InvalidParameterValue",
		},
		{
			action: "ec2:DescribeInstances",
			call:   instances(&ec2.DescribeInstancesInput{DryRun: aws.Bool(true)}),
			code:   "DryRunOperation",
		},
	})
}

func checkDescribedNetworks(t *testing.T, covered map[string]bool, c clients, world *store.World) {
	node, public := awssim.LabNodeSubnet, awssim.LabPublicSubnet
	subnets := func(in *ec2.DescribeSubnetsInput) func(context.Context) (any, error) {
		return func(ctx context.Context) (any, error) {
			out, err := c.ec2.DescribeSubnets(ctx, in)
			if err != nil {
				return nil, err
			}
			return list(out.Subnets, func(s ec2types.Subnet) *string { return s.SubnetId }), nil
		}
	}
	tables := func(in *ec2.DescribeRouteTablesInput) func(context.Context) (any, error) {
		return func(ctx context.Context) (any, error) {
			out, err := c.ec2.DescribeRouteTables(ctx, in)
			if err != nil {
				return nil, err
			}
			return list(out.RouteTables, func(r ec2types.RouteTable) *string { return r.RouteTableId }), nil
		}
	}
	run(t, covered, []step{
		{
			action: "ec2:DescribeSubnets",
			call:   subnets(&ec2.DescribeSubnetsInput{Filters: ec2Filter("tag-key", "kubernetes.io/role/elb")}),
			want:   []string{public(1), public(2), public(3)},
		},
		{
			action: "ec2:DescribeSubnets",
			call:   subnets(&ec2.DescribeSubnetsInput{SubnetIds: []string{node(2)}}),
			want:   []string{node(2)},
		},
		{
			action: "ec2:DescribeSubnets",
			call:   subnets(&ec2.DescribeSubnetsInput{SubnetIds: []string{"subnet-0"}}),
			code:   "InvalidSubnetID.NotFound",
		},
		{
			action: "ec2:DescribeRouteTables",
			call:   tables(&ec2.DescribeRouteTablesInput{Filters: ec2Filter("association.subnet-id", public(3))}),
			want:   []string{"rtb-0a0b0c0d0e0f00002"},
		},
		{
			action: "ec2:DescribeRouteTables",
			call:   tables(&ec2.DescribeRouteTablesInput{Filters: ec2Filter("association.main", "true")}),
			want:   []string{"rtb-0a0b0c0d0e0f00001"},
		},
		{action: "ec2:DescribeVpcs", call: answers(
			c.ec2.DescribeVpcs, &ec2.DescribeVpcsInput{VpcIds: []string{awssim.LabVPC}},
			func(out *ec2.DescribeVpcsOutput) any {
				return list(out.Vpcs, func(v ec2types.Vpc) *string { return v.CidrBlock })
			},
		), want: []string{world.VPCs[0].CIDR.String()}},
		{action: "ec2:DescribeIpamPools", call: answers(
			c.ec2.DescribeIpamPools, &ec2.DescribeIpamPoolsInput{},
			func(out *ec2.DescribeIpamPoolsOutput) any { return len(out.IpamPools) },
		), want: 0},
		{action: "ec2:DescribeIpamPools", call: succeeds(
			c.ec2.DescribeIpamPools, &ec2.DescribeIpamPoolsInput{IpamPoolIds: []string{"ipam-pool-1"}},
		), code: "InvalidIpamPoolId.NotFound"},
		{action: "ec2:DescribeAvailabilityZones", call: answers(
			c.ec2.DescribeAvailabilityZones, &ec2.DescribeAvailabilityZonesInput{},
			func(out *ec2.DescribeAvailabilityZonesOutput) any {
				return list(
					out.AvailabilityZones,
					func(z ec2types.AvailabilityZone) *string { return aws.String(*z.ZoneName + "=" + *z.ZoneId) },
				)
			},
		), want: []string{"us-east-1a=use1-az1", "us-east-1b=use1-az2", "us-east-1c=use1-az3"}},
		{action: "ec2:DescribeInstanceTopology", call: answers(
			c.ec2.DescribeInstanceTopology, &ec2.DescribeInstanceTopologyInput{InstanceIds: []string{workerID}},
			func(out *ec2.DescribeInstanceTopologyOutput) any { return len(out.Instances) },
		), want: 0},
		{action: "ec2:DescribeNetworkInterfaces", call: answers(
			c.ec2.DescribeNetworkInterfaces,
			&ec2.DescribeNetworkInterfacesInput{Filters: ec2Filter("attachment.instance-id", workerID)},
			func(out *ec2.DescribeNetworkInterfacesOutput) any {
				return list(
					out.NetworkInterfaces, func(n ec2types.NetworkInterface) *string { return n.PrivateIpAddress },
				)
			},
		), want: []string{world.Instances[1].Address.String()}},
	})
}

func checkIdentities(t *testing.T, covered map[string]bool, c clients) {
	run(t, covered, []step{
		{action: "sts:GetCallerIdentity", call: answers(
			c.sts.GetCallerIdentity, &sts.GetCallerIdentityInput{},
			func(out *sts.GetCallerIdentityOutput) any { return *out.Arn + " " + *out.Account },
		), want: "arn:aws:iam::123456789012:user/operator 123456789012"},
		{action: "sts:AssumeRole", call: func(ctx context.Context) (any, error) {
			return c.sts.AssumeRole(
				ctx,
				&sts.AssumeRoleInput{
					RoleArn:         aws.String("arn:aws:iam::123456789012:role/kubernetes-worker"),
					RoleSessionName: aws.String("test"),
				},
			)
		}, code: "AccessDenied"}, // its trust policy has only EC2
		{action: "iam:SimulatePrincipalPolicy", call: answers(
			c.iam.SimulatePrincipalPolicy, &iam.SimulatePrincipalPolicyInput{
				PolicySourceArn: aws.String("arn:aws:iam::123456789012:role/kubernetes-worker"),
				ActionNames:     []string{"ec2:DescribeSubnets", "ec2:CreateTags"},
			},
			func(out *iam.SimulatePrincipalPolicyOutput) any {
				return list(out.EvaluationResults, func(r iamtypes.EvaluationResult) *string {
					return aws.String(*r.EvalActionName + " " + string(r.EvalDecision))
				})
			},
		), want: []string{"ec2:DescribeSubnets allowed", "ec2:CreateTags implicitDeny"}},
		{action: "iam:SimulatePrincipalPolicy", call: func(ctx context.Context) (any, error) {
			return c.iam.SimulatePrincipalPolicy(
				ctx,
				&iam.SimulatePrincipalPolicyInput{
					PolicySourceArn: aws.String("arn:aws:iam::123456789012:role/nobody"),
					ActionNames:     []string{"ec2:CreateTags"},
				},
			)
		}, code: "NoSuchEntity"},
		{action: "iam:GetRole", call: answers(
			c.iam.GetRole, &iam.GetRoleInput{RoleName: aws.String("kubernetes-worker")},
			func(out *iam.GetRoleOutput) any {
				return *out.Role.Path + " " + *out.Role.Arn
			},
		), want: "/ arn:aws:iam::123456789012:role/kubernetes-worker"},
		{action: "iam:GetRole", call: func(ctx context.Context) (any, error) {
			return c.iam.GetRole(ctx, &iam.GetRoleInput{RoleName: aws.String("nobody")})
		}, code: "NoSuchEntity"},
		{action: "iam:ListRoles", call: answers(
			c.iam.ListRoles, &iam.ListRolesInput{},
			func(out *iam.ListRolesOutput) any {
				var names []string
				for _, r := range out.Roles {
					names = append(names, *r.RoleName)
				}
				return names
			},
		), want: []string{"kubernetes-control", "kubernetes-worker"}},
	})
}

func checkAttributes(t *testing.T, covered map[string]bool, c clients, dnsName string) {
	run(t, covered, []step{
		{action: "ec2:ModifyInstanceAttribute", call: succeeds(
			c.ec2.ModifyInstanceAttribute, &ec2.ModifyInstanceAttributeInput{
				InstanceId:      aws.String(workerID),
				SourceDestCheck: &ec2types.AttributeBooleanValue{Value: aws.Bool(false)},
			},
		)},
		{action: "ec2:ModifyInstanceMetadataOptions", call: answers(
			c.ec2.ModifyInstanceMetadataOptions, &ec2.ModifyInstanceMetadataOptionsInput{
				InstanceId:              aws.String(workerID),
				HttpPutResponseHopLimit: aws.Int32(1),
			},
			func(out *ec2.ModifyInstanceMetadataOptionsOutput) any {
				return *out.InstanceMetadataOptions.HttpPutResponseHopLimit
			},
		), want: 1},
		{action: "ec2:DescribeInstances", call: answers(
			c.ec2.DescribeInstances, &ec2.DescribeInstancesInput{InstanceIds: []string{workerID}},
			func(out *ec2.DescribeInstancesOutput) any {
				i := out.Reservations[0].Instances[0]
				return fmt.Sprint(
					*i.PrivateDnsName, *i.SourceDestCheck, *i.NetworkInterfaces[0].SourceDestCheck,
					*i.MetadataOptions.HttpPutResponseHopLimit, *i.IamInstanceProfile.Arn,
					*i.Placement.AvailabilityZone,
					*i.SubnetId, *i.VpcId, *i.SecurityGroups[0].GroupId, i.State.Name,
				)
			},
		), want: fmt.Sprint(
			dnsName, false, false, 1, "arn:aws:iam::123456789012:instance-profile/kubernetes-worker", "us-east-1a",
			awssim.LabNodeSubnet(1), awssim.LabVPC, awssim.LabSecurityGroup, "running",
		)},
	})
}

func none[T any](_ T, err error) (any, error) { return "<nil>", err }

// succeeds calls an action whose answer is not looked at.
func succeeds[I, O, F any](
	action func(context.Context, I, ...F) (O, error), in I,
) func(context.Context) (any, error) {
	return func(ctx context.Context) (any, error) { return none(action(ctx, in)) }
}

// answers calls an action and reads its answer.
func answers[I, O, F any](
	action func(context.Context, I, ...F) (O, error), in I, read func(O) any,
) func(context.Context) (any, error) {
	return func(ctx context.Context) (any, error) {
		out, err := action(ctx, in)
		if err != nil {
			return nil, err
		}
		return read(out), nil
	}
}

func replaceDots(s string) string {
	out := []byte(s)
	for i, c := range out {
		if c == '.' {
			out[i] = '-'
		}
	}
	return string(out)
}

func ec2Tags(tags map[string]string) []ec2types.Tag {
	var out []ec2types.Tag
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		out = append(out, ec2types.Tag{Key: aws.String(key), Value: aws.String(tags[key])})
	}
	return out
}

func checkTags(t *testing.T, covered map[string]bool, c clients) {
	create := func(resource string, tags map[string]string) func(context.Context) (any, error) {
		return succeeds(c.ec2.CreateTags, &ec2.CreateTagsInput{Resources: []string{resource}, Tags: ec2Tags(tags)})
	}
	remove := func(tags ...ec2types.Tag) func(context.Context) (any, error) {
		return succeeds(c.ec2.DeleteTags, &ec2.DeleteTagsInput{Resources: []string{bareID}, Tags: tags})
	}
	tags := answers(
		c.ec2.DescribeTags, &ec2.DescribeTagsInput{Filters: ec2Filter("resource-id", bareID)},
		func(out *ec2.DescribeTagsOutput) any {
			return list(
				out.Tags, func(d ec2types.TagDescription) *string { return aws.String(*d.Key + "=" + *d.Value) },
			)
		},
	)
	many := func(n int) map[string]string {
		m := map[string]string{}
		for i := range n {
			m[fmt.Sprintf("k%02d", i)] = ""
		}
		return m
	}
	run(t, covered, []step{
		{action: "ec2:CreateTags", call: create(bareID, map[string]string{"a": "1", "b ü/:=+-@": "2"}), want: "<nil>"},
		{action: "ec2:CreateTags", call: create(bareID, map[string]string{"a": "3"}), want: "<nil>"},
		{action: "ec2:DescribeTags", call: tags, want: []string{"a=3", "b ü/:=+-@=2"}},
		{action: "ec2:CreateTags", call: create(bareID, many(49)), code: "TagLimitExceeded"},
		{
			action: "ec2:CreateTags",
			call:   create(bareID, map[string]string{"aws:mine": ""}),
			code:   "InvalidParameterValue",
		},
		{
			action: "ec2:CreateTags",
			call:   create("sg-00000000000000000", map[string]string{"a": ""}),
			code:   "InvalidGroup.NotFound",
		},
		{
			action: "ec2:DeleteTags",
			call:   remove(ec2types.Tag{Key: aws.String("a"), Value: aws.String("other")}),
			want:   "<nil>",
		},
		{action: "ec2:DescribeTags", call: tags, want: []string{"a=3", "b ü/:=+-@=2"}},
		{action: "ec2:DeleteTags", call: remove(ec2types.Tag{Key: aws.String("a")}), want: "<nil>"},
		{action: "ec2:DescribeTags", call: tags, want: []string{"b ü/:=+-@=2"}},
		{action: "ec2:DeleteTags", call: remove(), want: "<nil>"},
		{action: "ec2:DescribeTags", call: tags, want: []string(nil)},
	})
}

func checkSecurityGroups(t *testing.T, covered map[string]bool, c clients) {
	var id string
	create := func(name string, dryRun bool) func(context.Context) (any, error) {
		return answers(c.ec2.CreateSecurityGroup, &ec2.CreateSecurityGroupInput{
			GroupName:   &name,
			Description: aws.String("d"),
			VpcId:       aws.String(awssim.LabVPC),
			DryRun:      &dryRun,
			TagSpecifications: []ec2types.TagSpecification{
				{ResourceType: "security-group", Tags: ec2Tags(map[string]string{clusterTag: "owned"})},
			},
		}, func(out *ec2.CreateSecurityGroupOutput) any {
			id = *out.GroupId
			return len(id)
		})
	}
	ingress := func(ports ...int32) (permissions []ec2types.IpPermission) {
		for _, p := range ports {
			permissions = append(permissions, *tcp(p))
		}
		return permissions
	}
	authorize := func(permissions ...ec2types.IpPermission) func(context.Context) (any, error) {
		return func(ctx context.Context) (any, error) {
			return none(
				c.ec2.AuthorizeSecurityGroupIngress(
					ctx, &ec2.AuthorizeSecurityGroupIngressInput{GroupId: &id, IpPermissions: permissions},
				),
			)
		}
	}
	revoke := func(permissions ...ec2types.IpPermission) func(context.Context) (any, error) {
		return func(ctx context.Context) (any, error) {
			return none(
				c.ec2.RevokeSecurityGroupIngress(
					ctx, &ec2.RevokeSecurityGroupIngressInput{GroupId: &id, IpPermissions: permissions},
				),
			)
		}
	}
	describe := func(ctx context.Context) (any, error) {
		out, err := c.ec2.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{GroupIds: []string{id}})
		if err != nil {
			return nil, err
		}
		var rules []string
		for _, p := range out.SecurityGroups[0].IpPermissions {
			rules = append(
				rules,
				fmt.Sprint(
					*p.IpProtocol, ":", aws.ToInt32(p.FromPort), ":", len(p.IpRanges), ":", len(p.UserIdGroupPairs),
				),
			)
		}
		return rules, nil
	}
	remove := func(group *string) func(context.Context) (any, error) {
		return func(ctx context.Context) (any, error) {
			return none(c.ec2.DeleteSecurityGroup(ctx, &ec2.DeleteSecurityGroupInput{GroupId: group}))
		}
	}
	fromNodes := ec2types.IpPermission{
		IpProtocol:       aws.String("-1"),
		UserIdGroupPairs: []ec2types.UserIdGroupPair{{GroupId: aws.String(awssim.LabSecurityGroup)}},
	}
	nodes := awssim.LabSecurityGroup
	run(t, covered, []step{
		{action: "ec2:CreateSecurityGroup", call: create("web", true), code: "DryRunOperation"},
		{action: "ec2:CreateSecurityGroup", call: create("web", false), want: 20},
		{action: "ec2:CreateSecurityGroup", call: create("web", false), code: "InvalidGroup.Duplicate"},
		{
			action: "ec2:AuthorizeSecurityGroupIngress",
			call:   authorize(append(ingress(80, 443), fromNodes)...),
			want:   "<nil>",
		},
		{
			action: "ec2:AuthorizeSecurityGroupIngress",
			call:   authorize(ingress(80)...),
			code:   "InvalidPermission.Duplicate",
		},
		{action: "ec2:DescribeSecurityGroups", call: describe, want: []string{"tcp:80:1:0", "tcp:443:1:0", "-1:0:0:1"}},
		{action: "ec2:RevokeSecurityGroupIngress", call: revoke(ingress(80)...), want: "<nil>"},
		{action: "ec2:RevokeSecurityGroupIngress", call: revoke(ingress(80)...), code: "InvalidPermission.NotFound"},
		{action: "ec2:DescribeSecurityGroups", call: describe, want: []string{"tcp:443:1:0", "-1:0:0:1"}},
		{action: "ec2:AuthorizeSecurityGroupEgress", call: succeeds(
			c.ec2.AuthorizeSecurityGroupEgress,
			&ec2.AuthorizeSecurityGroupEgressInput{GroupId: &id, IpPermissions: ingress(53)},
		), want: "<nil>"},
		{action: "ec2:RevokeSecurityGroupEgress", call: succeeds(
			c.ec2.RevokeSecurityGroupEgress,
			&ec2.RevokeSecurityGroupEgressInput{GroupId: &id, IpPermissions: ingress(53)},
		), want: "<nil>"},
		{action: "ec2:DeleteSecurityGroup", call: remove(&nodes), code: "DependencyViolation"},
		{action: "ec2:DeleteSecurityGroup", call: remove(&id), want: "<nil>"},
		{action: "ec2:DeleteSecurityGroup", call: remove(&id), code: "InvalidGroup.NotFound"},
		{action: "ec2:DescribeSecurityGroups", call: describe, code: "InvalidGroup.NotFound"},
	})
}

func checkRoutes(t *testing.T, covered map[string]bool, c clients) {
	table := aws.String("rtb-0a0b0c0d0e0f00001")
	create := succeeds(c.ec2.CreateRoute, &ec2.CreateRouteInput{
		RouteTableId:         table,
		DestinationCidrBlock: aws.String("10.200.1.0/24"),
		InstanceId:           aws.String(workerID),
	})
	remove := succeeds(
		c.ec2.DeleteRoute,
		&ec2.DeleteRouteInput{RouteTableId: table, DestinationCidrBlock: aws.String("10.200.1.0/24")},
	)
	run(t, covered, []step{
		{action: "ec2:CreateRoute", call: create, want: "<nil>"},
		{action: "ec2:CreateRoute", call: create, code: "RouteAlreadyExists"},
		{action: "ec2:DescribeRouteTables", call: func(ctx context.Context) (any, error) {
			out, err := c.ec2.DescribeRouteTables(ctx, &ec2.DescribeRouteTablesInput{RouteTableIds: []string{*table}})
			if err != nil {
				return nil, err
			}
			routes := out.RouteTables[0].Routes
			last := routes[len(routes)-1]
			return fmt.Sprint(*last.DestinationCidrBlock, *last.InstanceId, last.State), nil
		}, want: "10.200.1.0/24" + workerID + "active"},
		{action: "ec2:DeleteRoute", call: remove, want: "<nil>"},
		{action: "ec2:DeleteRoute", call: remove, code: "InvalidRoute.NotFound"},
	})
}

func checkInstances(t *testing.T, covered map[string]bool, c clients, b *bed) {
	var id string
	subnet := b.sim.World().Subnets[0]
	address := subnet.CIDR.Addr().As4()
	free := fmt.Sprintf("%d.%d.%d.77", address[0], address[1], address[2])
	launch := func(change func(*ec2.RunInstancesInput)) func(context.Context) (any, error) {
		return func(ctx context.Context) (any, error) {
			in := &ec2.RunInstancesInput{
				ImageId:            aws.String("ami-0123456789abcdef0"),
				InstanceType:       "m5.large",
				MinCount:           aws.Int32(1),
				MaxCount:           aws.Int32(1),
				SubnetId:           &subnet.ID,
				PrivateIpAddress:   &free,
				SecurityGroupIds:   []string{awssim.LabSecurityGroup},
				IamInstanceProfile: &ec2types.IamInstanceProfileSpecification{Name: aws.String("kubernetes-worker")},
				TagSpecifications: []ec2types.TagSpecification{
					{
						ResourceType: "instance",
						Tags:         ec2Tags(map[string]string{clusterTag: "owned", "Name": "worker/9"}),
					},
				},
				MetadataOptions: &ec2types.InstanceMetadataOptionsRequest{
					HttpTokens:              "required",
					HttpPutResponseHopLimit: aws.Int32(1),
				},
			}
			change(in)
			out, err := c.ec2.RunInstances(ctx, in)
			if err != nil {
				return nil, err
			}
			id = *out.Instances[0].InstanceId
			return *out.Instances[0].PrivateIpAddress, nil
		}
	}
	tooMany := map[string]string{}
	for i := range 51 {
		tooMany[fmt.Sprint("k", i)] = ""
	}
	terminate := func(ctx context.Context) (any, error) {
		out, err := c.ec2.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{id}})
		if err != nil {
			return nil, err
		}
		return out.TerminatingInstances[0].PreviousState.Name, nil
	}
	run(t, covered, []step{
		{
			action: "ec2:RunInstances",
			call:   launch(func(in *ec2.RunInstancesInput) { in.DryRun = aws.Bool(true) }),
			code:   "DryRunOperation",
		},
		{
			action: "ec2:RunInstances",
			call:   launch(func(in *ec2.RunInstancesInput) { in.SubnetId = aws.String("subnet-none") }),
			code:   "InvalidSubnetID.NotFound",
		},
		{
			action: "ec2:RunInstances",
			call:   launch(func(in *ec2.RunInstancesInput) { in.IamInstanceProfile.Name = aws.String("none") }),
			code:   "InvalidParameterValue",
		},
		{
			action: "ec2:RunInstances",
			call:   launch(func(in *ec2.RunInstancesInput) { in.TagSpecifications[0].Tags = ec2Tags(tooMany) }),
			code:   "TagLimitExceeded",
		},
		{
			action: "ec2:RunInstances",
			call:   launch(func(in *ec2.RunInstancesInput) { in.MetadataOptions.InstanceMetadataTags = "enabled" }),
			code:   "InvalidParameterValue",
		},
		{
			action: "ec2:RunInstances",
			call:   launch(func(in *ec2.RunInstancesInput) { in.PrivateIpAddress = aws.String("10.99.0.1") }),
			code:   "InvalidParameterValue",
		},
		{action: "ec2:RunInstances", call: launch(func(*ec2.RunInstancesInput) {}), want: free},
		{action: "ec2:RunInstances", call: launch(func(*ec2.RunInstancesInput) {}), code: "InvalidIPAddress.InUse"},
		{action: "ec2:TerminateInstances", call: terminate, want: "running"},
		{action: "ec2:TerminateInstances", call: terminate, want: "terminated"},
		{action: "ec2:RunInstances", call: launch(func(*ec2.RunInstancesInput) {}), want: free},
		{action: "ec2:TerminateInstances", call: terminate, want: "running"},
	})
}

func checkClassicBalancers(t *testing.T, covered map[string]bool, c clients) {
	checkClassicCreation(t, covered, c)
	checkClassicListeners(t, covered, c)
	checkClassicPolicies(t, covered, c)
	checkClassicRest(t, covered, c)
}

var classicName = aws.String("web")

func classicListener(port, instancePort int32) []elbtypes.Listener {
	return []elbtypes.Listener{
		{
			Protocol:         aws.String("TCP"),
			LoadBalancerPort: port,
			InstanceProtocol: aws.String("TCP"),
			InstancePort:     &instancePort,
		},
	}
}

func describeClassic(c clients, get func(elbtypes.LoadBalancerDescription) any) func(context.Context) (any, error) {
	return func(ctx context.Context) (any, error) {
		out, err := c.elb.DescribeLoadBalancers(
			ctx, &elb.DescribeLoadBalancersInput{LoadBalancerNames: []string{*classicName}},
		)
		if err != nil {
			return nil, err
		}
		return get(out.LoadBalancerDescriptions[0]), nil
	}
}

func checkClassicCreation(t *testing.T, covered map[string]bool, c clients) {
	create := func(change func(*elb.CreateLoadBalancerInput)) func(context.Context) (any, error) {
		return func(ctx context.Context) (any, error) {
			in := &elb.CreateLoadBalancerInput{
				LoadBalancerName: classicName,
				Listeners:        classicListener(80, 30080),
				Subnets:          []string{awssim.LabPublicSubnet(1), awssim.LabPublicSubnet(2)},
				SecurityGroups:   []string{awssim.LabSecurityGroup},
				Tags:             []elbtypes.Tag{{Key: aws.String(clusterTag), Value: aws.String("owned")}},
			}
			change(in)
			out, err := c.elb.CreateLoadBalancer(ctx, in)
			if err != nil {
				return nil, err
			}
			return (*out.DNSName)[:4], nil
		}
	}
	run(t, covered, []step{
		{
			action: "elb:CreateLoadBalancer",
			call:   create(func(in *elb.CreateLoadBalancerInput) { in.Subnets = []string{awssim.LabNodeSubnet(1)} }),
			code:   "InvalidSubnet",
		},
		{
			action: "elb:CreateLoadBalancer",
			call:   create(func(in *elb.CreateLoadBalancerInput) { in.Subnets = []string{"subnet-0"} }),
			code:   "SubnetNotFound",
		},
		{
			action: "elb:CreateLoadBalancer",
			call:   create(func(in *elb.CreateLoadBalancerInput) { in.SecurityGroups = []string{"sg-0"} }),
			code:   "InvalidSecurityGroup",
		},
		{
			action: "elb:CreateLoadBalancer",
			call:   create(func(in *elb.CreateLoadBalancerInput) { in.LoadBalancerName = aws.String("-x") }),
			code:   "ValidationError",
		},
		{action: "elb:CreateLoadBalancer", call: create(func(*elb.CreateLoadBalancerInput) {}), want: "web-"},
		{
			action: "elb:CreateLoadBalancer",
			call:   create(func(*elb.CreateLoadBalancerInput) {}),
			code:   "DuplicateLoadBalancerName",
		},
		{action: "elb:DescribeLoadBalancers", call: describeClassic(c, func(d elbtypes.LoadBalancerDescription) any {
			return fmt.Sprint(
				*d.HealthCheck.Target, *d.HealthCheck.Interval, d.Subnets, d.AvailabilityZones, *d.Scheme,
				*d.SourceSecurityGroup.GroupName,
			)
		}), want: fmt.Sprint(
			"TCP:30080", 30, []string{awssim.LabPublicSubnet(1), awssim.LabPublicSubnet(2)},
			[]string{"us-east-1a", "us-east-1b"}, "internet-facing", "kubernetes-nodes",
		)},
		{action: "elb:ConfigureHealthCheck", call: answers(
			c.elb.ConfigureHealthCheck,
			&elb.ConfigureHealthCheckInput{LoadBalancerName: classicName, HealthCheck: &elbtypes.HealthCheck{
				Target:             aws.String("HTTP:10256/healthz"),
				Interval:           aws.Int32(10),
				Timeout:            aws.Int32(5),
				HealthyThreshold:   aws.Int32(2),
				UnhealthyThreshold: aws.Int32(6),
			}},
			func(out *elb.ConfigureHealthCheckOutput) any { return *out.HealthCheck.Target },
		), want: "HTTP:10256/healthz"},
		{action: "elb:ConfigureHealthCheck", call: succeeds(
			c.elb.ConfigureHealthCheck,
			&elb.ConfigureHealthCheckInput{LoadBalancerName: classicName, HealthCheck: &elbtypes.HealthCheck{
				Target:             aws.String("TCP"),
				Interval:           aws.Int32(10),
				Timeout:            aws.Int32(5),
				HealthyThreshold:   aws.Int32(2),
				UnhealthyThreshold: aws.Int32(6),
			}},
		), code: "ValidationError"},
	})
}

// checkClassicListeners changes instances and listeners of a balancer.
func checkClassicListeners(t *testing.T, covered map[string]bool, c clients) {
	worker := []elbtypes.Instance{{InstanceId: aws.String(workerID)}}
	run(t, covered, []step{
		{action: "elb:RegisterInstancesWithLoadBalancer", call: answers(
			c.elb.RegisterInstancesWithLoadBalancer,
			&elb.RegisterInstancesWithLoadBalancerInput{LoadBalancerName: classicName, Instances: worker},
			func(out *elb.RegisterInstancesWithLoadBalancerOutput) any { return len(out.Instances) },
		), want: 1},
		{action: "elb:DescribeInstanceHealth", call: answers(
			c.elb.DescribeInstanceHealth, &elb.DescribeInstanceHealthInput{LoadBalancerName: classicName},
			func(out *elb.DescribeInstanceHealthOutput) any { return *out.InstanceStates[0].State },
		), want: "OutOfService"},
		{action: "elb:DeregisterInstancesFromLoadBalancer", call: answers(
			c.elb.DeregisterInstancesFromLoadBalancer,
			&elb.DeregisterInstancesFromLoadBalancerInput{LoadBalancerName: classicName, Instances: worker},
			func(out *elb.DeregisterInstancesFromLoadBalancerOutput) any { return len(out.Instances) },
		), want: 0},
		{action: "elb:CreateLoadBalancerListeners", call: func(ctx context.Context) (any, error) {
			return none(
				c.elb.CreateLoadBalancerListeners(
					ctx, &elb.CreateLoadBalancerListenersInput{
						LoadBalancerName: classicName, Listeners: classicListener(443, 30443),
					},
				),
			)
		}, want: "<nil>"},
		{action: "elb:CreateLoadBalancerListeners", call: func(ctx context.Context) (any, error) {
			return none(
				c.elb.CreateLoadBalancerListeners(
					ctx, &elb.CreateLoadBalancerListenersInput{
						LoadBalancerName: classicName, Listeners: classicListener(443, 30444),
					},
				),
			)
		}, code: "DuplicateListener"},
		{action: "elb:DeleteLoadBalancerListeners", call: succeeds(
			c.elb.DeleteLoadBalancerListeners,
			&elb.DeleteLoadBalancerListenersInput{LoadBalancerName: classicName, LoadBalancerPorts: []int32{80}},
		), want: "<nil>"},
		{action: "elb:DescribeLoadBalancers", call: describeClassic(c, func(d elbtypes.LoadBalancerDescription) any {
			return fmt.Sprint(len(d.ListenerDescriptions), d.ListenerDescriptions[0].Listener.LoadBalancerPort)
		}), want: "1 443"},
	})
}

// checkClassicPolicies changes policies and attributes.
func checkClassicPolicies(t *testing.T, covered map[string]bool, c clients) {
	run(t, covered, []step{
		{action: "elb:CreateLoadBalancerPolicy", call: succeeds(
			c.elb.CreateLoadBalancerPolicy, &elb.CreateLoadBalancerPolicyInput{
				LoadBalancerName: classicName,
				PolicyName:       aws.String("proxy"),
				PolicyTypeName:   aws.String("ProxyProtocolPolicyType"),
				PolicyAttributes: []elbtypes.PolicyAttribute{
					{AttributeName: aws.String("ProxyProtocol"), AttributeValue: aws.String("true")},
				},
			},
		), want: "<nil>"},
		{action: "elb:CreateLoadBalancerPolicy", call: succeeds(
			c.elb.CreateLoadBalancerPolicy, &elb.CreateLoadBalancerPolicyInput{
				LoadBalancerName: classicName,
				PolicyName:       aws.String("proxy"),
				PolicyTypeName:   aws.String("ProxyProtocolPolicyType"),
				PolicyAttributes: []elbtypes.PolicyAttribute{
					{AttributeName: aws.String("ProxyProtocol"), AttributeValue: aws.String("true")},
				},
			},
		), want: "<nil>"},
		{action: "elb:CreateLoadBalancerPolicy", call: succeeds(
			c.elb.CreateLoadBalancerPolicy, &elb.CreateLoadBalancerPolicyInput{
				LoadBalancerName: classicName,
				PolicyName:       aws.String("proxy"),
				PolicyTypeName:   aws.String("ProxyProtocolPolicyType"),
				PolicyAttributes: []elbtypes.PolicyAttribute{
					{AttributeName: aws.String("ProxyProtocol"), AttributeValue: aws.String("false")},
				},
			},
		), code: "DuplicatePolicyName"},
		{action: "elb:SetLoadBalancerPoliciesForBackendServer", call: succeeds(
			c.elb.SetLoadBalancerPoliciesForBackendServer, &elb.SetLoadBalancerPoliciesForBackendServerInput{
				LoadBalancerName: classicName,
				InstancePort:     aws.Int32(30443),
				PolicyNames:      []string{"proxy"},
			},
		), want: "<nil>"},
		{action: "elb:SetLoadBalancerPoliciesOfListener", call: succeeds(
			c.elb.SetLoadBalancerPoliciesOfListener, &elb.SetLoadBalancerPoliciesOfListenerInput{
				LoadBalancerName: classicName,
				LoadBalancerPort: 443,
				PolicyNames:      []string{"none"},
			},
		), code: "PolicyNotFound"},
		{action: "elb:DescribeLoadBalancerPolicies", call: answers(
			c.elb.DescribeLoadBalancerPolicies, &elb.DescribeLoadBalancerPoliciesInput{LoadBalancerName: classicName},
			func(out *elb.DescribeLoadBalancerPoliciesOutput) any {
				return *out.PolicyDescriptions[0].PolicyAttributeDescriptions[0].AttributeName
			},
		), want: "ProxyProtocol"},
		{action: "elb:ModifyLoadBalancerAttributes", call: succeeds(
			c.elb.ModifyLoadBalancerAttributes, &elb.ModifyLoadBalancerAttributesInput{
				LoadBalancerName: classicName,
				LoadBalancerAttributes: &elbtypes.LoadBalancerAttributes{
					ConnectionSettings: &elbtypes.ConnectionSettings{IdleTimeout: aws.Int32(120)}},
			},
		), want: "<nil>"},
		{action: "elb:DescribeLoadBalancerAttributes", call: answers(
			c.elb.DescribeLoadBalancerAttributes,
			&elb.DescribeLoadBalancerAttributesInput{LoadBalancerName: classicName},
			func(out *elb.DescribeLoadBalancerAttributesOutput) any {
				a := out.LoadBalancerAttributes
				return fmt.Sprint(
					*a.ConnectionSettings.IdleTimeout, a.CrossZoneLoadBalancing.Enabled, a.AccessLog.Enabled,
					*a.ConnectionDraining.Timeout,
				)
			},
		), want: "120 false false 300"},
	})
}

// checkClassicRest changes security groups, subnets and tags, and deletes the balancer.
func checkClassicRest(t *testing.T, covered map[string]bool, c clients) {
	run(t, covered, []step{
		{action: "elb:ApplySecurityGroupsToLoadBalancer", call: succeeds(
			c.elb.ApplySecurityGroupsToLoadBalancer, &elb.ApplySecurityGroupsToLoadBalancerInput{
				LoadBalancerName: classicName,
				SecurityGroups:   []string{awssim.LabSecurityGroup},
			},
		), want: "<nil>"},
		{action: "elb:AttachLoadBalancerToSubnets", call: answers(
			c.elb.AttachLoadBalancerToSubnets, &elb.AttachLoadBalancerToSubnetsInput{
				LoadBalancerName: classicName,
				Subnets:          []string{awssim.LabPublicSubnet(3)},
			},
			func(out *elb.AttachLoadBalancerToSubnetsOutput) any { return len(out.Subnets) },
		), want: 3},
		{action: "elb:DetachLoadBalancerFromSubnets", call: answers(
			c.elb.DetachLoadBalancerFromSubnets, &elb.DetachLoadBalancerFromSubnetsInput{
				LoadBalancerName: classicName,
				Subnets:          []string{awssim.LabPublicSubnet(1)},
			},
			func(out *elb.DetachLoadBalancerFromSubnetsOutput) any { return len(out.Subnets) },
		), want: 2},
		{action: "elb:AddTags", call: func(ctx context.Context) (any, error) {
			return none(
				c.elb.AddTags(
					ctx,
					&elb.AddTagsInput{
						LoadBalancerNames: []string{*classicName},
						Tags:              []elbtypes.Tag{{Key: aws.String("a"), Value: aws.String("1")}},
					},
				),
			)
		}, want: "<nil>"},
		{action: "elb:RemoveTags", call: func(ctx context.Context) (any, error) {
			return none(
				c.elb.RemoveTags(
					ctx,
					&elb.RemoveTagsInput{
						LoadBalancerNames: []string{*classicName},
						Tags:              []elbtypes.TagKeyOnly{{Key: aws.String(clusterTag)}},
					},
				),
			)
		}, want: "<nil>"},
		{action: "elb:DescribeTags", call: func(ctx context.Context) (any, error) {
			out, err := c.elb.DescribeTags(ctx, &elb.DescribeTagsInput{LoadBalancerNames: []string{*classicName}})
			if err != nil {
				return nil, err
			}
			return list(out.TagDescriptions[0].Tags, func(t elbtypes.Tag) *string { return t.Key }), nil
		}, want: []string{"a"}},
		{action: "elb:DeleteLoadBalancer", call: succeeds(
			c.elb.DeleteLoadBalancer, &elb.DeleteLoadBalancerInput{LoadBalancerName: classicName},
		), want: "<nil>"},
		{action: "elb:DeleteLoadBalancer", call: succeeds(
			c.elb.DeleteLoadBalancer, &elb.DeleteLoadBalancerInput{LoadBalancerName: classicName},
		), want: "<nil>"},
		{
			action: "elb:DescribeLoadBalancers",
			call:   describeClassic(c, func(elbtypes.LoadBalancerDescription) any { return nil }),
			code:   "LoadBalancerNotFound",
		},
	})
}

func checkNetworkBalancers(t *testing.T, covered map[string]bool, c clients) {
	n := &networkSteps{c: c}
	n.checkCreation(t, covered)
	n.checkChanges(t, covered)
	n.checkDeletion(t, covered)
}

// networkSteps has the ARNs of what its steps create.
type networkSteps struct {
	c                         clients
	balancer, group, listener string
}

var networkTargets = []elbv2types.TargetDescription{{Id: aws.String(workerID), Port: aws.Int32(30080)}}

func (n *networkSteps) health() func(context.Context) (any, error) {
	return answers(
		n.c.elbv2.DescribeTargetHealth, &elbv2.DescribeTargetHealthInput{TargetGroupArn: &n.group},
		func(out *elbv2.DescribeTargetHealthOutput) any {
			var states []string
			for _, d := range out.TargetHealthDescriptions {
				states = append(
					states, fmt.Sprint(*d.Target.Id, *d.HealthCheckPort, d.TargetHealth.State, d.TargetHealth.Reason),
				)
			}
			return states
		},
	)
}

func (n *networkSteps) deleteGroup() func(context.Context) (any, error) {
	return succeeds(n.c.elbv2.DeleteTargetGroup, &elbv2.DeleteTargetGroupInput{TargetGroupArn: &n.group})
}

func (n *networkSteps) checkCreation(t *testing.T, covered map[string]bool) {
	createGroup := func(name string) func(context.Context) (any, error) {
		return answers(n.c.elbv2.CreateTargetGroup, &elbv2.CreateTargetGroupInput{
			Name:                       &name,
			Port:                       aws.Int32(30080),
			Protocol:                   "TCP",
			VpcId:                      aws.String(awssim.LabVPC),
			TargetType:                 "instance",
			HealthCheckProtocol:        "HTTP",
			HealthCheckPath:            aws.String("/healthz"),
			HealthCheckPort:            aws.String("10256"),
			HealthCheckIntervalSeconds: aws.Int32(10),
			Tags:                       []elbv2types.Tag{{Key: aws.String(clusterTag), Value: aws.String("owned")}},
		}, func(out *elbv2.CreateTargetGroupOutput) any {
			n.group = *out.TargetGroups[0].TargetGroupArn
			return fmt.Sprint(*out.TargetGroups[0].HealthCheckPath, *out.TargetGroups[0].Matcher.HttpCode)
		})
	}
	createListener := answers(n.c.elbv2.CreateListener, &elbv2.CreateListenerInput{
		LoadBalancerArn: &n.balancer, Port: aws.Int32(80), Protocol: "TCP",
		DefaultActions: []elbv2types.Action{{Type: "forward", TargetGroupArn: &n.group}},
	}, func(out *elbv2.CreateListenerOutput) any {
		n.listener = *out.Listeners[0].ListenerArn
		return *out.Listeners[0].Port
	})
	describe := answers(
		n.c.elbv2.DescribeLoadBalancers, &elbv2.DescribeLoadBalancersInput{Names: []string{"net"}},
		func(out *elbv2.DescribeLoadBalancersOutput) any {
			l := out.LoadBalancers[0]
			return fmt.Sprint(l.State.Code, l.Type, len(l.AvailabilityZones), l.Scheme)
		},
	)
	run(t, covered, []step{
		{action: "elbv2:DescribeLoadBalancers", call: describe, code: "LoadBalancerNotFound"},
		{action: "elbv2:CreateLoadBalancer", call: answers(
			n.c.elbv2.CreateLoadBalancer, &elbv2.CreateLoadBalancerInput{
				Name:   aws.String("net"),
				Type:   "network",
				Scheme: "internal",
				SubnetMappings: []elbv2types.SubnetMapping{
					{SubnetId: aws.String(awssim.LabNodeSubnet(1))},
					{SubnetId: aws.String(awssim.LabNodeSubnet(2))},
				},
				SecurityGroups: []string{awssim.LabSecurityGroup},
			},
			func(out *elbv2.CreateLoadBalancerOutput) any {
				n.balancer = *out.LoadBalancers[0].LoadBalancerArn
				return out.LoadBalancers[0].State.Code
			},
		), want: "provisioning"},
		{action: "elbv2:DescribeLoadBalancers", call: describe, want: "activenetwork2internal"},
		{action: "elbv2:CreateTargetGroup", call: createGroup("web"), want: "/healthz200-399"},
		{action: "elbv2:RegisterTargets", call: succeeds(
			n.c.elbv2.RegisterTargets, &elbv2.RegisterTargetsInput{TargetGroupArn: &n.group, Targets: networkTargets},
		), want: "<nil>"},
		{action: "elbv2:RegisterTargets", call: succeeds(n.c.elbv2.RegisterTargets, &elbv2.RegisterTargetsInput{
			TargetGroupArn: &n.group,
			Targets:        []elbv2types.TargetDescription{{Id: aws.String("i-00000000000000fff")}},
		}), code: "InvalidTarget"},
		{
			action: "elbv2:DescribeTargetHealth", call: n.health(),
			want: []string{workerID + "10256unusedTarget.NotInUse"},
		},
		{action: "elbv2:CreateListener", call: createListener, want: 80},
		{action: "elbv2:CreateListener", call: createListener, code: "DuplicateListener"},
		{action: "elbv2:DeleteTargetGroup", call: n.deleteGroup(), code: "ResourceInUse"},
		{action: "elbv2:DescribeListeners", call: answers(
			n.c.elbv2.DescribeListeners, &elbv2.DescribeListenersInput{LoadBalancerArn: &n.balancer},
			func(out *elbv2.DescribeListenersOutput) any {
				return fmt.Sprint(len(out.Listeners), *out.Listeners[0].DefaultActions[0].TargetGroupArn == n.group)
			},
		), want: "1 true"},
		{action: "elbv2:ModifyListener", call: answers(
			n.c.elbv2.ModifyListener, &elbv2.ModifyListenerInput{ListenerArn: &n.listener, Port: aws.Int32(81)},
			func(out *elbv2.ModifyListenerOutput) any { return *out.Listeners[0].Port },
		), want: 81},
		{action: "elbv2:DescribeTargetGroups", call: answers(
			n.c.elbv2.DescribeTargetGroups, &elbv2.DescribeTargetGroupsInput{LoadBalancerArn: &n.balancer},
			func(out *elbv2.DescribeTargetGroupsOutput) any {
				return fmt.Sprint(len(out.TargetGroups), out.TargetGroups[0].LoadBalancerArns[0] == n.balancer)
			},
		), want: "1 true"},
	})
}

func (n *networkSteps) checkChanges(t *testing.T, covered map[string]bool) {
	run(t, covered, []step{
		{action: "elbv2:ModifyTargetGroup", call: answers(n.c.elbv2.ModifyTargetGroup, &elbv2.ModifyTargetGroupInput{
			TargetGroupArn:      &n.group,
			HealthCheckProtocol: "TCP",
			HealthCheckPort:     aws.String("traffic-port"),
		}, func(out *elbv2.ModifyTargetGroupOutput) any {
			return *out.TargetGroups[0].HealthCheckPort
		}), want: "traffic-port"},
		{action: "elbv2:ModifyTargetGroup", call: succeeds(n.c.elbv2.ModifyTargetGroup, &elbv2.ModifyTargetGroupInput{
			TargetGroupArn:             &n.group,
			HealthCheckIntervalSeconds: aws.Int32(5), // below the timeout, whose default was taken at creation
		}), code: "ValidationError"},
		{action: "elbv2:ModifyTargetGroupAttributes", call: succeeds(
			n.c.elbv2.ModifyTargetGroupAttributes, &elbv2.ModifyTargetGroupAttributesInput{
				TargetGroupArn: &n.group,
				Attributes: []elbv2types.TargetGroupAttribute{
					{Key: aws.String("proxy_protocol_v2.enabled"), Value: aws.String("true")},
				},
			},
		), want: "<nil>"},
		{action: "elbv2:DescribeTargetGroupAttributes", call: answers(
			n.c.elbv2.DescribeTargetGroupAttributes,
			&elbv2.DescribeTargetGroupAttributesInput{TargetGroupArn: &n.group},
			func(out *elbv2.DescribeTargetGroupAttributesOutput) any {
				for _, a := range out.Attributes {
					if *a.Key == "proxy_protocol_v2.enabled" {
						return *a.Value
					}
				}
				return nil
			},
		), want: "true"},
		{action: "elbv2:ModifyLoadBalancerAttributes", call: succeeds(
			n.c.elbv2.ModifyLoadBalancerAttributes, &elbv2.ModifyLoadBalancerAttributesInput{
				LoadBalancerArn: &n.balancer,
				Attributes: []elbv2types.LoadBalancerAttribute{
					{Key: aws.String("color"), Value: aws.String("red")},
				},
			},
		), code: "ValidationError"},
		{action: "elbv2:DescribeLoadBalancerAttributes", call: answers(
			n.c.elbv2.DescribeLoadBalancerAttributes,
			&elbv2.DescribeLoadBalancerAttributesInput{LoadBalancerArn: &n.balancer},
			func(out *elbv2.DescribeLoadBalancerAttributesOutput) any { return *out.Attributes[0].Key },
		), want: "access_logs.s3.bucket"},
		{action: "elbv2:SetSecurityGroups", call: succeeds(n.c.elbv2.SetSecurityGroups, &elbv2.SetSecurityGroupsInput{
			LoadBalancerArn: &n.balancer,
			SecurityGroups:  []string{awssim.LabSecurityGroup},
		}), want: "<nil>"},
		{action: "elbv2:SetSubnets", call: answers(n.c.elbv2.SetSubnets, &elbv2.SetSubnetsInput{
			LoadBalancerArn: &n.balancer,
			Subnets: []string{
				awssim.LabNodeSubnet(2), awssim.LabNodeSubnet(3), awssim.LabNodeSubnet(1),
			},
		}, func(out *elbv2.SetSubnetsOutput) any { return len(out.AvailabilityZones) }), want: 3},
		{action: "elbv2:SetIpAddressType", call: n.setAddressType("ipv4"), want: "<nil>"},
		{action: "elbv2:SetIpAddressType", call: n.setAddressType("dualstack"), code: "ValidationError"},
		{action: "elbv2:ModifyIpPools", call: succeeds(n.c.elbv2.ModifyIpPools, &elbv2.ModifyIpPoolsInput{
			LoadBalancerArn: &n.balancer, RemoveIpamPools: []elbv2types.RemoveIpamPoolEnum{"ipv4"},
		}), want: "<nil>"},
		{action: "elbv2:ModifyIpPools", call: succeeds(n.c.elbv2.ModifyIpPools, &elbv2.ModifyIpPoolsInput{
			LoadBalancerArn: &n.balancer, IpamPools: &elbv2types.IpamPools{Ipv4IpamPoolId: aws.String("ipam-pool-1")},
		}), code: "ValidationError"},
		{action: "elbv2:DescribeTrustStores", call: answers(
			n.c.elbv2.DescribeTrustStores, &elbv2.DescribeTrustStoresInput{},
			func(out *elbv2.DescribeTrustStoresOutput) any { return len(out.TrustStores) },
		), want: 0},
		{action: "elbv2:DescribeTrustStores", call: succeeds(
			n.c.elbv2.DescribeTrustStores, &elbv2.DescribeTrustStoresInput{Names: []string{"clients"}},
		), code: "TrustStoreNotFound"},
		{action: "elbv2:AddTags", call: func(ctx context.Context) (any, error) {
			return none(
				n.c.elbv2.AddTags(
					ctx,
					&elbv2.AddTagsInput{
						ResourceArns: []string{n.balancer, n.group, n.listener},
						Tags:         []elbv2types.Tag{{Key: aws.String("a"), Value: aws.String("1")}},
					},
				),
			)
		}, want: "<nil>"},
		{action: "elbv2:RemoveTags", call: func(ctx context.Context) (any, error) {
			return none(
				n.c.elbv2.RemoveTags(
					ctx, &elbv2.RemoveTagsInput{ResourceArns: []string{n.group}, TagKeys: []string{clusterTag}},
				),
			)
		}, want: "<nil>"},
		{action: "elbv2:DescribeTags", call: func(ctx context.Context) (any, error) {
			out, err := n.c.elbv2.DescribeTags(ctx, &elbv2.DescribeTagsInput{ResourceArns: []string{n.group}})
			if err != nil {
				return nil, err
			}
			return list(out.TagDescriptions[0].Tags, func(t elbv2types.Tag) *string { return t.Key }), nil
		}, want: []string{"a"}},
	})
}

func (n *networkSteps) setAddressType(kind elbv2types.IpAddressType) func(context.Context) (any, error) {
	return func(ctx context.Context) (any, error) {
		return none(n.c.elbv2.SetIpAddressType(
			ctx, &elbv2.SetIpAddressTypeInput{LoadBalancerArn: &n.balancer, IpAddressType: kind},
		))
	}
}

func (n *networkSteps) checkDeletion(t *testing.T, covered map[string]bool) {
	run(t, covered, []step{
		{action: "elbv2:DeregisterTargets", call: succeeds(
			n.c.elbv2.DeregisterTargets,
			&elbv2.DeregisterTargetsInput{TargetGroupArn: &n.group, Targets: networkTargets},
		), want: "<nil>"},
		{action: "elbv2:DescribeTargetHealth", call: n.health(), want: []string(nil)},
		{action: "elbv2:DeleteListener", call: succeeds(
			n.c.elbv2.DeleteListener, &elbv2.DeleteListenerInput{ListenerArn: &n.listener},
		), want: "<nil>"},
		{action: "elbv2:DeleteTargetGroup", call: n.deleteGroup(), want: "<nil>"},
		{action: "elbv2:DeleteTargetGroup", call: n.deleteGroup(), code: "TargetGroupNotFound"},
		{action: "elbv2:DeleteLoadBalancer", call: succeeds(
			n.c.elbv2.DeleteLoadBalancer, &elbv2.DeleteLoadBalancerInput{LoadBalancerArn: &n.balancer},
		), want: "<nil>"},
	})
}
