package templates

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"kubernetes-release/node"
)

// All jobs of a node compute the same identity from their files.
func TestJobsAgreeOnTheNode(t *testing.T) {
	identityFile := filepath.Join(t.TempDir(), "node.json")
	inCloud := node.Identity{
		Name:       "ip-10-0-16-4.ec2.internal",
		ProviderID: "aws:///z1/i-0123456789abcdef0",
		Address:    "10.0.16.4",
	}
	if err := node.Write(identityFile, inCloud); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		links map[string]values
		want  node.Identity
	}{
		"no cloud": {nil, node.Identity{Name: "big-workers-3c5e8f1a", Address: "10.0.16.4"}},
		"aws":      {awsLink, inCloud},
	} {
		for _, job := range []string{"kubelet", "kube-proxy", "flannel", "network-policy"} {
			t.Run(name+"/"+job, func(t *testing.T) {
				in := inputFor(t, job).linked(test.links)
				in.Spec = values{"name": "Big_Workers"}
				files := mustRender(t, job, in)
				if path := decode[values](
					t, files["config/flags.json"],
				)["node"]; path != "/var/vcap/jobs/"+job+"/config/node.json" {
					t.Errorf("flags.json names the file %v", path)
				}
				content := bytes.ReplaceAll(
					files["config/node.json"], []byte("/var/vcap/data/cloud-provider/node.json"), []byte(identityFile),
				)
				path := filepath.Join(t.TempDir(), "node.json")
				if err := os.WriteFile(path, content, 0o600); err != nil {
					t.Fatal(err)
				}
				if got, err := node.Load(path); err != nil || got != test.want {
					t.Errorf("the node is %+v (%v), want %+v", got, err, test.want)
				}
			})
		}
	}
}

// below returns a script that finds what is in /var/vcap, and run files of root's processes, below another directory.
func below(root string, script []byte) []byte {
	script = bytes.ReplaceAll(script, []byte("/run/kubernetes-bosh"), []byte(root+"/sys/run"))
	return bytes.ReplaceAll(script, []byte("/var/vcap"), []byte(root))
}

