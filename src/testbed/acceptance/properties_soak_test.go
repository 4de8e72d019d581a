package acceptance

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"
)

// changedProperties are other values of all properties of two jobs of a node, in YAML.
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
		"config": "{cpuManagerPolicy: static, topologyManagerPolicy: best-effort, memoryManagerPolicy: Static, " +
			"reservedMemory: [{numaNode: 0, limits: {memory: 256Mi}}]}",
	},
	"containerd": {
		"registry.mirrors": "{registry.example: [https://mirror.example]}",
		"proxy.http_proxy": "http://127.0.0.1:9",
		"proxy.no_proxy":   "[.internal]",
		"log_level":        "debug",
	},
}

// unchangedProperties are those that a lab needs as they are, and those that have tests of their own.
var unchangedProperties = map[string][]string{
	"kubelet": {"tls.ca", "join.secret", "fail_swap_on", "fail_cgroup_v1", "cgroup_root"},
	"containerd": {
		"cgroup_driver", "restrict_oom_score_adj", "oom_score", "registry.ca", "registry.config_path",
		"proxy.https_proxy", "runtimes", "extra_args", "config",
	},
}

// TestSoakProperties changes the properties of a running node, which all say that this works at any time, and takes the
// changes back. What kubelet and containerd wrote with the other values must not keep them from starting.
func TestSoakProperties(t *testing.T) {
	l := soak(t)
	var changes strings.Builder
	for _, job := range slices.Sorted(maps.Keys(changedProperties)) {
		checkNames(t, job)
		for _, name := range slices.Sorted(maps.Keys(changedProperties[job])) {
			path := strings.ReplaceAll(name, ".", "?/")
			changes.WriteString(jobProperty(job, path+"?", changedProperties[job][name]))
		}
	}
	l.deploy(t)
	l.checkGuaranteedPod(t)
	plain, changed := l.ops, l.with(t, badInput{ops: changes.String()}).ops
	for _, ops := range [][]string{changed, plain} {
		l.ops = ops
		l.deploy(t)
		l.checkGuaranteedPod(t)
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
	known := slices.Concat(slices.Collect(maps.Keys(changedProperties[job])), unchangedProperties[job])
	for name := range spec.Properties {
		if !slices.Contains(known, name) {
			t.Errorf("the test does not change the property %s of job %s", name, job)
		}
	}
	if len(known) != len(spec.Properties) {
		t.Errorf("job %s has %d properties, the test %d", job, len(spec.Properties), len(known))
	}
}

// checkGuaranteedPod runs a pod that has a processor of its own where kubelet assigns them.
func (l *lab) checkGuaranteedPod(t *testing.T) {
	t.Helper()
	const pod = "pod/guaranteed"
	l.mustKubectl(t, strings.ReplaceAll(`
apiVersion: v1
kind: Pod
metadata: {name: guaranteed}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: IMAGE
    resources: {limits: {cpu: 1, memory: 64Mi}}
`, "IMAGE", l.smokeImage(t)), "apply", "-f", "-")
	l.mustKubectl(t, "", "wait", "--for=condition=Ready", "--timeout=3m", pod)
	t.Logf("state of processors: %s", l.ssh(t, "control/0", "cat", "/var/vcap/data/kubelet/cpu_manager_state"))
	l.mustKubectl(t, "", "delete", pod, "--timeout="+time.Minute.String())
}
