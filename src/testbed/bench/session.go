package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"kubernetes-release/release/boshrelease"
)

// simulated and rotated are those that require neither the release nor the lab.
const simulated, rotated = "preflight", "rotation"

// Names are those of what a session can measure.
var Names = []string{
	"size", "deploy", "updates", "sizes", "restore", "faults", "storage", "providers", "clone", simulated, rotated,
}

// Session measures and keeps what it has measured in a report.
type Session struct {
	// Root is the repository.
	Root string
	// Runs is the number of measurements of deploys and preflights.
	Runs int
	// Accounts is the number of random accounts in which the preflight runs.
	Accounts int
	Out      io.Writer
}

// Measure measures what the names say, and prints it after all progress lines. What fails does not stop the rest.
func (s Session) Measure(ctx context.Context, names []string) error {
	var release boshrelease.Result
	if slices.ContainsFunc(names, func(name string) bool { return name != simulated && name != rotated }) {
		var err error
		if release, err = (boshrelease.Builder{Root: s.Root, Log: s.Out}).Last(); err != nil {
			return err
		}
	}
	report := filepath.Join(s.Root, ".build", "bench.json")
	var all []Figure
	var failed []error
	for _, name := range names {
		figures, err := s.measure(ctx, name, release)
		if err == nil {
			figures = Finish(figures)
			err = Keep(report, figures)
		}
		if err != nil {
			_, _ = fmt.Fprintf(s.Out, "%s: failed: %v\n", name, err)
			if failed = append(failed, fmt.Errorf("%s: %w", name, err)); ctx.Err() != nil {
				break
			}
			continue
		}
		all = append(all, figures...)
	}
	s.show(all, report)
	return errors.Join(failed...)
}

func (s Session) measure(ctx context.Context, name string, release boshrelease.Result) ([]Figure, error) {
	deploys := Deploys{Root: s.Root, Tarball: filepath.Join(s.Root, release.Tarball), Out: s.Out}
	switch name {
	case "size":
		return Size(ctx, s.Root, release, s.Out)
	case "deploy":
		deploys.Runs = s.Runs
		return deploys.Measure(ctx)
	case "updates":
		return (&Updates{Deploys: deploys}).Measure(ctx)
	case "sizes":
		return (&Sizes{Deploys: deploys}).Measure(ctx)
	case "restore":
		return (&Restore{Deploys: deploys}).Measure(ctx)
	case "faults":
		return (&Faults{Deploys: deploys}).Measure(ctx)
	case "storage":
		deploys.Runs = s.Runs
		return (&Storage{Deploys: deploys, ReleaseSize: release.Size}).Measure(ctx)
	case "providers":
		return Providers{Root: s.Root, ReleaseSize: release.Size, Out: s.Out}.Measure(ctx)
	case rotated:
		figure, err := Rotation{Out: s.Out}.Measure(ctx)
		return []Figure{figure}, err
	case simulated:
		figures, err := Preflights{Root: s.Root, Runs: s.Runs, Out: s.Out}.Measure(ctx)
		if err != nil {
			return nil, err
		}
		results, err := Results{Accounts: s.Accounts, Out: s.Out}.Measure(ctx)
		return append(figures, results), err
	default:
		figure, err := Clone(ctx, s.Root, s.Out)
		return []Figure{figure}, err
	}
}

func (s Session) show(figures []Figure, report string) {
	for _, f := range figures {
		f.Print(s.Out)
	}
	if len(figures) > 0 {
		_, _ = fmt.Fprintf(s.Out, "\nKept in %s\n", report)
	}
}
