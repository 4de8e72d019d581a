// Cloud-preflight runs on a machine before anything of the cluster starts: it finds out what the machine is called in
// its cloud, and checks what the cluster needs there. It changes nothing in the cloud.
//
//	cloud-preflight --config FILE [--node-identity FILE] [--output text|json] [--report FILE] [--log FILE] [--timeout D] [--thorough]
//	cloud-preflight iam-policy --role control|worker --cluster NAME [--role-name NAME] [--partition P] [--cloud-routes] [--wide-open]
//	cloud-preflight checks [--markdown]
//
// It exits with 0 if the checks passed (warnings are allowed), 1 if one failed, 2 if it could not run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"

	"kubernetes-release/helpers/cloud"
	"kubernetes-release/helpers/cloud/aws"
	"kubernetes-release/helpers/node"
	"kubernetes-release/helpers/preflight"
)

// Exit codes.
const (
	exitPassed      = 0
	exitFailed      = 1
	exitCouldNotRun = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr, &aws.Provider{}))
}

// run is main with its surroundings as parameters.
func run(ctx context.Context, args []string, stdout, stderr io.Writer, providers ...cloud.Provider) int {
	registry := cloud.NewRegistry(providers...)
	var code int
	var err error
	switch {
	case len(args) > 0 && args[0] == "iam-policy":
		code, err = iamPolicy(args[1:], stdout, stderr)
	case len(args) > 0 && args[0] == "checks":
		code, err = listChecks(args[1:], stdout, stderr, providers)
	default:
		code, err = check(ctx, args, stdout, stderr, registry)
	}
	if errors.Is(err, flag.ErrHelp) {
		return exitPassed
	}
	if err != nil {
		fmt.Fprintf(stderr, "cloud-preflight: %v\n", err)
		return exitCouldNotRun
	}
	return code
}

type options struct {
	config, nodeIdentity, output, report, log string
	timeout                                   time.Duration
	thorough                                  bool
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("cloud-preflight", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.config, "config", "", "`file` that says what to check (preflight.json)")
	flags.StringVar(&o.nodeIdentity, "node-identity", "", "`file` to write this machine's identity to")
	flags.StringVar(&o.output, "output", "text", "form of the report on standard output: text or json")
	flags.StringVar(&o.report, "report", "", "`file` to write the report to as JSON, in either form of output")
	flags.StringVar(&o.log, "log", "", "`file` to append a structured log to")
	flags.BoolVar(&o.thorough, "thorough", false, "also try out what needs more calls than a deploy should make: every permission, on every machine")
	flags.DurationVar(&o.timeout, "timeout", preflight.DefaultTimeout, "longest time that the run may take")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("argument %q is not understood; commands are iam-policy and checks, everything else is a flag (see --help)", flags.Arg(0))
	case o.config == "":
		return o, errors.New("--config is missing; on a VM it is /var/vcap/jobs/cloud-provider/config/preflight.json")
	case o.output != "text" && o.output != "json":
		return o, fmt.Errorf("--output %q is not one of text, json", o.output)
	case o.timeout <= 0:
		return o, fmt.Errorf("--timeout %v is not a positive duration", o.timeout)
	}
	return o, nil
}

func check(ctx context.Context, args []string, stdout, stderr io.Writer, registry *cloud.Registry) (int, error) {
	o, err := parse(args, stderr)
	if err != nil {
		return 0, err
	}
	config, err := preflight.ReadConfig(o.config)
	if err != nil {
		return 0, err
	}
	config.Thorough = o.thorough
	provider, remark, err := registry.Lookup(config.Provider)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", o.config, err)
	}
	cloudConfig, err := readCloudConfig(config.CloudConfigFile)
	if err != nil {
		return 0, err
	}
	log, closeLog, err := openLog(o.log, stderr)
	if err != nil {
		return 0, err
	}
	defer closeLog()

	started := time.Now()
	outcome := &cloud.Outcome{}
	if provider == nil {
		fmt.Fprintf(stderr, "cloud-preflight: %s\n", remark)
	} else {
		if err := preflight.ValidateOverrides(config.Checks, provider.Checks()); err != nil {
			return 0, fmt.Errorf("%s: %w", o.config, err)
		}
		ctx, cancel := context.WithTimeout(ctx, o.timeout)
		defer cancel()
		outcome, err = provider.Preflight(ctx, cloud.Request{
			Config: config, CloudConfig: cloudConfig, Log: log,
			Identified: func(id node.Identity) error {
				if o.nodeIdentity == "" {
					return nil
				}
				log.Info("identified", "node", id.Name, "provider_id", id.ProviderID, "file", o.nodeIdentity)
				return node.Write(o.nodeIdentity, id)
			},
		})
		if err != nil {
			return 0, err
		}
	}

	report := preflight.NewReport(config, outcome.Results, started, time.Since(started))
	report.Node, report.Machine, report.Explanations, report.Calls = outcome.Identity, outcome.Machine, outcome.Explanations, outcome.Calls
	report.Redact(outcome.Secrets...)
	logResults(log, report)
	if err := publish(o, report, stdout, stderr); err != nil {
		return 0, err
	}
	if report.Verdict == preflight.VerdictFailed {
		return exitFailed, nil
	}
	if provider != nil && o.nodeIdentity != "" && outcome.Identity == nil {
		return 0, fmt.Errorf("the node identity %s could not be written, whatever the mode: instance metadata does not say who this machine is. Run again with mode enforce to see why, or read the warnings above", o.nodeIdentity)
	}
	return exitPassed, nil
}

