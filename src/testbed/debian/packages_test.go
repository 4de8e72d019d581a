package debian

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// tests is where the tests of packages are compiled to, with the programs that they would compile.
const tests = ".build/systemd/tests"

// modules have packages whose tests depend on the kernel, the init system and control groups, and need no other
// programs than the image has. Those with programs of Kubernetes are left out, as an emulated API server takes a minute
// to start: tests of src/testbed/templates and csisanity, and of flannel and network policies with the real programs,
// which are seen in the clusters of TestLab and TestProduction.
var modules = []struct {
	dir, program string
	packages     []string
}{
	{"src/helpers", "kube-launcher", []string{
		"launcher", "node/firewall", "node/dns", "node/flannel", "node/ipset", "internal/rootfile",
		"internal/filelock", "internal/process",
	}},
	{"src/testbed", "bpm", []string{
		"lab/network", "lab/vm", "lab/agent", "lab/volume", "lab/cpi", "lab/external", "lab/teardown",
		"lab/director/release", "bpm", "awssim/device",
	}},
}

// standIn is what tests run as `go build -o FILE PACKAGE`: it copies the program, which is built.
const standIn = `#!/bin/sh
exec install -D "${0%/*}/${4##*/}" "$3"
`

// skipped is a test that was skipped, and the reason.
var skipped = regexp.MustCompile(`(?m)^.*\n *--- SKIP: .*`)

// TestPackages runs tests of packages, each in its package's directory, in a login session of root as make test does.
func TestPackages(t *testing.T) {
	systemdDir(t)
	to, err := filepath.Abs(filepath.Join(repository, tests))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(to) })
	started := time.Now()
	paths := []string{tests}
	for _, module := range modules {
		paths = append(paths, module.dir) // with testdata
		compile := []string{"test", "-c", "-o", to + "/"}
		for _, name := range module.packages {
			compile = append(compile, "./"+name)
		}
		for _, arguments := range [][]string{compile, {"build", "-o", to + "/", "./cmd/" + module.program}} {
			goIn := []string{"go", "-C", filepath.Join(repository, module.dir)}
			if err := command(t.Context(), slices.Concat(goIn, arguments)...); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(to, "go"), []byte(standIn), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Logf("compiled in %s", time.Since(started).Round(time.Second))
	b := boot(t, 2*1024, paths...)
	const limit = 4 * time.Minute
	for _, module := range modules {
		for _, name := range module.packages {
			t.Run(name, func(t *testing.T) {
				b := &bed{t, b.Machine}
				started := time.Now()
				out := b.must(limit+time.Minute, b.login(fmt.Sprintf(
					"cd %s && PATH=$PATH:%[2]s %[2]s/%s.test -test.v -test.timeout=%s", path.Join(module.dir, name),
					path.Join(Checkout, tests), path.Base(name), b.patient(limit),
				)))
				t.Logf("ran in %s", time.Since(started).Round(time.Second))
				for _, test := range skipped.FindAllString(out, -1) {
					t.Log(test)
					if !strings.Contains(test, "_DIR") && !strings.Contains(test, "this kernel") {
						t.Error("it was skipped, although this machine has what it needs")
					}
				}
			})
		}
	}
}
