package acceptance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/awssim/iam"
)

// labCluster is the cluster's name in the lab.
const labCluster = "lab"

// cloudCall is an entry in the AWS simulator's record of calls.
type cloudCall struct {
	Service, Action, Code, Principal string
	Permissions                      []string
	DryRun                           bool `json:"dry_run"`
}

// cloud calls the AWS simulator's admin API.
func (l *lab) cloud(t *testing.T, method, path string, body []byte) []byte {
	t.Helper()
	request, err := http.NewRequestWithContext(
		t.Context(), method, l.awsEndpoint(t)+"/_sim/"+path, bytes.NewReader(body),
	)
	if err != nil {
		t.Fatal(err)
	}
	response, err := (&http.Client{Timeout: 10 * time.Second}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s %s: %s %v\n%s", method, path, response.Status, err, answer)
	}
	return answer
}

// awsEndpoint is the URL of the simulated cloud.
func (l *lab) awsEndpoint(t *testing.T) string {
	t.Helper()
	env, err := os.ReadFile(filepath.Join(l.state, "aws.env"))
	if err != nil {
		t.Fatal(err)
	}
	endpoint := regexp.MustCompile(`AWS_ENDPOINT_URL=(\S+)`).FindSubmatch(env)
	if endpoint == nil {
		t.Fatalf("aws.env has no endpoint:\n%s", env)
	}
	return string(endpoint[1])
}

// generatedPolicy is what an operator of the deployment attaches to a role.
func generatedPolicy(t *testing.T, role string, options ...string) []byte {
	t.Helper()
	policy, err := exec.Command(filepath.Join(repo, "bin/cloud-preflight"), append(
		[]string{"iam-policy", "--role", role, "--cluster", labCluster, "--vpc", awssim.LabVPC}, options...,
	)...).Output()
	if err != nil {
		t.Fatalf("iam-policy: %v", err)
	}
	return policy
}

// enforce gives the roles of the lab exactly the policies that cloud-preflight generates.
func (l *lab) enforce(t *testing.T) {
	t.Helper()
	for _, role := range []string{"control", "worker"} {
		l.cloud(t, http.MethodPut, "roles/kubernetes-"+role+"/policies/kubernetes", generatedPolicy(t, role))
	}
}

// calls returns the calls that the cluster's VMs have made since the record was last cleared.
func (l *lab) calls(t *testing.T) []cloudCall {
	t.Helper()
	var all, machines []cloudCall
	if err := json.Unmarshal(l.cloud(t, http.MethodGet, "calls", nil), &all); err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		if strings.Contains(c.Principal, ":assumed-role/") {
			machines = append(machines, c)
		}
	}
	return machines
}

// checkNothingDenied fails for each call of the VMs that their policies do not allow, whatever its service calls that.
func (l *lab) checkNothingDenied(t *testing.T) {
	t.Helper()
	calls := l.calls(t)
	for _, c := range calls {
		switch c.Code {
		case "UnauthorizedOperation", "AccessDenied", "AccessDeniedException":
			t.Errorf("%s:%s was denied to %s: %s", c.Service, c.Action, c.Principal, c.Code)
		}
	}
	if len(calls) == 0 {
		t.Error("the VMs have called nothing, so nothing can have been denied")
	}
}

// checkLoadBalancer creates a Service with a load balancer of the kind, waits until it responds, and deletes it.
func (l *lab) checkLoadBalancer(t *testing.T, kind string) {
	t.Helper()
	name := "policy-" + kind
	l.mustKubectl(t, loadBalancerManifest(name, kind, l.smokeImage(t)), "apply", "-f", "-")
	host := l.loadBalancerHost(t, name, 3*time.Minute)
	waitFor(t, 3*time.Minute, "HTTP through "+host, func() error {
		_, err := l.get(host)
		return err
	})
	l.deleteServed(t, name)
}

