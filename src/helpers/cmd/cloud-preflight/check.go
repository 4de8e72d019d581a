package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"kubernetes-release/cloud"
	"kubernetes-release/internal/bosh"
	"kubernetes-release/internal/cli"
	"kubernetes-release/internal/logging"
	"kubernetes-release/internal/rootfile"
	"kubernetes-release/node"
	"kubernetes-release/preflight"
)

// Exit codes other than 0, which means that no check failed.
const (
	exitFailed      = 1
	exitCouldNotRun = 2
)

type options struct {
	config, nodeIdentity, output, report, metrics, log string
	timeout                                            time.Duration
	thorough                                           bool
}

func newCheckCommand(registry *cloud.Registry) *cobra.Command {
	var o options
	command := &cobra.Command{
		Use:   "cloud-preflight --config FILE",
		Short: "Check what the cluster requires of the cloud",
		Long: `Check what the cluster requires of the cloud, and determine the identity of this machine.

Exit codes: 0 if no check failed (warnings are allowed), 1 if a check failed, 2 if the checks could not run.`,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			report, err := o.check(command.Context(), registry, command.ErrOrStderr())
			if report != nil {
				err = errors.Join(err, o.publish(report, command.OutOrStdout(), command.ErrOrStderr()))
			}
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
	flags.StringVar(&o.config, "config", "", "configuration `FILE` (preflight.json)")
	flags.StringVar(&o.nodeIdentity, "node-identity", "", "`FILE` to write this machine's identity to")
	flags.StringVar(&o.output, "output", "text", "format of the report on standard output: text or json")
	flags.StringVar(&o.report, "report", "", "`FILE` to write the report to as JSON, regardless of --output")
	flags.StringVar(&o.metrics, "metrics", "", "`FILE` to write what was found to as metrics for Prometheus")
	flags.StringVar(&o.log, "log", "", "`FILE` to append a structured log to")
	flags.BoolVar(
		&o.thorough, "thorough", false,
		"also make the calls that a deployment must avoid: test every permission, on every machine",
	)
	flags.DurationVar(&o.timeout, "timeout", preflight.DefaultTimeout, "maximum duration of the run")
	return command
}

func (o options) validate() error {
	switch {
	case o.config == "":
		return cli.Usagef(
			"--config is missing; on a VM it is %s", bosh.DefaultRoot.Job("cloud-provider", "config", "preflight.json"),
		)
	case o.output != "text" && o.output != "json":
		return cli.Usagef("--output %q is not one of text, json", o.output)
	case o.timeout <= 0:
		return cli.Usagef("--timeout %v is not a positive duration", o.timeout)
	}
	return nil
}

// check runs the checks. With an error there may be a report too.
func (o options) check(ctx context.Context, registry *cloud.Registry, stderr io.Writer) (*preflight.Report, error) {
	config, err := preflight.ReadConfig(o.config)
	if err != nil {
		return nil, err
	}
	config.Thorough = o.thorough
	provider, notice, err := registry.Lookup(config.Provider)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.config, err)
	}
	cloudConfig, err := readCloudConfig(config.CloudConfigFile)
	if err != nil {
		return nil, err
	}
	log, closeLog, err := openLog(o.log, stderr)
	if err != nil {
		return nil, err
	}
	defer closeLog()

	started := time.Now()
	checker, checks := provider.(cloud.Checker)
	if !checks {
		log.Info(notice)
		outcome := &cloud.Outcome{}
		if provider != nil && o.nodeIdentity != "" {
			if config.VM.InstanceGroup == "" || config.VM.InstanceID == "" || config.VM.Address == "" {
				return nil, fmt.Errorf(
					"%s: vm is incomplete: the node of a provider without checks is named after the instance group "+
						"and the instance ID",
					o.config,
				)
			}
			id := config.VM.Identity()
			if outcome.Identity, err = &id, o.writeIdentity(id, log); err != nil {
				return nil, err
			}
		}
		report := newReport(config, outcome, started)
		logResults(log, report)
		return report, nil
	}
	if err := preflight.ValidateOverrides(config.Checks, checker.Checks()); err != nil {
		return nil, fmt.Errorf("%s: %w", o.config, err)
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	outcome, err := checker.Preflight(ctx, cloud.Request{
		Config: config, CloudConfig: cloudConfig, Log: log,
		Identified: func(id node.Identity) error { return o.writeIdentity(id, log) },
	})
	if err != nil {
		return nil, err
	}
	report := newReport(config, outcome, started)
	unidentified := o.nodeIdentity != "" && outcome.Identity == nil && report.Result != preflight.RunFailed
	if unidentified {
		report.Result = preflight.RunError
	}
	logResults(log, report)
	if unidentified {
		return report, fmt.Errorf(
			"the node identity %s could not be written, which no mode allows: instance metadata does not identify "+
				"this machine. Run again with mode enforce for the reason, or see the warnings above",
			o.nodeIdentity,
		)
	}
	return report, nil
}

