package debian

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kubernetes-release/testbed/lab/director/manifest"
)

// testdata has ops-files, of which slow gives an emulated processor time.
const (
	testdata = "src/testbed/debian/testdata"
	slow     = testdata + "/slow.yml"
)

// labOpsFiles are those of `make up`, and what an emulated processor needs.
var labOpsFiles = []string{
	"ops-files/single-vm.yml", "ops-files/aws.yml", "ops-files/lab.yml", "ops-files/lab-aws.yml", slow,
	testdata + "/slow-aws.yml",
}

// leftovers shows what a lab could leave on its machine. Directories below /run/user are of login sessions.
const leftovers = `
ip netns list
ip -oneline link | cut -d : -f 2
cut -d ' ' -f 5 /proc/self/mountinfo | grep -v '^/run/user/' | sort
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
	out := b.must(15*time.Minute, b.login("bin/lab up -o "+strings.Join(labOpsFiles, " -o ")+" --errand smoke-tests"))
	t.Logf("deployed and tested in %s", time.Since(started).Round(time.Second))
	t.Log(b.must(0, "cat /sys/devices/system/clocksource/clocksource0/current_clocksource"))
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

// TestOpsFiles interpolates the manifest with the ops-files of both deploys, which would fail after minutes. The lab's
// are those of make up.
func TestOpsFiles(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(repository, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	line := "\nOPS_FILES := " + strings.Join(labOpsFiles[:4], " ") + "\n"
	if !strings.Contains(string(makefile), line) {
		t.Errorf("the Makefile has no line %q", line)
	}
	for name, opsFiles := range map[string][]string{"lab": labOpsFiles, "production": productionOpsFiles} {
		store, err := manifest.OpenStore(filepath.Join(t.TempDir(), "vars.yml"))
		if err != nil {
			t.Fatal(err)
		}
		source := manifest.Source{
			Path: filepath.Join(repository, "manifests/kubernetes.yml"), Store: store,
			Defaults: map[string]any{
				"cluster_name": "lab", "aws_endpoint_url": "", "aws_metadata_endpoint": "",
				"lab_containerd_oom_score": 0, "lab_fail_cgroup_v1": true, "lab_fail_swap_on": true,
				"lab_restrict_oom_score_adj": false,
			},
		}
		for _, file := range opsFiles {
			source.OpsFiles = append(source.OpsFiles, filepath.Join(repository, file))
		}
		if _, err := manifest.Interpolate(source); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// login is a command line in a login session of root.
func (b *bed) login(command string) string {
	return "su --login root -c 'cd " + Checkout + " && " + command + "'"
}
