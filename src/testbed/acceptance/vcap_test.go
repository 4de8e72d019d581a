package acceptance

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// rootJobs are the jobs that run as root. Nothing of theirs is for vcap.
var rootJobs = []string{
	"cloud-provider", "containerd", "flannel", "kube-proxy", "kubectl", "kubelet", "kubernetes-addons",
	"network-policy", "node-firewall", "smoke-tests",
}

// TestVcapGetsNothingOfRoots acts as vcap on a VM that runs everything.
func TestVcapGetsNothingOfRoots(t *testing.T) {
	l := deployed(t)
	asVcap := func(script string) string {
		return l.ssh(t, "control/0", "setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", "sh", "-c", script)
	}
	t.Run("private keys", func(t *testing.T) {
		found := asVcap(
			`grep -rlE 'PRIVATE KEY' /var/vcap/jobs/ /var/vcap/data/jobs /var/vcap/data/kubelet /var/vcap/data/cni ` +
				`/var/vcap/sys/ 2>/dev/null; true`,
		)
		if !strings.Contains(found, "/etcd/") { // which runs as vcap
			t.Fatalf("the search finds no key of vcap's own jobs: %q", found)
		}
		for _, path := range strings.Fields(found) {
			if slices.ContainsFunc(rootJobs, func(job string) bool { return strings.Contains(path, "/"+job+"/") }) {
				t.Errorf("vcap reads %s", path)
			}
		}
	})
	t.Run("root's directories", func(t *testing.T) {
		for _, path := range []string{
			"/var/vcap/data/cloud-provider/node.json", "/var/vcap/data/cloud-provider", "/var/vcap/data/kubelet",
			"/var/vcap/data/containerd",
			"/var/vcap/data/cni/bin", "/var/vcap/sys/run/kubelet", "/var/vcap/sys/run/containerd",
			"/var/vcap/sys/run/flannel",
			"/var/vcap/sys/run/kube-proxy", "/var/vcap/sys/log/kubelet", "/var/vcap/sys/log/containerd",
			"/var/vcap/sys/log/flannel",
			"/var/vcap/sys/log/cloud-provider", "/var/vcap/sys/log/kube-proxy", "/var/vcap/sys/run/network-policy",
			"/var/vcap/sys/log/network-policy",
		} {
			if out := asVcap(
				fmt.Sprintf(`test -w %s && echo writable; true`, path),
			); strings.Contains(out, "writable") {
				t.Errorf("vcap can write to %s", path)
			}
		}
	})
	for process, want := range map[string]string{
		"kube-proxy": "[NET_ADMIN NET_RAW SYS_RESOURCE]", "flannel": "[NET_ADMIN NET_RAW]",
		"network-policy": "[NET_ADMIN NET_RAW]",
	} {
		t.Run("capabilities of "+process, func(t *testing.T) {
			status := l.ssh(
				t, "control/0", "sh", "-c",
				fmt.Sprintf("cat /proc/$(cat /var/vcap/sys/run/%s/%s.pid)/status", process, process),
			)
			// NET_ADMIN, NET_RAW and SYS_RESOURCE are 12, 13 and 24; this machine may lack the last.
			if !regexp.MustCompile(`(?m)^CapBnd:\s*00000000(00|01)003000$`).MatchString(status) ||
				!regexp.MustCompile(`(?m)^NoNewPrivs:\s*1$`).MatchString(status) {
				t.Errorf("%s must have no capabilities but %s:\n%s", process, want, status)
			}
		})
	}
}