// TestKubeletDrain runs kubelet's pre-stop and drain in the Director's order, with a fake of our program that
// records how it is called.
func TestKubeletDrain(t *testing.T) {
	scripts := mustRender(t, "kubelet", inputFor(t, "kubelet").linked(awsLink))
	const call = "kube-tools drain-node --kubeconfig=ROOT/data/kubelet/kubeconfig " +
		"--node=ROOT/jobs/kubelet/config/node.json --timeout=10m --policy=force --load-balancer-delay=20s " +
		"--run=ROOT/sys/run/kubelet --ctl=ROOT/jobs/kubelet/bin/ctl --log=ROOT/sys/log/kubelet/drain.stderr.log\n"
	for name, test := range map[string]struct {
		vm, instance, deployment string
		status                   string // exit status of our program
		without                  string // a directory that is missing
		marker                   string // what pre-stop leaves
		fails                    bool   // drain writes no number, which fails the deploy
	}{
		"restarted or updated": {
			vm: "keep", instance: "keep", deployment: "keep", status: "0",
		},
		"recreated": {
			vm: "delete", instance: "keep", deployment: "keep", status: "0", marker: "leaving",
		},
		"scaled down": {
			vm: "delete", instance: "delete", deployment: "keep", status: "0", marker: "leaving",
		},
		"deployment is deleted": {
			vm: "delete", instance: "delete", deployment: "delete", status: "0", marker: "undeployed",
		},
		"tools are missing": {
			vm: "delete", instance: "keep", deployment: "keep", status: "127", marker: "leaving",
		},
		"kubelet was never started": {
			vm: "delete", instance: "keep", deployment: "keep", status: "0", without: "sys/run/kubelet",
		},
		"deadline of policy fail": {
			vm: "delete", instance: "keep", deployment: "keep", status: "1", marker: "leaving", fails: true,
		},
		"old Director": {status: "0"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			write := func(path, content string) {
				t.Helper()
				path = filepath.Join(root, path)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			write(
				"packages/helpers/bin/kube-tools",
				"#!/bin/bash\necho noise\necho \"${0##*/} $*\" >>"+root+"/calls\nexit "+test.status+"\n",
			)
			for _, script := range []string{"pre-stop", "drain"} {
				write("jobs/kubelet/bin/"+script, string(below(root, scripts["bin/"+script])))
			}
			write("sys/log/kubelet/drain.stderr.log", "")
			if test.without == "" {
				for _, marker := range []string{"leaving", "left"} { // from an earlier stop that failed
					write("sys/run/kubelet/"+marker, "")
				}
			}
			run := func(script string, environment ...string) string {
				t.Helper()
				command := exec.Command(filepath.Join(root, "jobs/kubelet/bin", script))
				command.Env = append([]string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, environment...)
				var output bytes.Buffer
				command.Stdout = &output
				if err := command.Run(); err != nil && !test.fails {
					t.Errorf("%s: %v, which fails the deploy", script, err)
				}
				return output.String()
			}
			if test.vm == "" {
				run("pre-stop")
			} else {
				run(
					"pre-stop", "BOSH_VM_NEXT_STATE="+test.vm, "BOSH_INSTANCE_NEXT_STATE="+test.instance,
					"BOSH_DEPLOYMENT_NEXT_STATE="+test.deployment,
				)
			}
			want := "0\n"
			if test.fails {
				want = ""
			}
			if output := run("drain"); output != want {
				t.Errorf("drain wrote %q, want %q: the agent accepts a number only", output, want)
			}
			for _, marker := range []string{"leaving", "undeployed", "left"} {
				_, err := os.Stat(filepath.Join(root, "sys/run/kubelet", marker))
				if left := err == nil; left != (marker == test.marker) {
					t.Errorf("pre-stop left %s: %t, want %q", marker, left, test.marker)
				}
			}
			calls, err := os.ReadFile(filepath.Join(root, "calls"))
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			if got := strings.ReplaceAll(string(calls), root, "ROOT"); got != call {
				t.Errorf("called:\n%s\nwant:\n%s", got, call)
			}
		})
	}
}

// TestControlVMsHandOver runs the drain scripts of a control VM with a fake of our program that fails. They must not
// fail the deploy, and with a single API server, only etcd's runs it: nothing can take over, and other drain scripts
// need the API.
func TestControlVMsHandOver(t *testing.T) {
	const log = " --log=ROOT/sys/log/JOB/drain.stderr.log"
	for job, arguments := range map[string]string{
		"etcd":           "move-etcd-leader" + log + " --config=ROOT/jobs/etcd/config/members.json",
		"kube-apiserver": "stop-process --job=JOB --timeout=34s --again-after=14s" + log,
		"kube-controller-manager": "stop-process --job=JOB --timeout=20s --lease=JOB " +
			"--kubeconfig=ROOT/jobs/JOB/config/kubeconfig.json" + log,
		"kube-scheduler": "stop-process --job=JOB --timeout=20s" + log,
		"cloud-controller-manager": "stop-process --job=JOB --timeout=20s --lease=JOB " +
			"--kubeconfig=ROOT/jobs/JOB/config/kubeconfig.json" + log,
		"openstack-cloud-controller-manager": "stop-process --job=JOB --timeout=20s --lease=cloud-controller-manager " +
			"--kubeconfig=ROOT/jobs/JOB/config/kubeconfig.json" + log,
		"aws-load-balancer-controller": "stop-process --job=JOB --timeout=20s --lease=JOB-leader " +
			"--kubeconfig=ROOT/jobs/JOB/config/kubeconfig.json" + log,
	} {
		for name, instances := range map[string]int{"three": 3, "one": 1} {
			t.Run(job+"/"+name, func(t *testing.T) {
				root := t.TempDir()
				in := inputFor(t, job).linked(cloudLink(job))
				in.Instances = instances
				rendered := mustRender(t, job, in)
				drain := filepath.Join(root, "jobs", job, "bin/drain")
				for path, content := range map[string]string{
					drain: strings.ReplaceAll(string(rendered["bin/drain"]), "/var/vcap", root),
					filepath.Join(root, "jobs", job, "config/lease"): string(rendered["config/lease"]),
					filepath.Join(root, "packages/helpers/bin/kube-tools"): "#!/bin/bash\necho noise\necho " +
						"\"$*\" >>" + root + "/calls\nexit 1\n",
				} {
					if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
						t.Fatal(err)
					}
				}
				output, err := exec.Command(drain, "job_shutdown", "hash_unchanged").Output()
				if err != nil || string(output) != "0\n" {
					t.Errorf("drain wrote %q (%v): the agent accepts a number only", output, err)
				}
				calls, err := os.ReadFile(filepath.Join(root, "calls"))
				if err != nil && !os.IsNotExist(err) {
					t.Fatal(err)
				}
				want := strings.ReplaceAll(arguments, "JOB", job) + "\n"
				if instances == 1 && job != "etcd" {
					want = ""
				}
				if got := strings.ReplaceAll(string(calls), root, "ROOT"); got != want {
					t.Errorf("called %q, want %q", got, want)
				}
			})
		}
	}
}

