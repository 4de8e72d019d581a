package launcher

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// vm is the root of a VM whose modprobe loads br_netfilter only. Module overlay is loaded.
func (b *bench) vm() []string {
	b.t.Helper()
	for path, content := range map[string]string{
		"vm/sys/module/overlay/x":             "",
		"vm/proc/sys/net/ipv4/ip_forward":     "0\n",
		"vm/proc/sys/net/ipv4/ip_local_ports": "1\t2\n",
		"vm/etc/resolv.conf":                  "nameserver 127.0.0.53\nnameserver 192.0.2.1\nsearch prod.internal\n",
	} {
		b.lay(path, content)
	}
	b.lay("bin/modprobe", `#!/bin/sh
echo "$*" >>`+b.path("modprobe.calls")+`
case "$*" in
*br_netfilter*)
  mkdir -p `+b.path("vm")+`/sys/module/br_netfilter `+b.path("vm")+`/proc/sys/net/bridge
  echo 0 >`+b.path("vm")+`/proc/sys/net/bridge/bridge-nf-call-iptables ;;
esac
case "$*" in *nf_absent*) echo "FATAL: Module nf_absent not found." >&2; exit 1 ;; esac
`)
	if err := os.Chmod(b.path("bin/modprobe"), 0o755); err != nil {
		b.t.Fatal(err)
	}
	return []string{"PATH=" + b.path("bin") + ":" + os.Getenv("PATH")}
}

// lay writes a file in a directory that may not exist.
func (b *bench) lay(path, content string) {
	b.t.Helper()
	if err := os.MkdirAll(filepath.Dir(b.path(path)), 0o755); err != nil {
		b.t.Fatal(err)
	}
	b.write(path, content)
}

func (b *bench) prepared(environment []string, extra map[string]any) (int, string) {
	b.t.Helper()
	b.config("fake-daemon", extra)
	b.stopAtEnd()
	return b.launch("start", environment...)
}

