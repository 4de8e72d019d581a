package main

import (
	"fmt"
	"io"

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
					fmt.Fprint(command.OutOrStdout(), preflight.Markdown(p.Checks()))
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
		fmt.Fprintf(w, "%-4s %-31s %-5s %-15s %s\n", p.About().Name, c.ID, c.Severity, c.RoleNames(), c.Title)
	}
}