func (o options) writeIdentity(id node.Identity, log *slog.Logger) error {
	if o.nodeIdentity == "" {
		return nil
	}
	log.Info("identified", "node", id.Name, "provider_id", id.ProviderID, "file", o.nodeIdentity)
	return node.Write(o.nodeIdentity, id)
}

func newReport(config preflight.Config, outcome *cloud.Outcome, started time.Time) *preflight.Report {
	report := preflight.NewReport(config, outcome.Results, started, time.Since(started))
	report.Node, report.Machine = outcome.Identity, outcome.Machine
	report.Explanations, report.Calls = outcome.Explanations, outcome.Calls
	report.Redact(outcome.Secrets...)
	return report
}

// publish writes the report: in the requested format to standard output, and the findings in full to the end of
// standard error.
func (o options) publish(report *preflight.Report, stdout, stderr io.Writer) error {
	if o.report != "" {
		if err := report.WriteFile(o.report); err != nil {
			return err
		}
	}
	if o.metrics != "" {
		if err := report.WriteMetrics(o.metrics); err != nil {
			return err
		}
	}
	if o.output == "json" {
		if err := report.WriteJSON(stdout); err != nil {
			return fmt.Errorf("write report: %w", err)
		}
	} else {
		preflight.Printer{Color: hasColor(stdout), Short: isTerminal(stdout)}.Table(stdout, report)
	}
	preflight.Printer{Color: hasColor(stderr)}.Findings(stderr, report)
	return nil
}

func readCloudConfig(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the cloud controller's configuration: %w", err)
	}
	if content == nil {
		content = []byte{}
	}
	return content, nil
}

// openLog returns a logger that writes progress to stderr and everything to the file, as JSON lines.
func openLog(path string, stderr io.Writer) (*slog.Logger, func(), error) {
	if path == "" {
		return logging.New(stderr), func() {}, nil
	}
	if err := protectLogs(path, bosh.DefaultRoot); err != nil {
		return nil, nil, err
	}
	f, err := rootfile.Append(path, 0o640)
	if err != nil {
		return nil, nil, fmt.Errorf("open log: %w", err)
	}
	file := slog.NewJSONHandler(f, logging.Options(slog.LevelDebug))
	return slog.New(slog.NewMultiHandler(logging.New(stderr).Handler(), file)), func() { _ = f.Close() }, nil
}

// protectLogs takes from the group vcap the permission to write to the directory of a job's logs. The agent opens the
// logs of lifecycle scripts in it as root, and follows links (bosh-agent, agent/script/generic_script.go). Other
// directories are left alone.
func protectLogs(path string, root bosh.Root) error {
	dir := filepath.Dir(path)
	if filepath.Dir(dir) != root.Path("sys/log") {
		return nil
	}
	return rootfile.Protect(dir)
}

// logResults writes one line per check to the log file; findings go to standard error in full.
func logResults(log *slog.Logger, r *preflight.Report) {
	for _, result := range r.Results {
		args := []any{"check", result.Check, "status", result.Status, "note", result.Note}
		for _, f := range result.Findings {
			args = append(
				args, slog.Group("finding", "resource", f.Resource, "wanted", f.Wanted, "found", f.Found, "fix", f.Fix),
			)
		}
		log.Debug("result", args...)
	}
	log.Debug(
		"result", "result", r.Result, "failed", r.Count(preflight.Failed), "warned", r.Count(preflight.Warned),
		"duration_ms", r.Milliseconds,
	)
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func hasColor(w io.Writer) bool { return isTerminal(w) && os.Getenv("NO_COLOR") == "" }
