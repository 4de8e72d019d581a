package templates

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kubernetes-release/launcher"
)

var (
	pidfiles = regexp.MustCompile(`(?m)^check process (\S+)\n  with pidfile (\S+)$`)
	dataDirs = regexp.MustCompile(`dataDir: (\S+)`)
	// instanceFiles are files about the VM's instance.
	instanceFiles = regexp.MustCompile(`/var/vcap/instance/(\w+)`)
)

// TestPidfilesAreWhereOnlyRootWrites: monit takes a process for running while its pidfile names one, whoever wrote it
// (Util_isProcessRunning in monit's util.c), and starts nothing then. In /var/vcap/sys/run, which is empty after a
// reboot, every user can be the first. bpm has its pidfiles there.
func TestPidfilesAreWhereOnlyRootWrites(t *testing.T) {
	found := map[string]string{}
	for _, job := range jobNames(t) {
		files := mustRender(t, job, inputFor(t, job))
		for _, m := range pidfiles.FindAllStringSubmatch(string(files["monit"]), -1) {
			found[m[1]] = m[2]
			want := runFiles + job + "/" + m[1] + ".pid"
			if strings.Contains(string(files["monit"]), "/var/vcap/jobs/bpm/bin/bpm start "+job) {
				want = "/var/vcap/sys/run/bpm/" + job + "/" + m[1] + ".pid"
			}
			if m[2] != want {
				t.Errorf("job %s: the pidfile of %s is %s, want %s", job, m[1], m[2], want)
			}
		}
	}
	for _, job := range jobNames(t) {
		for name, content := range mustRender(t, job, inputFor(t, job)) {
			if filepath.Base(name) != "flags.json" {
				continue
			}
			config, err := launcher.Parse(content, "/var/vcap/jobs/"+job+"/"+name)
			if err != nil {
				t.Fatal(err)
			}
			if config.Pidfile != "" && config.Pidfile != found[config.Process] {
				t.Errorf("%s: the launcher writes %s, monit reads %s", job, config.Pidfile, found[config.Process])
			}
		}
	}
	if len(found) < 20 {
		t.Errorf("only %d processes found", len(found))
	}
}

// TestInstanceFilesAreTheAgents: bosh-agent writes four files about an instance, and the Director's records of DNS
// (writeInstanceData in agent/action/apply.go, Run in agent/action/sync_dns.go).
func TestInstanceFilesAreTheAgents(t *testing.T) {
	found := 0
	for _, job := range jobNames(t) {
		for name, content := range mustRender(t, job, inputFor(t, job)) {
			for _, m := range instanceFiles.FindAllStringSubmatch(string(content), -1) {
				found++
				if !slices.Contains([]string{"id", "az", "name", "deployment", "dns"}, m[1]) {
					t.Errorf("job %s: %s names %s, which bosh-agent does not write", job, name, m[0])
				}
			}
		}
	}
	if found < 2 {
		t.Errorf("only %d files of the instance found", found)
	}
}

// TestRestoreStartsEtcdOnTheBootstrapVM: the members of all other VMs join it. With a large database it needs long, and
// bbr unlocks the others only when it serves.
func TestRestoreStartsEtcdOnTheBootstrapVM(t *testing.T) {
	for _, bootstrap := range []bool{true, false} {
		in := inputFor(t, "etcd")
		in.Spec = values{"bootstrap": bootstrap}
		script := string(mustRender(t, "etcd", in)["bin/bbr/restore"])
		const start = "\n/var/vcap/jobs/etcd/bin/switch start\n" +
			"exec /var/vcap/packages/helpers/bin/kube-tools wait-ready --check=/var/vcap/jobs/etcd/bin/ready\n"
		if starts := strings.HasSuffix(script, start); starts != bootstrap {
			t.Errorf("bootstrap is %v, the script starts etcd and waits for it: %v\n%s", bootstrap, starts, script)
		}
	}
}

// TestEtcdIsSwitchedWhileMonitIsBusy: the scripts for bbr follow each other within a second, in which monit still waits
// for what the one before has asked for.
func TestEtcdIsSwitchedWhileMonitIsBusy(t *testing.T) {
	script := mustRender(t, "etcd", inputFor(t, "etcd"))["bin/switch"]
	for name, test := range map[string]struct {
		action          string
		refusals, calls int
		passes          bool
	}{
		"start":      {"start", 2, 3, true},
		"stop":       {"stop", 2, 3, true},
		"never done": {"start", 1000, 60, false},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			calls := filepath.Join(root, "calls")
			bin := filepath.Join(root, "bosh/bin")
			if err := os.MkdirAll(bin, 0o755); err != nil {
				t.Fatal(err)
			}
			for path, content := range map[string]string{
				filepath.Join(root, "switch"): string(below(root, script)),
				filepath.Join(bin, "monit"): fmt.Sprintf("#!/bin/bash\necho \"$*\" >>%[1]s\n"+
					"(( $(wc -l <%[1]s) > %[2]d ))\n", calls, test.refusals),
				filepath.Join(bin, "sleep"): "#!/bin/sh\n",
			} {
				if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			output, err := exec.Command(filepath.Join(root, "switch"), test.action).CombinedOutput()
			if (err == nil) != test.passes {
				t.Errorf("the script has passed: %v (%v), want %v\n%s", err == nil, err, test.passes, output)
			}
			if !test.passes && !strings.Contains(string(output), "monit has refused to start etcd") {
				t.Errorf("the script says %q", output)
			}
			called, err := os.ReadFile(calls)
			if want := strings.Repeat(test.action+" etcd\n", test.calls); err != nil || string(called) != want {
				t.Errorf("monit was called (%v):\n%s\nwant\n%s", err, called, want)
			}
		})
	}
}

// TestAddressesOfPodsAreRoots: the CNI plugin host-local, which runs as root, keeps the addresses of pods in a
// directory that it creates with the first pod after a reboot, and follows links in it (Reserve in
// plugins/ipam/host-local/backend/disk/backend.go).
func TestAddressesOfPodsAreRoots(t *testing.T) {
	spec, err := os.ReadFile("../../../jobs/flannel/spec")
	if err != nil {
		t.Fatal(err)
	}
	dir := dataDirs.FindStringSubmatch(string(spec))
	if dir == nil {
		t.Fatal("flannel's cni_config names no directory for addresses")
	}
	files := mustRender(t, "containerd", inputFor(t, "containerd"))
	config, err := launcher.Parse(files["config/flags.json"], "/var/vcap/jobs/containerd/config/flags.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, directory := range config.Directories {
		if directory.Path == dir[1] && directory.Mode == "0700" {
			return
		}
	}
	t.Errorf("containerd, which runs the plugin, starts without taking %s from other users", dir[1])
}
