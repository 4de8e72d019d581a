package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"kubernetes-release/cloud"
	"kubernetes-release/preflight"
)

func newListCommand(registry *cloud.Registry) *cobra.Command {
	var markdown bool
	var only string
	command := &cobra.Command{
		Use:   "checks",
		Short: "List the checks of all cloud providers",
		Run: func(command *cobra.Command, _ []string) {
			for _, provider := range registry.All() {
				p, checks := provider.(cloud.Checker)
				if !checks || only != "" && only != p.About().Name {
					continue
				}
				if markdown {
					printMarkdown(command.OutOrStdout(), p.Checks())
				} else {
					printChecks(command.OutOrStdout(), p)
				}
			}
		},
	}
	command.Flags().StringVar(&only, "provider", "", "`NAME` of the only cloud provider to list")
	command.Flags().
		BoolVar(&markdown, "markdown", false, "print a table for the documentation, with the fix of each finding")
	return command
}

func printChecks(w io.Writer, p cloud.Checker) {
	for _, c := range p.Checks() {
		fmt.Fprintf(w, "%-4s %-31s %-5s %-15s %s\n", p.About().Name, c.ID, c.Severity, roles(c), c.Title)
	}
}

func printMarkdown(w io.Writer, checks []preflight.Check) {
	fmt.Fprintf(
		w, "There are %d checks:\n\n| id | passes if | a finding | on | uses | fix |\n|---|---|---|---|---|---|\n",
		len(checks),
	)
	for _, c := range checks {
		effect := map[preflight.Severity]string{preflight.Fail: "fails", preflight.Warn: "warns"}[c.Severity]
		if c.WarnsIf != "" {
			effect += "; only warns: " + c.WarnsIf
		}
		var uses []string
		for _, action := range c.Permissions {
			uses = append(uses, "`"+action+"`")
		}
		fmt.Fprintf(
			w,
			"| [`%s`](#%s) | %s | %s | %s | %s | %s |\n",
			c.ID,
			c.Section,
			c.Title,
			effect,
			roles(c),
			strings.Join(uses, ", "),
			c.Fix,
		)
	}
}

func roles(c preflight.Check) string {
	var names []string
	for _, r := range c.Roles {
		names = append(names, string(r))
	}
	return strings.Join(names, ", ")
}
