package acceptance

import (
	"regexp"
	"strings"
	"testing"
)

// A localAttack is a script for sh that a user of a VM runs.
type localAttack struct {
	name, script string
	// refusal matches the output where a server must have refused. Without it there must be no output, and root must
	// get some, which shows that the script finds what it looks for.
	refusal string
}

const (
	tools = `for p in kubernetes etcd containerd; do PATH=$PATH:/var/vcap/packages/$p/bin; done; `
	// raw asks a server on this VM, with a token that nobody issued: without any, kubectl asks for a password.
	raw   = tools + `HOME=/nonexistent timeout 10 kubectl --insecure-skip-tls-verify --token none `
	files = `/var/vcap/jobs/ /var/vcap/data/jobs /var/vcap/data/kubelet /var/vcap/data/cni /var/vcap/sys/ /etc/cni`
	// others runs a command for each process of another user.
	others = `for p in /proc/[0-9]*; do [ "$(stat -c %u $p 2>/dev/null)" = "$(id -u)" ] && continue; `
	// In a directory with the sticky bit nobody removes what is another's. BOSH's agent mounts /var/vcap/sys/run with
	// the kernel's mode for a tmpfs, 1777 (setupRunDir in platform/linux_platform.go of bosh-agent).
	writable     = `/var/vcap/ /var/vcap/sys/run/ /run/kubernetes-bosh /etc /var/lib/cni -xdev`
	refusedByAPI = `Forbidden|forbidden|Unauthorized|logged in|certificate required|bad certificate`
)

// localAttacks are those of a user that owns nothing on the VM.
var localAttacks = []localAttack{
	{"keys in files", `grep -rIls 'PRIVATE KEY-----' ` + files + ` | head -3`, ""},
	{"kubeconfigs", `grep -rIls client-certificate ` + files + ` | head -3`, ""},
	{"configuration of jobs", `ls /var/vcap/jobs/kube-apiserver/config /var/vcap/jobs/etcd/config 2>/dev/null`, ""},
	{"what the agent rendered", `ls /var/vcap/data/jobs/*/*/config 2>/dev/null | head -3`, ""},
	{"the secret of joining", `cat /var/vcap/jobs/*/config/join_secret 2>/dev/null | wc -c | grep -vx 0`, ""},
	{"the database", `ls /var/vcap/store/etcd/member 2>/dev/null`, ""},
	{"certificates of kubelet", `ls /var/vcap/data/kubelet/pki 2>/dev/null`, ""},
	{"volumes of pods", `ls /var/vcap/data/kubelet/pods 2>/dev/null`, ""},
	{"file systems of containers", `ls /var/vcap/data/containerd 2>/dev/null`, ""},
	{"audit log", `cat /var/vcap/sys/log/kubernetes-audit/*.log 2>/dev/null | head -c 100`, ""},
	{"logs", `cat /var/vcap/sys/log/*/*.log 2>/dev/null | head -c 100`, ""},
	{"records of BOSH", `cat /var/vcap/instance/dns/records.json 2>/dev/null | head -c 100`, ""},

	{"environments", others + `cat $p/environ 2>/dev/null | tr '\0' '\n'; done | head -3`, ""},
	{"memory", others + `( : <$p/mem ) 2>/dev/null && echo $p; done | head -3`, ""},
	{"files of containers", others + `ls $p/root/ 2>/dev/null; done | head -3`, ""},
	{"open files", others + `ls $p/fd 2>/dev/null; done | head -3`, ""},
	{"signals", others + `kill -0 ${p#/proc/} 2>/dev/null && echo $p; done | head -3`, ""},
	{"scheduling", others + `renice -n 19 -p ${p#/proc/} 2>/dev/null; done | head -3`, ""},

	{"directories to write to", `find ` + writable + ` -type d -writable ! -perm -1000 2>/dev/null | head -3`, ""},
	{"files to write to", `find ` + writable + ` -type f -writable 2>/dev/null | head -3`, ""},
	{"sockets", `find /run /var/vcap/ -type s -writable 2>/dev/null | head -3`, ""},
	{"block devices", `find /dev -type b -readable 2>/dev/null | head -3`, ""},
	{"firewall", `PATH=$PATH:/usr/sbin; nft list ruleset 2>/dev/null | head -3`, ""},
	{"containerd", tools + `ctr -a /run/containerd/containerd.sock version 2>/dev/null | grep Server`, ""},
	{"instance metadata", `timeout 5 bash -c 'exec 3<>/dev/tcp/169.254.169.254/80 && echo connected' 2>/dev/null`, ""},

	{"Secrets", raw + `--server https://127.0.0.1:6443 get --raw /api/v1/secrets 2>&1`, refusedByAPI},
	{"Nodes", raw + `--server https://127.0.0.1:6443 get --raw /api/v1/nodes 2>&1`, refusedByAPI},
	{"pods of kubelet", raw + `--server https://127.0.0.1:10250 get --raw /pods 2>&1`, refusedByAPI},
	{"profiles of the controller manager", raw +
		`--server https://127.0.0.1:10257 get --raw /debug/pprof/heap 2>&1`, refusedByAPI},
	{"configuration of the scheduler", raw + `--server https://127.0.0.1:10259 get --raw /configz 2>&1`, refusedByAPI},
	{"etcd", tools + `ETCDCTL_DIAL_TIMEOUT=5s timeout 10 etcdctl --endpoints https://127.0.0.1:2379 ` +
		`--insecure-skip-tls-verify get / --prefix --keys-only --limit 3 2>&1`,
		`certificate required|bad certificate|Unavailable|DeadlineExceeded`},
}

