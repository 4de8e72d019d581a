package debian

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// kubectl is the operator's, on a control VM.
const kubectl = "/var/vcap/jobs/kubectl/bin/kubectl"

var productionOpsFiles = []string{"ops-files/single-vm.yml", testdata + "/production.yml", slow}

// TestProduction deploys on the machine itself with production's settings, which no ops-file of the lab changes, and
// looks at what systemd, kubelet and containerd do together.
func TestProduction(t *testing.T) {
	b := &cluster{boot(t, 6*1024, "bin", "manifests", "ops-files", ".build/release/kubernetes.tgz", testdata)}
	started := time.Now()
	b.must(15*time.Minute, "bin/guest deploy "+Checkout+"/director smoke-tests "+strings.Join(productionOpsFiles, " "))
	t.Logf("deployed and tested in %s", time.Since(started).Round(time.Second))
	t.Log(b.must(0, "cat /sys/devices/system/clocksource/clocksource0/current_clocksource"))
	b.must(0, "test -z \"$(tail -n +2 /proc/swaps)\"")
	config := b.must(0, "cat /var/vcap/jobs/kubelet/config/config.json")
	if !strings.Contains(config, `"failCgroupV1": true`) || !strings.Contains(config, `"failSwapOn": true`) {
		t.Errorf("kubelet's settings are not production's:\n%s", config)
	}
	b.must(0, "grep -q 'SystemdCgroup = true' /var/vcap/jobs/containerd/config/config.toml")
	b.startPods()
	for _, part := range []struct {
		name string
		run  func(cluster)
	}{
		{"Limits", cluster.limits},
		{"Scopes", cluster.scopes},
		{"OOM", cluster.oom},
		{"Eviction", cluster.eviction},
		{"Reboot", cluster.reboot},
	} {
		t.Run(part.name, func(t *testing.T) {
			part.run(cluster{&bed{t, b.Machine}})
		})
	}
}

type cluster struct{ *bed }

