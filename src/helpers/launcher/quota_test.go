package launcher

import (
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"kubernetes-release/node"
)

func TestQuotaOfDisk(t *testing.T) {
	const gib = 1 << 30
	for size, want := range map[uint64]uint64{
		100 * gib: 8 * gib, 56 * gib: 8 * gib, 21 * gib: 3 * gib, 10 * gib: 2 * gib, 6 * gib: 2 * gib, 3 * gib: gib,
		0: 0,
	} {
		if got := quotaOfDisk(size); got != want {
			t.Errorf("disk of %d GiB: %d bytes, want %d", size/gib, got, want)
		}
	}
}

// TestDiskFlags takes the size of the disk from stat.
func TestDiskFlags(t *testing.T) {
	directory := t.TempDir()
	out, err := exec.Command("stat", "--file-system", "--format", "%b %S", directory).Output()
	if err != nil {
		t.Fatal(err)
	}
	size := uint64(1)
	for _, field := range strings.Fields(string(out)) {
		factor, err := strconv.ParseUint(field, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		size *= factor
	}
	config, err := load(t, `{`+minimal+`, "disk_flags": {"quota": "`+directory+`"}}`, "")
	if err != nil {
		t.Fatal(err)
	}
	flags, err := config.flags(node.Identity{})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"/bin/x", "--quota=" + strconv.FormatUint(quotaOfDisk(size), 10)}
	if got := config.commandLine(flags); !slices.Equal(got, want) {
		t.Errorf("command line: %q, want %q", got, want)
	}
	config.DiskFlags["quota"] = directory + "/absent"
	if _, err := config.flags(node.Identity{}); err == nil || !strings.Contains(err.Error(), "disk_flags.quota: ") {
		t.Errorf("the disk of a directory that is missing: error %v", err)
	}
}
