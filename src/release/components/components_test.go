package components

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"kubernetes-release/release/execute"
	"kubernetes-release/release/testfiles"
)

// pins is the folder with the pins.
const pins = "../../components"

// TestBuildsAreReproducible builds a program twice, in different folders and with different caches.
func TestBuildsAreReproducible(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles a component twice without a cache; make test-lab runs it")
	}
	found := Named("cni-plugins")
	c := found[0]
	c.Binaries = []Binary{{"loopback", "github.com/containernetworking/plugins/plugins/main/loopback"}}
	var programs [][]byte
	for range 2 {
		dir := t.TempDir()
		source := filepath.Join(dir, "source")
		for _, name := range []string{"go.mod", "go.sum"} {
			content, err := os.ReadFile(filepath.Join(pins, c.Pin, name))
			if err != nil {
				t.Fatal(err)
			}
			testfiles.Write(t, filepath.Join(source, c.Pin, name), string(content))
		}
		b := Builder{
			Source: source, Output: filepath.Join(dir, "output"), Log: io.Discard,
			Environment: []string{"GOCACHE=" + filepath.Join(dir, "cache")},
		}
		if err := b.Build(t.Context(), []Component{c}); err != nil {
			t.Fatal(err)
		}
		program, err := os.ReadFile(filepath.Join(b.Output, c.Name, "bin", "loopback"))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(program), dir) {
			t.Errorf("the program contains the folder that it was built in, %s", dir)
		}
		programs = append(programs, program)
	}
	if !bytes.Equal(programs[0], programs[1]) {
		t.Errorf("two builds of the same sources are different: %d and %d bytes", len(programs[0]), len(programs[1]))
	}
}

// TestBumpMovesEveryPin looks for each program's module in the calls of bump in ci/bump.sh.
func TestBumpMovesEveryPin(t *testing.T) {
	script, err := os.ReadFile("../../../ci/bump.sh")
	if err != nil {
		t.Fatal(err)
	}
	moved := map[string][]string{} // modules by pin
	for line := range strings.Lines(string(script)) {
		if words := strings.Fields(line); len(words) > 2 && words[0] == "bump" {
			moved[words[1]] = append(moved[words[1]], words[2:]...)
		}
	}
	byHand := []string{"aws-load-balancer-controller", "network-policy"} // the script says why
	for _, c := range All() {
		if slices.Contains(byHand, c.Pin) {
			continue
		}
		wanted := []string{c.Module}
		for _, program := range c.Merged {
			wanted = append(wanted, program.Package)
		}
		for _, pkg := range wanted {
			of := func(module string) bool { return strings.HasPrefix(pkg+"/", module+"/") }
			if !slices.ContainsFunc(moved[c.Pin], of) {
				t.Errorf("ci/bump.sh moves no module of %s in the pin %s", pkg, c.Pin)
			}
		}
	}
}

