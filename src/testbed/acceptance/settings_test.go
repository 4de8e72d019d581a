package acceptance

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// kernelSettings are what sysctlsOps sets. net.core.somaxconn belongs to the VM's network namespace. The
// others belong to the whole kernel, so that a VM of the lab has files of its own in their place (hostSettings in
// lab/vm/init.go): they show what kubelet's launcher writes, and that it does so again after a reboot, when the files
// have the machine's values; that the kernel accepts the values they do not.
var kernelSettings = map[string]string{
	"fs.inotify.max_user_instances": "9216", "fs.inotify.max_user_watches": "1048576", "vm.max_map_count": "270000",
	"net.core.somaxconn": "5120",
}

// sysctlsOps sets them on the VMs of both groups.
func sysctlsOps() string {
	var settings []string
	for _, name := range slices.Sorted(maps.Keys(kernelSettings)) {
		settings = append(settings, name+": "+kernelSettings[name])
	}
	const path = "jobs/name=kubelet/properties/sysctls?"
	value := "{" + strings.Join(settings, ", ") + "}"
	return replaceInGroup("control", path, value) + replaceInGroup("worker", path, value)
}

// conntrackOps sets the size of the conntrack table as docs/operations.md does. ops-files/lab.yml turns that off, so it
// names both values. The group control keeps what lab.yml has.
const (
	conntrackMax = "655360"
	conntrackOps = `- type: replace
  path: /addons/name=worker-network/jobs/name=kube-proxy/properties/config?/conntrack
  value: {maxPerCore: 1, min: ` + conntrackMax + `}
`
)

// checkKernelSettings reads the settings in the VMs.
func (l *lab) checkKernelSettings(t *testing.T) {
	t.Helper()
	read := func(instance, path string) string {
		t.Helper()
		return strings.TrimSpace(l.ssh(t, instance, "cat", path))
	}
	for _, instance := range []string{"control/0", "worker/0", "worker/1"} {
		for name, want := range kernelSettings {
			if got := read(instance, "/proc/sys/"+strings.ReplaceAll(name, ".", "/")); got != want {
				t.Errorf("%s: %s is %s, want %s", instance, name, got, want)
			}
		}
	}
	for _, instance := range []string{"worker/0", "worker/1"} {
		if got := read(instance, "/proc/sys/net/netfilter/nf_conntrack_max"); got != conntrackMax {
			t.Errorf("%s: kube-proxy set nf_conntrack_max to %s, want %s", instance, got, conntrackMax)
		}
	}
	if got := read("control/0", "/proc/sys/net/netfilter/nf_conntrack_max"); got == conntrackMax {
		t.Errorf("control/0: nf_conntrack_max is %s too, so the machine has that value and the test shows nothing", got)
	}
}

// flagFile is the file of a flag, which the property files writes; flagFileOps samples no request, as nobody takes the
// traces.
const (
	flagFile    = "/var/vcap/jobs/kube-apiserver/config/files/tracing.yaml"
	flagFileOps = `- type: replace
  path: /instance_groups/name=control/jobs/name=kube-apiserver/properties/files?/tracing.yaml
  value: |
    apiVersion: apiserver.config.k8s.io/v1
    kind: TracingConfiguration
    endpoint: 127.0.0.1:4317
    samplingRatePerMillion: 0
- type: replace
  path: /instance_groups/name=control/jobs/name=kube-apiserver/properties/extra_args?/tracing-config-file
  value: ` + flagFile + `
`
)

// checkFlagFile checks that the API server, in bpm's container, has a file of property files for its flag and cannot
// write it: its user may not, and for root the file system is read-only. vcap cannot read it.
func (l *lab) checkFlagFile(t *testing.T, instance string) {
	t.Helper()
	out := l.ssh(t, instance, "bash", "-c", fmt.Sprintf(`
pid=$(pgrep -P "$(cat /var/vcap/sys/run/bpm/kube-apiserver/kube-apiserver.pid)")
tr '\0' '\n' <"/proc/$pid/cmdline" | grep -Fx -- --tracing-config-file=%[1]s
stat -L -c '%%u:%%g %%a' %[1]s
inside() { nsenter --target "$pid" --mount --wdns=/ "$@" 2>&1 | sed 's/.*: //'; }
as_server="setpriv --reuid=%[2]s --regid=%[2]s --groups=1000"
inside $as_server grep -o TracingConfiguration %[1]s
inside $as_server sh -c 'echo "#" >>%[1]s'
inside sh -c 'echo "#" >>%[1]s'
setpriv --reuid=1000 --regid=1000 --clear-groups cat %[1]s 2>&1 | sed 's/.*: //'`, flagFile,
		controlPlaneUsers["kube-apiserver"]))
	want := "--tracing-config-file=" + flagFile + "\n0:" + controlPlaneUsers["kube-apiserver"] + " 640\n" +
		"TracingConfiguration\nPermission denied\nRead-only file system\nPermission denied"
	if got := strings.TrimSpace(out); got != want {
		t.Errorf("%s:\n%s\nwant\n%s", instance, got, want)
	}
}