// publish writes the report: the form asked for on standard output, the findings in full at the end of standard error.
func publish(o options, report *preflight.Report, stdout, stderr io.Writer) error {
	if o.report != "" {
		if err := report.WriteFile(o.report); err != nil {
			return err
		}
	}
	if o.output == "json" {
		if err := report.WriteJSON(stdout); err != nil {
			return fmt.Errorf("write report: %w", err)
		}
	} else {
		preflight.Printer{Colour: isTerminal(stdout) && os.Getenv("NO_COLOR") == "", Short: isTerminal(stdout)}.Table(stdout, report)
	}
	preflight.Printer{Colour: isTerminal(stderr) && os.Getenv("NO_COLOR") == ""}.Findings(stderr, report)
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

// openLog returns a logger that writes progress to stderr, for people, and everything to the file, as JSON lines.
func openLog(path string, stderr io.Writer) (*slog.Logger, func(), error) {
	progress := slog.NewTextHandler(stderr, &slog.HandlerOptions{ReplaceAttr: utc})
	if path == "" {
		return slog.New(progress), func() {}, nil
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		return nil, nil, fmt.Errorf("open log: %w", err)
	}
	file := slog.NewJSONHandler(f, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: utc})
	return slog.New(slog.NewMultiHandler(progress, file)), func() { f.Close() }, nil
}

// utc writes times as RFC 3339 in UTC.
func utc(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime {
		a.Value = slog.StringValue(a.Value.Time().UTC().Format(time.RFC3339Nano))
	}
	return a
}

// logResults writes one line a check to the log file; standard error gets the findings in a form of their own.
func logResults(log *slog.Logger, r *preflight.Report) {
	for _, result := range r.Results {
		args := []any{"check", result.Check, "status", result.Status, "note", result.Note}
		for _, f := range result.Findings {
			args = append(args, slog.Group("finding", "resource", f.Resource, "wanted", f.Wanted, "found", f.Found, "mend", f.Mend))
		}
		log.Debug("result", args...)
	}
	log.Debug("verdict", "verdict", r.Verdict, "failed", r.Count(preflight.Failed), "warned", r.Count(preflight.Warned), "duration_ms", r.Milliseconds)
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func listChecks(args []string, stdout, stderr io.Writer, providers []cloud.Provider) (int, error) {
	flags := flag.NewFlagSet("cloud-preflight checks", flag.ContinueOnError)
	flags.SetOutput(stderr)
	markdown := flags.Bool("markdown", false, "print a table for documents, with what puts each finding right")
	if err := flags.Parse(args); err != nil {
		return 0, err
	}
	if flags.NArg() > 0 {
		return 0, fmt.Errorf("argument %q is not understood", flags.Arg(0))
	}
	if *markdown {
		fmt.Fprint(stdout, "| id | what is checked | a finding | on | what mends it |\n|---|---|---|---|---|\n")
	}
	for _, p := range providers {
		for _, c := range p.Checks() {
			roles := make([]string, len(c.Roles))
			for i, r := range c.Roles {
				roles[i] = string(r)
			}
			if *markdown {
				fmt.Fprintf(stdout, "| `%s` | %s | %ss | %s | %s |\n", c.ID, c.Title, c.Severity, strings.Join(roles, ", "), c.Mend)
				continue
			}
			fmt.Fprintf(stdout, "%-4s %-31s %-5s %-15s %s\n", p.Name(), c.ID, c.Severity, strings.Join(roles, ","), c.Title)
		}
	}
	return exitPassed, nil
}

func iamPolicy(args []string, stdout, stderr io.Writer) (int, error) {
	var o aws.PolicyOptions
	flags := flag.NewFlagSet("cloud-preflight iam-policy", flag.ContinueOnError)
	flags.SetOutput(stderr)
	role := flags.String("role", "", "whose policy: control or worker")
	flags.StringVar(&o.Cluster, "cluster", "", "the cluster's `name`, to whose tag the policy is narrowed")
	flags.StringVar(&o.Partition, "partition", "aws", "aws, aws-cn or aws-us-gov")
	flags.StringVar(&o.RoleName, "role-name", "", "`name` of the IAM role, which may then ask about itself (default kubernetes-ROLE)")
	flags.BoolVar(&o.CloudRoutes, "cloud-routes", false, "also what the cloud controller needs to write pod routes")
	flags.BoolVar(&o.WideOpen, "wide-open", false, "allow everything of EC2, load balancers and ECR: for a first try, not for production")
	if err := flags.Parse(args); err != nil {
		return 0, err
	}
	if flags.NArg() > 0 {
		return 0, fmt.Errorf("argument %q is not understood", flags.Arg(0))
	}
	o.Role = preflight.Role(*role)
	policy, err := aws.NewPolicy(o)
	if err != nil {
		return 0, fmt.Errorf("iam-policy: %w", err)
	}
	content, err := policy.JSON()
	if err != nil {
		return 0, err
	}
	if o.WideOpen {
		fmt.Fprintln(stderr, "cloud-preflight: this policy is wide open: a start to try things out with, not for production")
	}
	_, err = stdout.Write(content)
	return exitPassed, err
}
