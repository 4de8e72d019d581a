package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/process"
	"kubernetes-release/testbed/lab/network"
	"kubernetes-release/testbed/lab/network/networktest"
)

func TestMain(m *testing.M) {
	MaybeRunInit()
	os.Exit(m.Run())
}

// lab creates a network for a test and checks that nothing is left of it when the test has ended.
func lab(t *testing.T) (network.Network, string) {
	t.Helper()
	state := t.TempDir()
	var n network.Network
	t.Cleanup(func() { // after the network has been removed
		if t.Skipped() {
			return
		}
		if left, err := Leftovers(n, state); err != nil || len(left) > 0 {
			t.Errorf("left behind: %q, error %v", left, err)
		}
	})
	n = networktest.New(t)
	return n, state
}

func address(n network.Network, c, d byte) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(n.Number), c, d})
}

func create(t *testing.T, s Spec) *VM {
	t.Helper()
	v, err := Create(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { destroy(t, v) })
	return v
}

func destroy(t *testing.T, v *VM) {
	t.Helper()
	if err := v.Destroy(context.Background()); err != nil {
		t.Error(err)
	}
}

// sh runs a script in the VM and returns what it wrote.
func sh(t *testing.T, v *VM, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var out bytes.Buffer
	if err := v.Run(ctx, []string{"sh", "-euc", script}, RunOptions{Stdout: &out, Stderr: &out}); err != nil {
		t.Errorf("%s: %v\n%s", script, err, out.String())
	}
	return strings.TrimSpace(out.String())
}

// reach is a script that prints "refused" if a machine answers at address; no process listens on port 9.
func reach(address string) string {
	return "timeout 3 bash -c 'echo > /dev/tcp/" + address + "/9' 2>&1 | grep -o refused | head -1"
}

