package openstack

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"kubernetes-release/cloud"
	service "kubernetes-release/internal/metadata"
	"kubernetes-release/internal/poll"
	"kubernetes-release/preflight"
)

var _ cloud.Checker = (*Provider)(nil)

// Checks implements cloud.Checker.
func (*Provider) Checks() []preflight.Check {
	var list []preflight.Check
	for _, c := range checks() {
		list = append(list, c.Check)
	}
	return list
}

// Preflight implements cloud.Checker. Workers ask the metadata service only, because they have no credential. What may
// end by itself is asked again until the retry window ends.
func (p *Provider) Preflight(ctx context.Context, request cloud.Request) (*cloud.Outcome, error) {
	var settings Settings
	if err := request.Config.DecodeCloud(&settings); err != nil {
		return nil, err
	}
	secrets := &preflight.Secrets{}
	log := secrets.Logger(request.Logger())
	outcome := &cloud.Outcome{}
	calls := map[preflight.Calls]int{}
	deadline := p.now().Add(time.Duration(request.Config.RetryWindow))
	pause := &preflight.Backoff{First: time.Second, Limit: 8 * time.Second}
	for {
		f := p.round(ctx, request, settings, secrets, calls)
		if f.metadataErr == nil && outcome.Identity == nil {
			id := f.metadata.identity(request.Config.VM)
			outcome.Identity, outcome.Machine = &id, f.metadata.UUID
		}
		var waitFor string
		outcome.Results, waitFor = evaluate(f, request.Config)
		left := deadline.Sub(p.now())
		if waitFor == "" || left <= 0 {
			break
		}
		log.Info("waiting", "for", waitFor, "window_left", left.Round(time.Second))
		if poll.Sleep(ctx, min(pause.Next(), left)) != nil {
			break
		}
	}
	for call, count := range calls {
		call.Count = count
		outcome.Calls = append(outcome.Calls, call)
	}
	slices.SortFunc(outcome.Calls, func(a, b preflight.Calls) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Action, b.Action))
	})
	outcome.Secrets = secrets.List()
	return outcome, nil
}

// round asks everything once.
func (p *Provider) round(
	ctx context.Context, request cloud.Request, settings Settings, secrets *preflight.Secrets,
	calls map[preflight.Calls]int,
) *facts {
	f := &facts{request: request.Config, settings: settings}
	calls[preflight.Calls{Service: "metadata", Action: "GET meta_data.json"}]++
	f.metadata, f.metadataErr = readMetadata(ctx, cmp.Or(p.MetadataEndpoint, service.Service))
	f.now = p.now() // before the requests, which can take longer than clocks may differ
	if request.Config.Role == preflight.Control && request.Config.Mode != preflight.ModeOff {
		f.config, f.configErr = parseConfig(request.CloudConfig)
		secrets.Add(f.config.secrets()...)
		g := gatherer{facts: f, ctx: ctx, calls: calls}
		g.gather(request.Config.CloudConfigFile)
	}
	return f
}

// evaluate runs the checks. It also returns the check to wait for: one that fails, if every failure may end by itself.
func evaluate(f *facts, config preflight.Config) (results []preflight.Result, waitFor string) {
	if config.Mode == preflight.ModeOff {
		if errors.Is(f.metadataErr, service.ErrTemporary) {
			return nil, "metadata-service"
		}
		return nil, ""
	}
	enforced := config // mode warn waits for the same changes
	enforced.Mode = preflight.ModeEnforce
	final := false
	for _, c := range checks() {
		if !c.AppliesTo(config.Role) {
			continue
		}
		outcome := c.run(f)
		result, ok := config.Grade(c.Check, outcome)
		if !ok {
			continue
		}
		results = append(results, result)
		if graded, _ := enforced.Grade(c.Check, outcome); graded.Status != preflight.Failed {
			continue
		}
		for _, finding := range outcome.Findings {
			if !finding.Eventual {
				final = true
			}
		}
		waitFor = c.ID
	}
	if final {
		waitFor = ""
	}
	return results, waitFor
}