// TestAPIServersServeBeforeTheyClose is that an API server serves for a second at least after its drain has started,
// and that the drain waits for it.
func TestAPIServersServeBeforeTheyClose(t *testing.T) {
	for delay, want := range map[int]struct{ flag, drain string }{
		0: {"1s", "--timeout=31s --again-after=11s"},
		1: {"1s", "--timeout=31s --again-after=11s"},
		4: {"4s", "--timeout=34s --again-after=14s"},
	} {
		in := inputFor(t, "kube-apiserver")
		in.Properties = merge(in.Properties, values{"api": values{"shutdown_delay": delay}})
		rendered := mustRender(t, "kube-apiserver", in)
		flags := decode[values](t, rendered["config/flags.json"])["flags"].(values)
		if got := flags["shutdown-delay-duration"]; got != want.flag {
			t.Errorf("api.shutdown_delay %d: --shutdown-delay-duration=%v, want %s", delay, got, want.flag)
		}
		if drain := string(rendered["bin/drain"]); !strings.Contains(drain, want.drain) {
			t.Errorf("api.shutdown_delay %d: drain has no %s:\n%s", delay, want.drain, drain)
		}
	}
}

// TestKubeletStaysStoppedAfterDrain starts kubelet as monit may do right after drain has stopped it, after the next
// pre-start, and after a pre-stop that no drain follows, because that of another job refuses.
func TestKubeletStaysStoppedAfterDrain(t *testing.T) {
	root, run := kubeletScripts(t, `echo "$1" >>ROOT/calls`)
	left, victim := filepath.Join(root, "sys/run/kubelet/left"), filepath.Join(root, "passwd")
	if err := errors.Join(
		os.WriteFile(victim, []byte("root"), 0o600), os.Symlink(victim, left), // as vcap could do
	); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ command, calls string }{
		{"ctl start", "start\n"},
		{"pre-stop", ""}, // the VM is going to be deleted
		{"ctl start", "start\n"},
		{"drain", ""},
		{"ctl stop", "stop\n"},
		{"ctl start", ""},
		{"pre-start", "check\nstop\n"}, // it was not deleted
		{"ctl start", "start\n"},
		{"drain", ""},
		{"pre-stop", ""},
		{"ctl start", "start\n"},
	} {
		if step.command == "drain" { // what drain.Leave leaves
			if err := os.WriteFile(left, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.RemoveAll(filepath.Join(root, "calls")); err != nil {
			t.Fatal(err)
		}
		run(step.command)
		if calls, _ := os.ReadFile(filepath.Join(root, "calls")); string(calls) != step.calls {
			t.Errorf("%s called the launcher with %q, want %q", step.command, calls, step.calls)
		}
	}
	if content, err := os.ReadFile(victim); err != nil || string(content) != "root" {
		t.Errorf("a link was followed: %q, %v", content, err)
	}
}

// TestKubeletThatStillRunsGetsAKubeconfig: its start writes the kubeconfig, and does nothing if it runs.
func TestKubeletThatStillRunsGetsAKubeconfig(t *testing.T) {
	root, run := kubeletScripts(t, `case $1 in
start) [[ -e ROOT/running ]] || touch ROOT/running ROOT/data/kubelet/kubeconfig ;;
stop) rm -f ROOT/running ;;
esac`)
	for _, command := range []string{"pre-start", "ctl start", "pre-start", "ctl start"} {
		run(command)
	}
	if _, err := os.Stat(filepath.Join(root, "data/kubelet/kubeconfig")); err != nil {
		t.Errorf("after pre-start and start of a kubelet that ran: %v", err)
	}
}

// TestAllocationHasItsSettings: with another value of one of these kubelet does not start unless its state is removed,
// with another value of others it does.
func TestAllocationHasItsSettings(t *testing.T) {
	want := values{
		"config": values{
			"cpuManagerPolicy": "static", "cpuManagerPolicyOptions": values{"full-pcpus-only": "true"},
			"featureGates": values{"InPlacePodVerticalScaling": false}, "memoryManagerPolicy": "Static",
			"reservedMemory":     []any{values{"numaNode": 0.0, "limits": values{"memory": "512Mi"}}},
			"reservedSystemCPUs": "0", "topologyManagerPolicy": "restricted", "topologyManagerScope": "pod",
			"topologyManagerPolicyOptions": values{"prefer-closest-numa-nodes": "true"},
		},
		"extra_args": values{
			"cpu-manager-policy": "static", "cpu-manager-policy-options": "full-pcpus-only=true",
			"feature-gates": "InPlacePodVerticalScaling=false", "memory-manager-policy": "Static",
			"reserved-cpus": "0", "reserved-memory": "0:memory=512Mi", "topology-manager-policy": "restricted",
			"topology-manager-policy-options": "prefer-closest-numa-nodes=true", "topology-manager-scope": "pod",
		},
		"kube_reserved": values{"cpu": "200m"}, "system_reserved": values{"cpu": "1"},
	}
	given := merge(want, values{
		"config": values{"serializeImagePulls": false}, "extra_args": values{"registry-burst": 20}, "max_pods": 50,
		"kube_reserved": values{"memory": "1Gi"}, "system_reserved": values{"memory": "1Gi"},
	})
	files := mustRender(t, "kubelet", inputFor(t, "kubelet").with(given))
	if got := decode[values](t, files["config/allocation.json"]); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}

// kubeletScripts returns a directory with the scripts of job kubelet, and a function that runs one as if the VM was
// about to be deleted. launcher is what kube-launcher does, where ROOT is the directory.
func kubeletScripts(t *testing.T, launcher string) (root string, run func(command string)) {
	t.Helper()
	scripts := mustRender(t, "kubelet", inputFor(t, "kubelet").linked(awsLink))
	root = t.TempDir()
	launcher = "#!/bin/bash\n" + strings.ReplaceAll(launcher, "ROOT", root) + "\n"
	files := map[string][]byte{
		"packages/helpers/bin/kube-launcher": []byte(launcher),
		"packages/helpers/bin/kube-tools":    []byte("#!/bin/bash\n"),
		"sys/run/kubelet/x":                  nil,
		"data/kubelet/x":                     nil,
	}
	for _, script := range []string{"pre-start", "pre-stop", "ctl"} {
		files["jobs/kubelet/bin/"+script] = below(root, scripts["bin/"+script])
	}
	for path, content := range files {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return root, func(line string) {
		t.Helper()
		words := strings.Fields(line)
		command := exec.Command(filepath.Join(root, "jobs/kubelet/bin", words[0]), words[1:]...)
		command.Env = []string{
			"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "BOSH_VM_NEXT_STATE=delete", "BOSH_DEPLOYMENT_NEXT_STATE=keep",
		}
		if output, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, output)
		}
	}
}

