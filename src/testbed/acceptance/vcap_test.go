package acceptance

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// keyForBoshDNS is the only key of the release's that vcap reads: its certificate has no permissions.
var keyForBoshDNS = regexp.MustCompile(`/kube-apiserver/\w+/health/client\.key$`)

// TestVcapGetsNothing acts as vcap on a VM that runs everything.
func TestVcapGetsNothing(t *testing.T) {
	l := deployed(t)
	asVcap := func(script string) string {
		return l.ssh(t, "control/0", "setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", "sh", "-c", script)
	}
	t.Run("private keys", func(t *testing.T) {
		found := asVcap(
			`grep -rlE 'PRIVATE KEY' /var/vcap/jobs/ /var/vcap/data/jobs /var/vcap/data/kubelet /var/vcap/data/cni ` +
				`/var/vcap/sys/ 2>/dev/null; true`,
		)
		if found == "" {
			t.Fatal("the search finds no key at all, not even that for bosh-dns")
		}
		for _, path := range strings.Fields(found) {
			if !keyForBoshDNS.MatchString(path) {
				t.Errorf("vcap reads %s", path)
			}
		}
	})
	t.Run("root's directories", func(t *testing.T) {
		for _, path := range []string{
			"/var/vcap/data/cloud-provider/node.json", "/var/vcap/data/cloud-provider", "/var/vcap/data/kubelet",
			"/var/vcap/data/containerd",
			"/var/vcap/data/cni/bin", "/run/kubernetes-bosh/kubelet", "/run/kubernetes-bosh/containerd",
			"/run/kubernetes-bosh/flannel",
			"/run/kubernetes-bosh/kube-proxy", "/var/vcap/sys/log/kubelet", "/var/vcap/sys/log/containerd",
			"/var/vcap/sys/log/flannel",
			"/var/vcap/sys/log/cloud-provider", "/var/vcap/sys/log/kube-proxy", "/run/kubernetes-bosh/network-policy",
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
				fmt.Sprintf("cat /proc/$(cat /run/kubernetes-bosh/%s/%s.pid)/status", process, process),
			)
			// NET_ADMIN, NET_RAW and SYS_RESOURCE are 12, 13 and 24; this machine may lack the last.
			if !regexp.MustCompile(`(?m)^CapBnd:\s*00000000(00|01)003000$`).MatchString(status) ||
				!regexp.MustCompile(`(?m)^NoNewPrivs:\s*1$`).MatchString(status) {
				t.Errorf("%s must have no capabilities but %s:\n%s", process, want, status)
			}
		})
	}
	for process, user := range controlPlaneUsers {
		t.Run("process of "+process, func(t *testing.T) { l.checkOwnUser(t, "control/0", process, user) })
	}
	t.Run("control plane", func(t *testing.T) { l.checkControlPlaneFiles(t, "control/0") })
	t.Run("instance metadata", func(t *testing.T) {
		const connect = `timeout 5 bash -c 'exec 3<>/dev/tcp/169.254.169.254/80 && echo connected' 2>/dev/null; true`
		if asVcap(connect) != "" {
			t.Error("vcap gets the credentials of the VM's role")
		}
		if out := l.ssh(
			t, "control/0", "setpriv", "--reuid=1900000008", "--clear-groups", "sh", "-c", connect,
		); out != "connected" {
			t.Errorf("the controllers of the cloud do not: %q", out)
		}
	})
}

// controlPlaneUsers are the users of the jobs that have a process with their name under bpm.
var controlPlaneUsers = map[string]string{
	"etcd": "1900000003", "kube-apiserver": "1900000004", "kube-controller-manager": "1900000005",
	"node-controller": "1900000006", "kube-scheduler": "1900000007", "cloud-controller-manager": "1900000008",
	"ebs-csi-controller": "1900000008",
}

// checkOwnUser checks that a process under bpm is that of its user, without capabilities, and that vcap sees nothing of
// it, nor of bpm's init, which is vcap's and has capabilities.
func (l *lab) checkOwnUser(t *testing.T, instance, process, user string) {
	t.Helper()
	out := l.ssh(t, instance, "bash", "-c", strings.ReplaceAll(`
init=$(cat /var/vcap/sys/run/bpm/PROCESS/PROCESS.pid)
pid=$(pgrep -P "$init")
grep -E '^(Uid|Gid|CapInh|CapPrm|CapEff|CapBnd|CapAmb|NoNewPrivs):' "/proc/$pid/status" | tr '\t' ' '
for path in "/proc/$init"/{environ,root/etc/passwd} "/proc/$pid"/{environ,root/etc/passwd}; do
  head -c 1 "$path" >/dev/null || echo "root cannot read $path"
  setpriv --reuid=1000 --regid=1000 --clear-groups head -c 1 "$path" >/dev/null 2>&1 && echo "vcap reads $path"
done; true`, "PROCESS", process))
	none := strings.Repeat("0", 16)
	want := fmt.Sprintf("Uid: %s %[1]s %[1]s %[1]s\nGid: %[1]s %[1]s %[1]s %[1]s\nCapInh: %s\nCapPrm: %[2]s\n"+
		"CapEff: %[2]s\nCapBnd: %[2]s\nCapAmb: %[2]s\nNoNewPrivs: 1", user, none)
	if strings.TrimSpace(out) != want {
		t.Errorf("%s on %s:\n%s\nwant\n%s", process, instance, out, want)
	}
}

// checkControlPlaneFiles checks that vcap is refused each key of the control plane, its data and its audit log, and
// that it gets what bosh-dns and monitoring need.
func (l *lab) checkControlPlaneFiles(t *testing.T, instance string) {
	t.Helper()
	out := l.ssh(t, instance, "bash", "-c", `shopt -s nullglob
as_vcap() { setpriv --reuid=1000 --regid=1000 --clear-groups "$@" >/dev/null 2>&1; }
cd /var/vcap/jobs
under_bpm=$(dirname $(dirname */config/bpm.yml))
for path in $(for job in $under_bpm; do echo $job/config/{*.key,*.conf,encryption.json,flags.json}; done) \
    /var/vcap/sys/log/kubernetes-audit/*.log /var/vcap/store/etcd/member/snap/db; do
  [[ -e $path ]] || continue
  echo "has ${path##*/}"
  as_vcap head -c 1 "$path" && echo "vcap reads $path"
done | sort -u
as_vcap ls /var/vcap/store/etcd && echo "vcap lists etcd's data"
as_vcap /var/vcap/jobs/kube-apiserver/bin/dns/healthy || echo "bosh-dns' health check fails as vcap"
for path in $(for job in $under_bpm; do echo $job/config/certificates.prom; done); do
  ! [[ -e $path ]] || as_vcap grep -q not_after $path || echo "monitoring cannot read $path"
done; true`)
	lines := strings.Fields(strings.ReplaceAll(out, "has ", ""))
	for _, want := range []string{
		"audit.log", "client.key", "db", "encryption.json", "flags.json", "peer.key", "service_account.key",
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("%s on %s was not looked at", want, instance)
		}
	}
	for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
		if !strings.HasPrefix(line, "has ") {
			t.Errorf("%s: %s", instance, line)
		}
	}
}
