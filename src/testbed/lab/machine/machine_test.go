package machine

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const (
	debianMounts = `22 27 0:20 / /sys rw,nosuid,nodev,noexec,relatime shared:7 - sysfs sysfs rw
23 27 0:21 / /proc rw,nosuid,nodev,noexec,relatime shared:14 - proc proc rw
27 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro
30 22 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate
`
	allCapabilities = "Name:\tmachine\nCapEff:\t000001ffffffffff\n"
	modules         = `kernel/fs/overlayfs/overlay.ko:
kernel/drivers/net/veth.ko.xz:
kernel/net/bridge/bridge.ko: kernel/net/802/stp.ko
kernel/net/bridge/br_netfilter.ko: kernel/net/bridge/bridge.ko
kernel/drivers/net/vxlan/vxlan.ko:
kernel/net/netfilter/nf_conntrack.ko:
kernel/net/netfilter/nf_tables.ko:
`
)

// debian are the files of a stock Debian 12.
func debian() map[string]string {
	files := map[string]string{
		"proc/self/mountinfo":                        debianMounts,
		"proc/self/status":                           allCapabilities,
		"proc/self/uid_map":                          "         0          0 4294967295\n",
		"proc/cmdline":                               "BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro quiet",
		"proc/meminfo":                               "MemTotal: 16000000 kB\nMemAvailable: 12000000 kB\n",
		"proc/swaps":                                 "Filename Type Size Used Priority\n",
		"proc/modules":                               "overlay 163840 0 - Live 0x0000000000000000\n",
		"proc/sys/kernel/osrelease":                  "6.1.0-37-amd64\n",
		"sys/fs/cgroup/cgroup.controllers":           "cpuset cpu io memory hugetlb pids rdma misc\n",
		"sys/fs/cgroup/cgroup.procs":                 "1\n",
		"dev/loop-control":                           "",
		"lib/modules/6.1.0-37-amd64/modules.dep":     modules,
		"lib/modules/6.1.0-37-amd64/modules.builtin": "kernel/drivers/block/loop.ko\n",
	}
	for _, kind := range []string{"cgroup", "ipc", "mnt", "net", "pid", "user", "uts"} {
		files["proc/self/ns/"+kind] = ""
	}
	return files
}

// version1 are the files of a machine with cgroup v1 and a kernel without modules.
func version1(files map[string]string) {
	mounts := strings.Replace(debianMounts, "cgroup2 cgroup2 rw,nsdelegate", "tmpfs tmpfs ro", 1)
	for _, name := range []string{"cpu,cpuacct", "cpuset", "memory", "pids", "devices", "freezer", "name=systemd"} {
		mounts += "31 30 0:27 / /sys/fs/cgroup/" + name + " rw,relatime - cgroup cgroup rw," + name + "\n"
	}
	files["proc/self/mountinfo"] = mounts
	delete(files, "sys/fs/cgroup/cgroup.controllers")
	maps.DeleteFunc(files, func(path, _ string) bool { return strings.HasPrefix(path, "lib/modules") })
}

