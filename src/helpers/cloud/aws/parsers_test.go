package aws

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"kubernetes-release/cloud/aws/cloudconfig"
	"kubernetes-release/cloud/aws/clustertags"
	"kubernetes-release/cloud/aws/metadata"
	"kubernetes-release/preflight"
)

func TestPolicies(t *testing.T) {
	for _, role := range both {
		for _, partition := range []string{"aws", "aws-cn", "aws-us-gov"} {
			p, err := NewPolicy(
				PolicyOptions{
					Role:        role,
					Cluster:     "prod",
					Partition:   partition,
					CloudRoutes: true,
					Storage:     true,
					Keys:        []string{"arn:" + partition + ":kms:x:123456789012:key/y"},
				},
			)
			if err != nil {
				t.Fatal(err)
			}
			var actions, sids []string
			for _, s := range p.Statement {
				actions = append(actions, s.Action...)
				if slices.Contains(sids, s.Sid) {
					t.Errorf("%s: statement %s twice", role, s.Sid)
				}
				sids = append(sids, s.Sid)
				for _, r := range s.Resource {
					if r != "*" && !strings.HasPrefix(r, "arn:"+partition+":") {
						t.Errorf("resource %s in %s", r, partition)
					}
				}
				for _, a := range s.Action {
					name := a[strings.Index(a, ":")+1:]
					reads := strings.HasPrefix(name, "Describe") || strings.HasPrefix(name, "GetEbs") ||
						strings.HasPrefix(a, "ecr") ||
						s.Sid == "Ec2CreateInVpc" ||
						s.Sid == "IamAskAboutItself"
					if !reads && len(s.Condition) == 0 {
						t.Errorf("%s: %s has no condition", role, a)
					}
				}
			}
			slices.Sort(actions)
			want := slices.DeleteFunc(
				policyNeeds{role: role, routes: true, storage: true, keys: []string{"key"}}.actions(),
				func(a string) bool {
					return partition != "aws" &&
						(strings.HasPrefix(a, "ecr-public:") || a == "sts:GetServiceBearerToken")
				},
			)
			if got := slices.Compact(actions); !slices.Equal(got, want) {
				t.Errorf("%s: the policy has %v, the table %v", role, got, want)
			}
		}
	}
	if slices.Contains(Actions(preflight.Control, false), "ec2:CreateRoute") ||
		slices.Contains(Actions(preflight.Worker, true), "elasticloadbalancing:CreateLoadBalancer") {
		t.Errorf("a role has more permissions than it requires")
	}
	for _, o := range []PolicyOptions{
		{Role: "x", Cluster: "prod"},
		{Role: preflight.Worker},
		{Role: preflight.Worker, Cluster: "prod", Partition: "moon"},
		{Role: preflight.Worker, Cluster: "prod", RoleName: "a*"},
	} {
		if _, err := NewPolicy(o); err == nil {
			t.Errorf("accepted %+v", o)
		}
	}
	named, err := NewPolicy(PolicyOptions{Role: preflight.Worker, Cluster: "prod", RoleName: "mine"})
	if last := named.Statement[len(named.Statement)-1]; err != nil || last.Resource[0] != "arn:aws:iam::*:role/mine" {
		t.Errorf("%+v, %v", named, err)
	}
	wide, err := NewPolicy(PolicyOptions{Role: preflight.Control, WideOpen: true})
	if err != nil || wide.Statement[0].Sid != "WideOpenNotForProduction" {
		t.Errorf("%+v, %v", wide, err)
	}
}

