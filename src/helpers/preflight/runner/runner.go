// Package runner runs the preflight of this machine's cloud provider: it reads the configuration, has the provider
// identify the machine and check the cloud, and publishes the report.
package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"k8s.io/utils/clock"

	"kubernetes-release/cloud"
	"kubernetes-release/internal/bosh"
	"kubernetes-release/internal/duration"
	"kubernetes-release/internal/metadata"
	"kubernetes-release/internal/poll"
	"kubernetes-release/node"
	"kubernetes-release/preflight"
)

// Options are those of Run. Files without a path are not written.
type Options struct {
	Output
	// Config is the path of the configuration, a preflight.Config.
	Config string
	// NodeIdentity is the path of the file for the identity of this machine.
	NodeIdentity string
	// Log is the path of the file that the structured log is appended to.
	Log string
	// Thorough also makes the calls that a deployment must avoid.
	Thorough bool
	// Timeout limits the checks.
	Timeout time.Duration
	Root    bosh.Root
	Clock   clock.PassiveClock
}

// Run runs the checks and publishes their report. An error means that not everything could be done that was asked for;
// there may be a report all the same.
func Run(ctx context.Context, registry *cloud.Registry, options Options) (*preflight.Report, error) {
	report, err := options.check(ctx, registry)
	if report != nil {
		err = errors.Join(err, options.Publish(report))
	}
	return report, err
}

// check runs the checks. With an error there may be a report too.
func (o Options) check(ctx context.Context, registry *cloud.Registry) (*preflight.Report, error) {
	config, err := preflight.ReadConfig(o.Config)
	if err != nil {
		return nil, err
	}
	config.Thorough = o.Thorough
	provider, notice, err := registry.Lookup(config.Provider)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.Config, err)
	}
	cloudConfig, err := ReadCloudConfig(config.CloudConfigFile)
	if err != nil {
		return nil, err
	}
	log, closeLog, err := o.openLog()
	if err != nil {
		return nil, err
	}
	defer closeLog()

	// What is left of the timeout after the window is for the last requests and the report.
	config.RetryWindow = min(config.RetryWindow, duration.Duration(o.Timeout-o.Timeout/10))
	started := o.Clock.Now()
	checker, checks := provider.(cloud.Checker)
	if !checks {
		log.Info(notice)
		outcome := &cloud.Outcome{}
		if provider != nil && o.NodeIdentity != "" {
			if config.VM.InstanceGroup == "" || config.VM.InstanceID == "" || config.VM.Address == "" {
				return nil, fmt.Errorf(
					"%s: vm is incomplete: the node of a provider without checks is named after the instance group "+
						"and the instance ID",
					o.Config,
				)
			}
			id, err := identify(ctx, provider, config)
			if err != nil {
				return nil, err
			}
			if outcome.Identity, err = &id, o.writeIdentity(id, log); err != nil {
				return nil, err
			}
		}
		report := o.newReport(config, outcome, started)
		logResults(log, report)
		return report, nil
	}
	if err := preflight.ValidateOverrides(config.Checks, checker.Checks()); err != nil {
		return nil, fmt.Errorf("%s: %w", o.Config, err)
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	outcome, err := checker.Preflight(ctx, cloud.Request{
		Config: config, CloudConfig: cloudConfig, Log: log,
		Identified: func(id node.Identity) error { return o.writeIdentity(id, log) },
	})
	if err != nil {
		return nil, err
	}
	report := o.newReport(config, outcome, started)
	unidentified := o.NodeIdentity != "" && outcome.Identity == nil && report.Result != preflight.RunFailed
	if unidentified {
		report.Result = preflight.RunError
	}
	logResults(log, report)
	if unidentified {
		return report, fmt.Errorf(
			"the node identity %s could not be written, which no mode allows: instance metadata does not identify "+
				"this machine. Run again with mode enforce for the reason, or see the warnings above",
			o.NodeIdentity,
		)
	}
	return report, nil
}

// leastWindow is enough for one answer of a metadata service.
const leastWindow = 5 * time.Second

// identify returns the identity of this machine in a cloud without checks: that of the cloud, or BOSH's.
func identify(ctx context.Context, provider cloud.Provider, config preflight.Config) (node.Identity, error) {
	identifier, ok := provider.(cloud.Identifier)
	if !ok {
		return config.VM.Identity(), nil
	}
	var id node.Identity
	window := max(config.RetryWindow.Std(), leastWindow)
	err := poll.Within(ctx, window, time.Second, func(ctx context.Context) (err error) {
		if id, err = identifier.Identify(ctx, config.VM); err != nil && !errors.Is(err, metadata.ErrTemporary) {
			return poll.Permanent(err)
		}
		return err
	})
	if err != nil {
		return id, fmt.Errorf(
			"the metadata service of %s does not identify this VM, which is a Node by the name that it has there: %w",
			provider.About().Title, err,
		)
	}
	return id, nil
}

func (o Options) writeIdentity(id node.Identity, log *slog.Logger) error {
	if o.NodeIdentity == "" {
		return nil
	}
	log.Info("identified", "node", id.Name, "provider_id", id.ProviderID, "file", o.NodeIdentity)
	return node.Write(o.NodeIdentity, id)
}

func (o Options) newReport(config preflight.Config, outcome *cloud.Outcome, started time.Time) *preflight.Report {
	report := preflight.NewReport(config, outcome.Results, started, o.Clock.Since(started))
	report.Node, report.Machine = outcome.Identity, outcome.Machine
	report.Explanations, report.Calls = outcome.Explanations, outcome.Calls
	report.Clean(outcome.Secrets...)
	return report
}

// ReadCloudConfig returns the content of the file for the cloud controller manager, which is nil only without a path.
func ReadCloudConfig(path string) ([]byte, error) {
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