// TestPins compares the components with the pins: each pin must require its module and list the programs as tools.
func TestPins(t *testing.T) {
	built := map[string]bool{}
	for _, c := range All() {
		built[c.Pin] = true
		command := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json")
		command.Dir = filepath.Join(pins, c.Pin)
		text, err := command.Output()
		if err != nil {
			t.Fatalf("%s: %v", c.Pin, err)
		}
		var pin struct {
			Require []struct{ Path string }
			Tool    []struct{ Path string }
		}
		if err := json.Unmarshal(text, &pin); err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(pin.Require, func(r struct{ Path string }) bool { return r.Path == c.Module }) {
			t.Errorf("%s: the pin does not require %s", c.Name, c.Module)
		}
		for _, binary := range slices.Concat(c.Binaries, c.Merged) {
			listed := slices.ContainsFunc(
				pin.Tool, func(tool struct{ Path string }) bool { return tool.Path == binary.Package },
			)
			if !listed && binary.Package != "." && c.CSource == "" {
				t.Errorf(
					"%s: the pin does not list %s as a tool, so go mod tidy would remove it", c.Name, binary.Package,
				)
			}
		}
	}
	files, err := filepath.Glob(filepath.Join(pins, "*", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Errorf("no pins in %s", pins)
	}
	for _, file := range files {
		if !built[filepath.Base(filepath.Dir(file))] {
			t.Errorf("%s is a pin that no component uses", file)
		}
	}
}

// TestCLibraries: the SBOM has of C programs what is listed here. The version of gcc is in the name of a package.
func TestCLibraries(t *testing.T) {
	path, err := exec.CommandContext(t.Context(), "gcc", "-print-libgcc-file-name").Output()
	if err != nil {
		t.Skipf("no C compiler: %v", err)
	}
	always := []string{"libc6-dev", "libgcc-" + filepath.Base(filepath.Dir(string(path))) + "-dev"}
	for _, c := range All() {
		for _, library := range always {
			if linked := c.Cgo || c.CSource != ""; linked != slices.Contains(c.Libraries, library) {
				t.Errorf("%s: contains %s: %t; its libraries are %q", c.Name, library, linked, c.Libraries)
			}
		}
	}
}

func TestGoFlags(t *testing.T) {
	for _, test := range []struct {
		name      string
		component Component
		want      string
	}{
		{"plain", Component{}, "-trimpath -buildvcs=false -ldflags -s -w"},
		{
			"variables, sorted, filled in",
			Component{Variables: map[string]string{"p.b": "{version}", "p.a": "{major}.{minor}"}},
			"-trimpath -buildvcs=false -ldflags -s -w -X p.a=1.37 -X p.b=v1.37.0",
		},
		{
			"C, with tags", Component{Cgo: true, Tags: []string{"x", "y"}},
			"-trimpath -buildvcs=false -tags x,y -ldflags -s -w -linkmode external -extldflags -static",
		},
		{
			"position-independent", Component{Cgo: true, PIE: true},
			"-trimpath -buildvcs=false -buildmode=pie -ldflags -s -w -linkmode external -extldflags -static-pie",
		},
		{
			"packages without inlining", Component{NotInlined: []string{"a.io/...", "b.io/..."}},
			"-trimpath -buildvcs=false -gcflags=a.io/...=-l -gcflags=b.io/...=-l -ldflags -s -w",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := strings.Join(test.component.goFlags("v1.37.0"), " "); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// TestSettingsOfTheMachine: neither variables nor what "go env -w" wrote reach a program that is shipped.
func TestSettingsOfTheMachine(t *testing.T) {
	settings := filepath.Join(t.TempDir(), "env")
	t.Setenv("GOENV", settings)
	t.Setenv("GOFIPS140", "latest")
	t.Setenv("GOEXPERIMENT", "nodwarf5")
	testfiles.Write(t, settings, "GOFIPS140=latest\n")
	source := t.TempDir()
	testfiles.Write(
		t, filepath.Join(source, "hello", "go.mod"),
		"module hello\n\ngo 1.26\n\nrequire example.invalid/hello v1.2.3\n",
	)
	testfiles.Write(t, filepath.Join(source, "hello", "main.go"), "package main\n\nfunc main() {}\n")
	c := Component{Name: "hello", Pin: "hello", Module: "example.invalid/hello", Binaries: []Binary{{"hello", "."}}}
	b := Builder{Source: source, Output: t.TempDir(), Log: io.Discard, Environment: []string{"GOFLAGS=-mod=mod"}}
	program := Programs{
		Source: filepath.Join(source, "hello"), Packages: []string{"."}, Output: t.TempDir(), Shipped: true,
	}
	for name, command := range map[string]*exec.Cmd{
		"a component": b.goCommand(t.Context(), c, "env", "GOFIPS140", "GOEXPERIMENT"),
		"our own":     program.command(t.Context(), "env", "GOFIPS140", "GOEXPERIMENT"),
	} {
		if got, err := execute.Output(command); err != nil || string(got) != "off\n\n" {
			t.Errorf("%s: GOFIPS140 and GOEXPERIMENT are %q, %v", name, got, err)
		}
	}

	testfiles.Write(t, settings, "GOEXPERIMENT=nodwarf5\nCGO_LDFLAGS=-O1\n")
	for name, test := range map[string]struct {
		build func() error
		want  string
	}{
		"a component": {
			func() error { return b.Build(t.Context(), []Component{c}) }, "go env -u CGO_LDFLAGS GOEXPERIMENT ",
		},
		"our own": {func() error { return program.Build(t.Context(), io.Discard) }, "go env -u GOEXPERIMENT "},
	} {
		if err := test.build(); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestProgramName(t *testing.T) {
	for pkg, want := range map[string]string{
		".":                              "pin",
		"go.etcd.io/etcd/server/v3":      "server",
		"github.com/opencontainers/runc": "runc",
		"github.com/containerd/containerd/v2/cmd/ctr": "ctr",
	} {
		if got := programName(pkg, "pin"); got != want {
			t.Errorf("%s: got %s, want %s", pkg, got, want)
		}
	}
}

// TestFingerprint checks that the fingerprint depends on exactly what a program depends on.
func TestFingerprint(t *testing.T) {
	source := t.TempDir()
	testfiles.Write(t, filepath.Join(source, "one", "go.mod"), "module one\n")
	testfiles.Write(t, filepath.Join(source, "one", "go.sum"), "")
	testfiles.Write(t, filepath.Join(source, "one", "main.go"), "package main\n")
	b, c := Builder{Source: source}, Component{Name: "one", Pin: "one", Binaries: []Binary{{"one", "."}}}
	fingerprint := func() string {
		t.Helper()
		text, err := b.fingerprint(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	first := fingerprint()
	testfiles.Write(t, filepath.Join(source, "one", "main_test.go"), "package main\n")
	testfiles.Write(t, filepath.Join(source, "one", "README.md"), "text")
	if fingerprint() != first {
		t.Error("it depends on tests or texts")
	}
	testfiles.Write(t, filepath.Join(source, "one", "main.go"), "package main // changed\n")
	second := fingerprint()
	if second == first {
		t.Error("it does not depend on sources")
	}
	c.Tags = []string{"x"}
	if fingerprint() == second {
		t.Error("it does not depend on build tags")
	}
}

// TestUpToDate builds a small program and checks when it is built again.
func TestUpToDate(t *testing.T) {
	source, output := t.TempDir(), t.TempDir()
	testfiles.Write(
		t, filepath.Join(source, "hello", "go.mod"),
		"module hello\n\ngo 1.26\n\nrequire example.invalid/hello v1.2.3\n",
	)
	testfiles.Write(
		t, filepath.Join(source, "hello", "main.go"),
		"package main\n\nvar version string\n\nfunc main() { println(version) }\n",
	)
	c := Component{
		Name:      "hello",
		Pin:       "hello",
		Module:    "example.invalid/hello",
		Binaries:  []Binary{{"greet", "."}},
		Links:     []string{"hi"},
		Variables: map[string]string{"main.version": "{version}"},
	}
	var log bytes.Buffer
	b := Builder{Source: source, Output: output, Log: &log, Environment: []string{"GOFLAGS=-mod=mod", "GOPROXY=off"}}
	build := func(want string) {
		t.Helper()
		log.Reset()
		if err := b.Build(t.Context(), []Component{c}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(log.String(), want) {
			t.Errorf("printed %q, want %q in it", log.String(), want)
		}
	}
	build("built 1 of 1")
	text, err := exec.CommandContext(t.Context(), filepath.Join(output, "hello", "bin", "hi")).CombinedOutput()
	if err != nil || strings.TrimSpace(string(text)) != "v1.2.3" {
		t.Errorf("the link runs a program that prints %q, %v", text, err)
	}
	built, err := b.Open(c)
	if err != nil || built.Version != "v1.2.3" || built.Go == "" {
		t.Errorf("the record is %+v, %v", built.Record, err)
	}
	build("up to date")
	if err := os.Remove(filepath.Join(output, "hello", "bin", "hi")); err != nil {
		t.Fatal(err)
	}
	build("built 1 of 1")
	testfiles.Write(t, filepath.Join(source, "hello", "main.go"), "package main\n\nfunc main() { nonsense }\n")
	err = b.Build(t.Context(), []Component{c})
	if err == nil || !strings.Contains(err.Error(), "component hello") ||
		!strings.Contains(err.Error(), "undefined: nonsense") {
		t.Errorf("the error is %v", err)
	}
	if _, err := b.Open(c); err != nil {
		t.Errorf("a failed build removed the previous one: %v", err)
	}
}

func TestDynamicIsRefused(t *testing.T) {
	dir := t.TempDir()
	content, err := os.ReadFile("/bin/ls")
	if err != nil {
		t.Skip(err)
	}
	testfiles.Write(t, filepath.Join(dir, "ls"), string(content))
	_, err = checkBinaries(Component{Binaries: []Binary{{"ls", ""}}}, dir)
	if err == nil || !strings.Contains(err.Error(), "ls is linked dynamically") {
		t.Errorf("got %v", err)
	}
}

func TestLock(t *testing.T) {
	dir := t.TempDir()
	unlock, err := Lock(t.Context(), dir, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	var log bytes.Buffer
	if _, err := Lock(ctx, dir, &log); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second lock gave %v", err)
	}
	if !strings.Contains(log.String(), "waiting") {
		t.Errorf("the wait is not reported: %q", log.String())
	}
	unlock()
	unlock, err = Lock(t.Context(), dir, io.Discard)
	if err != nil {
		t.Fatalf("after unlock: %v", err)
	}
	unlock()
}

func TestNamed(t *testing.T) {
	found := Named("runc", "nothing", "etcd")
	if len(found) != 2 || found[0].Name != "etcd" || found[1].Name != "runc" {
		t.Errorf("got %v, want etcd and runc", found)
	}
	if all := Named(); len(all) != len(All()) || all[0].Name != Names()[0] {
		t.Errorf("got %v without names, want what the release ships", all)
	}
}

// TestPreviousKubernetes compares the pins that tests upgrade from with the one that the release ships.
func TestPreviousKubernetes(t *testing.T) {
	b := Builder{Source: pins}
	pinned := func(name string) (version string, minor, patch int) {
		version, err := b.PinnedVersion(t.Context(), Named(name)[0])
		if err == nil {
			_, err = fmt.Sscanf(version, "v1.%d.%d", &minor, &patch)
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return version, minor, patch
	}
	current, minor, patch := pinned("kubernetes")
	if previous, was, _ := pinned("kubernetes-previous-minor"); was != minor-1 {
		t.Errorf("go.mod pins Kubernetes %s and previous-minor.mod %s, want 1.%d", current, previous, minor-1)
	}
	previous, ofMinor, was := pinned("kubernetes-previous-patch")
	earlier := was < patch || was == patch && strings.Contains(previous, "-rc.") && !strings.Contains(current, "-")
	if ofMinor != minor || !earlier {
		t.Errorf("go.mod pins Kubernetes %s and previous-patch.mod %s, want an earlier 1.%d", current, previous, minor)
	}
}
