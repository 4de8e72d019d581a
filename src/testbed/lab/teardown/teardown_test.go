package teardown

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kubernetes-release/internal/atomicfile"
	"kubernetes-release/testbed/lab"
	"kubernetes-release/testbed/lab/vm"
	"kubernetes-release/testbed/lab/vm/vmtest"
)

func TestMain(m *testing.M) { vmtest.Main(m) }

func TestDownRemovesTheLabAndKeepsCaches(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("creating networks requires root")
	}
	l, err := lab.Open(t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	l.Out = &out
	for _, name := range []string{"compiled/x/f", "vars.yml", "disks/1/f"} {
		if err := atomicfile.Write(l.Path(name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := Down(t.Context(), l, false, false); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(l.Dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != "compiled" {
		t.Errorf("left: %v, %v", entries, err)
	}
	if !strings.Contains(out.String(), "network "+l.Network.Prefix().String()) {
		t.Errorf("output:\n%s", out.String())
	}
}

// TestDownRemovesDisksOfAFaultThatWasKilled mounts a disk as the faults that fill one do.
func TestDownRemovesDisksOfAFaultThatWasKilled(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("creating networks requires root")
	}
	l, err := lab.Open(t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	l.Out = io.Discard
	disk, image := l.Path("disks/1"), l.Path("disk-control-0-persistent")
	if err := os.MkdirAll(filepath.Join(disk, "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(disk, unix.MNT_DETACH) })
	const script = `truncate --size 8M "$1" && mkfs.ext4 -q "$1" && mount -o loop "$1" "$2" && mkdir "$2/store" && ` +
		`mount --bind "$2/store" "$2/lost+found"`
	if out, err := exec.CommandContext(t.Context(), "sh", "-c", script, "sh", image, disk).
		CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() { _ = unix.Unmount(filepath.Join(disk, "lost+found"), unix.MNT_DETACH) })
	if err := Down(t.Context(), l, false, true); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(l.Dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the lab's directory is left: %v", err)
	}
	if left, err := vm.Leftovers(l.Network, l.Dir); err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
}
