package acceptance

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubernetes-release/internal/nodestatus"
	"kubernetes-release/internal/tail"
)

func TestNodeIsReadyAndInitializedByTheCloud(t *testing.T) {
	l := deployed(t)
	var nodes corev1.NodeList
	// A moment after the condition Ready, kube-controller-manager removes the taint not-ready.
	waitFor(t, 30*time.Second, "one Node that is Ready and has no taints", func() error {
		nodes = corev1.NodeList{}
		if err := json.Unmarshal([]byte(l.mustKubectl(t, "", "get", "nodes", "-o", "json")), &nodes); err != nil {
			return err
		}
		if len(nodes.Items) != 1 {
			return fmt.Errorf("%d nodes", len(nodes.Items))
		}
		if taints := nodes.Items[0].Spec.Taints; len(taints) > 0 {
			return fmt.Errorf("taints %v", taints)
		}
		return nodestatus.CheckReady(&nodes.Items[0], true)
	})
	node := nodes.Items[0]
	if !strings.HasSuffix(node.Name, ".ec2.internal") {
		t.Errorf("node name %q is not the instance's private DNS name", node.Name)
	}
	if !strings.HasPrefix(node.Spec.ProviderID, "aws:///us-east-1a/i-") {
		t.Errorf("provider id %q, want aws:///us-east-1a/i-…", node.Spec.ProviderID)
	}
	if got := node.Labels["topology.kubernetes.io/zone"]; got != "us-east-1a" {
		t.Errorf("zone label %q, want us-east-1a: the cloud controller sets it", got)
	}
}

// TestLoadBalancerForwardsRequests reaches Services of type LoadBalancer from outside the VMs.
func TestLoadBalancerForwardsRequests(t *testing.T) {
	l := deployed(t)
	for _, kind := range []string{"classic", "nlb"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel() // they wait for the cloud controller and for the deletion of namespaces
			name := "lb-" + kind
			l.mustKubectl(t, loadBalancerManifest(name, kind, l.smokeImage(t)), "apply", "-f", "-")
			t.Cleanup(func() { l.deleteServed(t, name) })
			host := l.loadBalancerHost(t, name, 2*time.Minute)
			if !strings.HasSuffix(host, ".amazonaws.com") {
				t.Errorf("host name %q is not one of AWS", host)
			}
			pods := l.mustKubectl(t, "", "-n", name, "get", "pods", "-o", "name")
			waitFor(t, 2*time.Minute, "HTTP through "+host, func() error {
				body, err := l.get(host)
				if err != nil {
					return err
				}
				if body == "" || !strings.Contains(pods, body) {
					return fmt.Errorf("response %q is not the name of one of the pods %q", body, pods)
				}
				return nil
			})
		})
	}
}

// TestLoginShells use kubectl, ctr and crictl as they are.
func TestLoginShells(t *testing.T) {
	l := deployed(t)
	const script = "kubectl get nodes -o name; ctr containers ls -q 2>/dev/null | wc -l; crictl pods -q | wc -l"
	waitFor(t, 2*time.Minute, "a login shell of root knows the node, containers and pods", func() error {
		out := l.ssh(t, "control/0", "bash", "--login", "-c", script)
		var node string
		var containers, pods int
		_, _ = fmt.Sscan(out, &node, &containers, &pods)
		if !strings.HasPrefix(node, "node/") || containers == 0 || pods == 0 {
			return fmt.Errorf("it says %q, want a node and numbers of containers and pods", out)
		}
		return nil
	})
}

func TestUnchangedDeployRestartsNoProcess(t *testing.T) {
	l := deployed(t)
	pids := func() string {
		return l.ssh(
			t, "control/0", "sh", "-c",
			"for f in /run/kubernetes-bosh/*/*.pid /var/vcap/sys/run/bpm/*/*.pid; do echo $f $(cat $f); done",
		)
	}
	before := pids()
	if strings.Count(before, "\n") < 8 {
		t.Fatalf("too few pidfiles:\n%s", before)
	}
	start := time.Now()
	l.mustUp(t)
	t.Logf("second up took %s", time.Since(start).Round(100*time.Millisecond))
	if after := pids(); after != before {
		t.Errorf("processes were restarted; before:\n%s\nafter:\n%s", before, after)
	}
}

// TestUntaggedInstanceStopsTheDeploy checks what an operator sees when the cluster tag is missing.
func TestUntaggedInstanceStopsTheDeploy(t *testing.T) {
	l := own(t)
	l.ops = []string{"src/testbed/acceptance/testdata/without-tags.yml"}
	l = l.with(t, badInput{ops: shortRetries()})
	out, err := l.up()
	if err == nil {
		t.Fatalf("an untagged instance was deployed:\n%s", tail.Lines(out, 40))
	}
	for _, want := range []string{
		"pre-start",                      // the script that failed
		"i-",                             // the resource
		"kubernetes.io/cluster/lab",      // the missing tag
		"aws ec2 create-tags",            // the command that fixes it
		"Key=kubernetes.io/cluster/lab,", // with the tag
	} {
		if !strings.Contains(tail.Lines(out, 40), want) {
			t.Errorf("the end of the output does not say %q", want)
		}
	}
	if t.Failed() {
		t.Logf("output:\n%s", tail.Lines(out, 60))
	}
}

// shortRetries returns an ops-file that lets the preflight of control VMs wait for less than a minute until a tag is
// visible.
func shortRetries() string { return jobProperty("cloud-provider", "preflight?/retry_window", "5s") }

// shortRetriesEverywhere does the same on all nodes.
func shortRetriesEverywhere() string {
	return shortRetries() + inAddon("cloud-provider", "cloud-provider", "preflight?/retry_window", "5s")
}

// smokeImage returns the test image that is part of the release.
func (l *lab) smokeImage(t *testing.T) string {
	t.Helper()
	var images map[string]string
	if err := json.Unmarshal(
		[]byte(l.ssh(t, "control/0", "cat", "/var/vcap/packages/images/images.json")), &images,
	); err != nil {
		t.Fatal(err)
	}
	if images["smoke-test"] == "" {
		t.Fatalf("images.json has no smoke-test: %v", images)
	}
	return images["smoke-test"]
}

// deleteServed deletes a namespace of loadBalancerManifest. The Service goes first: once the namespace controller has
// found an object with a finalizer, it looks again after eight seconds (pkg/controller/namespace of Kubernetes).
func (l *lab) deleteServed(t *testing.T, name string) {
	t.Helper()
	l.mustKubectl(t, "", "-n", name, "delete", "service", "web", "--ignore-not-found", "--timeout=90s")
	l.mustKubectl(t, "", "delete", "namespace", name, "--timeout=90s")
}

func loadBalancerManifest(name, kind, image string) string {
	data, err := os.ReadFile(filepath.Join("testdata", "load-balancer.yml"))
	if err != nil {
		panic(err)
	}
	annotations := "{}"
	if kind == "nlb" {
		annotations = `{service.beta.kubernetes.io/aws-load-balancer-type: nlb}`
	}
	return strings.NewReplacer("NAME", name, "ANNOTATIONS", annotations, "IMAGE", image).Replace(string(data))
}