func TestVMIsIsolatedFromTheHost(t *testing.T) {
	n, state := lab(t)
	disk := filepath.Join(state, "disks", "one")
	v := create(
		t,
		Spec{
			Name:           "one",
			StateDir:       state,
			Network:        n,
			Address:        address(n, 16, 4),
			Hostname:       "one.internal",
			PersistentDisk: disk,
		},
	)
	if !v.Alive() {
		t.Fatal("not alive after Create")
	}
	for _, c := range []struct{ what, script, want string }{
		{"host name", "hostname; cat /etc/hostname", "one.internal\none.internal"},
		{"init is ours", "tr '\\0' ' ' < /proc/1/cmdline", "lab vm-init one"},
		{
			"few processes", "ps -e -o comm= | grep -v -e ps -e sh -e grep -e sort -e xargs | sort | xargs",
			"monit vm-init",
		},
		{"address", "ip -4 -br addr show eth0 | awk '{print $3}'", address(n, 16, 4).String() + "/16"},
		{"gateway", "ip route show default | awk '{print $3}'", n.Gateway().String()},
		{"user vcap", "id vcap", "uid=1000(vcap) gid=1000(vcap) groups=1000(vcap)"},
		{"own control groups", "sed 's#^0::/init$#0::/#' /proc/self/cgroup | cut -d: -f3 | sort -u", "/"},
		{"init's control groups", "sed 's#^0::/init$#0::/#' /proc/1/cgroup | cut -d: -f3 | sort -u", "/"},
		{"control groups are writable", "cd /sys/fs/cgroup; limit=cgroup.max.depth; if [ -d memory ]; then " +
			"cd memory; limit=memory.limit_in_bytes; fi; mkdir x; echo 4096 > x/$limit; cat x/$limit; rmdir x", "4096"},
		{"controllers of cgroup v2 are delegated", "cd /sys/fs/cgroup; test ! -e cgroup.controllers || " +
			"diff cgroup.controllers cgroup.subtree_control; echo ok", "ok"},
		{"overlay", "cd /var/vcap/data; mkdir l u w m; mount -t overlay o -o lowerdir=l,upperdir=u,workdir=w m; " +
			"touch m/file; ls u; umount m; rm -rf l u w m", "file"},
		{"root is shared", "findmnt -no PROPAGATION /; mkdir /tmp/a; mount -t tmpfs t /tmp/a; findmnt -no " +
			"PROPAGATION /tmp/a; umount /tmp/a", "shared\nshared"},
		{"no programs in directories for temporary files and logs",
			"for d in /tmp /var/tmp /var/log /dev/shm; do cp /bin/true $d/x; ! $d/x 2> /dev/null || echo $d; rm " +
				"$d/x; done; echo none", "none"},
		{"bridge", "ip link add cni0 type bridge; ip -br link show cni0 | cut -d' ' -f1; ip link del cni0", "cni0"},
		{"vxlan", "ip link add v0 type vxlan id 1 dev eth0 dstport 8472; ip link del v0; echo ok", "ok"},
		{"nftables", "nft add table ip t; nft list tables; nft delete table ip t", "table ip t"},
		{"kernel log", "test -c /dev/kmsg; dd if=/dev/kmsg of=/dev/null bs=8k count=1 2> /dev/null; echo ok", "ok"},
		{"network settings", "echo 1 > /proc/sys/net/ipv4/ip_forward; cat /proc/sys/net/ipv4/ip_forward", "1"},
		{"host settings are shielded", "echo 7 > /proc/sys/kernel/panic; cat /proc/sys/kernel/panic", "7"},
		{"user namespaces have /proc and /sys", "unshare --user --map-root-user --mount --pid --net --fork sh -euc " +
			"'mount -t proc -o nosuid,nodev,noexec p /mnt; mount -t sysfs -o nosuid,nodev,noexec s /mnt; " +
			"echo ok'", "ok"},
		{
			"no programs that stemcells lack", "for p in conntrack socat; do ! command -v $p || exit 1; done; echo ok",
			"ok",
		},
		{"programs are read-only", "touch /usr/bin/x 2>&1 || true", "touch: cannot touch '/usr/bin/x': Read-only " +
			"file system"},
		{"pseudo terminals", "script -qec 'echo ok' /dev/null | tr -d '\\r'", "ok"},
		{"ephemeral disk's directories", "readlink -f /var/vcap/sys/log", "/var/vcap/data/sys/log"},
		{
			"run directory",
			"findmnt -bno FSTYPE,SIZE /var/vcap/sys/run/ | xargs; stat -c '%a %U %G' /var/vcap/sys/run/",
			"tmpfs 16777216\n1777 root vcap",
		},
		{"persistent disk", "touch /var/vcap/store/kept; mountpoint /var/vcap/store", "/var/vcap/store is a " +
			"mountpoint"},
		{"monit", "monit status | head -1 | cut -d' ' -f1", "Monit"},
		{"gateway answers", reach(n.Gateway().String()), "refused"},
		{"metadata address answers", reach("169.254.169.254"), "refused"},
		{"host answers", reach(n.HostAddress().String()), "refused"},
		{"other networks are unreachable without a timeout", "timeout 3 bash -c 'echo > /dev/tcp/192.0.2.1/80' 2>&1 " +
			"| grep -o 'unreachable' | head -1", "unreachable"},
	} {
		if got := sh(t, v, c.script); got != c.want {
			t.Errorf("%s: got %q, want %q", c.what, got, c.want)
		}
	}
	if content, err := os.ReadFile("/proc/sys/kernel/panic"); err != nil || strings.TrimSpace(string(content)) == "7" {
		t.Errorf("the VM changed the host's kernel.panic: %q, %v", content, err)
	}
	destroy(t, v)
	if _, err := os.Stat(filepath.Join(disk, "kept")); err != nil {
		t.Errorf("the persistent disk didn't outlive the VM: %v", err)
	}
	if _, err := Open(state, "one"); !errors.Is(err, ErrNotFound) {
		t.Errorf("Open after Destroy: got %v, want ErrNotFound", err)
	}
}

func TestVMsReachEachOtherOnTheNetworkOnly(t *testing.T) {
	n, state := lab(t)
	one := create(t, Spec{Name: "one", StateDir: state, Network: n, Address: address(n, 16, 4)})
	two := create(t, Spec{Name: "two", StateDir: state, Network: n, Address: address(n, 32, 4)})
	if got := sh(t, one, reach(two.Spec.Address.String())); got != "refused" {
		t.Errorf("VM two at %s doesn't answer: %q", two.Spec.Address, got)
	}
	if got := sh(t, two, "test -e /var/vcap/data/mark || echo none"); got != "none" {
		t.Errorf("VM two sees files of another: %q", got)
	}
	sh(t, one, "touch /var/vcap/data/mark /run/mark /tmp/mark")
	sh(t, two, "! ls -d /var/vcap/data/mark /run/mark /tmp/mark")
	if pids := sh(t, two, "ps -e -o args= | grep -c '[v]m-init'"); pids != "1" {
		t.Errorf("VM two sees %s inits, want its own only", pids)
	}
}

