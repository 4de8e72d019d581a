package aws

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kubernetes-release/helpers/preflight"
	"kubernetes-release/lab/awssim"
)

// recordedActions is what the simulator saw the programs of this release call, by program: the cloud controller manager in
// lab/awssim, and the preflight here. To write it again:
//
//	UPDATE_RECORDED=1 go test -count=1 -run 'Recorded' ./helpers/cloud/aws ./lab/awssim
//
// with AWS_CLOUD_CONTROLLER_MANAGER_BIN, ETCD_BIN and KUBERNETES_BIN_DIR set.
const recordedActions = "testdata/recorded-actions.json"

// reason is why an action is in the table that no program was seen to call.
type reason struct {
	file, call string // in the pinned module cloud-provider-aws
	because    string
}

const (
	ccmLB     = "pkg/providers/v1/aws_loadbalancer.go"
	pluginECR = "cmd/ecr-credential-provider/main.go"
)

// reasons are the actions that are not in the record, because the simulator does not have the service, or no test brings the cloud
// controller to call them.
var reasons = map[string]reason{
	"ecr-public:GetAuthorizationToken":                       {pluginECR, "e.ecrPublic.GetAuthorizationToken(", "the simulator has no public registry"},
	"sts:GetServiceBearerToken":                              {pluginECR, "e.ecrPublic.GetAuthorizationToken(", "AWS requires it for tokens of Amazon ECR Public (Amazon ECR Public user guide)"},
	"ec2:DescribeAccountAttributes":                          {ccmLB, "c.elb.CreateLoadBalancer(", "AWS requires it for an account's first load balancer (pull request 59 of cloud-provider-aws)"},
	"ec2:DescribeInternetGateways":                           {ccmLB, "c.elbv2.CreateLoadBalancer(", "AWS requires it for an account's first load balancer (issue 2570 of eksctl)"},
	"iam:CreateServiceLinkedRole":                            {ccmLB, "c.elb.CreateLoadBalancer(", "AWS requires it for an account's first load balancer (user guide of Elastic Load Balancing)"},
	"ec2:DeleteRoute":                                        {"pkg/providers/v1/aws_routes.go", "c.ec2.DeleteRoute(", "only for the route of a node whose instance is gone"},
	"elasticloadbalancing:DescribeLoadBalancerPolicies":      {ccmLB, "c.elb.DescribeLoadBalancerPolicies(", "only with the annotation for a predefined TLS policy"},
	"elasticloadbalancing:SetLoadBalancerPoliciesOfListener": {ccmLB, "c.elb.SetLoadBalancerPoliciesOfListener(", "only with the annotation for a predefined TLS policy"},
	"elasticloadbalancing:ModifyListener":                    {ccmLB, "c.elbv2.ModifyListener(", "only if the certificate or the protocol of a port changes"},
	"elasticloadbalancing:ModifyTargetGroup":                 {ccmLB, "c.elbv2.ModifyTargetGroup(", "only if the health check changes"},
	"elasticloadbalancing:SetSecurityGroups":                 {ccmLB, "c.elbv2.SetSecurityGroups(", "only if the annotations name other security groups for a network load balancer"},
	findRoleAction:                                           {"", "", "the checks call it for a role whose name has a path (TestRoleWithPath)"},
	assumeAction:                                             {"pkg/services/aws_sts.go", "sts.NewFromConfig(", "only with RoleARN in the configuration (TestConfigurationAndPolicy)"},
}

// TestPolicyIsWhatIsCalled compares the table of permissions with the record and the reasons, both ways.
func TestPolicyIsWhatIsCalled(t *testing.T) {
	recorded := readRecorded(t)
	called := map[string]string{}
	for program, actions := range recorded {
		for _, a := range actions {
			called[a] = program
		}
	}
	everything := append(policyNeeds{role: preflight.Control, routes: true, conf: cloudConfig{RoleARN: "arn:aws:iam::1:role/x"}}.actions(), Actions(preflight.Worker, true)...)
	slices.Sort(everything)
	everything = slices.Compact(everything)
	for _, a := range everything {
		_, reasoned := reasons[a]
		switch {
		case called[a] == "" && !reasoned:
			t.Errorf("%s is in the policies, but was neither recorded nor has a reason", a)
		case called[a] != "" && reasoned:
			t.Errorf("%s has a reason, but %s was seen to call it", a, called[a])
		}
	}
	for a, program := range called {
		if !slices.Contains(everything, a) {
			t.Errorf("%s calls %s, which is not in the policies", program, a)
		}
	}
	for a := range reasons {
		if !slices.Contains(everything, a) {
			t.Errorf("%s has a reason, but is not in the policies", a)
		}
	}
}

// TestReasonsNameTheirSource looks the reasons up in the pinned module.
func TestReasonsNameTheirSource(t *testing.T) {
	command := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/cloud-provider-aws")
	command.Dir = "../../../components/cloud-provider-aws"
	command.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off")
	out, err := command.Output()
	dir := strings.TrimSpace(string(out))
	if err != nil || dir == "" {
		t.Skip("the source of cloud-provider-aws is not in the module cache; make components downloads it")
	}
	for action, r := range reasons {
		if r.because == "" {
			t.Errorf("%s: no reason", action)
		}
		if r.file == "" {
			continue
		}
		if content, err := os.ReadFile(filepath.Join(dir, r.file)); err != nil || !strings.Contains(string(content), r.call) {
			t.Errorf("%s: %s has no %q: %v", action, r.file, r.call, err)
		}
	}
}

func readRecorded(t *testing.T) map[string][]string {
	t.Helper()
	recorded := map[string][]string{}
	content, err := os.ReadFile(recordedActions)
	if err == nil {
		err = json.Unmarshal(content, &recorded)
	}
	if err != nil {
		t.Fatal(err)
	}
	return recorded
}

// TestRecordedPreflight compares the record with what the preflight calls on a control VM and a worker.
func TestRecordedPreflight(t *testing.T) {
	seen := map[string]bool{}
	for _, role := range both {
		i := simulatedInstance(1, role)
		sim := simulate(t, func(w *awssim.World) {
			w.Instances = []awssim.Instance{i}
			w.RouteTables[0].Tags["kubernetes.io/cluster/prod"] = "shared"
			generated(t, w)
		})
		sim.run(t, i, role, func(_ *Provider, c *preflight.Config) { c.ConfigureCloudRoutes, c.Thorough = true, true })
		for _, c := range sim.Calls("") {
			for _, p := range c.Permissions {
				seen[p] = true
			}
		}
	}
	got := slices.Sorted(maps.Keys(seen))
	recorded := readRecorded(t)
	if os.Getenv("UPDATE_RECORDED") != "" {
		recorded["cloud-preflight"] = got
		content, _ := json.MarshalIndent(recorded, "", "  ")
		if err := os.WriteFile(recordedActions, append(content, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want := recorded["cloud-preflight"]; !slices.Equal(got, want) {
		t.Errorf("the preflight called\n%v, the record has\n%v; to update it: UPDATE_RECORDED=1 go test -run Recorded ./helpers/cloud/aws", got, want)
	}
}
