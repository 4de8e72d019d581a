package acceptance

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// changedProperties are other values of the properties of two jobs of a node, in YAML.
var changedProperties = map[string]map[string]string{
	"kubelet": {
		"labels":                       "{example.com/disk: ssd}",
		"taints":                       "[{key: example.com/new, value: a, effect: PreferNoSchedule}]",
		"proxy.http_proxy":             "http://127.0.0.1:9",
		"proxy.https_proxy":            "http://127.0.0.1:9",
		"proxy.no_proxy":               "[.internal, 10.0.0.0/8, 127.0.0.1, 169.254.169.254]",
		"registry_credentials":         "{registry.example: {username: a, password: b}}",
		"max_pods":                     "50",
		"pod_pids_limit":               "2000",
		"system_reserved":              "{cpu: 100m, memory: 100Mi}",
		"kube_reserved":                "{cpu: 100m, memory: 100Mi}",
		"eviction_hard":                "{memory.available: 56Mi, nodefs.available: 1%, imagefs.available: 1%}",
		"eviction_soft":                "{memory.available: 60Mi}",
		"eviction_soft_grace_period":   "{memory.available: 1m}",
		"image_gc_high_threshold":      "99",
		"image_gc_low_threshold":       "98",
		"container_log_max_size":       "5Mi",
		"container_log_max_files":      "3",
		"pod_logs_dir":                 "/var/vcap/data/other-logs",
		"resolv_conf":                  "/etc/resolv.conf",
		"protect_kernel_defaults":      "false",
		"seccomp_default":              "false",
		"node_status_update_frequency": "3s",
		"drain.timeout":                "5m",
		"drain.policy":                 "fail",
		"drain.load_balancer_delay":    "1s",
		"post_start.timeout":           "6m",
		"sysctls":                      "{net.core.somaxconn: 5120}",
		"log_level":                    "3",
		"extra_args":                   "{registry-burst: 20}",
		"config": "{cpuManagerPolicy: static, reservedSystemCPUs: '0', topologyManagerPolicy: best-effort, " +
			"topologyManagerScope: pod, memoryManagerPolicy: Static, " +
			"reservedMemory: [{numaNode: 0, limits: {memory: 256Mi}}]}",
	},
	"containerd": {
		"registry.ca":          "((tls_kube_proxy.ca))",
		"registry.config_path": "/var/vcap/data/certs.d",
		"proxy.http_proxy":     "http://127.0.0.1:9",
		"proxy.https_proxy":    "http://127.0.0.1:9",
		"proxy.no_proxy":       "[.internal]",
		"runtimes":             "{other: /var/vcap/packages/containerd/bin/runc}",
		"config":               "{io.containerd.cri.v1.runtime: {device_ownership_from_security_context: true}}",
		"log_level":            "debug",
	},
}

// unchangedProperties are the others, with the reason.
var unchangedProperties = map[string]map[string]string{
	"kubelet": {
		"tls.ca": "TestSoakRotation", "join.secret": "is also a property of node-controller",
		"fail_swap_on": "as the machine is", "fail_cgroup_v1": "as the machine is",
		"cgroup_root": "a change requires another VM",
	},
	"containerd": {
		"cgroup_driver":          "a change requires another VM",
		"restrict_oom_score_adj": "as the machine is", "oom_score": "as the machine is",
		"registry.mirrors": "excludes registry.config_path; checkProxyAndMirror changes it",
		"extra_args":       "containerd has no other flags than help and version",
	},
}

// TestSoakProperties changes the properties of a running node, which all say that this works at any time, and takes the
// changes back. What kubelet and containerd wrote with the other values must not keep them from starting. The worker is
// there so that the control VM is drained.
func TestSoakProperties(t *testing.T) {
	l := soak(t)
	l.ops, l.vars = workerOps, []string{"worker_instances=1"}
	var changes strings.Builder
	for _, job := range slices.Sorted(maps.Keys(changedProperties)) {
		checkNames(t, job)
		for _, name := range slices.Sorted(maps.Keys(changedProperties[job])) {
			path := strings.ReplaceAll(name, ".", "?/")
			changes.WriteString(jobProperty(job, path+"?", changedProperties[job][name]))
		}
	}
	plain, changed := l.ops, l.with(t, badInput{ops: changes.String()}).ops
	pod := ""
	for i, ops := range [][]string{plain, changed, plain} {
		l.ops = ops
		l.deploy(t)
		pod = l.checkGuaranteedPod(t, pod, i == 1)
		l.checkBlockVolume(t, i == 1)
	}
}

// checkNames fails if a property of the job is neither changed nor in unchangedProperties.
func checkNames(t *testing.T, job string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repo, "jobs", job, "spec"))
	if err != nil {
		t.Fatal(err)
	}
	var spec struct{ Properties map[string]any }
	if err := yaml.Unmarshal(text, &spec); err != nil {
		t.Fatal(err)
	}
	known := slices.Collect(maps.Keys(changedProperties[job]))
	known = slices.AppendSeq(known, maps.Keys(unchangedProperties[job]))
	for name := range spec.Properties {
		if !slices.Contains(known, name) {
			t.Errorf("the test does not change the property %s of job %s", name, job)
		}
	}
	if len(known) != len(spec.Properties) {
		t.Errorf("job %s has %d properties, the test %d", job, len(spec.Properties), len(known))
	}
}

// checkGuaranteedPod returns the pod that is there during the next deploy, with a processor of its own if kubelet
// assigns them. That of the previous deploy was drained.
func (l *lab) checkGuaranteedPod(t *testing.T, previous string, exclusive bool) string {
	t.Helper()
	l.mustKubectl(t, strings.NewReplacer("IMAGE", l.smokeImage(t), "NODE", l.identity(t, "control/0").Name).Replace(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: guaranteed}
spec:
  selector: {matchLabels: {app: guaranteed}}
  template:
    metadata: {labels: {app: guaranteed}}
    spec:
      terminationGracePeriodSeconds: 1
      nodeSelector: {kubernetes.io/hostname: NODE}
      containers:
      - name: main
        image: IMAGE
        resources: {limits: {cpu: 1, memory: 64Mi}}
`), "apply", "-f", "-")
	l.mustKubectl(t, "", "rollout", "status", "deployment/guaranteed", "--timeout=100s")
	pods := l.mustKubectl(t, "", "get", "pods", "-l", "app=guaranteed", "-o", "name")
	if strings.Contains(pods, "\n") || pods == previous {
		t.Errorf("after the deploy the pods are %q, before it %q: want one that is new", pods, previous)
	}
	state := l.ssh(t, "control/0", "cat", "/var/vcap/data/kubelet/cpu_manager_state")
	if strings.Contains(state, `"entries":{`) != exclusive {
		t.Errorf("processors of its own: want %t, kubelet's state is %s", exclusive, state)
	}
	return pods
}