// workerAttacks are those of a user that owns nothing on a worker.
var workerAttacks = []localAttack{
	{"keys in files", `grep -rIls 'PRIVATE KEY-----' ` + files + ` | head -3`, ""},
	{"kubeconfigs", `grep -rIls client-certificate ` + files + ` | head -3`, ""},
	{"configuration of jobs", `ls /var/vcap/jobs/{kubelet,containerd,kube-proxy,flannel,network-policy}/config ` +
		`2>/dev/null`, ""},
	{"key of kube-proxy", `cat /var/vcap/jobs/kube-proxy/config/client.key 2>/dev/null | wc -c | grep -vx 0`, ""},
	{"what the agent rendered", `ls /var/vcap/data/jobs/*/*/config 2>/dev/null | head -3`, ""},
	{"certificates of kubelet", `ls /var/vcap/data/kubelet/pki 2>/dev/null`, ""},
	{"state of kubelet", `cat /var/vcap/data/kubelet/*_state 2>/dev/null | head -c 100`, ""},
	{"volumes of pods, such as their tokens", `ls /var/vcap/data/kubelet/pods/*/volumes 2>/dev/null | head -3`, ""},
	{"file systems of containers", `ls /var/vcap/data/containerd 2>/dev/null`, ""},
	{"specifications of containers", `cat /run/containerd/*/k8s.io/*/config.json 2>/dev/null | head -c 100`, ""},
	{"logs of containers", `for f in /var/{log/pods,vcap/data/pod-logs}/*/*/*.log; ` +
		`do ( : <$f ) 2>/dev/null && echo $f; done | head -3`, ""},
	{"logs", `cat /var/vcap/sys/log/*/*.log 2>/dev/null | head -c 100`, ""},
	{"links in place of logs, data and pidfiles", `for d in /var/vcap/sys/log/*/ /run/kubernetes-bosh/*/ ` +
		`/var/vcap/sys/run/*/ /var/vcap/data/*/; do ln -s /etc/passwd $d/attack 2>/dev/null && rm $d/attack && ` +
		`echo $d; done | head -3`, ""},
	{"plugins of the pod network", `for d in /var/vcap/data/cni/conf /var/vcap/packages/cni-plugins/bin; ` +
		`do touch $d/attack 2>/dev/null && rm $d/attack && echo $d; done`, ""},
	{"sockets of drivers for kubelet", `for d in plugins plugins_registry device-plugins; ` +
		`do f=/var/vcap/data/kubelet/$d/attack; touch $f 2>/dev/null && rm $f && echo $d; done`, ""},
	{"sockets", `find /run /var/vcap/ -type s -writable 2>/dev/null | head -3`, ""},
	{"containerd", tools + `ctr -a /run/containerd/containerd.sock version 2>/dev/null | grep Server`, ""},
	{"environments of pods", others + `cat $p/environ 2>/dev/null | tr '\0' '\n'; done | head -3`, ""},
	{"memory of pods", others + `( : <$p/mem ) 2>/dev/null && echo $p; done | head -3`, ""},
	{"files of pods", others + `ls $p/root/ 2>/dev/null; done | head -3`, ""},
	{"networks of pods", others + `nsenter -t ${p#/proc/} -n true 2>/dev/null && echo $p; done | head -3`, ""},
	{"signals", others + `kill -0 ${p#/proc/} 2>/dev/null && echo $p; done | head -3`, ""},
	{"directories to write to", `find ` + writable + ` -type d -writable ! -perm -1000 2>/dev/null | head -3`, ""},
	{"files to write to", `find ` + writable + ` -type f -writable 2>/dev/null | head -3`, ""},
	{"firewall and rules of policies", `PATH=$PATH:/usr/sbin; nft list ruleset 2>/dev/null | head -3`, ""},
	{"routes to other nodes", `PATH=$PATH:/usr/sbin:/sbin; ip route add 192.0.2.0/24 dev lo 2>/dev/null && ` +
		`ip route del 192.0.2.0/24 dev lo && echo added`, ""},
	{"instance metadata", `timeout 5 bash -c 'exec 3<>/dev/tcp/169.254.169.254/80 && echo connected' 2>/dev/null`, ""},

	{"pods of kubelet", raw + `--server https://127.0.0.1:10250 get --raw /pods 2>&1`, refusedByAPI},
	{"configuration of kubelet", raw + `--server https://127.0.0.1:10250 get --raw /configz 2>&1`, refusedByAPI},
	{"metrics of containers", raw + `--server https://127.0.0.1:10250 get --raw /metrics/cadvisor 2>&1`, refusedByAPI},
	{"profiles of kubelet", raw + `--server https://127.0.0.1:10250 get --raw /debug/pprof/heap 2>&1`, refusedByAPI},
	{"logs of the node by kubelet", raw + `--server https://127.0.0.1:10250 get --raw /logs/ 2>&1`, refusedByAPI},
}

