// Command release builds what the BOSH release is made of, and the release.
//
//	release [-root DIR] helpers   builds our programs that jobs run, into DIR/.build/helpers/bin
//	release [-root DIR] images    writes the container images, into DIR/.build/images
//	release [-root DIR] tarball   writes the dev release, DIR/.build/release/NAME.tgz
//
// Several of them may be given and are done in that order. The upstream components must have been built (command
// components). What is up to date is left alone. Exit status 0 on success, 1 with the reason on standard error
// otherwise.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"kubernetes-release/release/boshrelease"
	"kubernetes-release/release/components"
)

func main() {
	root := flag.String("root", ".", "the repository")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *root, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, root string, steps []string) error {
	root, err := filepath.Abs(root)
	if err == nil {
		root, err = filepath.EvalSymlinks(root)
	}
	if err != nil {
		return err
	}
	if len(steps) == 0 {
		return fmt.Errorf("says nothing to do; it can do helpers, images, tarball")
	}
	unlock, err := components.Lock(ctx, filepath.Join(root, ".build"), os.Stdout)
	if err != nil {
		return err
	}
	defer unlock()
	builder := boshrelease.Builder{Root: root, Log: os.Stdout}
	for _, step := range steps {
		if err := do(ctx, builder, step); err != nil {
			return fmt.Errorf("%s: %w", step, err)
		}
	}
	return nil
}

func do(ctx context.Context, builder boshrelease.Builder, step string) error {
	switch step {
	case "helpers":
		return builder.BuildHelpers(ctx)
	case "images":
		return builder.BuildImages(ctx)
	case "tarball":
		result, err := builder.Build(ctx)
		if err != nil {
			return err
		}
		fmt.Printf("%s/%s: %s, %s\n", result.Name, result.Version, result.Tarball, components.Size(result.Size))
		return nil
	default:
		return fmt.Errorf("no such step; there are helpers, images, tarball")
	}
}
