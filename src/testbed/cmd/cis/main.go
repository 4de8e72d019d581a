// Command cis compares results of kube-bench with the failures that are known to remain.
package main

import (
	"maps"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"kubernetes-release/internal/cli"
	"kubernetes-release/testbed/cis"
)

func main() {
	files := cis.Files{Results: map[string]string{}}
	results := map[string]*string{cis.Control: new(string), cis.Worker: new(string)}
	command := &cobra.Command{
		Use: "cis", Short: "Compare results of kube-bench with the failures that are known to remain",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			for vm, file := range results {
				files.Results[vm] = *file
			}
			return files.Report(os.Stdout)
		},
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
	flags.StringVar(&files.Remaining, "remaining", "", "`file` with the failures that remain, and their reasons")
	flags.StringVar(&files.Output, "output", "", "`folder` for report.txt and junit.xml")
	for _, name := range []string{"remaining", "output"} {
		_ = command.MarkFlagRequired(name) // fails for an unknown flag only
	}
	cli.Main(command)
}
