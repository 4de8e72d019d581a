package debian

import (
	"strings"
	"testing"
	"time"
)

// testdata has ops-files, of which slow gives an emulated processor time.
const (
	testdata = "src/testbed/debian/testdata"
	slow     = testdata + "/slow.yml"
)

// labUp is what `make up` runs once all is built.
const labUp = "bin/lab up -o ops-files/single-vm.yml -o ops-files/aws.yml -o ops-files/lab.yml " +
	"-o ops-files/lab-aws.yml -o " + slow + " -o " + testdata + "/slow-aws.yml --errand smoke-tests"

// leftovers shows what a lab could leave on its machine.
const leftovers = `
ip netns list
ip -oneline link | cut -d : -f 2
cut -d ' ' -f 5 /proc/self/mountinfo | sort
find /sys/fs/cgroup -type d -name '*lab*'
nft list tables
losetup --all
for exe in /proc/[0-9]*/exe; do readlink "$exe"; done | grep -E '^/(checkout|var)' | grep -v '/bin/guest$' | sort
pgrep --exact --list-name monit | cut -d ' ' -f 2
`

// TestLab runs the README's first command on a stock Debian: it deploys the tarball, the smoke tests pass, and nothing
// of the lab is left at the end.
func TestLab(t *testing.T) {
	b := boot(t, 5*1024, "bin", "manifests", "ops-files", ".build/release/kubernetes.tgz", testdata)
	t.Log(b.must(0, "bin/machine "+Checkout))
	before := b.must(0, leftovers)
	started := time.Now()
	out := b.must(15*time.Minute, b.login(labUp))
	t.Logf("deployed and tested in %s", time.Since(started).Round(time.Second))
	if !strings.Contains(out, "Errand 'smoke-tests' succeeded") {
		t.Error("the smoke tests did not succeed")
	}
	if strings.Contains(out, "fail_cgroup_v1: false") || strings.Contains(out, "fail_swap_on: false") {
		t.Error("the lab does not take production's settings on cgroup v2 without swap")
	}
	b.must(0, b.login("bin/lab status"))
	started = time.Now()
	b.must(2*time.Minute, b.login("bin/lab down"))
	t.Logf("removed in %s", time.Since(started).Round(time.Second))
	if after := b.must(0, leftovers); after != before {
		t.Errorf("what was there before the lab:\n%s\n\nwhat is there after it:\n%s", before, after)
	}
}

// login is a command line in a login session of root.
func (b *bed) login(command string) string {
	return "su --login root -c 'cd " + Checkout + " && " + command + "'"
}
