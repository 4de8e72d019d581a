package main

import (
	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"kubernetes-release/cloud"
	"kubernetes-release/internal/bosh"
	"kubernetes-release/internal/cli"
	"kubernetes-release/preflight"
	"kubernetes-release/preflight/runner"
)

// Exit codes other than 0, which means that no check failed.
const (
	exitFailed      = 1
	exitCouldNotRun = 2
)

func newCheckCommand(registry *cloud.Registry) *cobra.Command {
	o := runner.Options{Root: bosh.DefaultRoot, Clock: clock.RealClock{}}
	var output string
	command := &cobra.Command{
		Use:   "cloud-preflight --config FILE",
		Short: "Check what the cluster requires of the cloud",
		Long: `Check what the cluster requires of the cloud, and determine the identity of this machine.

Exit codes: 0 if no check failed (warnings are allowed), 1 if a check failed, 2 if the checks could not run.`,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := validate(o); err != nil {
				return err
			}
			var err error
			if o.JSON, err = asJSON(output); err != nil {
				return err
			}
			o.Stdout, o.Stderr = command.OutOrStdout(), command.ErrOrStderr()
			report, err := runner.Run(command.Context(), registry, o)
			switch {
			case err != nil:
				return &cli.ExitError{Code: exitCouldNotRun, Err: err}
			case report.Result == preflight.RunFailed:
				return &cli.ExitError{Code: exitFailed}
			}
			return nil
		},
	}
	flags := command.Flags()
	flags.StringVar(&o.Config, "config", "", "configuration `FILE` (preflight.json)")
	flags.StringVar(&o.NodeIdentity, "node-identity", "", "`FILE` to write this machine's identity to")
	flags.StringVar(&output, "output", "text", "format of the report on standard output: text or json")
	flags.StringVar(&o.Report, "report", "", "`FILE` to write the report to as JSON, regardless of --output")
	flags.StringVar(&o.Metrics, "metrics", "", "`FILE` to write what was found to as metrics for Prometheus")
	flags.StringVar(&o.Log, "log", "", "`FILE` to append a structured log to")
	flags.BoolVar(
		&o.Thorough, "thorough", false,
		"also make the calls that a deployment must avoid: test every permission, on every machine",
	)
	flags.DurationVar(&o.Timeout, "timeout", preflight.DefaultTimeout, "maximum duration of the run")
	return command
}

func validate(o runner.Options) error {
	switch {
	case o.Config == "":
		return cli.Usagef(
			"--config is missing; on a VM it is %s", o.Root.Job("cloud-provider", "config", "preflight.json"),
		)
	case o.Timeout <= 0:
		return cli.Usagef("--timeout %v is not a positive duration", o.Timeout)
	}
	return nil
}

// asJSON tells whether the report is JSON, from the flag --output.
func asJSON(output string) (bool, error) {
	if output != "text" && output != "json" {
		return false, cli.Usagef("--output %q is not one of text, json", output)
	}
	return output == "json", nil
}
