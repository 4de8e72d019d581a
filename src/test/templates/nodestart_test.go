package templates

import (
	"encoding/json"
	"strings"
	"testing"

	"kubernetes-release/helpers/launcher"
)

// nodeJobs are the jobs whose processes run as root on every node, started by monit without bpm.
var nodeJobs = []string{"containerd", "flannel", "kube-proxy", "kubelet"}

// TestNodesStartWithoutPreStart: after a reboot monit starts the processes without pre-start, with an empty /var/vcap/sys/run and
// the kernel's own settings. All of that belongs to the start.
func TestNodesStartWithoutPreStart(t *testing.T) {
	modules, settings := map[string]bool{}, map[string]string{}
	for _, job := range nodeJobs {
		files := mustRender(t, job, inputFor(t, job))
		for _, word := range []string{"modprobe", "sysctl", "mkdir", "chown", "/sys/run/"} {
			if strings.Contains(string(files["bin/pre-start"]), word) {
				t.Errorf("%s: pre-start uses %s, which a reboot undoes", job, word)
			}
		}
		config, err := launcher.Parse(files["config/flags.json"])
		if err != nil {
			t.Fatal(err)
		}
		owned := false
		for _, directory := range config.Directories {
			owned = owned || directory.Path == "/var/vcap/sys/run/"+job
		}
		if !owned {
			t.Errorf("%s: start does not take /var/vcap/sys/run/%s from vcap", job, job)
		}
		for _, module := range config.KernelModules {
			modules[module] = true
		}
		var rendered struct{ Sysctls map[string]json.Number }
		if err := json.Unmarshal(files["config/flags.json"], &rendered); err != nil {
			t.Fatal(err)
		}
		for name, value := range rendered.Sysctls {
			settings[name] = value.String()
		}
	}
	for _, module := range []string{"overlay", "br_netfilter", "nf_conntrack"} {
		if !modules[module] {
			t.Errorf("no job loads the kernel module %s", module)
		}
	}
	for _, name := range []string{"net.ipv4.ip_forward", "net.bridge.bridge-nf-call-iptables"} {
		if settings[name] != "1" {
			t.Errorf("kernel setting %s is %q, want 1", name, settings[name])
		}
	}
}
