package aws

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"kubernetes-release/helpers/cloud"
	"kubernetes-release/helpers/node"
	"kubernetes-release/helpers/preflight"
)

func text(r *preflight.Report) string {
	var b bytes.Buffer
	preflight.Printer{}.Table(&b, r)
	preflight.Printer{}.Findings(&b, r)
	return b.String()
}

func TestAllWell(t *testing.T) {
	for _, test := range []struct {
		role   preflight.Role
		budget int
	}{{preflight.Worker, 2}, {preflight.Control, 8}} {
		t.Run(string(test.role), func(t *testing.T) {
			f := newFake()
			r, id := runAgainst(t, f, testConfig(test.role), nil)
			if r.Verdict != preflight.VerdictPassed || r.Count(preflight.Warned) > 0 {
				t.Errorf("not all is well:\n%s", text(r))
			}
			for _, result := range r.Results {
				switch result.Check {
				case "instance-role", "stale-node", "cloud-routes-table":
				case "other-permissions":
					if want := map[preflight.Role]preflight.Status{preflight.Worker: preflight.Skipped, preflight.Control: preflight.Passed}[test.role]; result.Status != want {
						t.Errorf("%s: %s %s", result.Check, result.Status, result.Note)
					}
				default:
					if result.Status != preflight.Passed {
						t.Errorf("%s: %s %s", result.Check, result.Status, result.Note)
					}
				}
			}
			if n := f.called("ec2"); n > test.budget || n != r.CallCount("EC2") {
				t.Errorf("%d EC2 calls, %d reported, budget %d: %v", n, r.CallCount("EC2"), test.budget, f.calls)
			}
			want := node.Identity{Name: "ip-10-0-16-4.ec2.internal", ProviderID: "aws:///us-east-1a/" + testInstance, Address: "10.0.16.4", Region: "us-east-1", Zone: "us-east-1a"}
			if id == nil || *id != want {
				t.Errorf("identity = %+v", id)
			}
		})
	}
}

// TestCallsThatDoNotDependOnEachOther are under way together: each is answered only when the others have come too. The chain is
// session token, identity document, these two groups of metadata, EC2. A call that waited for another one would never be made.
func TestCallsThatDoNotDependOnEachOther(t *testing.T) {
	const interfaces = "meta-data/network/interfaces/macs/0a:00:00:00:00:01/"
	metadata := [][]string{
		{"meta-data/local-hostname", "meta-data/mac", "meta-data/iam/info", "meta-data/iam/security-credentials/"},
		{interfaces + "vpc-id", interfaces + "subnet-id", interfaces + "security-group-ids", "meta-data/iam/security-credentials/kubernetes-control"},
	}
	for role, actions := range map[preflight.Role][]string{
		preflight.Worker: {"DescribeInstances", "DescribeSubnets"},
		preflight.Control: {"DescribeInstances", "DescribeSubnets", "DescribeRouteTables", "DescribeAvailabilityZones", "DescribeSecurityGroups", "CreateSecurityGroup",
			"AuthorizeSecurityGroupIngress", "RevokeSecurityGroupIngress"},
	} {
		f := newFake()
		f.gates = map[string]*sync.WaitGroup{}
		for _, group := range append(metadata, actions) {
			gate := &sync.WaitGroup{}
			gate.Add(len(group))
			for _, name := range group {
				f.gates[name] = gate
			}
		}
		f.start(t)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // when it goes wrong
		p := testProvider()
		p.metadataTimeout = 10 * time.Second
		if r, _ := runWith(ctx, t, p, testConfig(role), nil); r.Verdict != preflight.VerdictPassed {
			t.Errorf("%s:\n%s", role, text(r))
		}
		cancel()
	}
}

// TestNoConnectionsAreLeft: a program that makes many runs must not gather connections.
func TestNoConnectionsAreLeft(t *testing.T) {
	f := newFake()
	var open sync.Map
	f.connections = func(c net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			open.Delete(c)
		} else {
			open.Store(c, state)
		}
	}
	f.start(t)
	runStarted(t, testConfig(preflight.Control), nil, 30*time.Second)
	left := func() (n int) {
		open.Range(func(any, any) bool { n++; return true })
		return n
	}
	for deadline := time.Now().Add(10 * time.Second); left() > 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	if n := left(); n > 0 {
		t.Errorf("%d connections are open", n)
	}
}

func TestNothingIsChanged(t *testing.T) {
	f := newFake()
	c := testConfig(preflight.Control)
	c.ConfigureCloudRoutes, c.Thorough = true, true
	runAgainst(t, f, c, nil)
	for _, call := range f.calls {
		if name := call.action[strings.Index(call.action, ":")+1:]; !strings.HasPrefix(name, "Describe") && !call.dryRun && call.action != simulateAction {
			t.Errorf("%s was called without DryRun", call.action)
		}
	}
}

