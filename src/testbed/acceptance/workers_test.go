package acceptance

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// workerOps are the ops-files that add workers to a lab.
var workerOps = []string{"ops-files/scale-workers.yml"}

// TestControlAndTwoWorkers deploys a cluster of three nodes: what works on one VM must work between VMs.
func TestControlAndTwoWorkers(t *testing.T) {
	l := own(t)
	l.ops = append(slices.Clone(workerOps), metricsOps)
	l.vars = []string{"worker_instances=2"}
	l = l.with(t, badInput{ops: inGroup("jobs/name=kubernetes-addons/properties/coredns/replicas", "2") +
		sysctlsOps() + conntrackOps + flagFileOps})
	l.mustUp(t)
	nodes := l.nodes(t, 3)
	l.startScaled(t)

	t.Run("smoke tests", func(t *testing.T) {
		l.checkSmokeTests(
			t, "3 of 3 are Ready", "answers on 3 node(s)", "of all 3 nodes", "grown to 2 GiB, restored from a snapshot",
			"load balancers, volumes and snapshots were deleted",
		)
		l.checkVolumesOfTheCloud(t)
	})
	t.Run("kernel settings", func(t *testing.T) { l.checkKernelSettings(t) })
	t.Run("flag that takes a file", func(t *testing.T) { l.checkFlagFile(t, "control/0") })
	t.Run("pods of every node", func(t *testing.T) { l.checkPodsOfEveryNode(t, nodes) })
	t.Run("the tunnel ends at pods", l.checkTunnelEndsAtPods)
	t.Run("CoreDNS", func(t *testing.T) { l.checkDNSSpread(t, len(nodes)) })
	t.Run("metrics of nodes and pods", func(t *testing.T) { l.checkMetrics(t, nodes) })
	driverRestarts := l.hangDriver(t, "worker/1") // the next tests do not use it
	t.Run("side by side", func(t *testing.T) {    // they wait for controllers and for the deletion of namespaces
		for name, check := range map[string]func(*testing.T){
			"volumes":                     l.checkVolumes,
			"local load balancer classic": func(t *testing.T) { l.checkLocalLoadBalancer(t, "classic") },
			"local load balancer nlb":     func(t *testing.T) { l.checkLocalLoadBalancer(t, "nlb") },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				check(t)
			})
		}
	})
	t.Run("CSI driver that hangs", driverRestarts)
	t.Run("metrics of storage", func(t *testing.T) { l.checkStorageMetrics(t) })
	t.Run(
		"network policies",
		func(t *testing.T) { l.checkNetworkPolicies(t, []string{"control/0", "worker/0", "worker/1"}) },
	)
	t.Run(
		"local users of a worker gain nothing",
		func(t *testing.T) {
			l.runPodsOnEveryNode(t) // whose files and processes are attacked too
			l.checkLocalUsers(t, "worker/0", workerAttacks)
		},
	)
	t.Run("port forwarding", func(t *testing.T) { l.checkPortForward(t) })
	t.Run("pod in a user namespace", func(t *testing.T) { l.checkUserNamespace(t) })
	t.Run("pod that is resized", func(t *testing.T) { l.checkResize(t) })
	t.Run("root's files", func(t *testing.T) {
		for _, instance := range []string{"control/0", "worker/0", "worker/1"} {
			l.checkRootsFiles(t, instance)
		}
	})
	t.Run("a VM joins as itself only", func(t *testing.T) {
		l.checkOnlyItself(t, "worker/0", "worker/1")
		l.checkOnlyItself(t, "worker/0", "control/0")
	})
	t.Run("a node says nothing that takes over others", func(t *testing.T) { l.checkConfined(t, "worker/0") })
	t.Run("vcap cannot read the CA of kubelets", func(t *testing.T) { l.checkCAOfKubelets(t, "control/0") })
	// Before the first restart of the only API server, which refuses requests until it has read the roles.
	t.Run("no request is forbidden", func(t *testing.T) { l.checkNoRequestIsForbidden(t) })
	l.ops = withoutMetrics(l.ops)
	private := l.newPrivateRegistry(t)
	private.deploy(t, l) // not in the subtest, because later deploys need the files too
	t.Run("private registry", func(t *testing.T) { l.checkPrivateRegistry(t, private) })
	t.Run("without metrics-server", func(t *testing.T) { l.checkWithoutMetrics(t) })
	t.Run("deleted Node", func(t *testing.T) { l.checkDeletedNode(t, nodes) })
	t.Run(
		"restarted jobs and rebooted VMs",
		func(t *testing.T) { l.checkRestartAndReboot(t, []string{"control/0", "worker/0", "worker/1"}) },
	)
	t.Run("kernel settings after a reboot", func(t *testing.T) { l.checkKernelSettings(t) })
	t.Run("recreated VMs", func(t *testing.T) { l.checkRecreatedVMs(t) })
	t.Run("CoreDNS after updates", func(t *testing.T) { l.checkDNSSpread(t, len(nodes)) })
}

// checkSmokeTests expects the errand smoke-tests to succeed, and to say some words.
func (l *lab) checkSmokeTests(t *testing.T, wants ...string) {
	t.Helper()
	out := l.mustRun(t, 5*time.Minute, "errand", "smoke-tests")
	for _, want := range wants {
		if !strings.Contains(out, want) {
			t.Errorf("the errand does not say %q:\n%s", want, out)
		}
	}
}

