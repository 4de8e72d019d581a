package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"kubernetes-release/release/components"
	"kubernetes-release/release/progress"
)

// cloneTimeout bounds `make up` in a fresh clone, and the bare builds; each compiles for 20 minutes on two processors.
const cloneTimeout = 2 * time.Hour

// Clone measures `make up` in a fresh clone of the last commit, with an empty build cache, against go build of the
// components' programs with the same flags in another empty build cache. The module cache is shared, because download
// time depends on the network. The clone, its lab and the caches are always removed.
func Clone(ctx context.Context, root string, out io.Writer) (_ Figure, err error) {
	load := busy()
	work, err := os.MkdirTemp("", "bench-clone-")
	if err != nil {
		return Figure{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	_, _ = fmt.Fprintln(out, "clone: go build of the components alone, in an empty build cache")
	bare, err := bareBuilds(ctx, root, work, out)
	if err != nil {
		return Figure{}, err
	}
	_, _ = fmt.Fprintf(
		out, "clone: built in %s; now make up in a fresh clone, with another empty build cache\n", progress.Took(bare),
	)
	up, err := cloneUp(ctx, root, work, out)
	if err != nil {
		return Figure{}, err
	}
	return Figure{
		Name:    "clone",
		What:    "time from a fresh clone to a cluster that has passed its smoke tests",
		Unit:    Seconds,
		Aim:     OtherAim,
		Subject: "git clone, make up",
		Ours:    up.Seconds(),
		Against: "go build of the components alone",
		Base:    bare.Seconds(),
		Busy:    load,
		Note:    "Both with empty build caches and filled module caches, once each.",
	}, nil
}

// cloneUp measures git clone and make up in the clone, passes on their output, and removes the clone's lab.
func cloneUp(ctx context.Context, root, work string, out io.Writer) (time.Duration, error) {
	clone := filepath.Join(work, "clone")
	started := time.Now()
	if err := cloneRun(
		ctx, cloneTimeout, work, work, out, "git", "clone", "--quiet", "--no-local", root, clone,
	); err != nil {
		return 0, err
	}
	err := cloneRun(ctx, cloneTimeout, work, clone, out, "make", "up")
	took := time.Since(started)
	if _, missing := os.Stat(filepath.Join(clone, ".lab")); missing == nil {
		err = errors.Join(err, cloneRun(context.WithoutCancel(ctx), downTimeout, work, clone, out, "make", "down"))
	}
	return took, err
}

func cloneRun(ctx context.Context, timeout time.Duration, work, dir string, out io.Writer, argv ...string) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	command := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var output bytes.Buffer
	both := io.MultiWriter(&output, out)
	command.Dir, command.Stdout, command.Stderr = dir, both, both
	// The settings of the calling make must not reach the make of the clone.
	command.Env = append(
		without(os.Environ(), "MAKEFLAGS", "MAKELEVEL", "MFLAGS", "OPS", "VARS"),
		"GOCACHE="+filepath.Join(work, "cache-clone"),
	)
	return runGroup(ctx, command, &output)
}

// without returns an environment without some variables.
func without(environment []string, names ...string) []string {
	var kept []string
next:
	for _, pair := range environment {
		for _, name := range names {
			if strings.HasPrefix(pair, name+"=") {
				continue next
			}
		}
		kept = append(kept, pair)
	}
	return kept
}

// bareBuilds measures go build of every component that is written in Go, one after another, as each uses all
// processors.
func bareBuilds(ctx context.Context, root, work string, out io.Writer) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, cloneTimeout)
	defer cancel()
	var list []components.Component
	for _, c := range components.All() {
		if c.CSource == "" {
			list = append(list, c)
		}
	}
	step := progress.NewStep(out, "go build")
	defer step.Close()
	step.Parts(len(list), 0)
	started := time.Now()
	for _, c := range list {
		dir := filepath.Join(work, "bare", c.Name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return 0, err
		}
		part := step.Part(c.Name, 0)
		command := exec.CommandContext(ctx, "go", bareArguments(c, dir)...)
		cgo := "CGO_ENABLED=0"
		if c.Cgo {
			cgo = "CGO_ENABLED=1"
		}
		var output bytes.Buffer
		command.Dir, command.Stdout, command.Stderr = filepath.Join(root, "src", "components", c.Pin), &output, &output
		command.Env = append(
			os.Environ(), "GOCACHE="+filepath.Join(work, "cache-bare"), "GOFLAGS=-mod=readonly", "GOWORK=off", cgo,
			"CGO_CFLAGS=-O2 -g",
		)
		if err := runGroup(ctx, command, &output); err != nil {
			return 0, err
		}
		part.Done("built")
	}
	step.Finish("built %d components", len(list))
	return time.Since(started), nil
}

// bareArguments builds a component's programs with the same flags as the release, except for the version strings that
// the linker sets, which take no time.
func bareArguments(c components.Component, dir string) []string {
	link := "-s -w"
	arguments := []string{"build", "-trimpath", "-buildvcs=false", "-o", dir + "/"}
	switch {
	case c.PIE:
		arguments = append(arguments, "-buildmode=pie")
		link += " -linkmode external -extldflags -static-pie"
	case c.Cgo:
		link += " -linkmode external -extldflags -static"
	}
	if len(c.Tags) > 0 {
		arguments = append(arguments, "-tags", strings.Join(c.Tags, ","))
	}
	arguments = append(arguments, "-ldflags", link)
	programs := c.Binaries
	if len(c.Merged) > 0 { // the source of what merges them is written for each build of the release
		programs = c.Merged
	}
	for _, program := range programs {
		arguments = append(arguments, program.Package)
	}
	return arguments
}