// mistakes are those that operators make, with the checks that find each.
var mistakes = map[string][]string{
	"no instance profile":                             {"instance-profile"},
	"a profile without a usable role":                 {"role-credentials"},
	"the wrong role":                                  {"instance-role"},
	"DescribeInstances is denied":                     {"ec2-read-permissions"},
	"no DescribeAvailabilityZones":                    {"ec2-read-permissions"},
	"no CreateSecurityGroup, CreateTags or Authorize": {"security-group-permissions"},
	"no permissions for load balancers":               {"load-balancer-permissions", "load-balancer-write-permissions"},
	"no cluster tag on the instance":                  {"instance-cluster-tag"},
	"two cluster ids":                                 {"instance-cluster-ids"},
	"old and new tag disagree":                        {"instance-legacy-tag"},
	"a value that is neither owned nor shared":        {"cluster-tag-value"},
	"a name that is too long, too many tags":          {"cluster-name", "instance-tag-limit"},
	"a subnet tagged only for another cluster":        {"node-subnet-cluster-tag", "public-subnet-cluster-tag", "foreign-public-subnets"},
	"no role tag, and several subnets in a zone":      {"public-subnet-choice", "internal-subnet-choice"},
	"a public subnet without a public route":          {"public-subnet-route", "internal-subnets"},
	"two tagged security groups":                      {"tagged-security-groups"},
	"several untagged security groups":                {"untagged-security-groups"},
	"a host name that is not the private DNS name":    {"node-name"},
	"a node address that is not the instance's":       {"node-address"},
	"a hop limit of 1":                                {"metadata-hop-limit"},
	"instance metadata is off":                        {"metadata-service"},
	"clock skew":                                      {"clock"},
	"no way to EC2, ELB or ECR":                       {"ec2-endpoint", "load-balancer-endpoint", "registry-endpoint"},
	"the source/destination check is on":              {"source-dest-check"},
	"two tagged route tables":                         {"cloud-routes-table"},
	"a Node of an earlier instance":                   {"stale-node"},
}

func TestEveryMistakeHasItsChecks(t *testing.T) {
	if len(mistakes) != 26 {
		t.Errorf("%d mistakes", len(mistakes))
	}
	for mistake, ids := range mistakes {
		for _, id := range ids {
			if !slices.ContainsFunc(checks, func(c check) bool { return c.ID == id }) {
				t.Errorf("%s: there is no check %s", mistake, id)
			}
		}
	}
}

