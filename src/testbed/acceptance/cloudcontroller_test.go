package acceptance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"kubernetes-release/internal/poll"
	"kubernetes-release/internal/tail"
	"kubernetes-release/release/ociimage"
)

const (
	controllerImage = "example.com/aws-cloud-controller-manager:test"
	controllerPods  = "k8s-app=cloud-controller-manager"
)

// TestSoakCloudControllerImage deploys a mistyped image, which fails at the first node. Then it changes the cluster
// from the job cloud-controller-manager to pods and back. The load balancer of a Service stays the same and forwards
// requests; what runs in pods initializes a new node, and creates and deletes load balancers, as the job does. In the
// end the only control VM is lost, which alone could run the pods.
func TestSoakCloudControllerImage(t *testing.T) {
	l := soak(t)
	l.ops, l.vars = []string{"ops-files/scale-workers.yml"}, []string{"worker_instances=0"}
	mustUp := func(l *lab, what string) {
		t.Helper()
		t.Logf("%s: up %s", time.Now().UTC().Format(time.TimeOnly), what)
		l.mustUp(t)
	}
	pods := &lab{
		state: l.state, ops: slices.Concat(l.ops, []string{"ops-files/use-cloud-controller-image.yml"}),
		vars: []string{
			"worker_instances=1", "cloud_provider=aws", "cloud_config=''",
			"cloud_controller_images={cloud-controller-manager: '" + controllerImage + "'}",
		},
	}
	mistyped := badInput{
		ops: jobProperty("kubelet", "post_start?/timeout", "3m"),
		vars: []string{
			"worker_instances=0", "cloud_controller_images={cloud-controller-manager: '" + controllerImage + "ed'}",
		},
		want: []string{
			"post-start", "job kubelet", "Node ip-", "no cloud-controller-manager has initialized it yet",
			controllerImage + "ed", "ImagePull",
		},
	}
	out, err := pods.with(t, mistyped).up()
	if err == nil {
		t.Fatalf("it was deployed:\n%s", tail.Lines(out, endLines))
	}
	mistyped.check(t, out)

	mustUp(l, "with the job")
	host := l.createService(t, "before")
	balancers := l.loadBalancers(t)
	traffic := l.probeBalancer(host)

	archive := controllerArchive(t)
	if err := l.importImage(t.Context(), "control/0", archive); err != nil {
		t.Fatal(err)
	}
	mustUp(pods, "with pods")
	l.mustKubectl(
		t, "", "-n", "kube-system", "rollout", "status", "deployment/cloud-controller-manager", "--timeout=3m",
	)
	if out := l.ssh(t, "control/0", "monit", "summary"); strings.Contains(out, "cloud-controller-manager") {
		t.Errorf("the job is still there:\n%s", out)
	}
	l.checkInitialized(t, 2)
	l.checkSameBalancers(t, balancers)
	second := l.createService(t, "in-pods")
	if second == host {
		t.Errorf("both Services have the load balancer %s", host)
	}
	l.deleteService(t, "in-pods", len(strings.Fields(balancers)))

	before := l.controllerPod(t)
	changed := &lab{
		state: l.state, ops: pods.ops,
		vars: slices.Concat(pods.vars, []string{"cloud_config='[Global]\nNodeIPFamilies = ipv4\n'"}),
	}
	mustUp(changed, "with another configuration")
	waitFor(t, 3*time.Minute, "other pods", func() error {
		if after := l.controllerPod(t); after == before || after == "" {
			return fmt.Errorf("the pod is %q", after)
		}
		return nil
	})
	if conf := l.mustKubectl(
		t, "", "-n", "kube-system", "get", "configmap", "cloud-conf", "-o", "jsonpath={.data}",
	); !strings.Contains(conf, "NodeIPFamilies = ipv4") {
		t.Errorf("the ConfigMap has %s", conf)
	}
	l.checkSameBalancers(t, balancers)

	mustUp(&lab{state: l.state, ops: l.ops, vars: []string{"worker_instances=1"}}, "with the job again")
	if out := l.mustKubectl(
		t, "", "-n", "kube-system", "get", "deployments,configmaps,secrets", "-o", "name",
	); strings.Contains(out, "cloud-") {
		t.Errorf("left behind:\n%s", out)
	}
	l.checkSameBalancers(t, balancers)
	requests, failures := traffic()
	// The only pod of the Service moves when a deploy drains its VM, so some requests can fail, whoever controls the
	// load balancer. At all other times it forwards.
	t.Logf(
		"%d of %d requests through the load balancer failed:\n%s", len(failures), requests,
		strings.Join(failures, "\n"),
	)
	if requests == 0 || len(failures) > requests/10 {
		t.Errorf("%d of %d requests failed, want a tenth at most", len(failures), requests)
	}
	l.deleteService(t, "before", 0)

	mustUp(pods, "with pods again, to lose the only control VM")
	before = l.uid(t, "control/0")
	l.mustRun(t, time.Minute, "kill", "control/0")
	imported := make(chan error, 1)
	go func() { // the new VM has no registry to pull from, and its storage waits for the controller
		imported <- poll.Within(t.Context(), deployTimeout, time.Second, func(ctx context.Context) error {
			return l.importImage(ctx, "control/0", archive)
		})
	}()
	pods.mustFix(t)
	if err := <-imported; err != nil {
		t.Error(err)
	}
	if after := l.uid(t, "control/0"); after == before {
		t.Errorf("the new VM has the Node of the lost one, %s", after)
	}
	l.checkInitialized(t, 2)
}

