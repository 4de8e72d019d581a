// Command cis compares results of kube-bench with the failures that are known to remain.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"kubernetes-release/internal/atomicfile"
	"kubernetes-release/internal/cli"
	"kubernetes-release/test/cis"
)

func main() {
	var results, remaining, output string
	command := &cobra.Command{
		Use: "cis", Short: "Compare results of kube-bench with the failures that are known to remain",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return compare(results, remaining, output) },
	}
	flags := command.Flags()
	flags.StringVar(&results, "results", "", "`file` with what kube-bench printed as JSON, with the output of its tests")
	flags.StringVar(&remaining, "remaining", "", "`file` with the failures that remain, and their reasons")
	flags.StringVar(&output, "output", "", "`folder` for report.txt and junit.xml")
	for _, name := range []string{"results", "remaining", "output"} {
		_ = command.MarkFlagRequired(name) // fails for an unknown flag only
	}
	cli.Main(command)
}

func compare(resultsFile, remainingFile, output string) error {
	content, err := os.ReadFile(resultsFile)
	if err != nil {
		return err
	}
	checks, err := cis.ParseResults(content)
	if err != nil {
		return fmt.Errorf("%s: %w", resultsFile, err)
	}
	if content, err = os.ReadFile(remainingFile); err != nil {
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
		return fmt.Errorf("%d checks differ from %s; the table marks them UNEXPECTED: fix the cause, or give or remove a reason", len(problems), remainingFile)
	}
	return nil
}