// TestGeneratedPoliciesAllowEverythingNeeded runs a cluster under exactly the generated policies: a worker joins, load
// balancers of each kind are created, respond and are deleted, the errand checks every VM, and AWS denies nothing.
func TestGeneratedPoliciesAllowEverythingNeeded(t *testing.T) {
	l := own(t)
	l.ops = workerOps
	l.vars = []string{"worker_instances=1"}
	l = l.with(t, badInput{ops: shortRetriesEverywhere()})
	l.mustUp(t)
	l.enforce(t)
	l.cloud(t, http.MethodDelete, "calls", nil)

	for _, command := range [][]string{{"recreate", "worker/0"}, {"restart", "control/0"}} {
		l.mustRun(t, deployTimeout, command...)
	}
	waitFor(t, 3*time.Minute, "both nodes ready and initialized", func() error {
		out, err := l.kubectl(
			t,
			"",
			"get",
			"nodes",
			"-o",
			`jsonpath={range .items[*]}{.metadata.name} {.spec.taints[*].key} `+
				`{.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}`,
		)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		if lines := strings.Split(
			strings.TrimSpace(out), "\n",
		); len(lines) != 2 || strings.Contains(out, "uninitialized") ||
			strings.Count(out, " True") != 2 {
			return fmt.Errorf("got\n%s", out)
		}
		return nil
	})
	t.Run("load balancers", func(t *testing.T) {
		for _, kind := range []string{"classic", "nlb"} {
			t.Run(kind, func(t *testing.T) {
				t.Parallel()
				l.checkLoadBalancer(t, kind)
			})
		}
	})
	image := l.pushToECR(t, "team/web")
	l.pullEvents(t, "allowed", image, "Pulled Successfully pulled image")
	used := map[string]int{}
	calls := l.calls(t)
	for _, problem := range beyond(calls, l.policyActions(t), recordedActions(t)) {
		t.Error(problem)
	}
	for _, c := range calls {
		used[c.Service+":"+c.Action]++
	}
	l.checkNothingDenied(t)
	for _, action := range []string{
		"elb:CreateLoadBalancer", "elb:DeleteLoadBalancer", "elbv2:CreateLoadBalancer", "elbv2:DeleteLoadBalancer",
		"ec2:DeleteSecurityGroup", "ecr:GetAuthorizationToken", "ecr:GetDownloadUrlForLayer",
	} {
		if used[action] == 0 {
			t.Errorf("%s was not called, so this test proves nothing: %v", action, used)
		}
	}
	t.Logf("calls under the generated policies: %v", used)

	t.Run("errand", func(t *testing.T) { l.errandChecksEveryVM(t) })
	t.Run("pull without permission", func(t *testing.T) { l.checkPullWithoutPermission(t, image) })
}

// policyActions are the actions that the generated policies of all roles allow.
func (l *lab) policyActions(t *testing.T) map[string]bool {
	t.Helper()
	actions := map[string]bool{}
	for _, role := range []string{"control", "worker"} {
		var policy iam.Policy
		if err := json.Unmarshal(generatedPolicy(t, role), &policy); err != nil {
			t.Fatal(err)
		}
		for _, statement := range policy.Statement {
			for _, action := range statement.Action {
				actions[action] = true
			}
		}
	}
	return actions
}

// recordedActions is the record that the policies are derived from.
func recordedActions(t *testing.T) map[string]bool {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(repo, "src/helpers/cloud/aws/iampolicy/testdata/recorded-actions.json"))
	if err != nil {
		t.Fatal(err)
	}
	var programs map[string][]string
	if err := json.Unmarshal(content, &programs); err != nil {
		t.Fatal(err)
	}
	recorded := map[string]bool{}
	for _, actions := range programs {
		for _, action := range actions {
			recorded[action] = true
		}
	}
	return recorded
}

// beyond lists the permissions of calls that the policies do not contain, or that are not in the record: then the
// record is incomplete, or the action has a reason (helpers/cloud/aws/iampolicy/evidence_test.go) that is no longer
// true.
func beyond(calls []cloudCall, policies, recorded map[string]bool) []string {
	var problems []string
	for _, c := range calls {
		for _, action := range c.Permissions {
			for where, actions := range map[string]map[string]bool{
				"in the generated policies": policies, "in recorded-actions.json": recorded,
			} {
				if problem := fmt.Sprintf(
					"%s:%s of %s requires %s, which is not %s", c.Service, c.Action, c.Principal, action, where,
				); !actions[action] &&
					!slices.Contains(problems, problem) {
					problems = append(problems, problem)
				}
			}
		}
	}
	slices.Sort(problems)
	return problems
}