// TestFindings changes one thing at a time and looks at the check that has to notice.
func TestFindings(t *testing.T) {
	const key = "kubernetes.io/cluster/prod"
	tests := map[string]struct {
		role   preflight.Role
		change func(*fakeCloud)
		config func(*preflight.Config)
		conf   string // content of the cloud controller's configuration
		check  string
		status preflight.Status
		want   []string // in the text of the report
	}{
		"no tag on the instance": {preflight.Worker, func(f *fakeCloud) { delete(f.tags, key) }, nil, "", "instance-cluster-tag", preflight.Failed,
			[]string{"FAIL instance-cluster-tag: " + testInstance, "wanted: tag " + key, "the tags are Name",
				"aws ec2 create-tags --region us-east-1 --resources " + testInstance + " --tags Key=" + key + ",Value=shared"}},
		"instance of another cluster": {preflight.Worker, func(f *fakeCloud) { f.tags = map[string]string{"kubernetes.io/cluster/other": "owned"} }, nil, "", "instance-cluster-tag", preflight.Failed,
			[]string{`tagged only for cluster "other"`}},
		"two cluster ids": {preflight.Control, func(f *fakeCloud) { f.tags["kubernetes.io/cluster/old"] = "shared" }, nil, "", "instance-cluster-ids", preflight.Failed,
			[]string{`tags of the clusters "old" and "prod"`, "aws ec2 delete-tags --region us-east-1 --resources " + testInstance + " --tags Key=kubernetes.io/cluster/old"}},
		"two cluster ids on a worker": {preflight.Worker, func(f *fakeCloud) { f.tags["kubernetes.io/cluster/old"] = "shared" }, nil, "", "instance-cluster-ids", preflight.Warned, nil},
		"two cluster ids, overridden": {preflight.Worker, func(f *fakeCloud) { f.tags["kubernetes.io/cluster/old"] = "shared" },
			func(c *preflight.Config) {
				c.Checks = map[string]preflight.Severity{"instance-cluster-ids": preflight.Fail}
			}, "", "instance-cluster-ids", preflight.Failed, nil},
		"legacy tag": {preflight.Control, func(f *fakeCloud) { f.tags["KubernetesCluster"] = "old" }, nil, "", "instance-legacy-tag", preflight.Failed, []string{"KubernetesCluster=old"}},
		"value":      {preflight.Worker, func(f *fakeCloud) { f.tags[key] = "true" }, nil, "", "cluster-tag-value", preflight.Warned, []string{`the value "true"`}},
		"60 tags": {preflight.Worker, func(f *fakeCloud) {
			for i := range 58 {
				f.tags[fmt.Sprintf("tag-%d é\n", i)] = "<&>"
			}
		}, nil, "", "instance-tag-limit", preflight.Warned, []string{"60 tags"}},
		"node subnet": {preflight.Worker, func(f *fakeCloud) { f.subnets[0].tags = nil }, nil, "", "node-subnet-cluster-tag", preflight.Failed,
			[]string{"FAIL node-subnet-cluster-tag: subnet-node-a", "--resources subnet-node-a --tags Key=" + key}},
		"node subnet of another cluster": {preflight.Worker, func(f *fakeCloud) { f.subnets[0].tags = map[string]string{"kubernetes.io/cluster/other": "1"} }, nil, "", "node-subnet-cluster-tag", preflight.Failed,
			[]string{`tagged only for cluster "other"`}},
		"node subnet is not there": {preflight.Worker, func(f *fakeCloud) { f.subnets = f.subnets[1:] }, nil, "", "node-subnet-cluster-tag", preflight.Failed, []string{"an answer without it"}},
		"public subnet": {preflight.Control, func(f *fakeCloud) { f.subnets[3].tags = nil }, nil, "", "public-subnet-cluster-tag", preflight.Failed,
			[]string{"FAIL public-subnet-cluster-tag: subnet-public-b", "--resources subnet-public-b --tags"}},
		"public subnets of others only": {preflight.Control, func(f *fakeCloud) {
			f.subnets[2].tags, f.subnets[3].tags = map[string]string{"kubernetes.io/cluster/x": "1"}, map[string]string{"kubernetes.io/cluster/x": "1"}
		}, nil, "", "public-subnet-cluster-tag", preflight.Failed, []string{"subnet-public-a, subnet-public-b"}},
		"one zone of others only": {preflight.Control, func(f *fakeCloud) { f.subnets[2].tags = map[string]string{"kubernetes.io/cluster/x": "1"} }, nil, "", "foreign-public-subnets", preflight.Warned, []string{"subnet-public-a"}},
		"no public route":         {preflight.Control, func(f *fakeCloud) { f.tables[1].gateway = "nat-1" }, nil, "", "public-subnet-route", preflight.Failed, []string{"public-subnet-route: off"}},
		"no route table":          {preflight.Control, func(f *fakeCloud) { f.tables = f.tables[1:] }, nil, "", "public-subnet-route", preflight.Failed, []string{"subnet-node-a, subnet-node-b"}},
		"meant to be public":      {preflight.Control, func(f *fakeCloud) { f.subnets[0].tags[publicRoleTag] = "" }, nil, "", "public-subnet-route", preflight.Warned, []string{"subnet-node-a", "--route-table-id rtb-main"}},
		"ambiguous public":        {preflight.Control, func(f *fakeCloud) { f.addPublic("subnet-public-0", nil) }, nil, "", "public-subnet-choice", preflight.Passed, []string{"not subnet-public-0: not tagged for the cluster"}},
		"ambiguous public, both tagged": {preflight.Control, func(f *fakeCloud) { f.addPublic("subnet-public-0", map[string]string{key: "shared"}) }, nil, "", "public-subnet-choice", preflight.Warned,
			[]string{"us-east-1a  subnet-public-0 (the lowest id); not subnet-public-a: its id is higher"}},
		"ambiguous internal": {preflight.Control, func(f *fakeCloud) { delete(f.subnets[0].tags, internalRoleTag) }, nil, "", "internal-subnet-choice", preflight.Warned, []string{"Key=kubernetes.io/role/internal-elb,Value=1"}},
		"two tagged groups":  {preflight.Worker, func(f *fakeCloud) { f.addGroup("sg-2", map[string]string{key: "owned"}) }, nil, "", "tagged-security-groups", preflight.Failed, []string{"sg-1, sg-2"}},
		"two untagged groups": {preflight.Worker, func(f *fakeCloud) { f.groups["sg-1"] = nil; f.addGroup("sg-2", nil) }, nil, "", "untagged-security-groups", preflight.Failed,
			[]string{"aws ec2 create-tags --region us-east-1 --resources sg-1"}},
		"one of two groups is tagged": {preflight.Worker, func(f *fakeCloud) { f.addGroup("sg-2", nil) }, nil, "", "untagged-security-groups", preflight.Passed, nil},
		"groups are not managed": {preflight.Control, func(f *fakeCloud) { f.groups["sg-1"] = nil; f.addGroup("sg-2", nil) }, nil, "[Global]\nDisableSecurityGroupIngress = true\n",
			"untagged-security-groups", preflight.Passed, nil},
		"no describe":        {preflight.Worker, func(f *fakeCloud) { f.denied["ec2:DescribeInstances"] = true }, nil, "", "ec2-read-permissions", preflight.Failed, []string{"FAIL ec2-read-permissions: ec2:DescribeInstances", "iam-policy --role worker --cluster prod --role-name kubernetes-control > policy.json"}},
		"no zones":           {preflight.Control, func(f *fakeCloud) { f.denied["ec2:DescribeAvailabilityZones"] = true }, nil, "", "ec2-read-permissions", preflight.Failed, []string{"uninitialized"}},
		"no CreateTags":      {preflight.Control, func(f *fakeCloud) { f.denied["ec2:CreateTags"] = true }, nil, "", "security-group-permissions", preflight.Failed, []string{"FAIL security-group-permissions: ec2:CreateTags"}},
		"no Authorize":       {preflight.Control, func(f *fakeCloud) { f.denied["ec2:AuthorizeSecurityGroupIngress"] = true }, nil, "", "security-group-permissions", preflight.Failed, []string{"ec2:AuthorizeSecurityGroupIngress"}},
		"no ELB":             {preflight.Control, func(f *fakeCloud) { f.denied["elasticloadbalancing:DescribeLoadBalancers"] = true }, nil, "", "load-balancer-permissions", preflight.Failed, []string{"elasticloadbalancing:DescribeLoadBalancers"}},
		"no RegisterTargets": {preflight.Control, func(f *fakeCloud) { f.denied["elasticloadbalancing:RegisterTargets"] = true }, nil, "", "load-balancer-write-permissions", preflight.Failed, []string{"FAIL load-balancer-write-permissions: elasticloadbalancing:RegisterTargets\n"}},
		"two ELB actions": {preflight.Control, func(f *fakeCloud) {
			f.denied["elasticloadbalancing:RegisterTargets"], f.denied["elasticloadbalancing:DeleteTargetGroup"] = true, true
		}, nil, "", "load-balancer-write-permissions", preflight.Failed, []string{": elasticloadbalancing:DeleteTargetGroup, elasticloadbalancing:RegisterTargets\n"}},
		"a condition on something else": {preflight.Control, func(f *fakeCloud) {
			f.denied["elasticloadbalancing:RegisterTargets"], f.conditions["elasticloadbalancing:RegisterTargets"] = true, "aws:SourceVpc"
		}, nil, "", "load-balancer-write-permissions", preflight.Skipped, []string{"elasticloadbalancing:RegisterTargets (its condition looks at aws:SourceVpc)"}},
		"IAM may not be asked": {preflight.Control, func(f *fakeCloud) { f.denied[simulateAction] = true }, nil, "", "load-balancer-write-permissions", preflight.Skipped, []string{"allow it iam:SimulatePrincipalPolicy on its own ARN"}},
		"role with a path":     {preflight.Control, func(f *fakeCloud) { f.rolePath = "/team/" }, nil, "", "load-balancer-write-permissions", preflight.Passed, nil},
		"role with a path that may not be found": {preflight.Control, func(f *fakeCloud) { f.rolePath = "/team/"; f.denied[findRoleAction] = true }, nil, "", "other-permissions", preflight.Skipped,
			[]string{"IAM knows no role kubernetes-control without a path; allow the role iam:GetRole"}},
		"IAM fails":                        {preflight.Control, func(f *fakeCloud) { f.answers[simulateAction] = fakeAnswer{500, ""} }, nil, "", "load-balancer-write-permissions", preflight.Skipped, []string{"IAM did not say: HTTP 500"}},
		"no topology":                      {preflight.Control, func(f *fakeCloud) { f.denied["ec2:DescribeInstanceTopology"] = true }, nil, "", "other-permissions", preflight.Warned, []string{"ec2:DescribeInstanceTopology"}},
		"no DeleteSecurityGroup":           {preflight.Control, func(f *fakeCloud) { f.denied["ec2:DeleteSecurityGroup"] = true }, nil, "", "other-permissions", preflight.Failed, []string{"ec2:DeleteSecurityGroup"}},
		"no DeleteSecurityGroup, thorough": {preflight.Control, func(f *fakeCloud) { f.denied["ec2:DeleteSecurityGroup"] = true }, func(c *preflight.Config) { c.Thorough = true }, "", "security-group-permissions", preflight.Failed, []string{"ec2:DeleteSecurityGroup"}},
		"no routes":                        {preflight.Control, func(f *fakeCloud) { f.denied["ec2:CreateRoute"] = true; f.tables[0].tags = map[string]string{key: ""} }, func(c *preflight.Config) { c.ConfigureCloudRoutes = true }, "", "other-permissions", preflight.Failed, []string{"ec2:CreateRoute", "--cloud-routes"}},
		"no ECR":                           {preflight.Worker, func(f *fakeCloud) { f.denied["ecr:BatchGetImage"] = true }, func(c *preflight.Config) { c.Thorough = true }, "", "other-permissions", preflight.Warned, []string{"ecr:BatchGetImage"}},
		"no profile":                       {preflight.Worker, func(f *fakeCloud) { f.noProfile() }, nil, "", "instance-profile", preflight.Failed, []string{"iam/info answers 404", "aws ec2 associate-iam-instance-profile --region us-east-1 --instance-id " + testInstance}},
		"profile, no role":                 {preflight.Worker, func(f *fakeCloud) { delete(f.metadata, "meta-data/iam/security-credentials/") }, nil, "", "role-credentials", preflight.Failed, []string{"aws iam add-role-to-instance-profile"}},
		"role not usable": {preflight.Worker, func(f *fakeCloud) {
			f.metadata["meta-data/iam/security-credentials/kubernetes-control"] = `{"Code": "AssumeRoleUnauthorizedAccess"}`
		}, nil, "", "role-credentials", preflight.Failed, []string{`code "AssumeRoleUnauthorizedAccess"`}},
		"expired": {preflight.Worker, func(f *fakeCloud) {
			f.metadata["meta-data/iam/security-credentials/kubernetes-control"] = credentialsDocument(time.Now().Add(-time.Hour))
		}, nil, "", "role-credentials", preflight.Failed, []string{"expired at"}},
		"refused": {preflight.Worker, func(f *fakeCloud) {
			f.metadata["meta-data/iam/security-credentials/kubernetes-control"] = strings.Replace(credentialsDocument(time.Now().Add(time.Hour)), testKeyID, "ASIASOMETHINGELSE123", 1)
		}, nil, "", "role-credentials", preflight.Failed, []string{"AuthFailure"}},
		"wrong profile":    {preflight.Worker, nil, func(c *preflight.Config) { c.InstanceProfile = "kubernetes-worker" }, "", "instance-role", preflight.Failed, []string{"wanted: instance profile kubernetes-worker", "found:  instance profile kubernetes-control"}},
		"right profile":    {preflight.Worker, nil, func(c *preflight.Config) { c.InstanceProfile = "kubernetes-control" }, "", "instance-role", preflight.Passed, nil},
		"clock":            {preflight.Worker, func(f *fakeCloud) { f.dateOffset = 10 * time.Minute }, nil, "", "clock", preflight.Failed, []string{"behind AWS's"}},
		"clock, a little":  {preflight.Worker, func(f *fakeCloud) { f.dateOffset = -time.Minute }, nil, "", "clock", preflight.Warned, []string{"1m", "ahead of AWS's"}},
		"unknown instance": {preflight.Worker, func(f *fakeCloud) { f.unknown = true }, nil, "", "instance-known", preflight.Failed, []string{"InvalidInstanceID.NotFound"}},
		"empty set":        {preflight.Worker, func(f *fakeCloud) { f.empty = true }, nil, "", "instance-known", preflight.Failed, []string{"an answer without the instance"}},
		"500":              {preflight.Worker, func(f *fakeCloud) { f.answers["ec2:DescribeInstances"] = fakeAnswer{500, "<html>"} }, nil, "", "ec2-endpoint", preflight.Failed, []string{"HTTP 500"}},
		"truncated XML": {preflight.Worker, func(f *fakeCloud) {
			f.answers["ec2:DescribeSubnets"] = fakeAnswer{200, "<DescribeSubnetsResponse><subnetSet><item><subn"}
		}, nil, "", "ec2-endpoint", preflight.Failed, []string{"not understood"}},
		"private DNS name": {preflight.Worker, func(f *fakeCloud) { f.dnsName = "other.internal" }, nil, "", "node-name", preflight.Failed, []string{"other.internal"}},
		"no DNS name":      {preflight.Worker, func(f *fakeCloud) { f.dnsName = "" }, nil, "", "node-name", preflight.Failed, []string{"--enable-dns-hostnames"}},
		"address": {preflight.Worker, func(f *fakeCloud) {
			f.metadata["dynamic/instance-identity/document"] = strings.Replace(f.metadata["dynamic/instance-identity/document"], "10.0.16.4", "10.0.16.5", 1)
		}, nil, "", "node-address", preflight.Failed, []string{"10.0.16.5"}},
		"source/dest check": {preflight.Worker, nil, func(c *preflight.Config) { c.UnencapsulatedPodNetwork = true }, "", "source-dest-check", preflight.Failed, []string{"--no-source-dest-check", "eni-1"}},
		"hop limit":         {preflight.Worker, func(f *fakeCloud) { f.hopLimit = 1 }, nil, "", "metadata-hop-limit", preflight.Passed, []string{"nothing of this release needs them to"}},
		"hop limit, pods need more": {preflight.Worker, func(f *fakeCloud) { f.hopLimit = 1 }, func(c *preflight.Config) {
			c.Checks = map[string]preflight.Severity{"metadata-hop-limit": preflight.Warn}
		}, "", "metadata-hop-limit", preflight.Warned, []string{"http_put_response_hop_limit: 2"}},
		"two route tables": {preflight.Control, func(f *fakeCloud) {
			f.tables[0].tags, f.tables[1].tags = map[string]string{key: ""}, map[string]string{key: ""}
		},
			func(c *preflight.Config) { c.ConfigureCloudRoutes = true }, "", "cloud-routes-table", preflight.Failed, []string{"rtb-main, rtb-public"}},
		"one route table": {preflight.Control, func(f *fakeCloud) { f.tables[0].tags = map[string]string{key: ""} },
			func(c *preflight.Config) { c.ConfigureCloudRoutes = true }, "", "cloud-routes-table", preflight.Passed, nil},
		"unknown key in cloud.conf": {preflight.Control, nil, nil, "[Global]\nKubernetesClusterId2 = x\n", "cloud-config", preflight.Failed, []string{"line 2", `did you mean "KubernetesClusterID"?`}},
		"other id in cloud.conf":    {preflight.Control, nil, nil, "[Global]\nKubernetesClusterID = x\n", "cloud-config", preflight.Failed, []string{"wanted: KubernetesClusterID = prod"}},
		"long name": {preflight.Worker, func(f *fakeCloud) { f.tags["kubernetes.io/cluster/"+strings.Repeat("a", 106)] = "" },
			func(c *preflight.Config) { c.Cluster = strings.Repeat("a", 106) }, "", "cluster-name", preflight.Failed, []string{"106 characters; allowed are 105"}},
		"warn mode":              {preflight.Worker, func(f *fakeCloud) { delete(f.tags, key) }, func(c *preflight.Config) { c.Mode = preflight.ModeWarn }, "", "instance-cluster-tag", preflight.Warned, []string{"mode warn"}},
		"malformed identity":     {preflight.Worker, func(f *fakeCloud) { f.metadata["dynamic/instance-identity/document"] = "{" }, nil, "", "metadata-service", preflight.Failed, []string{"not JSON"}},
		"metadata disabled":      {preflight.Worker, func(f *fakeCloud) { f.tokenStatus = 403 }, nil, "", "metadata-service", preflight.Failed, []string{"disabled", "--http-endpoint enabled"}},
		"no IMDSv2":              {preflight.Worker, func(f *fakeCloud) { f.tokenStatus = 404 }, nil, "", "metadata-service", preflight.Failed, []string{"does not know IMDSv2"}},
		"metadata fails halfway": {preflight.Worker, func(f *fakeCloud) { f.statuses["meta-data/iam/info"] = 500 }, nil, "", "metadata-service", preflight.Failed, []string{"meta-data/iam/info answered HTTP 500"}},
		"no ELB answer": {preflight.Control, func(f *fakeCloud) {
			f.answers["elasticloadbalancing:DescribeLoadBalancers"] = fakeAnswer{500, ""}
		}, nil, "", "load-balancer-endpoint", preflight.Failed, []string{"HTTP 500"}},
		"local zones only": {preflight.Control, func(f *fakeCloud) {
			f.zones = map[string]string{"us-east-1a": "local-zone", "us-east-1b": "local-zone"}
		}, nil, "", "internal-subnets", preflight.Failed, []string{"none of 4 subnets"}},
		"metadata fails": {preflight.Worker, func(f *fakeCloud) { f.statuses["meta-data/local-hostname"] = 500 }, nil, "", "metadata-service", preflight.Failed, []string{"HTTP 500"}},
	}
	found := map[string]bool{"stale-node": true, "registry-endpoint": true} // which have tests of their own
	ran := 0
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			if test.change != nil {
				test.change(f)
			}
			c := testConfig(test.role)
			if test.config != nil {
				test.config(&c)
			}
			r, _ := runAgainst(t, f, c, func(r *cloud.Request) {
				if test.conf != "" {
					r.Config.CloudConfigFile, r.CloudConfig = "cloud.conf", []byte(test.conf)
				}
			})
			got := result(r, test.check)
			out := text(r)
			if got.Status != test.status {
				t.Errorf("%s is %q, want %q", test.check, got.Status, test.status)
			}
			for _, want := range test.want {
				if !strings.Contains(out, want) {
					t.Errorf("the report lacks %q", want)
				}
			}
			ran++
			found[test.check] = found[test.check] || len(got.Findings) > 0
			for _, f := range got.Findings {
				if f.Resource == "" || f.Wanted == "" || f.Found == "" || f.Why == "" || len(f.Mend) == 0 {
					t.Errorf("incomplete: %+v", f)
				}
			}
			failed := test.status == preflight.Failed
			if test.check == "metadata-service" && (r.Count(preflight.Failed) != 1 || result(r, "instance-profile").Status != preflight.Skipped) {
				t.Errorf("what could not be known is not skipped")
			}
			if (r.Verdict == preflight.VerdictFailed) != failed {
				t.Errorf("verdict %s", r.Verdict)
			}
			for _, secret := range []string{testSecret, testToken, testKeyID} {
				if strings.Contains(out, secret) {
					t.Errorf("the report shows a secret")
				}
			}
			if t.Failed() {
				t.Log(out)
			}
		})
	}
	for _, c := range checks {
		if ran == len(tests) && !found[c.ID] {
			t.Errorf("nothing here makes %s find something", c.ID)
		}
	}
}

