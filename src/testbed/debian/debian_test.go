package debian

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// repository is the root of the repository.
const repository = "../../.."

// bed is a machine of a test.
type bed struct {
	*testing.T
	*Machine
}

// systemdDir is SYSTEMD_DIR, where images are kept and make has built bin/guest and bin/machine. The test is skipped
// without.
func systemdDir(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("SYSTEMD_DIR")
	if dir == "" {
		t.Skip("boots QEMU: make test-systemd")
	}
	return dir
}

// boot boots a machine for a test, with files of the repository in Checkout.
func boot(t *testing.T, memoryMiB int, paths ...string) *bed {
	dir := systemdDir(t)
	image, err := BuildImage(t.Context(), dir, func(step string) { t.Log(step) })
	if err != nil {
		t.Fatal(err)
	}
	work, err := os.MkdirTemp(dir, "run-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(work) })
	checkout := filepath.Join(work, "checkout")
	copies := map[string]string{filepath.Join(dir, "bin"): "bin"}
	for _, path := range paths {
		copies[filepath.Join(repository, path)] = path
	}
	for from, to := range copies {
		to = filepath.Join(checkout, to)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(from); err == nil && info.IsDir() {
			from += "/."
		}
		if err := command(t.Context(), "cp", "-aL", from, to); err != nil {
			t.Fatal(err)
		}
	}
	disk := filepath.Join(work, "checkout.ext4")
	if err := MakeDisk(t.Context(), disk, checkout); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(checkout); err != nil {
		t.Fatal(err)
	}
	machine, err := Start(t.Context(), Options{Image: image, Checkout: disk, Dir: work, MemoryMiB: memoryMiB})
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{T: t, Machine: machine}
	t.Cleanup(func() {
		machine.Stop()
		kept := filepath.Join(dir, t.Name()+"-console.log")
		if err := os.Rename(machine.Console, kept); err == nil && t.Failed() {
			t.Log("console:", kept)
		}
	})
	b.awaitBoot()
	return b
}

// reboot shuts the machine down by systemd, which takes at most that long, and boots it again.
func (b *bed) reboot(limit time.Duration) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), b.patient(limit))
	defer cancel()
	started := time.Now()
	if err := b.Reboot(ctx, "systemctl reboot"); err != nil {
		b.Fatal(err)
	}
	b.Logf("shut down in %s", time.Since(started).Round(time.Second))
	b.awaitBoot()
}

// patient is the time that a script takes here which takes at most that long where nothing is emulated.
func (b *bed) patient(limit time.Duration) time.Duration { return limit * time.Duration(b.Slower) }

func (b *bed) awaitBoot() {
	b.Helper()
	started := time.Now()
	ctx, cancel := context.WithTimeout(b.Context(), b.patient(time.Minute))
	defer cancel()
	if err := b.AwaitBoot(ctx); err != nil {
		b.Fatal(err)
	}
	b.Logf("booted in %s", time.Since(started).Round(time.Second))
}

// try runs a script that takes at most that long on a machine whose processor is not emulated.
func (b *bed) try(limit time.Duration, script string) (string, error) {
	ctx, cancel := context.WithTimeout(b.Context(), b.patient(max(limit, 10*time.Second)))
	defer cancel()
	var out bytes.Buffer
	var into io.Writer = &out
	if limit >= time.Minute { // what takes long shows how far it is
		into = io.MultiWriter(&out, os.Stdout)
	}
	code, err := b.Machine.Run(ctx, script, into)
	if err == nil && code != 0 {
		err = fmt.Errorf("exit code %d", code)
	}
	text := strings.TrimSpace(out.String())
	if err != nil {
		return text, fmt.Errorf("%s: %w\n%s", script, err, text)
	}
	return text, nil
}

// must is try that ends the test if the script fails.
func (b *bed) must(limit time.Duration, script string) string {
	b.Helper()
	out, err := b.try(limit, script)
	if err != nil {
		b.Fatal(err)
	}
	return out
}

// TestStock sees that the machine is what tests take it for: Debian's kernel and systemd, control groups of version 2
// alone with nsdelegate, no network.
func TestStock(t *testing.T) {
	b := boot(t, 1024)
	if init := b.must(0, "cat /proc/1/comm"); init != "systemd" {
		t.Errorf("init is %s, want systemd", init)
	}
	b.Log(b.must(0, "uname -a; systemctl --version | head -n 1; systemd-analyze || true"))
	groups := b.must(0, "grep -E ' - cgroup2? ' /proc/self/mountinfo")
	if strings.Count(groups, "\n") != 0 || !strings.Contains(groups, " /sys/fs/cgroup ") ||
		!strings.Contains(groups, "cgroup2") || !strings.Contains(groups, "nsdelegate") {
		t.Errorf("control groups are mounted as\n%s\nwant version 2 with nsdelegate", groups)
	}
	if controllers := b.must(0, "cat /sys/fs/cgroup/cgroup.controllers"); !strings.Contains(
		controllers, "cpuset cpu io memory hugetlb pids",
	) {
		t.Errorf("controllers are %s", controllers)
	}
	if links := b.must(0, "ls /sys/class/net"); links != "lo" {
		t.Errorf("network interfaces are %s, want lo alone", links)
	}
	if failed := b.must(0, "systemctl list-units --failed --plain --no-legend"); failed != "" {
		t.Errorf("units have failed:\n%s", failed)
	}
	if out, err := b.try(0, "exit 3"); err == nil || !strings.Contains(err.Error(), "exit code 3") {
		t.Errorf("a script with exit 3: %s, %v", out, err)
	}
	b.must(0, "touch /kept; sync")
	b.reboot(time.Minute)
	b.must(0, "test -e /kept")
}
