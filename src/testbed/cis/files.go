package cis

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"kubernetes-release/internal/atomicfile"
)

// Files are the paths of what is compared, and of the report.
type Files struct {
	// Results are what kube-bench printed on the VMs, by Control and Worker.
	Results map[string]string
	// Remaining has the failures that are known to remain.
	Remaining string
	// Output is the folder for report.txt and junit.xml.
	Output string
}

// Report compares the results with the failures that remain, prints the table and writes the reports. Differences are
// an error.
func (f Files) Report(out io.Writer) error {
	checks, err := f.checks()
	if err != nil {
		return err
	}
	content, err := os.ReadFile(f.Remaining)
	if err != nil {
		return err
	}
	remaining, err := ParseRemaining(content)
	if err != nil {
		return fmt.Errorf("%s: %w", f.Remaining, err)
	}
	outcomes := Compare(checks, remaining)
	table := Table(outcomes)
	fmt.Fprint(out, table)
	junit, err := JUnit(outcomes)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(f.Output, "report.txt"), []byte(table), 0o644); err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(f.Output, "junit.xml"), junit, 0o644); err != nil {
		return err
	}
	if problems := Problems(outcomes); len(problems) > 0 {
		return fmt.Errorf(
			"%d checks differ from %s; the table marks them UNEXPECTED: fix the cause, or give or remove a reason",
			len(problems), f.Remaining,
		)
	}
	return nil
}

func (f Files) checks() ([]Check, error) {
	var checks []Check
	for _, vm := range slices.Sorted(maps.Keys(f.Results)) {
		content, err := os.ReadFile(f.Results[vm])
		if err != nil {
			return nil, err
		}
		found, err := ParseResults(vm, content)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Results[vm], err)
		}
		checks = append(checks, found...)
	}
	return checks, nil
}
