package vm

import (
	"os"
	"path/filepath"
	"testing"
)

// TestBootKeepsDisksOnly changes everything that a reboot resets, and disks, which it keeps.
func TestBootKeepsDisksOnly(t *testing.T) {
	n, state := lab(t)
	host := t.TempDir()
	if err := os.WriteFile(filepath.Join(host, "tool"), []byte("tool"), 0o644); err != nil {
		t.Fatal(err)
	}
	const target = "/var/vcap/data/packages/tool/1"
	v := create(
		t,
		Spec{
			Name:           "one",
			StateDir:       state,
			Network:        n,
			Address:        address(n, 16, 4),
			PersistentDisk: filepath.Join(state, "disk"),
		},
	)
	if err := v.Boot(t.Context(), nil); err == nil {
		t.Error("a running VM was booted")
	}
	sh(t, v, `touch /var/vcap/store/kept /var/vcap/data/kept /etc/kept
touch /run/gone /var/vcap/sys/run/gone /dev/shm/gone
ip link add cni0 type bridge; ip route add 192.0.2.0/24 via `+n.Gateway().String()+`
nft add table ip t
echo 1 > /proc/sys/net/ipv4/ip_forward
if [ -e /proc/sys/net/bridge ]; then echo 1 > /proc/sys/net/bridge/bridge-nf-call-iptables; fi
cd /sys/fs/cgroup; if [ -d memory ]; then cd memory; fi; mkdir gone; echo $$ > gone/cgroup.procs
setsid sleep 1000 > /dev/null 2>&1 &`)

	if err := v.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := v.Boot(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if got := sh(t, v, "ls /var/vcap/store"); got != "" {
		t.Errorf("the disk, which no agent has mounted, has %s", got)
	}
	if err := v.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := v.Boot(t.Context(), append(v.Spec.Disk(), Mount{Source: host, Target: target})); err != nil {
		t.Fatal(err)
	}
	if found, err := Open(state, "one"); err != nil || !found.Alive() || found.PID() != v.PID() {
		t.Errorf("another process finds %+v, %v", found, err)
	}
	for _, c := range []struct{ what, script, want string }{
		{
			"disks", "ls /var/vcap/store/kept /var/vcap/data/kept /etc/kept",
			"/etc/kept\n/var/vcap/data/kept\n/var/vcap/store/kept",
		},
		{"tmpfs", "find /run/gone /var/vcap/sys/run/gone /dev/shm/gone 2> /dev/null || true", ""},
		{"processes", "ps -e -o comm= | grep -c sleep || true", "0"},
		{"links", "ip -br link show type bridge", ""},
		{"routes", "ip route show 192.0.2.0/24", ""},
		{"packet filters", "nft list tables", ""},
		{"forwarding", "cat /proc/sys/net/ipv4/ip_forward", "0"},
		{"bridged packets", "cat /proc/sys/net/bridge/bridge-nf-call-iptables 2> /dev/null || echo 0", "0"},
		{"control groups", "find /sys/fs/cgroup -name gone", ""},
		{"network", reach(n.Gateway().String()), "refused"},
		{
			"mounts", "cat " + target + "/tool; touch " + target + "/x 2>&1 | grep -o 'Read-only' || true",
			"toolRead-only",
		},
		{"monit", "monit status | head -1 | cut -d' ' -f1", "Monit"},
	} {
		if got := sh(t, v, c.script); got != c.want {
			t.Errorf("%s: got %q, want %q", c.what, got, c.want)
		}
	}
}