// TestContainerdTakesTheCNIFromTheLink: a job of another release has its configuration and its programs where it wants.
func TestContainerdTakesTheCNIFromTheLink(t *testing.T) {
	render := func(link values) (string, error) {
		files, err := renderJob(t, "containerd", inputFor(t, "containerd").linked(map[string]values{"cni": link}))
		return string(files["config/config.toml"]), err
	}
	config, err := render(
		values{"conf_dir": "/var/vcap/data/mine/conf", "bin_dirs": []any{"/var/vcap/packages/mine/bin"}},
	)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`conf_dir = "/var/vcap/data/mine/conf"`, `conf_template = ""`,
		`bin_dirs = ["/var/vcap/packages/mine/bin", "/var/vcap/packages/cni-plugins/bin", "/var/vcap/data/cni/bin"]`,
	} {
		if !strings.Contains(config, want) {
			t.Errorf("config.toml lacks %s:\n%s", want, config)
		}
	}
	for want, link := range map[string]values{
		"either cni_config":     {"bin_dirs": []any{"/bin"}},
		"or conf_dir":           {"cni_config": values{"name": "x"}, "conf_dir": "/conf"},
		`has the path "conf"`:   {"conf_dir": "conf"},
		`has the path "../bin"`: {"cni_config": values{"name": "x"}, "bin_dirs": []any{"../bin"}},
	} {
		if _, err := render(link); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("link %v: %v, want %q", link, err, want)
		}
	}
}

