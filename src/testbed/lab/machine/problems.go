package machine

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// What building the release takes: the linker of Kubernetes, and Go's caches. A cluster on one VM takes less.
const (
	neededMemory = 4 << 30
	neededDisk   = 8 << 30
)

// Problems lists what keeps a lab from running on the machine, and what to do. Notes are what need not.
func (m Machine) Problems() (problems, notes []string) {
	checks := []func() []string{
		m.wrongPlatform, m.missingPrivileges, m.missingNamespaces, m.unusableCheckout, m.missingRoom, m.missingModules,
	}
	// A container without privileges lacks these too, and the remedy is the same.
	if m.UserID != 0 || !m.inUserNamespace() && len(m.missingCapabilities()) == 0 {
		checks = append(checks, m.readOnlyMounts, m.unusableGroups, m.missingDevices)
	}
	for _, check := range checks {
		problems = append(problems, check()...)
	}
	if strings.Contains(strings.ToLower(m.read("/proc/sys/kernel/osrelease")), "microsoft") {
		notes = append(notes, "This is WSL2, on which no lab was ever seen: if it fails, use a VM with Debian 12.")
	}
	if !m.exists("/proc/self/ns/user") || m.read("/proc/sys/user/max_user_namespaces") == "0" {
		notes = append(notes, "The kernel has no user namespaces: pods with hostUsers: false will not run; set the "+
			"sysctl user.max_user_namespaces, or boot a kernel with CONFIG_USER_NS.")
	}
	return problems, notes
}

func (m Machine) wrongPlatform() []string {
	if m.Architecture != "amd64" {
		return []string{fmt.Sprintf("the machine is %s, and the release is built for amd64, as stemcells are: use an "+
			"x86-64 machine", m.Architecture)}
	}
	return nil
}

func (m Machine) missingPrivileges() []string {
	if m.UserID != 0 {
		return []string{"only root can create VMs of the lab: run make as root, such as by sudo"}
	}
	if m.read("/proc/sys/kernel/yama/ptrace_scope") == "3" { // processes of VMs start traced
		return []string{"no process can trace another (kernel.yama.ptrace_scope is 3): remove that from " +
			"/etc/sysctl.d, and reboot"}
	}
	if m.inUserNamespace() {
		return []string{"root is another user outside of this user namespace, as in a rootless container: use a VM, " +
			"or start the container as the machine's root, with --privileged --cgroupns=host"}
	}
	missing := m.missingCapabilities()
	if len(missing) == 0 {
		return nil
	}
	hidden := ""
	for option := range strings.SplitSeq(m.mountOf("/proc").VFSOptions, ",") {
		if value, ok := strings.CutPrefix(option, "hidepid="); ok && value != "0" && value != "off" {
			hidden = ", and /proc hides processes (hidepid=" + value + ")"
		}
	}
	return []string{fmt.Sprintf("root lacks %s%s, as in a container without privileges: use a VM, or start the "+
		"container with --privileged --cgroupns=host", strings.Join(missing, ", "), hidden)}
}

// inUserNamespace says that this is not the user namespace of the machine, which alone has all users.
func (m Machine) inUserNamespace() bool {
	users := strings.Fields(m.read("/proc/self/uid_map"))
	return len(users) > 0 && !slices.Equal(users, []string{"0", "0", "4294967295"})
}

func (m Machine) missingCapabilities() []string {
	var missing []string
	for capability, name := range map[int]string{
		capNetAdmin: "CAP_NET_ADMIN", capSysChroot: "CAP_SYS_CHROOT", capSysPtrace: "CAP_SYS_PTRACE",
		capSysAdmin: "CAP_SYS_ADMIN", capMknod: "CAP_MKNOD",
	} {
		if !m.capable(capability) {
			missing = append(missing, name)
		}
	}
	slices.Sort(missing)
	return missing
}

func (m Machine) missingNamespaces() []string {
	var problems []string
	for _, kind := range []string{"cgroup", "ipc", "mnt", "net", "pid", "uts"} {
		limit := "user.max_" + kind + "_namespaces"
		switch {
		case !m.exists("/proc/self/ns/" + kind):
			problems = append(problems, fmt.Sprintf(
				"the kernel has no %s namespaces, of which VMs of the lab are made: boot Debian's or Ubuntu's own "+
					"kernel", kind,
			))
		case m.read("/proc/sys/"+strings.ReplaceAll(limit, ".", "/")) == "0":
			problems = append(problems, fmt.Sprintf(
				"the kernel may create no %s namespaces, of which VMs of the lab are made: sysctl -w %s=1000", kind,
				limit,
			))
		}
	}
	return problems
}

func (m Machine) readOnlyMounts() []string {
	var problems []string
	for _, path := range []string{"/sys", "/proc/sys", "/sys/fs/cgroup"} {
		at := m.mountOf(path)
		if hasOption(at, "ro") && !(path == "/sys/fs/cgroup" && at.FSType == "tmpfs") {
			problems = append(problems, fmt.Sprintf(
				"%s is read-only, as in a container without privileges: mount -o remount,rw %s, or use a VM", path,
				at.Mountpoint,
			))
		}
	}
	return problems
}

