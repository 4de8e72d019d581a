package main

import (
	"context"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// TestProgramsAreUpstream compares the help of each program with that of upstream's own, built from the same pin: the
// same flags with the same defaults. Its packages are those of the release, if that has been built, so that it links
// only.
func TestProgramsAreUpstream(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute) // below the time that go test has
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
	// The name of a program is in its help.
	help := func(program, name string) string {
		t.Helper()
		command := exec.CommandContext(ctx, program, "--help")
		command.Args[0] = name
		output, err := command.CombinedOutput()
		if err != nil || len(output) < 1000 {
			t.Errorf("%s --help: %v\n%s", name, err, output)
		}
		return string(output)
	}
	ours := build(".")
	names := []string{"kubectl", "metrics-server"}
	for name := range servers {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		upstream := "k8s.io/kubernetes/cmd/" + name
		if name == "metrics-server" {
			upstream = "sigs.k8s.io/metrics-server/cmd/metrics-server"
		}
		program := build(upstream)
		if got, want := help(ours, name), help(program, name); got != want {
			t.Errorf("%s has the help\n%s\nupstream's is\n%s", name, got, want)
		}
		if err := os.Remove(program); err != nil { // a hundred megabytes
			t.Fatal(err)
		}
	}
}
