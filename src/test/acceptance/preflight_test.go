package acceptance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// labCluster is the cluster's name in the lab.
const labCluster = "lab"

// cloudCall is an entry of the simulated cloud's record.
type cloudCall struct {
	Service, Action, Code, Principal string
	DryRun                           bool `json:"dry_run"`
}

// cloud speaks to the simulated cloud's own API.
func (l *lab) cloud(t *testing.T, method, path string, body []byte) []byte {
	t.Helper()
	env, err := os.ReadFile(filepath.Join(l.state, "aws.env"))
	if err != nil {
		t.Fatal(err)
	}
	endpoint := regexp.MustCompile(`AWS_ENDPOINT_URL=(\S+)`).FindSubmatch(env)
	if endpoint == nil {
		t.Fatalf("aws.env has no endpoint:\n%s", env)
	}
	request, err := http.NewRequestWithContext(t.Context(), method, string(endpoint[1])+"/_sim/"+path, bytes.NewReader(body))
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

// enforce gives the roles of the lab exactly the policies that cloud-preflight generates.
func (l *lab) enforce(t *testing.T) {
	t.Helper()
	for _, role := range []string{"control", "worker"} {
		policy, err := exec.Command(filepath.Join(repo, "bin/cloud-preflight"), "iam-policy", "--role", role, "--cluster", labCluster).Output()
		if err != nil {
			t.Fatalf("iam-policy: %v", err)
		}
		l.cloud(t, http.MethodPut, "roles/kubernetes-"+role+"/policies/kubernetes", policy)
	}
}

// calls are those that the cluster's machines have made since the record was last forgotten.
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

// balance makes a Service of the kind, waits for its answer, and deletes it again.
func (l *lab) balance(t *testing.T, kind string) {
	t.Helper()
	name := "policy-" + kind
	l.mustKubectl(t, loadBalancerManifest(name, kind, l.smokeImage(t)), "apply", "-f", "-")
	host := l.loadBalancerHost(t, name, 3*time.Minute)
	waitFor(t, 3*time.Minute, "HTTP through "+host, func() error {
		_, err := l.get(host)
		return err
	})
	l.mustKubectl(t, "", "delete", "namespace", name, "--timeout=100s")
}

// TestGeneratedPolicies runs a cluster with a worker under exactly the generated policies: a worker joins, load balancers of
// each kind come, answer and go, the errand checks every VM, and nothing at all is denied.
func TestGeneratedPolicies(t *testing.T) {
	l := own(t)
	l.ops = []string{"ops-files/scale-workers.yml", "ops-files/lab-workers.yml"}
	l.vars = []string{"worker_instances=1"}
	if out, err := l.up(); err != nil {
		t.Fatalf("up: %v\n%s", err, tail(out, 60))
	}
	l.enforce(t)
	l.cloud(t, http.MethodDelete, "calls", nil)

	for _, what := range [][]string{{"recreate", "worker/0"}, {"restart", "control/0"}} {
		if out, err := l.run(deployTimeout, what...); err != nil {
			t.Fatalf("%v: %v\n%s", what, err, tail(out, 60))
		}
	}
	waitFor(t, 3*time.Minute, "both nodes ready and initialised", func() error {
		out, err := l.kubectl(t, "", "get", "nodes", "-o", `jsonpath={range .items[*]}{.metadata.name} {.spec.taints[*].key} {.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}`)
		if lines := strings.Split(strings.TrimSpace(out), "\n"); err != nil || len(lines) != 2 || strings.Contains(out, "uninitialized") || strings.Count(out, " True") != 2 {
			return fmt.Errorf("%v\n%s", err, out)
		}
		return nil
	})
	for _, kind := range []string{"classic", "nlb"} {
		l.balance(t, kind)
	}
	used := map[string]int{}
	for _, c := range l.calls(t) {
		used[c.Service+":"+c.Action]++
		if c.Code == "UnauthorizedOperation" || c.Code == "AccessDenied" {
			t.Errorf("%s:%s was denied to %s", c.Service, c.Action, c.Principal)
		}
	}
	for _, action := range []string{"elb:CreateLoadBalancer", "elb:DeleteLoadBalancer", "elbv2:CreateLoadBalancer", "elbv2:DeleteLoadBalancer", "ec2:DeleteSecurityGroup"} {
		if used[action] == 0 {
			t.Errorf("%s was not called, so the test shows nothing: %v", action, used)
		}
	}
	t.Logf("%d kinds of calls under the generated policies, none denied: %v", len(used), used)

	t.Run("errand", func(t *testing.T) { l.errandChecksEveryVM(t) })
}

// errandChecksEveryVM runs the errand when all is well, and again with a tag missing that a deploy would not look for.
func (l *lab) errandChecksEveryVM(t *testing.T) {
	identity := func() string {
		return l.ssh(t, "control/0", "stat", "-c", "%y %i", "/var/vcap/data/cloud-provider/node.json") + l.ssh(t, "worker/0", "stat", "-c", "%y %i", "/var/vcap/data/cloud-provider/node.json")
	}
	before := identity()
	l.cloud(t, http.MethodDelete, "calls", nil)
	out, err := l.run(3*time.Minute, "errand", "cloud-preflight")
	if err != nil {
		t.Fatalf("errand: %v\n%s", err, out)
	}
	t.Logf("all is well:\n%s", out)
	if n := strings.Count(out, "PASSED: 0 checks failed"); n != 2 {
		t.Errorf("%d VMs passed, want 2:\n%s", n, out)
	}
	for _, want := range []string{"pass  load-balancer-write-permissions", "pass  other-permissions", "pass  stale-node"} {
		if !strings.Contains(out, want) {
			t.Errorf("the report lacks %q", want)
		}
	}
	for _, c := range l.calls(t) {
		if !strings.HasPrefix(c.Action, "Describe") && !c.DryRun && c.Action != "SimulatePrincipalPolicy" && c.Service == "ec2" {
			t.Errorf("the errand called %s:%s", c.Service, c.Action)
		}
	}
	worker := strings.TrimSpace(l.ssh(t, "worker/0", "sed", "-n", `s|.*"provider_id": *"aws:///[^/]*/\(.*\)".*|\1|p`, "/var/vcap/data/cloud-provider/node.json"))
	key := "kubernetes.io/cluster/" + labCluster
	l.cloud(t, http.MethodPatch, "tags/"+worker, []byte(`{"`+key+`": null}`))
	defer l.cloud(t, http.MethodPatch, "tags/"+worker, []byte(`{"`+key+`": "shared"}`))
	out, err = l.run(4*time.Minute, "errand", "cloud-preflight")
	if err == nil {
		t.Errorf("the errand passes an untagged worker")
	}
	for _, want := range []string{"FAIL instance-cluster-tag: " + worker, "aws ec2 create-tags --region us-east-1 --resources " + worker} {
		if !strings.Contains(out, want) {
			t.Errorf("the errand does not say %q:\n%s", want, out)
		}
	}
	t.Logf("without the worker's tag:\n%s", tail(out, 25))
	if after := identity(); after != before {
		t.Errorf("the errand rewrote the node identity: %s, before %s", after, before)
	}
}