// checkNoRequestIsForbidden looks for requests that RBAC refused. Two kinds are expected: processes that wait for their
// rights log refusals as information, and a kubelet that reads a pod just deleted, or what it mounts, is refused by the
// Node authorizer, because the pod belongs to no node any more.
func (l *lab) checkNoRequestIsForbidden(t *testing.T) {
	for _, instance := range []string{"control/0", "worker/0", "worker/1"} {
		out := l.ssh(t, instance, "sh", "-c", `grep -h "is forbidden: User" /var/vcap/sys/log/*/*.stderr.log |
			grep -v -e level=INFO -e 'no relationship found between node' | head -5`)
		if out != "" {
			t.Errorf("%s logs:\n%s", instance, out)
		}
	}
}

// nodes returns the names of the cluster's nodes. All must be Ready, and there must be exactly want of them.
func (l *lab) nodes(t *testing.T, want int) []string {
	t.Helper()
	out := l.mustKubectl(
		t,
		"",
		"get",
		"nodes",
		"-o",
		`jsonpath={range .items[*]}{.metadata.name} {.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}`,
	)
	var names []string
	for _, line := range strings.Split(out, "\n") {
		name, ready, _ := strings.Cut(line, " ")
		if ready != "True" {
			t.Errorf("node %s is Ready: %q", name, ready)
		}
		names = append(names, name)
	}
	if len(names) != want {
		t.Fatalf("nodes %q, want %d", names, want)
	}
	return names
}

// checkUserNamespace runs a pod whose root is another user on the node. Its token is on a tmpfs, whose users only later
// kernels than Debian 12's can map.
func (l *lab) checkUserNamespace(t *testing.T) {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		t.Fatal(err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(string(release), "%d.%d", &major, &minor); err != nil {
		t.Fatalf("version of the kernel %q: %v", release, err)
	}
	if major < 6 || major == 6 && minor < 3 {
		t.Skipf("pods with hostUsers: false require Linux 6.3, and this is %s", release)
	}
	l.mustKubectl(
		t,
		"",
		"run",
		"userns",
		"--image="+l.smokeImage(t),
		"--image-pull-policy=Never",
		`--overrides={"spec": {"hostUsers": false}}`,
	)
	t.Cleanup(func() { l.mustKubectl(t, "", "delete", "pod", "userns", "--timeout=60s") })
	l.mustKubectl(t, "", "wait", "pod/userns", "--for=condition=Ready", "--timeout=60s")
	var roots string // users of nodes that are root in a user namespace
	for _, instance := range []string{"control/0", "worker/0", "worker/1"} {
		roots += l.ssh(
			t,
			instance,
			"sh",
			"-c",
			`cat /proc/[0-9]*/uid_map 2>/dev/null | awk '$1 == 0 && $2 >= 65536 {print $2}'`,
		)
	}
	if roots == "" {
		t.Error("no process on the nodes is in a user namespace")
	}
}

// checkResize has kubelet resize a pod that runs, and report that, which an admission policy limits.
func (l *lab) checkResize(t *testing.T) {
	resources := func(cpu, memory string) string {
		amounts := fmt.Sprintf(`{"cpu": %q, "memory": %q}`, cpu, memory)
		return fmt.Sprintf(
			`{"spec": {"containers": [{"name": "resized", "image": %q, "imagePullPolicy": "Never", `+
				`"resources": {"requests": %s, "limits": %s}}]}}`, l.smokeImage(t), amounts, amounts,
		)
	}
	const pod = "pod/resized"
	l.mustKubectl(t, "", "run", "resized", "--image="+l.smokeImage(t), "--overrides="+resources("50m", "32Mi"))
	t.Cleanup(func() { l.mustKubectl(t, "", "delete", pod, "--timeout=60s") })
	reports := func(want string) {
		t.Helper()
		waitFor(t, time.Minute, "kubelet to report "+want, func() error {
			out := l.mustKubectl(t, "", "get", pod, "-o", "jsonpath={range .status.containerStatuses[*]}"+
				"{.allocatedResources.cpu} {.resources.requests.cpu} {.resources.limits.memory}{end}")
			if out != want {
				return fmt.Errorf("it reports %s", out)
			}
			return nil
		})
	}
	reports("50m 50m 32Mi")
	for _, size := range []struct{ cpu, memory string }{{"150m", "64Mi"}, {"60m", "48Mi"}} {
		l.mustKubectl(t, "", "patch", pod, "--subresource=resize", "-p", resources(size.cpu, size.memory))
		reports(size.cpu + " " + size.cpu + " " + size.memory)
	}
}

// checkRootsFiles checks that vcap, which runs other processes on the VM, can neither read a node's secrets nor replace
// files that root uses.
func (l *lab) checkRootsFiles(t *testing.T, instance string) {
	t.Helper()
	out := l.ssh(
		t, instance, "sh", "-c",
		"stat -L -c '%n %U:%G %a' /var/vcap/data/kubelet /run/kubernetes-bosh/kubelet /run/kubernetes-bosh/containerd "+
			"/run/containerd /run/kubernetes-bosh/flannel /run/kubernetes-bosh/kube-proxy /var/vcap/data/cni/bin "+
			"/var/vcap/jobs/kubelet/config/join_secret /var/vcap/jobs/kubelet/config/home/.docker/config.json "+
			"/var/vcap/jobs/kube-proxy/config/client.key",
	)
	for _, line := range strings.Split(out, "\n") {
		path, rest, _ := strings.Cut(line, " ")
		owner, mode, _ := strings.Cut(rest, " ")
		secret := strings.Contains(path, "/config/")
		if !secret && owner != "root:root" || strings.TrimLeft(mode, "01234567") != "" || len(mode) != 3 ||
			strings.ContainsAny(mode[1:], "2367") ||
			secret && mode != "600" {
			t.Errorf("%s: %s belongs to %s with mode %s", instance, path, owner, mode)
		}
	}
}