func TestRunReportsExitCodesAndErrors(t *testing.T) {
	n, state := lab(t)
	v := create(t, Spec{Name: "one", StateDir: state, Network: n, Address: address(n, 16, 4)})
	var failed *ExitError
	if err := v.Run(t.Context(), []string{"sh", "-c", "exit 3"}, RunOptions{}); !errors.As(err, &failed) ||
		failed.Code != 3 {
		t.Errorf("exit 3: got %v", err)
	}
	if err := v.Run(t.Context(), []string{"sh", "-c", "kill -9 $$"}, RunOptions{}); !errors.As(err, &failed) ||
		failed.Code != 137 {
		t.Errorf("kill -9: got %v", err)
	}
	if err := v.Run(t.Context(), []string{"no-such-program"}, RunOptions{}); err == nil || errors.As(err, &failed) {
		t.Errorf("missing program: got %v, want an error other than an ExitError", err)
	}
	var out bytes.Buffer
	err := v.Run(
		t.Context(),
		[]string{"sh", "-c", "read line; echo $line; id -un; pwd; echo $HOME $EXTRA; env | grep -c SECRET"},
		RunOptions{
			Dir:    "/var/vcap",
			Env:    map[string]string{"EXTRA": "more"},
			Stdin:  strings.NewReader("hello\n"),
			Stdout: &out,
		},
	)
	if want := "hello\nroot\n/var/vcap\n/root more\n0\n"; out.String() != want {
		t.Errorf("got %q (error %v), want %q", out.String(), err, want)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	started := time.Now()
	err = v.Run(ctx, []string{"sh", "-c", "sleep 1000 & sleep 1000"}, RunOptions{})
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(started) > 30*time.Second {
		t.Errorf("deadline: got %v after %s", err, time.Since(started))
	}
	if got := sh(t, v, "ps -e -o comm= | grep -c sleep || true"); got != "0" {
		t.Errorf("%s processes of a canceled command still run", got)
	}
}

func TestAnotherProcessCanFindAndStopTheVM(t *testing.T) {
	n, state := lab(t)
	create(t, Spec{Name: "one", StateDir: state, Network: n, Address: address(n, 16, 4)})
	v, err := Open(state, "one") // as another process does, which has only the record
	if err != nil {
		t.Fatal(err)
	}
	if got := sh(t, v, "hostname"); got != "one" {
		t.Errorf("host name %q", got)
	}
	if names, err := List(state); err != nil || len(names) != 1 || names[0] != "one" {
		t.Errorf("List: %q, %v", names, err)
	}
	if _, err := Create(t.Context(), v.Spec); err == nil {
		t.Error("a second VM with the same name was created")
	}
	if !v.Alive() {
		t.Fatal("the refused Create killed the VM")
	}
	if err := v.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if v.Alive() {
		t.Error("alive after Shutdown")
	}
	if err := v.Run(t.Context(), []string{"true"}, RunOptions{}); !errors.Is(err, errNotRunning) {
		t.Errorf("Run after Shutdown: %v", err)
	}
}

func TestInitRestartsMonitAndReapsZombies(t *testing.T) {
	n, state := lab(t)
	v := create(t, Spec{Name: "one", StateDir: state, Network: n, Address: address(n, 16, 4)})
	sh(t, v, "(sleep 0.05 &) ; (setsid true &)")
	first := sh(t, v, "cat /run/monit.pid")
	sh(t, v, "kill -9 "+first)
	eventually.Succeeds(t, 30*time.Second, "monit is restarted", func() error {
		if sh(t, v, "monit status >/dev/null 2>&1 && cat /run/monit.pid || echo "+first) == first {
			return errors.New("it still has the old PID, or does not answer")
		}
		return nil
	})
	if got := sh(t, v, "ps -e -o stat= | grep -c Z || true"); got != "0" {
		t.Errorf("%s zombies", got)
	}
}

func TestCreateReplacesADeadVM(t *testing.T) {
	n, state := lab(t)
	spec := Spec{Name: "one", StateDir: state, Network: n, Address: address(n, 16, 4)}
	first := create(t, spec)
	sh(t, first, "setsid sleep 1000 > /dev/null 2>&1 & touch /var/vcap/data/old")
	if err := unix.Kill(first.PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := first.awaitExit(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := create(t, spec)
	sh(t, second, "test ! -e /var/vcap/data/old")
}

func TestFailedCreateLeavesNothing(t *testing.T) {
	n, state := lab(t)
	spec := Spec{
		Name:     "one",
		StateDir: state,
		Network:  n,
		Address:  address(n, 16, 4),
		Hostname: strings.Repeat("x", 65),
	} // one byte more than Linux allows
	v, err := Create(t.Context(), spec)
	if err == nil {
		destroy(t, v)
		t.Fatal("a VM whose init fails was created")
	}
	if !strings.Contains(err.Error(), "init: setting the host name") {
		t.Errorf("the error does not say why init failed: %v", err)
	}
	if left, err := Leftovers(network.Network{Number: n.Number}, state); err != nil || len(left) > 2 {
		t.Errorf("left behind: %q, error %v", left, err) // the network itself: a namespace and an interface
	}
}

func TestFullDiskLeavesNothing(t *testing.T) {
	n, state := lab(t)
	if err := unix.Mount("small", state, "tmpfs", 0, "size=256k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(state, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	spec := Spec{Name: "one", StateDir: state, Network: n, Address: address(n, 16, 4)}
	v, err := Create(t.Context(), spec)
	if err == nil {
		destroy(t, v)
		t.Fatal("a VM was created on a disk of 256 KiB")
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Errorf("got %v, want no space left", err)
	}
	if names, err := List(state); err != nil || len(names) != 0 {
		t.Errorf("left behind: %q, %v", names, err)
	}
}

func TestDestroyRemovesAVMCreatedInPart(t *testing.T) {
	n, state := lab(t)
	spec := Spec{Name: "one", StateDir: state, Network: n, Address: address(n, 16, 4)}
	// What exists when the creator is killed just before it sends the spec: files, groups, a process in them, an
	// interface.
	v := &VM{Spec: spec, record: record{Spec: spec}}
	if err := os.MkdirAll(spec.dir(), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(v.record.save(), populateRoot(spec), spec.createCgroups()); err != nil {
		t.Fatal(err)
	}
	child, err := startInit(spec)
	if err != nil {
		t.Fatal(err)
	}
	defer child.close()
	pid := child.cmd.Process.Pid
	if err := errors.Join(spec.joinCgroups(pid, spec.cgroup), n.Attach(pid, spec.Address)); err != nil {
		t.Fatal(err)
	}
	found, err := Open(state, "one") // the record has no PID yet
	if err != nil {
		t.Fatal(err)
	}
	if found.Alive() {
		t.Error("a VM that has not booted is alive")
	}
	destroy(t, found)
}

func TestInitExitsWithoutASpec(t *testing.T) {
	n, state := lab(t)
	spec := Spec{Name: "one", StateDir: state, Network: n, Address: address(n, 16, 4)}
	if err := os.MkdirAll(spec.dir(), 0o755); err != nil {
		t.Fatal(err)
	}
	child, err := startInit(spec)
	if err != nil {
		t.Fatal(err)
	}
	child.close() // as if the creating process had been killed
	t.Cleanup(func() { _ = child.cmd.Process.Kill() })
	eventually.Succeeds(t, 30*time.Second, "init exits when nobody can send its spec", func() error {
		if stat, err := process.Read(child.cmd.Process.Pid); err == nil && !stat.Ended() {
			return fmt.Errorf("init runs: %+v", stat)
		}
		return nil
	})
	if err := os.RemoveAll(spec.dir()); err != nil {
		t.Fatal(err)
	}
}

func TestRefusesInvalidSpecs(t *testing.T) {
	n := network.Network{Number: 42}
	good := Spec{Name: "worker-0", StateDir: "/lab", Network: n, Address: address(n, 16, 4)}
	if err := good.check(); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*Spec){
		"empty name":        func(s *Spec) { s.Name = "" },
		"name with a path":  func(s *Spec) { s.Name = "../x" },
		"name too long":     func(s *Spec) { s.Name = strings.Repeat("a", 64) },
		"relative state":    func(s *Spec) { s.StateDir = "lab" },
		"foreign address":   func(s *Spec) { s.Address = netip.MustParseAddr("10.43.0.9") },
		"no address":        func(s *Spec) { s.Address = netip.Addr{} },
		"gateway's address": func(s *Spec) { s.Address = n.Gateway() },
		"relative disk":     func(s *Spec) { s.PersistentDisk = "disk" },
	} {
		s := good
		if change(&s); s.check() == nil {
			t.Errorf("%s was accepted", what)
		}
	}
}

func TestHierarchies(t *testing.T) {
	of := func(mounts string) []hierarchy {
		t.Helper()
		parsed, err := mountinfo.GetMountsFromReader(strings.NewReader(mounts), nil)
		if err != nil {
			t.Fatal(err)
		}
		return hierarchiesOf(parsed)
	}
	got := of(`30 24 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
32 30 0:28 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
33 30 0:29 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
34 30 0:30 / /elsewhere/memory rw,relatime - cgroup cgroup rw,memory
`)
	want := []hierarchy{
		{dir: "/sys/fs/cgroup/cpu,cpuacct", options: "cpu,cpuacct"},
		{dir: "/sys/fs/cgroup/systemd", options: "none,name=systemd"},
		{dir: "/sys/fs/cgroup/unified", v2: true},
	}
	if len(got) != len(want) {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	for i := range want {
		if got[i].dir != want[i].dir || got[i].v2 != want[i].v2 || got[i].options != want[i].options {
			t.Errorf("got %+v, want %+v", got[i], want[i])
		}
	}
	if only := of("30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"); len(only) != 1 ||
		!only[0].v2 {
		t.Errorf("version 2 alone: got %+v", only)
	}
}