// TestTableCoversTheCloudController compares the table with what cloud-provider-aws 1.37 calls.
func TestTableCoversTheCloudController(t *testing.T) {
	calls := strings.Fields(
		`ec2:AuthorizeSecurityGroupIngress ec2:CreateRoute ec2:CreateSecurityGroup ec2:CreateTags ec2:DeleteRoute ec2:DeleteSecurityGroup
		ec2:DescribeAvailabilityZones ec2:DescribeInstanceTopology ec2:DescribeInstances ec2:DescribeRouteTables ec2:DescribeSecurityGroups ec2:DescribeSubnets
		ec2:ModifyInstanceAttribute ec2:RevokeSecurityGroupIngress
		elasticloadbalancing:AddTags elasticloadbalancing:ApplySecurityGroupsToLoadBalancer elasticloadbalancing:AttachLoadBalancerToSubnets elasticloadbalancing:ConfigureHealthCheck
		elasticloadbalancing:CreateListener elasticloadbalancing:CreateLoadBalancer elasticloadbalancing:CreateLoadBalancerListeners elasticloadbalancing:CreateLoadBalancerPolicy
		elasticloadbalancing:CreateTargetGroup elasticloadbalancing:DeleteListener elasticloadbalancing:DeleteLoadBalancer elasticloadbalancing:DeleteLoadBalancerListeners
		elasticloadbalancing:DeleteTargetGroup elasticloadbalancing:DeregisterInstancesFromLoadBalancer elasticloadbalancing:DeregisterTargets elasticloadbalancing:DescribeListeners
		elasticloadbalancing:DescribeLoadBalancerAttributes elasticloadbalancing:DescribeLoadBalancerPolicies elasticloadbalancing:DescribeLoadBalancers
		elasticloadbalancing:DescribeTargetGroupAttributes elasticloadbalancing:DescribeTargetGroups elasticloadbalancing:DescribeTargetHealth
		elasticloadbalancing:DetachLoadBalancerFromSubnets elasticloadbalancing:ModifyListener elasticloadbalancing:ModifyLoadBalancerAttributes elasticloadbalancing:ModifyTargetGroup
		elasticloadbalancing:ModifyTargetGroupAttributes elasticloadbalancing:RegisterInstancesWithLoadBalancer elasticloadbalancing:RegisterTargets
		elasticloadbalancing:SetLoadBalancerPoliciesForBackendServer elasticloadbalancing:SetLoadBalancerPoliciesOfListener elasticloadbalancing:SetSecurityGroups`,
	)
	table := Actions(preflight.Control, true)
	for _, action := range calls {
		if !slices.Contains(table, action) {
			t.Errorf("%s is not in the table", action)
		}
	}
}

// FuzzProfileARN: the ARN of the role that IAM is asked about is derived from the ARN of the instance profile.
func FuzzProfileARN(f *testing.F) {
	f.Add("arn:aws:iam::123456789012:instance-profile/team/kubernetes-control")
	f.Add("arn:aws-cn:iam::1:x")
	f.Add("arn:")
	f.Fuzz(func(t *testing.T, profile string) {
		facts := &facts{
			conf:        &cloudconfig.Config{},
			profile:     profile,
			credentials: metadata.Credentials{Role: "r"},
			request:     preflight.Config{Cluster: "prod", Role: preflight.Control, ConfigureCloudRoutes: true},
		}
		asked, known := facts.machineIdentity()
		if !known {
			return
		}
		for _, q := range facts.policyQuestions(asked) {
			if len(q.actions) == 0 {
				t.Errorf("a question without actions: %+v", q)
			}
			for _, r := range q.resources {
				if !strings.HasPrefix(r, "arn:") {
					t.Errorf("asks about %q", r)
				}
			}
		}
	})
}

// FuzzSubnets uses arbitrary tags and routes. The choice must consist of existing subnets, one per zone.
func FuzzSubnets(f *testing.F) {
	f.Add(
		"subnet-1 a kubernetes.io/cluster/prod=shared\nsubnet-2 a kubernetes.io/cluster/other=\nsubnet-3 b "+
			"kubernetes.io/role/elb=1",
		"igw-1",
	)
	f.Add("  =\nsubnet-1  KubernetesCluster=prod", "nat-1")
	f.Fuzz(func(t *testing.T, lines, gateway string) {
		v := vpc{cluster: "prod", ownSubnet: "subnet-1", tables: []routeTable{mainTable(gateway)}}
		known := map[string]bool{}
		for line := range strings.Lines(lines) {
			words := strings.Split(strings.TrimSuffix(line, "\n"), " ")
			words = append(words, "", "")
			v.subnets = append(v.subnets, subnetOf(words[0], words[1], words[2:]...))
			known[words[0]] = true
		}
		for _, internal := range []bool{false, true} {
			choice := v.choose(internal)
			zones := map[string]bool{}
			for _, z := range choice.Zones {
				if !known[z.Subnet.ID] || zones[z.Zone] || z.By == "" {
					t.Errorf("%+v of %q", z, lines)
				}
				zones[z.Zone] = true
			}
			if len(choice.explain().Lines) == 0 {
				t.Errorf("there is no explanation for %q", lines)
			}
		}
	})
}