// TestCallsBeyondTheRecordAreFound: it needs no lab.
func TestCallsBeyondTheRecordAreFound(t *testing.T) {
	if recorded := recordedActions(t); !recorded["elasticloadbalancing:CreateLoadBalancer"] ||
		!recorded["iam:SimulatePrincipalPolicy"] {
		t.Errorf("the record has %v", recorded)
	}
	call := cloudCall{
		Service:     "ec2",
		Action:      "CreateVolume",
		Principal:   "role",
		Permissions: []string{"ec2:CreateVolume"},
	}
	volume := map[string]bool{"ec2:CreateVolume": true}
	for name, test := range map[string]struct {
		policies, recorded map[string]bool
		want               []string
	}{
		"known": {volume, volume, nil},
		"not recorded": {volume, nil, []string{"ec2:CreateVolume of role requires ec2:CreateVolume, which is " +
			"not in recorded-actions.json"}},
		"not in the policies": {nil, volume, []string{"ec2:CreateVolume of role requires ec2:CreateVolume, which is " +
			"not in the generated policies"}},
	} {
		if got := beyond([]cloudCall{call, call}, test.policies, test.recorded); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// preflightReport is the part of the errand's report that the test reads.
type preflightReport struct {
	Result  string
	Results []struct {
		Check, Status string
		Findings      []struct{ Resource string }
	}
}

func (l *lab) errandReport(t *testing.T, instance string) preflightReport {
	t.Helper()
	var report preflightReport
	if err := json.Unmarshal(
		[]byte(l.ssh(t, instance, "cat", "/var/vcap/data/cloud-preflight/report.json")), &report,
	); err != nil {
		t.Fatal(err)
	}
	return report
}

func (r preflightReport) status(check string) string {
	for _, result := range r.Results {
		if result.Check == check {
			return result.Status
		}
	}
	return ""
}

// errandChecksEveryVM runs the errand on a healthy cluster, and again without a worker's tag, which no deploy would
// notice.
func (l *lab) errandChecksEveryVM(t *testing.T) {
	instances := []string{"control/0", "worker/0"}
	identities := func() string {
		var files string
		for _, instance := range instances {
			files += l.ssh(t, instance, "stat", "-c", "%y %i", "/var/vcap/data/cloud-provider/node.json")
		}
		return files
	}
	before := identities()
	l.cloud(t, http.MethodDelete, "calls", nil)
	out, err := l.run(3*time.Minute, "errand", "cloud-preflight")
	if err != nil {
		t.Fatalf("errand: %v\n%s", err, out)
	}
	for _, instance := range instances {
		if report := l.errandReport(t, instance); report.Result != "passed" {
			t.Errorf("the report of %s is %+v, want passed", instance, report)
		}
	}
	for _, check := range []string{"load-balancer-write-permissions", "other-permissions", "stale-node"} {
		if status := l.errandReport(t, "control/0").status(check); status != "pass" {
			t.Errorf("check %s has the status %q on control/0, want pass", check, status)
		}
	}
	for _, c := range l.calls(t) {
		reads := strings.HasPrefix(c.Action, "Describe") || strings.HasPrefix(c.Action, "Get")
		if !reads && !c.DryRun && c.Action != "SimulatePrincipalPolicy" && c.Service == "ec2" {
			t.Errorf("the errand called %s:%s", c.Service, c.Action)
		}
	}

	var identity struct {
		ProviderID string `json:"provider_id"`
	}
	if err := json.Unmarshal(
		[]byte(l.ssh(t, "worker/0", "cat", "/var/vcap/data/cloud-provider/node.json")), &identity,
	); err != nil {
		t.Fatal(err)
	}
	worker := path.Base(identity.ProviderID)
	key := "kubernetes.io/cluster/" + labCluster
	l.cloud(t, http.MethodPatch, "tags/"+worker, []byte(`{"`+key+`": null}`))
	defer l.cloud(t, http.MethodPatch, "tags/"+worker, []byte(`{"`+key+`": "shared"}`))
	out, err = l.run(4*time.Minute, "errand", "cloud-preflight")
	if err == nil {
		t.Error("the errand passes an untagged worker")
	}
	report := l.errandReport(t, "worker/0")
	if report.Result != "failed" || report.status("instance-cluster-tag") != "fail" {
		t.Errorf("the report of the untagged worker is %+v", report)
	}
	for _, want := range []string{"instance-cluster-tag: " + worker, "aws ec2 create-tags --region us-east-1 " +
		"--resources " + worker} {
		if !strings.Contains(out, want) {
			t.Errorf("the errand does not print %q:\n%s", want, out)
		}
	}
	if after := identities(); after != before {
		t.Errorf("the errand rewrote the node identity: %s, before %s", after, before)
	}
}