func TestRegistryUnreachable(t *testing.T) {
	f := newFake()
	f.start(t)
	p := testProvider()
	p.Reachable = func(string) error { return errors.New("no route to host") }
	r, _ := runWith(t.Context(), t, p, testConfig(preflight.Worker), nil)
	if got := result(r, "registry-endpoint"); got.Status != preflight.Warned || !strings.Contains(text(r), ".ecr.api --subnet-ids subnet-node-a") || r.Verdict != preflight.VerdictPassed {
		t.Errorf("%s", text(r))
	}
}

func (f *fakeCloud) addPublic(id string, tags map[string]string) {
	f.subnets = append(f.subnets, fakeSubnet{id, "us-east-1a", tags})
	f.tables[1].subnets = append(f.tables[1].subnets, id)
}

func (f *fakeCloud) addGroup(id string, tags map[string]string) {
	f.groups[id] = tags
	f.metadata["meta-data/network/interfaces/macs/0a:00:00:00:00:01/security-group-ids"] = "sg-1\n" + id
}

func (f *fakeCloud) noProfile() {
	delete(f.metadata, "meta-data/iam/info")
	delete(f.metadata, "meta-data/iam/security-credentials/")
}

func TestAllFindingsInOneRun(t *testing.T) {
	f := newFake()
	f.tags = map[string]string{}
	f.hopLimit = 1
	for i := range f.subnets {
		f.subnets[i].tags = nil
	}
	r, _ := runAgainst(t, f, testConfig(preflight.Control), nil)
	var failed []string
	for _, result := range r.Results {
		if result.Status == preflight.Failed {
			failed = append(failed, result.Check)
		}
	}
	want := "instance-cluster-tag node-subnet-cluster-tag public-subnet-cluster-tag"
	if strings.Join(failed, " ") != want {
		t.Errorf("failed: %v\n%s", failed, text(r))
	}
	var b bytes.Buffer
	preflight.Printer{}.Findings(&b, r)
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if last := lines[len(lines)-1]; !strings.Contains(last, "aws ec2 create-tags") || !strings.Contains(last, "subnet-public-b") {
		t.Errorf("the last line is not a mend: %s", last)
	}
}