// TestStartPreparesTheVM starts a process on a VM that has just booted: no pre-start has run.
func TestStartPreparesTheVM(t *testing.T) {
	b := newBench(t)
	environment := b.vm()
	// As the agent leaves it.
	if err := os.Mkdir(b.path("run"), 0o770); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(b.path("run"), 0, 1000); err != nil {
			t.Fatal(err)
		}
	}
	status, output := b.prepared(environment, map[string]any{
		"kernel_modules": []string{"overlay", "br_netfilter", "nf_absent"},
		"sysctls": map[string]any{
			"net.ipv4.ip_forward":                1,
			"net.bridge.bridge-nf-call-iptables": "1",
			"net.ipv4.ip_local_ports":            "1 2",
		},
		"directories": []any{
			map[string]any{"path": b.path("run"), "mode": "0711"},
			map[string]any{"path": b.path("data/fake"), "mode": "0750"},
		},
		"resolver_file": b.path("data/fake/resolv.conf"),
	})
	if status != 0 {
		t.Fatalf("exit status %d:\n%s", status, output)
	}
	contains(t, output, "kernel modules cannot be loaded", "modules=[nf_absent]", "FATAL: Module nf_absent not found.")
	for path, want := range map[string]string{
		"modprobe.calls": "-a -- br_netfilter nf_absent\n",
		"vm/proc/sys/net/bridge/bridge-nf-call-iptables": "1\n",
		"vm/proc/sys/net/ipv4/ip_forward":                "1\n",
		"vm/proc/sys/net/ipv4/ip_local_ports":            "1\t2\n", // right as it was
		"data/fake/resolv.conf":                          "nameserver 192.0.2.1\n",
	} {
		if got := b.read(path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	for path, want := range map[string]os.FileMode{"run": 0o711, "data/fake": 0o750} {
		if info, err := os.Stat(b.path(path)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v (%v), want mode %o", path, info.Mode(), err, want)
		} else if owner := info.Sys().(*syscall.Stat_t); int(owner.Uid) != os.Geteuid() ||
			int(owner.Gid) != os.Getegid() {
			t.Errorf("%s belongs to %d:%d", path, owner.Uid, owner.Gid)
		}
	}
}

func TestStartRefusesAVMThatCannotBePrepared(t *testing.T) {
	for name, test := range map[string]struct {
		change func(b *bench) error
		extra  map[string]any
		want   []string
	}{
		"kernel without a setting": {
			extra: map[string]any{
				"kernel_modules": []string{"nf_absent"}, "sysctls": map[string]any{"net.absent.setting": 1},
			},
			want: []string{"kernel setting net.absent.setting must be 1", "could not be loaded: nf_absent"},
		},
		"settings that cannot be written": {
			change: func(b *bench) error {
				if err := os.Mkdir(b.path("vm/proc/sys/kernel"), 0o755); err != nil {
					return err
				}
				return os.Symlink("/proc/version", b.path("vm/proc/sys/kernel/a"))
			},
			extra: map[string]any{"sysctls": map[string]any{"kernel.a": 7, "kernel.b": 8}},
			want: []string{"kernel setting kernel.a is", "cannot be set to 7", "os-conf", "kernel setting kernel.b " +
				"must be 8"},
		},
		"link in place of a directory": {
			change: func(b *bench) error {
				return errors.Join(os.Mkdir(b.path("outside"), 0o700), os.Symlink(b.path("outside"), b.path("data")))
			},
			extra: map[string]any{"directories": []any{map[string]any{"path": "DIR/data", "mode": "0755"}}},
			want:  []string{"/data", "it is a symbolic link"},
		},
		"no name server": {
			change: func(b *bench) error {
				return os.WriteFile(b.path("vm/etc/resolv.conf"), []byte("nameserver 127.0.0.53\n"), 0o600)
			},
			extra: map[string]any{"resolver_file": "DIR/resolv.conf"},
			want:  []string{"no name server that pods can reach", "property resolv_conf"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			environment := b.vm()
			if test.change != nil {
				if err := test.change(b); err != nil {
					t.Fatal(err)
				}
			}
			b.config("fake-daemon", test.extra)
			b.write("flags.json", strings.ReplaceAll(b.read("flags.json"), "DIR", b.dir))
			b.stopAtEnd()
			status, output := b.launch("start", environment...)
			if status != 1 {
				t.Errorf("exit status %d", status)
			}
			contains(t, output, append(test.want, "fake did not start")...)
			contains(t, b.read("log/fake.stderr.log"), test.want...) // monit discards what start prints
			if _, err := os.Stat(b.path("run/fake.pid")); !os.IsNotExist(err) {
				t.Errorf("pidfile: %v", err)
			}
		})
	}
}

// TestStartIsNotLedElsewhere acts as a user who can write to the directories that the agent has created for the job.
func TestStartIsNotLedElsewhere(t *testing.T) {
	for name, test := range map[string]struct {
		plant func(b *bench) error
		want  string
	}{
		"link instead of the log": {
			func(b *bench) error { return os.Symlink(b.path("outside/evil"), b.path("log/fake.stdout.log")) },
			"fake.stdout.log: it is a symbolic link",
		},
		"hard link instead of the log": {
			func(b *bench) error { return os.Link(b.path("outside/shadow"), b.path("log/fake.stderr.log")) },
			"fake.stderr.log: it is a hard link",
		},
		"pipe instead of the log": {
			func(b *bench) error { return syscall.Mkfifo(b.path("log/fake.stderr.log"), 0o666) },
			"fake.stderr.log: it is a pipe",
		},
		"link instead of the log directory": {
			func(b *bench) error { return replace(b.path("log"), b.path("outside")) }, "log: it is a symbolic link",
		},
		"link instead of the run directory": {
			func(b *bench) error { return replace(b.path("run"), b.path("outside")) }, "run: it is a symbolic link",
		},
		"link instead of the pidfile": {
			func(b *bench) error { return plantAs(b.path("run/fake.pid"), b.path("outside/shadow")) },
			"run/fake.pid belongs to the user",
		},
		"link instead of the lock": {
			func(b *bench) error { return plantAs(b.path("run/fake.pid.lock"), b.path("outside/shadow")) },
			"run/fake.pid.lock belongs to the user",
		},
		"link instead of a state directory": {
			func(b *bench) error { return plantAs(b.path("data/pki"), b.path("outside")) },
			"data/pki belongs to the user",
		},
		"link instead of the resolver's file": {
			func(b *bench) error { return plantAs(b.path("data/resolv.conf"), b.path("outside/shadow")) },
			"data/resolv.conf belongs to the user",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if os.Geteuid() != 0 {
				t.Skip("requires root to act as another user")
			}
			b := newBench(t)
			environment := b.vm()
			b.lay("outside/shadow", "root's")
			for _, dir := range []string{"log", "run", "data"} {
				if err := errors.Join(
					os.Mkdir(b.path(dir), 0o770), os.Chown(b.path(dir), 0, 1000), os.Chmod(b.path(dir), 0o770),
				); err != nil { //nolint:gosec // as the agent has it
					t.Fatal(err)
				}
			}
			if err := test.plant(b); err != nil {
				t.Fatal(err)
			}
			b.config("fake-daemon", map[string]any{
				"directories": []any{
					map[string]any{"path": b.path("run"), "mode": "0755"},
					map[string]any{"path": b.path("data"), "mode": "0750"},
				},
				"resolver_file": b.path("data/resolv.conf"),
			})
			for _, command := range []string{"check", "start", "stop"} {
				status, output := b.launch(command, environment...)
				if command == "stop" && !strings.HasPrefix(test.want, "run") { // it uses nothing but the pidfile
					if status != 0 {
						t.Errorf("BOSH could not stop the process: exit status %d: %s", status, output)
					}
					continue
				}
				if status != 1 {
					t.Errorf("%s: exit status %d", command, status)
				}
				contains(t, output, test.want)
			}
			entries, err := os.ReadDir(b.path("outside"))
			if err != nil || len(entries) != 1 || b.read("outside/shadow") != "root's" {
				t.Errorf("outside: %v, %v", entries, err)
			}
		})
	}
}

