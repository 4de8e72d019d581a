// Command cis compares results of kube-bench with the failures that are known to remain.
package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"kubernetes-release/internal/atomicfile"
	"kubernetes-release/internal/cli"
	"kubernetes-release/testbed/cis"
)

func main() {
	var remaining, output string
	results := map[string]*string{cis.Control: new(string), cis.Worker: new(string)}
	command := &cobra.Command{
		Use: "cis", Short: "Compare results of kube-bench with the failures that are known to remain",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return compare(results, remaining, output) },
	}
	flags := command.Flags()
	for _, vm := range slices.Sorted(maps.Keys(results)) {
		flags.StringVar(
			results[vm],
			vm,
			"",
			"`file` with what kube-bench printed on a "+vm+" VM as JSON, with the output of its tests",
		)
		_ = command.MarkFlagRequired(vm) // fails for an unknown flag only
	}
	flags.StringVar(&remaining, "remaining", "", "`file` with the failures that remain, and their reasons")
	flags.StringVar(&output, "output", "", "`folder` for report.txt and junit.xml")
	for _, name := range []string{"remaining", "output"} {
		_ = command.MarkFlagRequired(name) // fails for an unknown flag only
	}
	cli.Main(command)
}

func compare(results map[string]*string, remainingFile, output string) error {
	var checks []cis.Check
	for _, vm := range slices.Sorted(maps.Keys(results)) {
		file := *results[vm]
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		found, err := cis.ParseResults(vm, content)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		checks = append(checks, found...)
	}
	content, err := os.ReadFile(remainingFile)
	if err != nil {
		return err
	}
	remaining, err := cis.ParseRemaining(content)
	if err != nil {
		return fmt.Errorf("%s: %w", remainingFile, err)
	}
	outcomes := cis.Compare(checks, remaining)
	table := cis.Table(outcomes)
	fmt.Print(table)
	junit, err := cis.JUnit(outcomes)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(output, "report.txt"), []byte(table), 0o644); err != nil {
		return err
	}
	if err := atomicfile.Write(filepath.Join(output, "junit.xml"), junit, 0o644); err != nil {
		return err
	}
	if problems := cis.Problems(outcomes); len(problems) > 0 {
		return fmt.Errorf(
			"%d checks differ from %s; the table marks them UNEXPECTED: fix the cause, or give or remove a reason",
			len(problems), remainingFile,
		)
	}
	return nil
}