func TestEventualConsistency(t *testing.T) {
	tests := map[string]struct {
		before, after func(*fakeCloud)
	}{
		"tag":     {func(f *fakeCloud) { delete(f.tags, "kubernetes.io/cluster/prod") }, func(f *fakeCloud) { f.tags["kubernetes.io/cluster/prod"] = "shared" }},
		"unknown": {func(f *fakeCloud) { f.unknown = true }, func(f *fakeCloud) { f.unknown = false }},
		"500":     {func(f *fakeCloud) { f.answers["ec2:DescribeInstances"] = fakeAnswer{500, ""} }, func(f *fakeCloud) { delete(f.answers, "ec2:DescribeInstances") }},
		"denied":  {func(f *fakeCloud) { f.denied["ec2:DescribeSubnets"] = true }, func(f *fakeCloud) { f.denied = map[string]bool{} }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			test.before(f)
			n := 0
			f.hook = func(f *fakeCloud, action string) {
				if strings.HasPrefix(action, "ec2:") {
					if n++; n == 6 {
						test.after(f)
					}
				}
			}
			c := testConfig(preflight.Worker)
			c.RetryWindow = preflight.Duration(20 * time.Second)
			r, _ := runAgainst(t, f, c, nil)
			if r.Verdict != preflight.VerdictPassed {
				t.Errorf("the change was not waited for:\n%s", text(r))
			}
			if r.Milliseconds > 5000 {
				t.Errorf("took %d ms", r.Milliseconds)
			}
		})
	}
	t.Run("profile", func(t *testing.T) {
		f := newFake()
		full := newFake().metadata
		f.noProfile()
		n := 0
		f.hook = func(f *fakeCloud, action string) {
			if strings.HasSuffix(action, "iam/info") {
				if n++; n == 3 {
					f.metadata = full
				}
			}
		}
		c := testConfig(preflight.Worker)
		c.RetryWindow = preflight.Duration(20 * time.Second)
		if r, _ := runAgainst(t, f, c, nil); r.Verdict != preflight.VerdictPassed {
			t.Errorf("the profile was not waited for:\n%s", text(r))
		}
	})
	t.Run("the window closes", func(t *testing.T) {
		f := newFake()
		f.tags = nil
		c := testConfig(preflight.Worker)
		c.RetryWindow = preflight.Duration(50 * time.Millisecond)
		r, _ := runAgainst(t, f, c, nil)
		if r.Verdict != preflight.VerdictFailed || f.called("ec2") < 4 {
			t.Errorf("%d calls:\n%s", f.called("ec2"), text(r))
		}
	})
	t.Run("what waiting does not mend is reported at once", func(t *testing.T) {
		f := newFake()
		f.tags = nil
		f.dnsName = "other.internal"
		c := testConfig(preflight.Worker)
		c.RetryWindow = preflight.Duration(20 * time.Second)
		r, _ := runAgainst(t, f, c, nil)
		if r.Count(preflight.Failed) != 2 || f.called("ec2") != 2 {
			t.Errorf("%d calls:\n%s", f.called("ec2"), text(r))
		}
	})
}

