// Command bench measures the release and prints ratios.
//
//	bench [-root DIR] [-runs N] FIGURES…
//
// FIGURES are any of
//
//	size       the tarball against the bare upstream programs
//	deploy     a deploy in the lab against the same programs started by hand, and the memory of what was deployed
//	clone      make up in a fresh clone against go build of the components (an hour)
//	preflight  the preflights of 1,000 workers against EC2's token bucket, simulated (three minutes)
//
// They are also kept in DIR/.build/bench.json. All but preflight need the release and the lab (make release lab). Exit
// status 0 if everything was measured, whether or not aims were met, 1 with the reason on standard error otherwise.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"kubernetes-release/lab/bench"
	"kubernetes-release/lab/vm"
	"kubernetes-release/release/boshrelease"
)

func main() {
	vm.MaybeRunInit()
	root := flag.String("root", ".", "the repository")
	repeat := flag.Int("runs", 3, "how often deploys are measured")
	flag.Parse()
	// A second signal changes nothing: what was made is removed first.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *root, *repeat, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

var known = []string{"size", "deploy", "clone", "preflight"}

func run(ctx context.Context, root string, repeat int, names []string) error {
	root, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	if len(names) == 0 || slices.ContainsFunc(names, func(name string) bool { return !slices.Contains(known, name) }) {
		return fmt.Errorf("got %q; it can measure: %q", names, known)
	}
	if repeat < 1 {
		return fmt.Errorf("-runs is %d; it must be at least 1", repeat)
	}
	var release boshrelease.Result
	if slices.ContainsFunc(names, func(name string) bool { return name != "preflight" }) {
		if release, err = (boshrelease.Builder{Root: root, Log: os.Stdout}).Last(); err != nil {
			return err
		}
	}
	keep := filepath.Join(root, ".build", "bench.json")
	var all []bench.Figure
	for _, name := range names {
		figures, err := measure(ctx, name, root, repeat, release)
		if err == nil {
			figures = bench.Finish(figures)
			err = bench.Keep(keep, figures)
		}
		if err != nil {
			show(all, keep)
			return err
		}
		all = append(all, figures...)
	}
	show(all, keep)
	return nil
}

func measure(ctx context.Context, name, root string, repeat int, release boshrelease.Result) ([]bench.Figure, error) {
	switch name {
	case "size":
		return bench.Size(ctx, root, release, os.Stdout)
	case "deploy":
		deploys := bench.Deploys{Root: root, Tarball: filepath.Join(root, release.Tarball), Runs: repeat, Out: os.Stdout}
		return deploys.Measure(ctx)
	case "preflight":
		return bench.Preflights{Root: root, Runs: repeat, Out: os.Stdout}.Measure(ctx)
	default:
		figure, err := bench.Clone(ctx, root, os.Stdout)
		return []bench.Figure{figure}, err
	}
}

// show prints what was measured, after all the progress.
func show(figures []bench.Figure, kept string) {
	for _, f := range figures {
		f.Print(os.Stdout)
	}
	if len(figures) > 0 {
		fmt.Printf("\nKept in %s\n", kept)
	}
}