// unusableGroups looks for the controllers that kubelet or containerd requires.
func (m Machine) unusableGroups() []string {
	required, version := []string{"cpu", "cpuset", "memory", "pids"}, "v2"
	if !m.cgroupV2() {
		required, version = append(required, "cpuacct", "devices", "freezer", "name=systemd"), "v1"
	}
	have := m.controllers()
	if len(have) == 0 && version == "v1" {
		return []string{"no control groups are mounted in /sys/fs/cgroup: mount them, as systemd does (mount -t " +
			"cgroup2 cgroup2 /sys/fs/cgroup)"}
	}
	var problems []string
	for _, name := range required {
		switch {
		case slices.Contains(have, name):
		case strings.Contains(m.read("/proc/cmdline"), "cgroup_disable="):
			problems = append(problems, fmt.Sprintf("cgroup %s has no controller %s: remove cgroup_disable from the "+
				"kernel's command line, and reboot", version, name))
		default:
			problems = append(problems, fmt.Sprintf("cgroup %s has no controller %s: boot Debian's or Ubuntu's own "+
				"kernel; in a container, delegate it or use a VM", version, name))
		}
	}
	// Only the machine's own root group has no type. A group with processes can delegate no controllers.
	if version == "v2" && m.exists("/sys/fs/cgroup/cgroup.type") && m.read("/sys/fs/cgroup/cgroup.procs") != "" {
		problems = append(problems, "/sys/fs/cgroup is the group of a container, which has processes and so can "+
			"delegate no controllers: use a VM, or start the container with --cgroupns=host")
	}
	return problems
}

func (m Machine) unusableCheckout() []string {
	at := m.mountOf(m.Checkout)
	var problems []string
	if hasOption(at, "noexec") {
		problems = append(problems, fmt.Sprintf("%s is on %s, which is mounted noexec, so no program that is built "+
			"there can run: mount -o remount,exec %s, or move the checkout", m.Checkout, at.Mountpoint, at.Mountpoint))
	}
	if at.FSType == "overlay" {
		problems = append(problems, fmt.Sprintf("%s is on an overlay, on which containers cannot mount theirs: put "+
			"it on a volume with ext4 or XFS", m.Checkout))
	}
	return problems
}

func (m Machine) missingRoom() []string {
	var problems []string
	var available uint64
	for line := range strings.Lines(m.read("/proc/meminfo")) {
		if _, err := fmt.Sscanf(line, "MemAvailable: %d kB", &available); err == nil {
			break
		}
	}
	if available *= 1024; available < neededMemory {
		problems = append(problems, fmt.Sprintf("%s of memory is available, and building and running a cluster takes "+
			"%s: stop something, or use a larger machine", gibibytes(available), gibibytes(neededMemory)))
	}
	// What is built already takes no more room.
	if m.FreeDisk < neededDisk && !m.exists(filepath.Join(m.Checkout, ".build/release/kubernetes.tgz")) {
		problems = append(problems, fmt.Sprintf("the disk of %s has %s free, and the build takes %s: free some, or "+
			"move the checkout", m.Checkout, gibibytes(m.FreeDisk), gibibytes(neededDisk)))
	}
	return problems
}

func gibibytes(n uint64) string { return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30)) }

// missingModules looks for what VMs and their containers use. A kernel without any modules, whatever packages have laid
// in /lib/modules, is asked by the deploy.
func (m Machine) missingModules() []string {
	release := m.read("/proc/sys/kernel/osrelease")
	dir := "/lib/modules/" + release
	if !m.exists("/lib/modules") || !m.exists("/proc/modules") {
		return nil
	}
	known := m.read(dir+"/modules.dep") + "\n" + m.read(dir+"/modules.builtin")
	if known == "\n" {
		return []string{fmt.Sprintf("the modules of the running kernel %s are gone from /lib/modules: reboot into the "+
			"installed one", release)}
	}
	var problems []string
	for _, name := range []string{
		"overlay", "veth", "bridge", "vxlan", "br_netfilter", "nf_conntrack", "nf_tables", "loop",
	} {
		if !strings.Contains(known, "/"+name+".ko") && !m.exists("/sys/module/"+name) {
			problems = append(problems, fmt.Sprintf("the kernel %s has no module %s: boot Debian's own kernel "+
				"(package linux-image-amd64); on Ubuntu, install linux-modules-extra-%s", release, name, release))
		}
	}
	return problems
}

func (m Machine) missingDevices() []string {
	if m.exists("/dev/loop-control") {
		return nil
	}
	return []string{"there is no /dev/loop-control, which makes volumes disks: modprobe loop; start a container with " +
		"--privileged, which gives it the machine's devices"}
}