func TestThrottlingIsWaitedOut(t *testing.T) {
	f := newFake()
	f.throttle = map[string]int{"ec2:DescribeInstances": 8, "ec2:DescribeSubnets": 12}
	r, _ := runAgainst(t, f, testConfig(preflight.Worker), nil) // beyond the retry window, which is nothing here
	if r.Verdict != preflight.VerdictPassed {
		t.Errorf("%s", text(r))
	}
	f = newFake()
	f.throttle = map[string]int{"ec2:DescribeInstances": 1 << 30}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	asked := 0
	f.hook = func(_ *fakeCloud, action string) {
		if action == "ec2:DescribeInstances" {
			if asked++; asked == 10 {
				cancel() // the time is up
			}
		}
	}
	f.start(t)
	r, _ = runWith(ctx, t, testProvider(), testConfig(preflight.Worker), nil)
	if got := result(r, "ec2-endpoint"); got.Status != preflight.Failed || !strings.Contains(got.Findings[0].Found, "still throttled after") || !strings.Contains(got.Findings[0].Found, "RequestLimitExceeded") {
		t.Errorf("%s", text(r))
	}
}

// TestLastChance: near the deadline of the run the pause ends while there is time left for one more attempt.
func TestLastChance(t *testing.T) {
	begun := time.Now()
	p := newPace(func() time.Time { return begun }, time.Hour)
	p.spread.Next(0) // an attempt in the first span, so that the next pause is half an hour or more
	ctx, cancel := context.WithDeadline(t.Context(), begun.Add(time.Minute))
	defer cancel()
	if pause := p.next(ctx); pause < 0 || pause > time.Minute-lastChance {
		t.Errorf("the pause is %v of a minute that is left", pause)
	}
}