// replace puts a link in the place of a directory.
func replace(path, target string) error {
	return errors.Join(os.Remove(path), os.Symlink(target, path))
}

// plantAs makes a link that belongs to another user.
func plantAs(path, target string) error {
	return errors.Join(os.Symlink(target, path), os.Lchown(path, 1000, 1000))
}

// TestPrivateDirectory: the agent lets the group vcap read what a job renders, including its key.
func TestPrivateDirectory(t *testing.T) {
	b := newBench(t)
	b.lay("job/config/client.key", "secret")
	for _, path := range []string{"job", "job/config"} {
		if err := os.Chmod(b.path(path), 0o750); err != nil { //nolint:gosec // as the agent has it
			t.Fatal(err)
		}
	}
	b.config("fake-daemon", map[string]any{"private_dir": b.path("job/config"), "flag_check": "none"})
	b.stopAtEnd()
	for _, command := range []string{"check", "start"} {
		if err := os.Chmod(b.path("job/config/client.key"), 0o640); err != nil { //nolint:gosec // as the agent has it
			t.Fatal(err)
		}
		b.must(command)
		for path, want := range map[string]os.FileMode{
			"job": 0o750, "job/config": 0o700, "job/config/client.key": 0o600,
		} {
			if info, err := os.Stat(b.path(path)); err != nil || info.Mode().Perm() != want {
				t.Errorf("%s: %s has mode %v (%v), want %o", command, path, info.Mode(), err, want)
			}
		}
	}
}
