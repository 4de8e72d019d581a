package acceptance

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// checkPodsOfEveryNode runs checkPods in a cluster of one control VM and two workers. There must be no bridge on a node
// with pods: on one, a pod could answer ARP for the others.
func (l *lab) checkPodsOfEveryNode(t *testing.T, nodes []string) {
	instances := []string{"control/0", "worker/0", "worker/1"}
	l.checkPods(t, len(nodes), instances)
	for _, instance := range instances {
		if bridges := l.ssh(t, instance, "ip", "-o", "link", "show", "type", "bridge"); bridges != "" {
			t.Errorf("%s has bridges: %s", instance, bridges)
		}
	}
}

// checkTunnelEndsAtPods connects to the API server of the control VM, which serves on all its addresses, at the one
// that the VM has in the pod network: others reach that by VXLAN, which the cloud's firewall between VMs does not look
// into.
func (l *lab) checkTunnelEndsAtPods(t *testing.T) {
	fields := strings.Fields(l.ssh(t, "control/0", "ip", "-4", "-o", "addr", "show", "dev", "flannel.1"))
	if len(fields) < 4 {
		t.Fatalf("flannel.1 of the control VM: %q", fields)
	}
	address, _, _ := strings.Cut(fields[3], "/")
	connect := func(instance string) (string, error) {
		return l.run(
			time.Minute, "ssh", instance, "curl", "-sS", "--noproxy", "*", "--max-time", "5", "-o", "/dev/null",
			"--insecure", "https://"+address+":6443/healthz",
		)
	}
	if out, err := connect("control/0"); err != nil {
		t.Errorf("the control VM itself: %v: %s", err, out)
	}
	if out, err := connect("worker/0"); err == nil || !strings.Contains(out, "curl: (7)") { // could not connect
		t.Errorf("a worker by the tunnel: %v, want a refusal: %s", err, out)
	}
}

// runPodsOnEveryNode runs a pod on each node without taints until the test ends, and returns their namespace.
func (l *lab) runPodsOnEveryNode(t *testing.T) (namespace string) {
	t.Helper()
	namespace = "every-node"
	l.mustKubectl(t, fmt.Sprintf(daemonManifest, namespace, l.smokeImage(t)), "apply", "-f", "-")
	t.Cleanup(func() { l.mustKubectl(t, "", "delete", "namespace", namespace, "--timeout=90s") })
	l.mustKubectl(t, "", "-n", namespace, "rollout", "status", "daemonset/web", "--timeout=90s")
	return namespace
}

// checkPods runs a pod on each node without taints, of which there must be as many as count, and sends requests from
// each instance to each pod, by address and by node port.
func (l *lab) checkPods(t *testing.T, count int, instances []string) {
	namespace := l.runPodsOnEveryNode(t)
	var pods struct {
		Items []struct {
			Metadata struct{ Name string }
			Spec     struct{ NodeName string }
			Status   struct{ PodIP, HostIP string }
		}
	}
	if err := json.Unmarshal(
		[]byte(l.mustKubectl(t, "", "-n", namespace, "get", "pods", "-o", "json")), &pods,
	); err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) != count {
		t.Fatalf("%d pods for %d nodes", len(pods.Items), count)
	}
	port := l.mustKubectl(t, "", "-n", namespace, "get", "service", "web", "-o", "jsonpath={.spec.ports[0].nodePort}")
	var names []string
	for _, pod := range pods.Items {
		names = append(names, pod.Metadata.Name)
	}
	get := func(instance, address string) {
		t.Helper()
		waitFor(t, 20*time.Second, "HTTP from "+instance+" to "+address, func() error {
			out, err := l.run(
				20*time.Second,
				"ssh",
				instance,
				"curl",
				"-sS",
				"--fail",
				"--noproxy",
				"*",
				"--max-time",
				"5",
				"http://"+address+"/",
			)
			if err == nil && !slices.Contains(names, strings.TrimSpace(out)) {
				err = fmt.Errorf("no pod of %q", names)
			}
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
	}
	for _, instance := range instances {
		for _, pod := range pods.Items {
			get(instance, pod.Status.PodIP+":8080")
			get(instance, pod.Status.HostIP+":"+port)
		}
	}
	for _, pod := range pods.Items { // which uses the kubelet's serving certificate
		if _, err := l.kubectl(t, "", "-n", namespace, "logs", pod.Metadata.Name); err != nil {
			t.Errorf("logs of the pod on %s: %v", pod.Spec.NodeName, err)
		}
	}
}

// checkPortForward forwards a port to a pod on a worker, which has no socat, as no stemcell has.
func (l *lab) checkPortForward(t *testing.T) {
	l.mustKubectl(t, "", "run", "forwarded", "--image="+l.smokeImage(t), "--image-pull-policy=Never", "--port=8080")
	t.Cleanup(func() { l.mustKubectl(t, "", "delete", "pod", "forwarded", "--timeout=60s") })
	l.mustKubectl(t, "", "wait", "pod/forwarded", "--for=condition=Ready", "--timeout=60s")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	forward := exec.CommandContext(
		ctx, filepath.Join(l.state, "bin/kubectl"), "--kubeconfig", filepath.Join(l.state, "kubeconfig"),
		"port-forward", "pod/forwarded", ":8080",
	)
	output, err := forward.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := forward.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = forward.Wait() }()
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatalf("port-forward: %v", err)
	}
	var port int
	if _, err := fmt.Sscanf(line, "Forwarding from 127.0.0.1:%d", &port); err != nil {
		t.Fatalf("port-forward printed %q: %v", line, err)
	}
	client := &http.Client{Transport: &http.Transport{}} // without a proxy
	response, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if body, err := io.ReadAll(response.Body); err != nil || strings.TrimSpace(string(body)) != "forwarded" {
		t.Errorf("response %q (%v) is not the name of the pod", body, err)
	}
}