func TestMetadataUnreachable(t *testing.T) {
	f := newFake()
	f.start(t)
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1")
	r, id := runStarted(t, testConfig(preflight.Worker), nil, 30*time.Second)
	if got := result(r, "metadata-service"); got.Status != preflight.Failed || !strings.Contains(text(r), "connection refused") || id != nil || r.Node != nil {
		t.Errorf("%s", text(r))
	}
	if f.called("ec2") != 0 {
		t.Errorf("EC2 was called")
	}
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	r, _ = runStarted(t, testConfig(preflight.Worker), nil, 30*time.Second)
	if !strings.Contains(text(r), "AWS_EC2_METADATA_DISABLED") {
		t.Errorf("%s", text(r))
	}
}

// TestMetadataReplyLost is what a hop limit that is too low looks like from a container: connections are accepted, replies lost.
func TestMetadataReplyLost(t *testing.T) {
	f := newFake()
	f.start(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://"+listener.Addr().String())
	p := testProvider()
	p.metadataTimeout = 20 * time.Millisecond
	r, id := runWith(t.Context(), t, p, testConfig(preflight.Worker), nil)
	if got := result(r, "metadata-service"); got.Status != preflight.Failed || !strings.Contains(text(r), "no reply comes") || !strings.Contains(text(r), "--http-put-response-hop-limit 2") || id != nil {
		t.Errorf("%s", text(r))
	}
}

func TestEndpointUnreachable(t *testing.T) {
	f := newFake()
	f.start(t)
	t.Setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
	r, id := runStarted(t, testConfig(preflight.Control), nil, 30*time.Second)
	if got := result(r, "ec2-endpoint"); got.Status != preflight.Failed || !strings.Contains(text(r), "connection refused") || id == nil {
		t.Errorf("%s", text(r))
	}
}

func TestModeOff(t *testing.T) {
	f := newFake()
	c := testConfig(preflight.Control)
	c.Mode = preflight.ModeOff
	r, id := runAgainst(t, f, c, nil)
	if len(r.Results) != 0 || id == nil || f.called("ec2") != 0 {
		t.Errorf("results %v, identity %v, %d calls", r.Results, id, f.called("ec2"))
	}
}

func TestStaleNode(t *testing.T) {
	for _, test := range []struct {
		id     string
		err    error
		status preflight.Status
		want   string
	}{
		{"aws:///us-east-1a/" + testInstance, nil, preflight.Passed, ""},
		{"aws:///us-east-1a/i-00000000000000000", nil, preflight.Failed, "kubectl delete node ip-10-0-16-4.ec2.internal"},
		{"", nil, preflight.Passed, "which the cloud controller will set"},
		{"", cloud.ErrNoNode, preflight.Passed, "none yet"},
		{"", fs.ErrNotExist, preflight.Skipped, "has not joined"},
		{"", errors.New("connection refused"), preflight.Skipped, "connection refused"},
	} {
		f := newFake()
		f.start(t)
		c := testConfig(preflight.Worker)
		c.NodeKubeconfig = "/kubeconfig"
		p := testProvider()
		p.NodeProviderID = func(_ context.Context, kubeconfig, name string) (string, error) {
			if kubeconfig != "/kubeconfig" || name != "ip-10-0-16-4.ec2.internal" {
				t.Errorf("asked for %s by %s", name, kubeconfig)
			}
			return test.id, test.err
		}
		out, err := p.Preflight(t.Context(), cloud.Request{Config: c})
		if err != nil {
			t.Fatal(err)
		}
		r := preflight.NewReport(c, out.Results, time.Now(), 0)
		if got := result(r, "stale-node"); got.Status != test.status || !strings.Contains(text(r), test.want) {
			t.Errorf("%q, %v: %s\n%s", test.id, test.err, got.Status, text(r))
		}
	}
}

func TestSparseMetadata(t *testing.T) {
	f := newFake()
	delete(f.metadata, "meta-data/mac")
	r, _ := runAgainst(t, f, testConfig(preflight.Control), nil)
	if r.Verdict != preflight.VerdictPassed || f.called("ec2") > 8 {
		t.Errorf("%d calls:\n%s", f.called("ec2"), text(r))
	}
}

func TestThousandsOfSubnets(t *testing.T) {
	f := newFake()
	for i := range 3000 {
		f.subnets = append(f.subnets, fakeSubnet{fmt.Sprintf("subnet-%05d", i), "us-east-1a", map[string]string{"kubernetes.io/cluster/x": "1"}})
	}
	r, _ := runAgainst(t, f, testConfig(preflight.Control), nil)
	if r.Verdict != preflight.VerdictPassed {
		t.Errorf("%s", text(r))
	}
	for _, e := range r.Explanations {
		if len(e.Lines) > 30 {
			t.Errorf("%d lines of explanation", len(e.Lines))
		}
	}
}