// FuzzAnswers lets EC2 answer every call with the same text. The run must end with a result, and must not see a tag
// that is not there.
func FuzzAnswers(f *testing.F) {
	cloud := newFake()
	cloud.start(f)
	f.Add(
		200,
		"<DescribeInstancesResponse><reservationSet><item><instancesSet><item><instanceId>"+testInstance+"</instanceId><tagSet><item/></tagSet><networkInterfaceSet><item/></networkInterfaceSet></item></instancesSet></item></reservationSet></DescribeInstancesResponse>",
	)
	f.Add(
		200,
		"<DescribeSubnetsResponse><subnetSet><item/><item><subnetId>subnet-node-a</subnetId></item></subnetSet>"+
			"</DescribeSubnetsResponse>",
	)
	f.Add(
		200,
		"<DescribeRouteTablesResponse><routeTableSet><item><associationSet><item/></associationSet><routeSet>"+
			"<item/></routeSet></item></routeTableSet></DescribeRouteTablesResponse>",
	)
	f.Add(500, "<html>")
	f.Add(400, "<Response><Errors><Error><Code>InvalidInstanceID.NotFound</Code><Message/></Error></Errors></Response>")
	f.Add(200, "<DescribeSubnetsResponse><subnetSet><item><subn")
	f.Add(200, "")
	f.Fuzz(func(t *testing.T, status int, body string) {
		if status < 200 || status > 599 || status == http.StatusTooManyRequests || strings.Contains(body, "hrottl") ||
			strings.Contains(body, "LimitExceeded") ||
			strings.Contains(body, "TooManyRequests") ||
			strings.Contains(body, "SlowDown") ||
			strings.Contains(body, "extToken") {
			t.Skip("no status of an answer, or one that is retried")
		}
		cloud.mu.Lock()
		for _, name := range []string{"DescribeInstances", "DescribeSubnets", "DescribeRouteTables", "DescribeAv" +
			"ailabilityZones", "DescribeSecurityGroups", "CreateSecurityGroup"} {
			cloud.answers["ec2:"+name] = fakeAnswer{status, body}
		}
		cloud.calls = nil
		cloud.mu.Unlock()
		r, _ := runStarted(t, testConfig(preflight.Control), nil, 20*time.Second)
		if result(r, "instance-cluster-tag").Status == preflight.Passed &&
			!strings.Contains(body, clustertags.Prefix+"prod") {
			t.Errorf("the tag check passes with %q", body)
		}
		if out := text(r); r.Result == "" || len(r.Results) < 30 || strings.Contains(out, testSecret) ||
			strings.Contains(out, testToken) {
			t.Errorf("%d results, result of the run %q", len(r.Results), r.Result)
		}
	})
}

// FuzzMetadata uses arbitrary instance metadata. Either the machine gets a valid node identity, or metadata-service
// fails.
func FuzzMetadata(f *testing.F) {
	cloud := newFake()
	cloud.start(f)
	good := newFake().metadata
	const document, hostname, info = "dynamic/instance-identity/document", "meta-data/local-hostname", "meta-data/iam/info"
	f.Add(
		good[document], good[hostname], "0a:00:00:00:00:01", good[info], "kubernetes-control",
		good["meta-data/iam/security-credentials/kubernetes-control"],
	)
	f.Add(good[document], "a b", "../..", "{}", "a/b", "{")
	f.Add("{", "", "", "", "", "")
	f.Fuzz(func(t *testing.T, identity, name, mac, profile, role, credentials string) {
		cloud.mu.Lock()
		cloud.metadata = maps.Clone(good)
		for path, body := range map[string]string{document: identity, hostname: name, "meta-data/mac": mac, info: profile,
			"meta-data/iam/security-credentials/": role, "meta-data/iam/security-credentials/kubernetes-control": credentials} {
			cloud.metadata[path] = body
		}
		cloud.calls = nil
		cloud.mu.Unlock()
		r, _ := runStarted(t, testConfig(preflight.Worker), nil, 20*time.Second)
		if r.Node != nil && r.Node.Validate() != nil ||
			r.Node == nil && result(r, "metadata-service").Status != preflight.Failed {
			t.Errorf("%+v\n%s", r.Node, text(r))
		}
	})
}
