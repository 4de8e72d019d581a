package acceptance

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubernetes-release/testbed/lab/director/release/releasetest"
)

// TestSoakCustomCNI deploys the job of docs/custom-cni.md, which is in another release, in place of flannel, on two
// nodes between which the cloud routes the pods' packets.
func TestSoakCustomCNI(t *testing.T) {
	l := soak(t)
	l.releases = []string{
		".build/release/kubernetes.tgz", releasetest.Build(t, "../templates/testdata/example-cni", "example-cni", "1"),
	}
	l.base = onAWS
	l.ops = append(
		[]string{
			"ops-files/use-cloud-routes.yml", "ops-files/use-custom-cni.yml",
			"src/testbed/acceptance/testdata/pods-on-control.yml",
		},
		workerOps...)
	l.vars = []string{
		"cni_release=example-cni", "cni_release_version=latest", "cni_job=example-cni", "cni_properties={}",
		"worker_instances=1",
		"cluster_name=service-instance_0f61a1f5-1b72-4cf3-8df5-a1a9e0a3a0f5", // as PKS names clusters
	}
	l = l.with(t, badInput{ops: inGroup("instances", "1")})
	l.mustUp(t)
	instances := []string{"control/0", "worker/0"}
	nodes := l.nodes(t, len(instances))

	t.Run("no flannel", func(t *testing.T) {
		for _, instance := range instances {
			if found := l.ssh(
				t, instance, "sh", "-c",
				"ls -d /var/vcap/jobs/flannel /var/vcap/jobs/network-policy /var/vcap/packages/flannel 2>/dev/null; "+
					"pgrep -x flanneld; ip -brief link show type vxlan; nft list tables | grep -i flannel || true",
			); found != "" {
				t.Errorf("%s has:\n%s", instance, found)
			}
		}
	})
	t.Run("smoke tests", func(t *testing.T) { l.checkSmokeTestsWithoutPolicies(t, nodes) })
	t.Run("pods of every node", func(t *testing.T) { l.checkPods(t, len(nodes), instances) })
	t.Run("addresses of pods", func(t *testing.T) { l.checkPodAddresses(t, instances) })
	t.Run("port of a node", func(t *testing.T) { l.checkHostPort(t) })
	t.Run("restarted jobs and rebooted VMs", func(t *testing.T) { l.checkRestartAndReboot(t, instances) })
	t.Run("pods after the reboot", func(t *testing.T) { l.checkPods(t, len(nodes), instances) })
	t.Run("addresses of pods after the reboot", func(t *testing.T) { l.checkPodAddresses(t, instances) })
}

// checkSmokeTestsWithoutPolicies expects the errand to succeed, and to warn about a NetworkPolicy that nothing
// enforces.
func (l *lab) checkSmokeTestsWithoutPolicies(t *testing.T, nodes []string) {
	const policy = `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: ignored, namespace: default}
spec: {podSelector: {}}
`
	l.mustKubectl(t, policy, "apply", "-f", "-")
	l.checkSmokeTests(
		t, fmt.Sprintf("%d of %[1]d are Ready", len(nodes)), fmt.Sprintf("answers on %d node(s)", len(nodes)),
		"names resolve", "1 exist, such as default/ignored, and the pod network enforces none of them",
	)
}

// inPod is a script for the VM of a pod, which runs a command in the pod's network.
const inPod = `for pid in $(pgrep -x smoke-server); do
  nsenter -t $pid -n ip -4 addr show eth0 | grep -q "inet %s/" && exec nsenter -t $pid -n %s
done
echo "no pod with the address"; exit 1`

// checkPodAddresses lets pods connect to a pod on the other node, which must see the address of the pod, and one to the
// other node, which must see the address of the pod's node.
func (l *lab) checkPodAddresses(t *testing.T, instances []string) {
	namespace := l.runPodsOnEveryNode(t)
	pods := map[string]string{} // addresses by instance
	for _, instance := range instances {
		node := l.identity(t, instance).Name
		pods[instance] = l.mustKubectl(
			t, "", "-n", namespace, "get", "pods", "--field-selector=spec.nodeName="+node, "-o",
			"jsonpath={.items[*].status.podIP}",
		)
	}
	for n, from := range instances {
		to := instances[1-n]
		l.checkPeer(
			t,
			from,
			pods[from],
			"http://"+pods[to]+":8080/",
			pods[from],
			to,
			fmt.Sprintf(inPod, pods[to], connections),
		)
	}
	worker := instances[1]
	l.checkPeer(
		t,
		worker,
		pods[worker],
		"http://"+l.identity(t, instances[0]).Address+":10256/healthz",
		l.identity(t, worker).Address,
		instances[0],
		connections,
	)
}

// connections lists those to a pod's server or to kube-proxy's health check. Both close connections first, so the
// kernel remembers them for a minute.
const connections = "ss -Htan '( sport = :8080 or sport = :10256 )'"

// checkPeer sends a request from a pod, and expects the script list on another instance to print the connection's peer.
func (l *lab) checkPeer(t *testing.T, from, pod, url, peer, to, list string) {
	t.Helper()
	request := fmt.Sprintf(
		inPod, pod, "curl -sS --fail --noproxy '*' --max-time 5 -o /dev/null -H 'Connection: close' "+url,
	)
	waitFor(t, 30*time.Second, fmt.Sprintf("a connection to %s from %s", url, peer), func() error {
		if out, err := l.run(20*time.Second, "ssh", from, "sh", "-c", request); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		out := strings.NewReplacer("[::ffff:", "", "]", "").
			Replace(l.ssh(t, to, "sh", "-c", list))
			// servers listen on IPv6 too
		if !strings.Contains(out, " "+peer+":") {
			return fmt.Errorf("connections:\n%s", out)
		}
		return nil
	})
}

// checkHostPort uses the plugin portmap.
func (l *lab) checkHostPort(t *testing.T) {
	overrides := `{"spec": {"nodeSelector": {"bosh.io/instance-group": "worker"}, "containers": [{"name": ` +
		`"published", "image": "` + l.smokeImage(
		t,
	) +
		`", "imagePullPolicy": "Never", "ports": [{"containerPort": 8080, "hostPort": 18080}]}]}}`
	const namespace = metav1.NamespaceSystem // where Pod Security permits it
	l.mustKubectl(t, "", "-n", namespace, "run", "published", "--image=published", "--overrides="+overrides)
	t.Cleanup(func() { l.mustKubectl(t, "", "-n", namespace, "delete", "pod", "published", "--timeout=60s") })
	l.mustKubectl(t, "", "-n", namespace, "wait", "pod/published", "--for=condition=Ready", "--timeout=60s")
	node := l.mustKubectl(t, "", "-n", namespace, "get", "pod", "published", "-o", "jsonpath={.status.hostIP}")
	waitFor(t, 20*time.Second, "HTTP to a port of the node", func() error {
		out, err := l.run(
			20*time.Second,
			"ssh",
			"control/0",
			"curl",
			"-sS",
			"--fail",
			"--noproxy",
			"*",
			"--max-time",
			"5",
			"http://"+node+":18080/",
		)
		if err != nil || strings.TrimSpace(out) != "published" {
			return errors.Join(err, errors.New(out))
		}
		return nil
	})
}