// uid returns that of an instance's Node.
func (l *lab) uid(t *testing.T, instance string) string {
	t.Helper()
	return l.mustKubectl(t, "", "get", "node", l.identity(t, instance).Name, "-o", "jsonpath={.metadata.uid}")
}

// createService creates a Service with a load balancer, and waits until it responds.
func (l *lab) createService(t *testing.T, name string) (host string) {
	t.Helper()
	l.mustKubectl(t, loadBalancerManifest(name, "classic", l.smokeImage(t)), "apply", "-f", "-")
	host = l.loadBalancerHost(t, name, 5*time.Minute) // a new leader may have to wait for the lease
	waitFor(t, 2*time.Minute, "answer of "+host, func() error {
		_, err := l.get(host)
		return err
	})
	return host
}

func (l *lab) deleteService(t *testing.T, name string, left int) {
	t.Helper()
	l.mustKubectl(t, "", "-n", name, "delete", "service", "web", "--wait=false")
	waitFor(t, 5*time.Minute, "deletion of the load balancer of "+name, func() error {
		if found := l.loadBalancers(t); len(strings.Fields(found)) != left {
			return fmt.Errorf("there are %q", found)
		}
		return nil
	})
}

// loadBalancers returns the names of all load balancers of the account.
func (l *lab) loadBalancers(t *testing.T) string {
	t.Helper()
	return l.aws(
		t, "elb", "describe-load-balancers", "--query", "LoadBalancerDescriptions[].[LoadBalancerName,CreatedTime]",
		"--output", "text",
	)
}

func (l *lab) checkSameBalancers(t *testing.T, want string) {
	t.Helper()
	if got := l.loadBalancers(t); got != want {
		t.Errorf("the load balancers are\n%s\nand were\n%s", got, want)
	}
}

// checkInitialized waits until there are so many nodes and the cloud has initialized all of them.
func (l *lab) checkInitialized(t *testing.T, nodes int) {
	t.Helper()
	waitFor(t, 3*time.Minute, "initialized nodes", func() error {
		out, err := l.kubectl(t, "", "get", "nodes", "-o", `jsonpath={range .items[*]}{.spec.providerID} `+
			`{.metadata.labels.topology\.kubernetes\.io/zone} {.spec.taints[*].key}{"\n"}{end}`)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if len(lines) != nodes {
			return fmt.Errorf("%d nodes", len(lines))
		}
		for _, line := range lines {
			if !strings.HasPrefix(line, "aws:///") || len(strings.Fields(line)) != 2 {
				return errors.New(line)
			}
		}
		return nil
	})
}

func (l *lab) controllerPod(t *testing.T) string {
	t.Helper()
	return l.mustKubectl(
		t, "", "-n", "kube-system", "get", "pods", "-l", controllerPods, "-o", "jsonpath={.items[*].metadata.uid}",
	)
}

// controllerArchive returns the image of the cloud controller.
func controllerArchive(t *testing.T) []byte {
	t.Helper()
	program, err := os.ReadFile(
		filepath.Join(repo, ".build/components/cloud-provider-aws/bin/aws-cloud-controller-manager"),
	)
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := (ociimage.Archive{
		Reference: controllerImage, Program: "/aws-cloud-controller-manager", Content: program, User: "65532:65532",
	}).Write(&archive); err != nil {
		t.Fatal(err)
	}
	return archive.Bytes()
}

// importImage gives an image to the container runtime of an instance.
func (l *lab) importImage(ctx context.Context, instance string, archive []byte) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	command := l.command(
		ctx, "ssh", instance, "/var/vcap/packages/containerd/bin/ctr", "--address",
		"/run/containerd/containerd.sock", "--namespace", "k8s.io", "images", "import", "-",
	)
	command.Stdin = bytes.NewReader(archive)
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// probeBalancer sends requests through a load balancer until the result is asked for: how many, and the errors.
func (l *lab) probeBalancer(host string) (stop func() (requests int, failures []string)) {
	var sent int
	var failed []string
	done := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(500 * time.Millisecond):
				sent++
				if _, err := l.get(host); err != nil {
					failed = append(failed, time.Now().UTC().Format(time.TimeOnly)+" "+err.Error())
				}
			}
		}
	})
	return func() (int, []string) {
		close(done)
		running.Wait()
		return sent, failed
	}
}
