package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"kubernetes-release/internal/cli"
	"kubernetes-release/release/boshrelease"
	"kubernetes-release/release/workspace"
	"kubernetes-release/testbed/bench"
)

func run(command *cobra.Command, root *workspace.Root, runs int, names []string) error {
	if runs < 1 {
		return cli.Usagef("--runs is %d; it must be at least 1", runs)
	}
	dir, err := root.Path()
	if err != nil {
		return err
	}
	out := command.OutOrStdout()
	var release boshrelease.Result
	if slices.ContainsFunc(names, func(name string) bool { return name != "preflight" }) {
		if release, err = (boshrelease.Builder{Root: dir, Log: out}).Last(); err != nil {
			return err
		}
	}
	report := filepath.Join(dir, ".build", "bench.json")
	var all []bench.Figure
	defer func() { show(out, all, report) }()
	for _, name := range names {
		figures, err := measure(command.Context(), name, dir, runs, release, out)
		if err != nil {
			return err
		}
		figures = bench.Finish(figures)
		if err := bench.Keep(report, figures); err != nil {
			return err
		}
		all = append(all, figures...)
	}
	return nil
}

func measure(
	ctx context.Context, name, root string, runs int, release boshrelease.Result, out io.Writer,
) ([]bench.Figure, error) {
	deploys := bench.Deploys{Root: root, Tarball: filepath.Join(root, release.Tarball), Out: out}
	switch name {
	case "size":
		return bench.Size(ctx, root, release, out)
	case "deploy":
		deploys.Runs = runs
		return deploys.Measure(ctx)
	case "updates":
		return (&bench.Updates{Deploys: deploys}).Measure(ctx)
	case "sizes":
		return (&bench.Sizes{Deploys: deploys}).Measure(ctx)
	case "restore":
		return (&bench.Restore{Deploys: deploys}).Measure(ctx)
	case "faults":
		return (&bench.Faults{Deploys: deploys}).Measure(ctx)
	case "storage":
		deploys.Runs = runs
		return (&bench.Storage{Deploys: deploys, ReleaseSize: release.Size}).Measure(ctx)
	case "preflight":
		figures, err := bench.Preflights{Root: root, Runs: runs, Out: out}.Measure(ctx)
		if err != nil {
			return nil, err
		}
		results, err := bench.Results{Out: out}.Measure(ctx)
		return append(figures, results), err
	default:
		figure, err := bench.Clone(ctx, root, out)
		return []bench.Figure{figure}, err
	}
}

// show prints what was measured, after all progress lines.
func show(out io.Writer, figures []bench.Figure, report string) {
	for _, f := range figures {
		f.Print(out)
	}
	if len(figures) > 0 {
		_, _ = fmt.Fprintf(out, "\nKept in %s\n", report)
	}
}