func lay(t *testing.T, files map[string]string) Machine {
	t.Helper()
	root := t.TempDir()
	for path, content := range files {
		file := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return Machine{Root: root, Architecture: "amd64", Checkout: "/root/kubernetes-release", FreeDisk: 20 << 30}
}

func TestProblems(t *testing.T) {
	replace := func(path, old, by string) func(map[string]string) {
		return func(files map[string]string) {
			if !strings.Contains(files[path], old) {
				panic(path + " has no " + old)
			}
			files[path] = strings.ReplaceAll(files[path], old, by)
		}
	}
	with := func(path, content string) func(map[string]string) {
		return func(files map[string]string) { files[path] = content }
	}
	without := func(path string) func(map[string]string) {
		return func(files map[string]string) { delete(files, path) }
	}
	const mounts, status = "proc/self/mountinfo", "proc/self/status"
	for name, test := range map[string]struct {
		files   func(map[string]string)
		machine func(*Machine)
		want    []string // of the one problem
		note    string
	}{
		"a stock Debian 12": {},
		"cgroup v1":         {files: version1},
		"processes hidden":  {files: replace(mounts, "proc proc rw", "proc proc rw,hidepid=invisible")},
		"not root":          {machine: func(m *Machine) { m.UserID = 1000 }, want: []string{"run make as root"}},
		"arm64":             {machine: func(m *Machine) { m.Architecture = "arm64" }, want: []string{"x86-64"}},
		"little memory": {
			files: replace("proc/meminfo", "12000000", "2000000"), want: []string{"1.9 GiB of", "larger machine"},
		},
		"no disk": {
			machine: func(m *Machine) { m.FreeDisk = 7 << 30 }, want: []string{"7.0 GiB free", "move the checkout"},
		},
		"no disk, but all is built": {
			machine: func(m *Machine) { m.FreeDisk = 7 << 30 },
			files:   with("root/kubernetes-release/.build/release/kubernetes.tgz", ""),
		},
		"no network namespaces": {
			files: without("proc/self/ns/net"), want: []string{"no net namespaces", "boot Debian's"},
		},
		"no cgroup namespaces": {
			files: without("proc/self/ns/cgroup"), want: []string{"no cgroup namespaces", "boot Debian's"},
		},
		"network namespaces forbidden": {
			files: with("proc/sys/user/max_net_namespaces", "0\n"),
			want:  []string{"no net namespaces", "sysctl -w user.max_net_namespaces"},
		},
		"no user namespaces":        {files: without("proc/self/ns/user"), note: "no user namespaces"},
		"user namespaces forbidden": {files: with("proc/sys/user/max_user_namespaces", "0\n"), note: "set the sysctl"},
		"an unprivileged container": {
			files: replace(status, "000001ffffffffff", "00000000a80425fb"),
			want:  []string{"root lacks CAP_NET_ADMIN, CAP_SYS_ADMIN, CAP_SYS_PTRACE, as in", "--privileged"},
		},
		"an unprivileged container of Docker": {
			files: func(files map[string]string) {
				replace(status, "000001ffffffffff", "00000000a80425fb")(files)
				replace(mounts, "/sys rw,", "/sys ro,")(files)
				replace(mounts, "/sys/fs/cgroup rw,", "/sys/fs/cgroup ro,")(files)
				files[mounts] += "50 23 0:21 /sys /proc/sys ro,nosuid,nodev,noexec,relatime - proc proc rw\n"
				files["sys/fs/cgroup/cgroup.type"] = "domain\n"
				without("dev/loop-control")(files)
			},
			want: []string{"root lacks CAP_NET_ADMIN", "use a VM", "--privileged --cgroupns=host"},
		},
		"a rootless container": {
			files: func(files map[string]string) {
				files["proc/self/uid_map"] = "         0       1000          1\n         1     100000      65536\n"
				without("dev/loop-control")(files)
			},
			want: []string{"root is another user outside", "use a VM", "--privileged"},
		},
		"an unprivileged container that hides processes": {
			files: func(files map[string]string) {
				replace(status, "000001ffffffffff", "00000000a80425fb")(files)
				replace(mounts, "proc proc rw", "proc proc rw,hidepid=2")(files)
			},
			want: []string{"hidepid=2", "--privileged"},
		},
		"a privileged container with a group of its own": {
			files: with("sys/fs/cgroup/cgroup.type", "domain\n"),
			want:  []string{"group of a container", "--cgroupns=host"},
		},
		"no tracing": {
			files: with("proc/sys/kernel/yama/ptrace_scope", "3\n"), want: []string{"ptrace_scope is 3", "reboot"},
		},
		"/sys read-only": {
			files: replace(mounts, "/sys rw,", "/sys ro,"), want: []string{"/sys is read-only", "remount,rw /sys"},
		},
		"control groups read-only": {
			files: replace(mounts, "/sys/fs/cgroup rw,", "/sys/fs/cgroup ro,"),
			want:  []string{"/sys/fs/cgroup is read-only", "remount,rw /sys/fs/cgroup"},
		},
		"no loop devices": {files: without("dev/loop-control"), want: []string{"modprobe loop", "--privileged"}},
		"a controller disabled": {
			files: func(files map[string]string) {
				replace("sys/fs/cgroup/cgroup.controllers", " memory", "")(files)
				replace("proc/cmdline", "quiet", "cgroup_disable=memory")(files)
			},
			want: []string{"cgroup v2 has no controller memory", "remove cgroup_disable"},
		},
		"a controller missing in v1": {
			files: func(files map[string]string) {
				version1(files)
				replace(mounts, "pids", "rdma")(files)
			},
			want: []string{"cgroup v1 has no controller pids"},
		},
		"no control groups": {
			files: func(files map[string]string) {
				version1(files)
				replace(mounts, "cgroup cgroup", "none none")(files)
			},
			want: []string{"no control groups are mounted"},
		},
		"a checkout without programs": {
			files: replace(mounts, "/ / rw,", "/ / rw,noexec,"), want: []string{"mounted noexec", "remount,exec /"},
		},
		"a checkout in a container": {
			files: replace(mounts, "ext4", "overlay"), want: []string{"on an overlay", "ext4 or XFS"},
		},
		"a module missing": {
			files: replace("lib/modules/6.1.0-37-amd64/modules.dep", "vxlan.ko", "x.ko"),
			want:  []string{"no module vxlan", "linux-image-amd64"},
		},
		"an updated kernel": {
			files: replace("proc/sys/kernel/osrelease", "6.1.0-37", "6.1.0-35"), want: []string{"gone", "reboot"},
		},
		"a kernel without modules, and those of another": {
			files: func(files map[string]string) {
				files["proc/sys/kernel/osrelease"] = "6.18.44-custom\n"
				delete(files, "proc/modules")
			},
		},
		"WSL2": {
			files: func(files map[string]string) {
				version1(files)
				files["proc/sys/kernel/osrelease"] = "5.15.167.4-microsoft-standard-WSL2\n"
			},
			note: "This is WSL2",
		},
	} {
		t.Run(name, func(t *testing.T) {
			files := debian()
			if test.files != nil {
				test.files(files)
			}
			m := lay(t, files)
			if test.machine != nil {
				test.machine(&m)
			}
			problems, notes := m.Problems()
			if len(problems) > 1 || (len(problems) == 1) != (test.want != nil) {
				t.Fatalf("problems: %q, want %q", problems, test.want)
			}
			for _, want := range test.want {
				if !strings.Contains(problems[0], want) {
					t.Errorf("%q lacks %q", problems[0], want)
				}
			}
			if all := strings.Join(notes, "\n"); (all != "") != (test.note != "") || !strings.Contains(all, test.note) {
				t.Errorf("notes: %q, want %q", all, test.note)
			}
		})
	}
}

// TestSettings: a lab has production's settings where the machine can.
func TestSettings(t *testing.T) {
	for name, test := range map[string]struct {
		change    func(map[string]string)
		variables string
		notes     []string
	}{
		"a stock Debian 12": {
			variables: "map[lab_containerd_oom_score:-999 lab_fail_cgroup_v1:true lab_fail_swap_on:true " +
				"lab_restrict_oom_score_adj:false]",
			notes: []string{"cgroup_driver: cgroupfs"},
		},
		"cgroup v1, swap, and a container's capabilities": {
			change: func(files map[string]string) {
				version1(files)
				files["proc/swaps"] += "/dev/sda2 partition 1 0 -2\n"
				files["proc/self/status"] = "CapEff:\t000001fffeffffff\n"
			},
			variables: "map[lab_containerd_oom_score:0 lab_fail_cgroup_v1:false lab_fail_swap_on:false " +
				"lab_restrict_oom_score_adj:true]",
			notes: []string{"cgroup_driver: cgroupfs", "fail_cgroup_v1: false", "fail_swap_on: false", "oom_score: 0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			files := debian()
			if test.change != nil {
				test.change(files)
			}
			variables, notes := lay(t, files).Settings()
			if got := fmt.Sprint(variables); got != test.variables {
				t.Errorf("got  %s\nwant %s", got, test.variables)
			}
			if !slices.EqualFunc(notes, test.notes, strings.Contains) {
				t.Errorf("notes: %q, want %q", notes, test.notes)
			}
		})
	}
}
