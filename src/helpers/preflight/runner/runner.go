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

// Run runs the checks, writes the identity of this machine, and publishes the report. An error means that not
// everything could be done that was asked for; there may be a report all the same.
func Run(ctx context.Context, registry *cloud.Registry, options Options) (*preflight.Report, error) {
	report, err := options.run(ctx, registry)
	if report != nil {
		err = errors.Join(err, options.Publish(report))
	}
	return report, err
}

// run is Run without publishing the report. With an error there may be a report too.
func (o Options) run(ctx context.Context, registry *cloud.Registry) (*preflight.Report, error) {
	config, err := preflight.ReadConfig(o.Config)
	if err != nil {
		return nil, err
	}
	config.Thorough = o.Thorough
	provider, notice, err := registry.Lookup(config.Provider)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.Config, err)
	}
	log, closeLog, err := o.openLog()
	if err != nil {
		return nil, err
	}
	defer closeLog()

	// What is left of the timeout after the window is for the last requests and the report.
	config.RetryWindow = min(config.RetryWindow, duration.Duration(o.Timeout-o.Timeout/10))
	started := o.Clock.Now()
	outcome := &cloud.Outcome{}
	if checker, checks := provider.(cloud.Checker); checks {
		outcome, err = o.check(ctx, checker, config, log)
	} else {
		log.Info(notice)
		err = config.DecodeCloud(&struct{}{}) // nothing reads it
		if err == nil && provider != nil && o.NodeIdentity != "" {
			outcome.Identity, err = o.identify(ctx, provider, config)
		}
	}
	if err != nil {
		return nil, err
	}
	report := preflight.NewReport(config, outcome.Results, started, o.Clock.Since(started))
	report.Node, report.Machine = outcome.Identity, outcome.Machine
	report.Explanations, report.Calls = outcome.Explanations, outcome.Calls
	report.Clean(outcome.Secrets...)
	// A report that failed says why the machine was not identified.
	if provider != nil && (report.Node != nil || report.Result != preflight.RunFailed) {
		if err = o.writeNode(report.Node, log); err != nil && report.Result != preflight.RunFailed {
			report.Result = preflight.RunError
		}
	}
	logResults(log, report)
	return report, err
}

// check has a provider run its checks.
func (o Options) check(
	ctx context.Context, checker cloud.Checker, config preflight.Config, log *slog.Logger,
) (*cloud.Outcome, error) {
	cloudConfig, err := ReadCloudConfig(config.CloudConfigFile)
	if err != nil {
		return nil, err
	}
	if err := preflight.ValidateOverrides(config.Checks, checker.Checks()); err != nil {
		return nil, fmt.Errorf("%s: %w", o.Config, err)
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	return checker.Preflight(ctx, cloud.Request{Config: config, CloudConfig: cloudConfig, Log: log})
}

// leastWindow is enough for one answer of a metadata service.
const leastWindow = 5 * time.Second

// identify returns the identity of this machine in a cloud without checks: that of the cloud, or BOSH's.
func (o Options) identify(
	ctx context.Context, provider cloud.Provider, config preflight.Config,
) (*node.Identity, error) {
	if config.VM.InstanceGroup == "" || config.VM.InstanceID == "" || config.VM.Address == "" {
		return nil, fmt.Errorf(
			"%s: vm is incomplete: the node of a provider without checks is named after the instance group and the "+
				"instance ID",
			o.Config,
		)
	}
	id := config.VM.Identity()
	identifier, ok := provider.(cloud.Identifier)
	if !ok {
		return &id, nil
	}
	window := max(config.RetryWindow.Std(), leastWindow)
	err := poll.Within(ctx, window, time.Second, func(ctx context.Context) (err error) {
		if id, err = identifier.Identify(ctx, config.VM); err != nil && !errors.Is(err, metadata.ErrTemporary) {
			return poll.Permanent(err)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf(
			"the metadata service of %s does not identify this VM, which is a Node by the name that it has there: %w",
			provider.About().Title, err,
		)
	}
	return &id, nil
}

// writeNode writes the identity of this machine (node.json), which kubelet and all others on it take the node's name
// from.
func (o Options) writeNode(id *node.Identity, log *slog.Logger) error {
	if o.NodeIdentity == "" {
		return nil
	}
	if id == nil {
		return fmt.Errorf(
			"the node identity %s could not be written, which no mode allows: instance metadata does not identify "+
				"this machine. Run again with mode enforce for the reason, or see the warnings above",
			o.NodeIdentity,
		)
	}
	log.Info("identified", "node", id.Name, "provider_id", id.ProviderID, "file", o.NodeIdentity)
	return node.Write(o.NodeIdentity, *id)
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
