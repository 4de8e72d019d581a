package acceptance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"kubernetes-release/internal/tail"
	"kubernetes-release/testbed/tarball"
)

const builtRelease = ".build/release/kubernetes.tgz"

// TestSoakUpgrade deploys the jobs with the previous minor version of Kubernetes, upgrades to the version that the
// release ships, goes back to the previous patch release, and upgrades again, while clients use the API, a load
// balancer, a volume and a network policy.
func TestSoakUpgrade(t *testing.T) {
	l := soak(t)
	l.base, l.ops = onAWS, workerOps
	l.vars = []string{"worker_instances=2"}
	previous, previousVersion := previousKubernetes(t, "minor")
	patch, patchVersion := previousKubernetes(t, "patch")
	current := filepath.Join(repo, builtRelease)
	version, err := tarball.PinnedKubernetes(t.Context(), repo, "kubernetes")
	if err != nil {
		t.Fatal(err)
	}

	l.releases = []string{previous}
	l.deploy(t)
	l.checkKubernetes(t, previousVersion)
	l.checkSmokeTests(t)
	u := l.startWorkload(t)
	for _, step := range []struct{ name, tarball, version string }{
		{"upgrade from " + previousVersion, current, version},
		{"back to " + patchVersion, patch, patchVersion},
		{"upgrade from " + patchVersion, current, version},
	} {
		if !t.Run(step.name, func(t *testing.T) {
			l.releases = []string{step.tarball}
			u.whileServed(t, func() { l.unnoticed(t, func() { l.deploy(t) }) })
			l.checkKubernetes(t, step.version)
			u.check(t)
		}) {
			t.FailNow()
		}
	}
	l.checkSmokeTests(t)
}

// previousKubernetes returns a copy of the release with the previous minor version of Kubernetes, or the previous patch
// release, and that version.
func previousKubernetes(t *testing.T, what string) (path, version string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), what+".tgz")
	version, err := tarball.PreviousKubernetes(t.Context(), repo, filepath.Join(repo, builtRelease), what, path)
	if err != nil {
		t.Fatalf("make soak builds it: %v", err)
	}
	return path, version
}

// checkKubernetes expects that all API servers, kubelets and kube-proxies have a version.
func (l *lab) checkKubernetes(t *testing.T, version string) {
	t.Helper()
	for i := range 3 {
		out := l.ssh(
			t, fmt.Sprintf("control/%d", i),
			"/var/vcap/jobs/kubectl/bin/kubectl", "--server=https://127.0.0.1:6443", "get", "--raw", "/version",
		)
		if !strings.Contains(out, `"gitVersion": "`+version+`"`) {
			t.Errorf("API server of control/%d is not of %s:\n%s", i, version, out)
		}
	}
	out := l.mustKubectl(t, "", "get", "nodes", "-o", "jsonpath={.items[*].status.nodeInfo.kubeletVersion}")
	if versions := strings.Fields(out); len(versions) != 5 || len(slices.Compact(versions)) != 1 ||
		versions[0] != version {
		t.Errorf("kubelets have the versions %s, want %s five times", out, version)
	}
}

// workload is what runs in the cluster while it is upgraded: a StatefulSet with a file in a volume, to whose pod no
// other may connect, and web servers behind a load balancer.
type workload struct {
	*lab

	host string
}

const (
	storedText = "from before the upgrade"
	isolated   = `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: data, namespace: upgrade}
spec: {podSelector: {matchLabels: {app: data}}, ingress: []}
`
)

func (l *lab) startWorkload(t *testing.T) *workload {
	t.Helper()
	text, err := os.ReadFile("testdata/upgrade.yml")
	if err != nil {
		t.Fatal(err)
	}
	l.mustKubectl(t, strings.ReplaceAll(string(text), "IMAGE", l.smokeImage(t)), "apply", "-f", "-")
	u := &workload{lab: l}
	u.waitUntilReady(t)
	l.mustKubectl(t, "", "-n", "upgrade", "exec", "data-0", "--", "/smoke-server", "store", "/data/text", storedText)
	u.host = l.loadBalancerHost(t, "upgrade", 2*time.Minute)
	waitFor(t, 2*time.Minute, "HTTP through "+u.host, func() error { _, err := l.get(u.host); return err })
	if out, err := u.connect(t); err != nil {
		t.Fatalf("without a network policy, a pod cannot connect to another: %v\n%s", err, out)
	}
	l.mustKubectl(t, isolated, "apply", "-f", "-")
	waitFor(t, 30*time.Second, "the network policy", func() error {
		if out, err := u.connect(t); err == nil {
			return errors.New("a pod connects: " + out)
		}
		return nil
	})
	return u
}

func (u *workload) waitUntilReady(t *testing.T) {
	t.Helper()
	for _, object := range []string{"statefulset/data", "deployment/web"} {
		u.mustKubectl(t, "", "-n", "upgrade", "rollout", "status", object, "--timeout=3m")
	}
}

// check expects that the file is there, that the load balancer is the same, and that the policy is in force.
func (u *workload) check(t *testing.T) {
	t.Helper()
	u.waitUntilReady(t)
	if got := u.mustKubectl(
		t, "", "-n", "upgrade", "exec", "data-0", "--", "/smoke-server", "show", "/data/text",
	); got != storedText {
		t.Errorf("the volume has %q, want %q", got, storedText)
	}
	if host := u.loadBalancerHost(t, "upgrade", time.Minute); host != u.host {
		t.Errorf("the load balancer is %s, was %s", host, u.host)
	}
	if out, err := u.connect(t); err == nil {
		t.Errorf("a pod connects to one that the network policy isolates: %s", out)
	}
}

// connect requests the pod of the StatefulSet from a web server.
func (u *workload) connect(t *testing.T) (string, error) {
	t.Helper()
	address := u.mustKubectl(t, "", "-n", "upgrade", "get", "pod", "data-0", "-o", "jsonpath={.status.podIP}")
	return u.kubectl(
		t, "", "-n", "upgrade", "exec", "deployment/web", "--", "/smoke-server", "fetch", "http://"+address+":8080/",
	)
}

// whileServed calls do while a client requests the web servers through their load balancer, one request after another,
// and expects an answer to each.
func (u *workload) whileServed(t *testing.T, do func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	type result struct {
		sent   int
		failed []string
	}
	results := make(chan result)
	go func() {
		var r result
		for ctx.Err() == nil {
			r.sent++
			if _, err := u.get(u.host); err != nil {
				r.failed = append(r.failed, time.Now().Format(time.TimeOnly)+" "+err.Error())
			}
		}
		results <- r
	}()
	do()
	stop()
	r := <-results
	t.Logf("%d of %d requests through the load balancer failed", len(r.failed), r.sent)
	if r.sent == 0 {
		t.Error("no request was sent")
	}
	if len(r.failed) > 0 {
		t.Errorf("requests through the load balancer failed:\n%s", tail.Lines(strings.Join(r.failed, "\n"), 20))
	}
}