// flannel is ready when it has written its subnet file since it started.
func TestFlannelIsReadyWithANewSubnetFile(t *testing.T) {
	script := mustRender(t, "flannel", inputFor(t, "flannel"))["bin/ready"]
	now := time.Now()
	for name, test := range map[string]struct {
		subnet string
		age    time.Duration // of the subnet file, relative to the pidfile
		ready  bool
	}{
		"no subnet file":              {},
		"empty subnet file":           {age: -time.Second},
		"subnet file of the last run": {subnet: "FLANNEL_SUBNET=10.244.1.1/24\n", age: time.Second},
		"new subnet file":             {subnet: "FLANNEL_SUBNET=10.244.1.1/24\n", age: -time.Second, ready: true},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			files := map[string][]byte{
				"sys/run/flannel/flannel.pid":        []byte("7\n"),
				"sys/log/flannel/flannel.stderr.log": []byte("level=INFO msg=started\nno route to host\n"),
				"ready":                              below(root, script),
			}
			if test.age != 0 {
				files["sys/run/flannel/subnet.env"] = []byte(test.subnet)
			}
			writeAll(t, root, files)
			for path, at := range map[string]time.Time{"flannel.pid": now, "subnet.env": now.Add(-test.age)} {
				if err := os.Chtimes(filepath.Join(root, "sys/run/flannel", path), at, at); err != nil &&
					!os.IsNotExist(err) {
					t.Fatal(err)
				}
			}
			output, err := exec.Command(filepath.Join(root, "ready")).CombinedOutput()
			if test.ready != (err == nil) {
				t.Errorf("ready: %v, want %v: %s", err == nil, test.ready, output)
			}
			if !test.ready &&
				(!strings.Contains(
					string(output), "no route to host",
				) || strings.Contains(string(output), "level=INFO")) {
				t.Errorf("the output lacks the end of the log without informational lines: %s", output)
			}
		})
	}
}

// Workers, which have the default, take it from the link.
func TestChecksumOffloadIsThatOfTheControlVMs(t *testing.T) {
	control := inputFor(t, "flannel").with(values{"tx_checksum_offload": false})
	worker := inputFor(t, "flannel").linked(cniLink(t))
	for name, in := range map[string]input{"control": control, "worker": worker} {
		flags := decode[struct{ Setup []string }](t, mustRender(t, "flannel", in)["config/flags.json"])
		if !slices.Contains(flags.Setup, "--tx-checksum-offload=false") {
			t.Errorf("%s: the preparation is %q", name, flags.Setup)
		}
	}
}