const daemonManifest = `apiVersion: v1
kind: Namespace
metadata: {name: &namespace %s}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: web, namespace: every-node}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: web, image: "%s", imagePullPolicy: Never, ports: [{containerPort: 8080}]}]
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: every-node}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
`

// checkLocalLoadBalancer uses externalTrafficPolicy Local: only nodes with a pod pass the health check, and every
// request succeeds.
func (l *lab) checkLocalLoadBalancer(t *testing.T, kind string) {
	name := "local-" + kind
	manifest := loadBalancerManifest(name, kind, l.smokeImage(t))
	manifest = strings.Replace(manifest, "type: LoadBalancer", "type: LoadBalancer\n  externalTrafficPolicy: Local", 1)
	manifest = strings.Replace(manifest, "replicas: 2", "replicas: 1", 1)
	l.mustKubectl(t, manifest, "apply", "-f", "-")
	t.Cleanup(func() { l.deleteServed(t, name) })
	host := l.loadBalancerHost(t, name, time.Minute)
	fetch := func() error {
		body, err := l.get(host)
		if err != nil {
			return err
		}
		if !strings.HasPrefix(body, "web-") {
			return fmt.Errorf("response %q is not the name of a pod", body)
		}
		return nil
	}
	waitFor(t, time.Minute, "HTTP through "+host, fetch)
	for range 9 { // three for each node
		if err := fetch(); err != nil {
			t.Errorf("after the first success: %v", err)
		}
	}
}

// TestPodsGetTheResolverForContainers: the VM's own resolver file names a loopback address, and BOSH's names as search
// domains.
func TestPodsGetTheResolverForContainers(t *testing.T) {
	l := deployed(t)
	if own := l.ssh(t, "control/0", "cat", "/etc/resolv.conf"); !strings.Contains(own, "nameserver 127.0.0.53") ||
		!strings.Contains(own, "search bosh ") {
		t.Fatalf("the VM's resolver file is not a stemcell's, so this test proves nothing:\n%s", own)
	}
	// Pods of kube-system have dnsPolicy Default (CoreDNS), the others ClusterFirst.
	l.served(t, "resolver")
	files := l.ssh(
		t, "control/0", "sh", "-c",
		"cd /var/vcap/data/containerd && find . -path '*/sandboxes/*/resolv.conf' -exec cat {} + | sort -u",
	)
	if strings.Contains(files, "127.0.0.53") || strings.Contains(files, "bosh") ||
		strings.Contains(files, ".internal") && !strings.Contains(files, "search resolver.svc") {
		t.Errorf("pods have\n%s", files)
	}
	for _, want := range []string{"nameserver 169.254.0.53", "nameserver 10.96.0.10", "search " +
		"resolver.svc.cluster.local svc.cluster.local cluster.local"} {
		if !slices.Contains(strings.Split(files, "\n"), want) {
			t.Errorf("no pod has %q:\n%s", want, files)
		}
	}
}