// TestLocalUsersGainNothing acts as a user without groups on a VM that runs everything.
func TestLocalUsersGainNothing(t *testing.T) {
	deployed(t).checkLocalUsers(t, "control/0", localAttacks)
}

// checkLocalUsers acts as a user without groups.
func (l *lab) checkLocalUsers(t *testing.T, instance string, attacks []localAttack) {
	const both = `setpriv --reuid=2345 --regid=2345 --clear-groups bash -c "$0"; echo "== as root"; ` +
		`[ -z "$1" ] || bash -c "$0"; true`
	for _, attack := range attacks {
		t.Run(attack.name, func(t *testing.T) {
			control := ""
			if attack.refusal == "" {
				control = "yes"
			}
			out := l.ssh(t, instance, "bash", "-c", both, attack.script, control)
			got, ofRoot, _ := strings.Cut(out, "== as root")
			if attack.refusal != "" {
				if !regexp.MustCompile(attack.refusal).MatchString(got) {
					t.Errorf("got %.400q; a refusal matches %s", got, attack.refusal)
				}
				return
			}
			if strings.TrimSpace(got) != "" {
				t.Errorf("got %.400q", got)
			}
			if strings.TrimSpace(ofRoot) == "" {
				t.Error("root gets nothing either: there is nothing to attack")
			}
		})
	}
}
