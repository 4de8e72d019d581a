package templates

import (
	"encoding/json"
	"strings"
	"testing"

	"kubernetes-release/launcher"
)

// nodeJobs are the jobs whose processes run as root on every node, started by monit without bpm.
var nodeJobs = []string{
	"containerd", "flannel", "kube-proxy", "kubelet", "network-policy", "node-firewall", "node-local-dns",
	"node-termination-handler",
}

// runFiles is the directory of run files of root's processes, in which only root can write.
const runFiles = "/run/kubernetes-bosh/"

// TestNodesStartWithoutPreStart: after a reboot monit starts the processes without pre-start, with an empty /run and
// the kernel's own settings. All of that belongs to the start.
func TestNodesStartWithoutPreStart(t *testing.T) {
	modules, settings := map[string]bool{}, map[string]string{}
	for _, job := range nodeJobs {
		files := mustRender(t, job, inputFor(t, job))
		// A reboot removes kubelet's marker files, as pre-start does.
		prestart := strings.ReplaceAll(string(files["bin/pre-start"]), runFiles+"kubelet/{leaving,undeployed,left}", "")
		for _, word := range []string{"modprobe", "sysctl", "mkdir", "chown", "/run/"} {
			if strings.Contains(prestart, word) {
				t.Errorf("%s: pre-start uses %s, which a reboot undoes", job, word)
			}
		}
		config, err := launcher.Parse(files["config/flags.json"], "/var/vcap/jobs/"+job+"/config/flags.json")
		if err != nil {
			t.Fatal(err)
		}
		owned := false
		for _, directory := range config.Directories {
			owned = owned || directory.Path == runFiles+job
		}
		if !owned {
			t.Errorf("%s: start does not create %s%s", job, runFiles, job)
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

// TestKubeletWritesItsResolverFile: /etc/resolv.conf of an Ubuntu Noble stemcell names 127.0.0.53, with which CoreDNS
// would query itself.
func TestKubeletWritesItsResolverFile(t *testing.T) {
	for name, test := range map[string]struct {
		properties      values
		used, generated string
	}{
		"by default": {values{}, "/var/vcap/data/kubelet/resolv.conf", "/var/vcap/data/kubelet/resolv.conf"},
		"empty": {
			values{"resolv_conf": ""}, "/var/vcap/data/kubelet/resolv.conf", "/var/vcap/data/kubelet/resolv.conf",
		},
		"operator's": {values{"resolv_conf": "/etc/resolv.conf"}, "/etc/resolv.conf", ""},
	} {
		t.Run(name, func(t *testing.T) {
			files := mustRender(t, "kubelet", inputFor(t, "kubelet").with(test.properties))
			var kubelet struct{ ResolvConf string }
			if err := json.Unmarshal(files["config/config.json"], &kubelet); err != nil {
				t.Fatal(err)
			}
			config, err := launcher.Parse(files["config/flags.json"], "/var/vcap/jobs/kubelet/config/flags.json")
			if err != nil {
				t.Fatal(err)
			}
			if kubelet.ResolvConf != test.used || config.ResolverFile != test.generated {
				t.Errorf(
					"kubelet uses %q and start writes %q, want %q and %q", kubelet.ResolvConf, config.ResolverFile,
					test.used, test.generated,
				)
			}
		})
	}
}
