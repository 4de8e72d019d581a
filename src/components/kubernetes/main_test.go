package main

import (
	"context"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// gate is a feature gate in the help of a program. All packages that are linked register theirs for all programs.
var gate = regexp.MustCompile(`^(kube:)?[A-Za-z0-9]+=true\|false \(`)

// TestProgramsAreUpstream compares the help of each program with that of upstream's own, built from the same pin: the
// same flags with the same defaults, and of feature gates those of the other programs too, at most. Its packages are
// those of the release, if that has been built, so that it links only.
func TestProgramsAreUpstream(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute) // below the time that go test has
	defer cancel()
	dir := t.TempDir()
	build := func(packages string) string {
		t.Helper()
		program := filepath.Join(dir, path.Base(packages)+".new")
		command := exec.CommandContext(
			ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", program, packages,
		)
		command.Env = append(os.Environ(), "CGO_ENABLED=0", "GOAMD64=v1") // as src/release/components builds it
		if output, err := command.CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", packages, err, output)
		}
		return program
	}
	// The name of a program is in its help. Columns are as wide as the widest flag.
	help := func(program, name string) (lines []string) {
		t.Helper()
		command := exec.CommandContext(ctx, program, "--help")
		command.Args[0] = name
		output, err := command.CombinedOutput()
		if err != nil || len(output) < 1000 {
			t.Errorf("%s --help: %v\n%s", name, err, output)
		}
		for line := range strings.Lines(string(output)) {
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
		return lines
	}
	ours := build(".")
	names := []string{"kubectl", "metrics-server"}
	for name := range servers {
		names = append(names, name)
	}
	slices.Sort(names)
	gates, added := map[string]bool{}, map[string][]string{}
	for _, name := range names {
		upstream := "k8s.io/kubernetes/cmd/" + name
		if name == "metrics-server" {
			upstream = "sigs.k8s.io/metrics-server/cmd/metrics-server"
		}
		program := build(upstream)
		want := help(program, name)
		if err := os.Remove(program); err != nil { // a hundred megabytes
			t.Fatal(err)
		}
		got := slices.DeleteFunc(help(ours, name), func(line string) bool {
			if !gate.MatchString(line) || slices.Contains(want, line) {
				return false
			}
			added[name] = append(added[name], line)
			return true
		})
		if !slices.Equal(got, want) {
			t.Errorf("%s has the help\n%s\nupstream's is\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		for _, line := range want {
			gates[line] = true
		}
	}
	for name, lines := range added {
		for _, line := range lines {
			if !gates[line] {
				t.Errorf("%s has the feature gate %s, and none of upstream's programs has it", name, line)
			}
		}
	}
}