// pod is a pod of busybox, which the machine has as a static program, in the image of the smoke tests.
func pod(name, script, resources string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 20
  containers:
  - name: main
    image: IMAGE
    command: [/busybox, sh, -c, %q]
    resources: {%s}
    securityContext: {runAsUser: 0}
    volumeMounts:
    - {name: busybox, mountPath: /busybox}
    - {name: scratch, mountPath: /scratch}
    - {name: kept, mountPath: /kept}
  volumes:
  - {name: busybox, hostPath: {path: /bin/busybox, type: File}}
  - {name: scratch, emptyDir: {sizeLimit: 20Mi}}
  - {name: kept, hostPath: {path: /kept, type: DirectoryOrCreate}}
---
`, name, script, resources)
}

// create creates pods.
func (b cluster) create(pods string) {
	b.Helper()
	b.must(time.Minute, "image=$(jq -r '.\"smoke-test\"' /var/vcap/packages/images/images.json)\n"+
		"sed \"s|IMAGE|$image|\" <<'END' | "+kubectl+" apply -f -\n"+pods+"END")
}

const sleep = "trap 'exit 0' TERM; while :; do /busybox sleep 1; done"

// startPods starts a pod of each kind: guaranteed with a processor of its own, burstable with limits, and best effort.
func (b cluster) startPods() {
	b.create(pod("exclusive", sleep, "limits: {cpu: 1, memory: 64Mi}") +
		pod("burstable", sleep, "requests: {cpu: 50m, memory: 32Mi}, limits: {cpu: 250m, memory: 128Mi}") +
		pod("besteffort", "trap '/busybox date >/kept/ended; exit 0' TERM; while :; do /busybox sleep 1; done", ""))
	b.awaitReady("pod/exclusive pod/burstable pod/besteffort")
}

func (b cluster) awaitReady(pods string) {
	b.Helper()
	b.must(2*time.Minute, kubectl+" wait --for=condition=Ready --timeout=900s "+pods)
}

// group is the control group of a pod.
func (b cluster) group(pod string) string {
	b.Helper()
	uid := b.must(time.Minute, kubectl+" get pod "+pod+" -o 'jsonpath={.metadata.uid}'")
	slice := "*pod" + strings.ReplaceAll(uid, "-", "_") + ".slice"
	return b.must(0, "find /sys/fs/cgroup/kubepods.slice -type d -name '"+slice+"'")
}

// scope is the control group of a pod's container.
func (b cluster) scope(pod string) string {
	b.Helper()
	id := b.must(time.Minute, kubectl+" get pod "+pod+" -o 'jsonpath={.status.containerStatuses[0].containerID}'")
	return b.group(pod) + "/cri-containerd-" + strings.TrimPrefix(id, "containerd://") + ".scope"
}

// limitsInFiles sees pods below kubepods.slice, with their limits in the files of control groups. A pod's own processor
// needs no quota (the feature DisableCPUQuotaWithExclusiveCPUs of kubelet).
func (b cluster) limitsInFiles() {
	b.Helper()
	for name, want := range map[string]map[string]string{
		"exclusive": {
			"cpu.max": "max 100000", "memory.max": "67108864", "pids.max": "4096", "memory.swap.max": "0",
		},
		"burstable":  {"cpu.max": "25000 100000", "memory.max": "134217728", "pids.max": "4096"},
		"besteffort": {"cpu.max": "max 100000", "memory.max": "max", "pids.max": "4096"},
	} {
		group := b.group(name)
		if group == "" {
			b.Errorf("pod %s has no group below kubepods.slice", name)
			continue
		}
		for file, value := range want {
			of := group
			if file == "memory.swap.max" {
				of = b.scope(name)
			}
			if have := b.must(0, "cat "+of+"/"+file); have != value {
				b.Errorf("%s of pod %s is %s, want %s", file, name, have, value)
			}
		}
	}
	// With cpuManagerPolicy static, a guaranteed pod with a whole processor has it alone.
	own := b.must(0, "cat "+b.scope("exclusive")+"/cpuset.cpus.effective")
	others := b.must(0, "cat "+b.scope("burstable")+"/cpuset.cpus.effective")
	if !strings.Contains(own, "1") || strings.Contains(others, "1") {
		b.Errorf("pod exclusive runs on processors %q, pod burstable on %q: want 1, and not 1", own, others)
	}
}

// limits are enforced too; that of memory is by oom.
func (b cluster) limits() {
	b.limitsInFiles()
	b.create(pod("spins", "while :; do :; done", "limits: {cpu: 50m, memory: 32Mi}"))
	b.awaitLimited("spins", "cpu.stat", "nr_throttled")
	// A process more than the limit is refused.
	b.create(pod("forks", "/busybox sleep 5; while /busybox sleep 1000 & do :; done", ""))
	b.awaitLimited("forks", "pids.events", "max")
	b.eventually(2*time.Minute, "test $("+shims+") = $("+kubectl+" get pods -A -o name | wc -l)")
}

// awaitLimited waits until a counter of a pod's group is not 0, and deletes the pod. Before Linux 6.11, pids.events are
// those of the container's group below it.
func (b cluster) awaitLimited(pod, file, counter string) {
	b.Helper()
	b.awaitReady("pod/" + pod) // it has a group
	group := b.group(pod)
	b.eventually(2*time.Minute, "cat "+group+"/"+file+" "+group+"/*/"+file+" | "+
		"awk '$1 == \""+counter+"\" {all += $2} END {exit !all}'")
	b.must(2*time.Minute, kubectl+" delete pod "+pod+" --grace-period=0 --force")
}

// eventually repeats a script until it succeeds.
func (b cluster) eventually(limit time.Duration, script string) {
	b.Helper()
	b.must(limit, "for i in $(seq "+fmt.Sprint(int(b.patient(limit).Seconds())/2)+"); do if "+script+
		"; then exit 0; fi; sleep 2; done; exit 1")
}

// shims counts containerd's processes of pods.
const shims = "pgrep containerd-shim | wc -l"

// processes are those that must live on: the daemons, and the processes of pods.
const processes = `cat /run/kubernetes-bosh/containerd/containerd.pid /run/kubernetes-bosh/kubelet/kubelet.pid
for pod in exclusive burstable besteffort; do
  ` + kubectl + ` get pod $pod -o 'jsonpath={.status.containerStatuses[0].containerID}{"\n"}'
done
` + shims

// scopes reloads monit, as bosh-agent does, and systemd: daemons and pods live on, with their limits.
func (b cluster) scopes() {
	before := b.must(time.Minute, processes)
	for _, daemon := range []string{"containerd", "kubelet"} {
		group := b.must(0, "cat /proc/$(cat /run/kubernetes-bosh/"+daemon+"/"+daemon+".pid)/cgroup")
		if !strings.HasPrefix(group, "0::/system.slice/bosh-"+daemon+"-") {
			b.Errorf("%s runs in %s", daemon, group)
		}
	}
	for _, reload := range []string{"systemctl kill monit", "systemctl daemon-reload", "systemctl daemon-reexec"} {
		b.must(0, reload)
		b.must(time.Minute, "sleep 15; systemctl is-active monit")
		if after := b.must(time.Minute, processes); after != before {
			b.Errorf("before %s:\n%s\nafter it:\n%s", reload, before, after)
		}
	}
	b.limitsInFiles()
	b.eventually(2*time.Minute, "monit -c /etc/monit/monitrc summary | grep kubelet | grep -q -E 'Running|OK'")
}

// oom takes more memory than a pod may: the kernel kills the container, and nothing else.
func (b cluster) oom() {
	before := b.must(time.Minute, processes)
	b.create(pod("greedy", "/busybox tail /dev/zero", "limits: {cpu: 100m, memory: 32Mi}"))
	b.eventually(2*time.Minute, "test \"$("+kubectl+" get pod greedy -o 'jsonpath="+
		"{range .status.containerStatuses[0].lastState.terminated}{.reason} {.exitCode}{end}')\" = 'OOMKilled 137'")
	b.must(time.Minute, kubectl+" delete pod greedy --wait=false")
	b.eventually(2*time.Minute, "! "+kubectl+" get pod greedy 2>/dev/null")
	if after := b.must(time.Minute, processes); after != before {
		b.Errorf("before the OOM kill:\n%s\nafter it:\n%s", before, after)
	}
}

func (b cluster) awaitEviction(pod string) {
	b.Helper()
	b.eventually(4*time.Minute, "test \"$("+kubectl+" get pod "+pod+
		" -o 'jsonpath={.status.phase} {.status.reason}')\" = 'Failed Evicted'")
}

// eviction fills a volume of a pod, and the node's disk.
func (b cluster) eviction() {
	b.create(pod("hoarder", "/busybox dd if=/dev/zero of=/scratch/file bs=1M count=40; "+sleep, ""))
	b.awaitEviction("hoarder")
	b.must(time.Minute, kubectl+" delete pod hoarder")
	b.must(0, "fallocate -l $(($(df --output=avail -B 1 / | tail -n 1) - 300000000)) /filler")
	b.awaitEviction("besteffort")
	pressure := kubectl + ` get nodes -o 'jsonpath={.items[0].status.conditions[?(@.type=="DiskPressure")].status}'`
	if have := b.must(time.Minute, pressure); have != "True" {
		b.Errorf("DiskPressure is %s", have)
	}
	b.must(0, "rm /filler")
	b.eventually(8*time.Minute, "test \"$("+pressure+")\" = False")
	b.must(time.Minute, kubectl+" delete pod --all --wait=false")
	b.must(0, "rm -f /kept/ended")
	b.eventually(2*time.Minute, "test -z \"$("+kubectl+" get pods -o name)\"")
	b.startPods()
}

// reboot shuts down by logind: kubelet ends pods before systemd ends it, and all comes back.
func (b cluster) reboot() {
	b.must(0, "test ! -e /kept/ended")
	if locks := b.must(0, "systemd-inhibit --list --no-pager"); !strings.Contains(locks, "kubelet") {
		b.Errorf("kubelet does not delay the shutdown:\n%s", locks)
	}
	b.bed.reboot(4 * time.Minute)
	b.Log(b.must(0, "echo pod besteffort ended at; cat /kept/ended"))
	b.eventually(10*time.Minute, kubectl+" wait --for=condition=Ready node --all --timeout=5s")
	b.eventually(5*time.Minute,
		kubectl+" --namespace kube-system wait --for=condition=Available deployment --all --timeout=5s")
	b.must(time.Minute, kubectl+" get nodes,pods -A -o wide")
	// systemd alone would end the pod too, and kubelet would start it again.
	phase := b.must(time.Minute, kubectl+" get pod besteffort -o 'jsonpath={.status.phase}'")
	if phase != "Succeeded" && phase != "Failed" {
		b.Errorf("kubelet has not ended pod besteffort for the shutdown: it is %s", phase)
	}
	b.eventually(5*time.Minute, "monit -c /etc/monit/monitrc summary | "+
		"awk '/Process/ {all++} /Process/ && !/OK|Running/ {bad++} END {exit !all || bad}'")
	b.create(pod("after", sleep, "limits: {cpu: 100m, memory: 32Mi}"))
	b.awaitReady("pod/after")
}
