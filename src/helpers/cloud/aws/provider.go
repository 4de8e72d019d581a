package aws

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"kubernetes-release/cloud"
	"kubernetes-release/cloud/aws/awsapi"
	"kubernetes-release/cloud/aws/awsclient"
	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/cloud/aws/checks"
	"kubernetes-release/cloud/aws/cloudconfig"
	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/cloud/aws/gather"
	"kubernetes-release/cloud/aws/identity"
	"kubernetes-release/cloud/aws/issuer"
	"kubernetes-release/cloud/aws/metadata"
	"kubernetes-release/internal/poll"
	"kubernetes-release/node"
	"kubernetes-release/preflight"
)

func (p *Provider) now() time.Time {
	if p.Now != nil {
		return p.Now()
	}
	return time.Now()
}

func (p *Provider) localAddresses() ([]netip.Addr, error) {
	if p.LocalAddresses != nil {
		return p.LocalAddresses()
	}
	interfaces, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list the addresses of this machine: %w", err)
	}
	var addresses []netip.Addr
	for _, i := range interfaces {
		if prefix, err := netip.ParsePrefix(i.String()); err == nil {
			addresses = append(addresses, prefix.Addr())
		}
	}
	return addresses, nil
}

func (p *Provider) reachable(ctx context.Context, endpoint *url.URL) error {
	if p.Reachable != nil {
		return p.Reachable(awsclient.HostPort(endpoint))
	}
	return awsclient.Reachable(ctx, endpoint)
}

func (p *Provider) nodeProviderID(ctx context.Context, kubeconfig, name string) (string, error) {
	if p.NodeProviderID != nil {
		return p.NodeProviderID(ctx, kubeconfig, name)
	}
	return cloud.NodeProviderID(ctx, kubeconfig, name)
}

func (p *Provider) throttleSpan() time.Duration {
	if p.ThrottleSpan != 0 {
		return p.ThrottleSpan
	}
	return awsapi.ThrottleSpan
}

func (p *Provider) roundPause() *preflight.Backoff {
	if p.RoundPause != nil {
		return p.RoundPause()
	}
	return &preflight.Backoff{First: time.Second, Limit: 8 * time.Second}
}

var _ cloud.Attester = (*Provider)(nil)

// NewProver implements cloud.Attester.
func (p *Provider) NewProver(cluster string) node.Prover {
	return identity.NewProver(p.machine(), cluster)
}

// NewAuthority implements cloud.Attester.
func (p *Provider) NewAuthority(cluster string, roles []string) node.Authority {
	return identity.NewAuthority(p.machine(), cluster, roles)
}

func (p *Provider) environment() gather.Environment {
	beforeCalls := p.BeforeCalls
	if beforeCalls == nil {
		beforeCalls = func() {}
	}
	return gather.Environment{
		Endpoint: p.Endpoint, Now: p.now, LocalAddresses: p.localAddresses, Reachable: p.reachable,
		NodeProviderID: p.nodeProviderID, RoundPause: p.roundPause, ThrottleSpan: p.throttleSpan(),
		BeforeCalls: beforeCalls,
	}
}

func (p *Provider) machine() identity.Machine {
	return identity.Machine{
		MetadataEndpoint: p.MetadataEndpoint, Endpoint: p.Endpoint, ReplyTimeout: p.metadataTimeout, Now: p.now,
	}
}

// Checks implements cloud.Checker.
func (*Provider) Checks() []preflight.Check {
	all := checks.All()
	list := make([]preflight.Check, 0, len(all))
	for _, c := range all {
		list = append(list, c.Public())
	}
	return list
}

// Preflight implements cloud.Checker. It asks everything once, and repeats what may still change by itself until no
// check fails, a check fails that waiting cannot fix, or the retry window ends. Throttled calls are retried until the
// context is done. Without instance metadata the outcome's identity is nil.
func (p *Provider) Preflight(ctx context.Context, request cloud.Request) (*cloud.Outcome, error) {
	secrets := &preflight.Secrets{}
	log := secrets.Logger(request.Logger())
	client, err := metadata.New(ctx, p.MetadataEndpoint, p.metadataTimeout)
	if err != nil {
		return nil, err
	}
	defer client.HTTP.CloseIdleConnections()
	known := &facts.Facts{
		Request:   request.Config,
		Conf:      &cloudconfig.Config{},
		SlowReply: cmp.Or(p.slowMetadata, metadata.SDKReplyTimeout),
	}
	if err := request.Config.DecodeCloud(&known.Settings); err != nil {
		return nil, err
	}
	if request.CloudConfig != nil {
		known.ConfText = request.CloudConfig
		known.Conf, known.ConfErr = cloudconfig.Parse(request.CloudConfig)
	}
	if path := known.Settings.IssuerFile; path != "" {
		if known.Issuer, err = issuer.Load(path); err != nil {
			return nil, err
		}
	}
	g := gather.New(p.environment(), client, known, secrets, log.Info)
	defer g.Close()
	r := &run{
		provider: p,
		gatherer: g,
		request:  request,
		log:      log,
		deadline: p.now().Add(time.Duration(request.Config.RetryWindow)),
	}
	r.identify(ctx)
	if request.Config.Mode != preflight.ModeOff {
		r.rounds(ctx)
	}
	return r.outcome(), nil
}

// run is one preflight in progress.
type run struct {
	provider *Provider
	gatherer *gather.Gatherer
	request  cloud.Request
	log      *slog.Logger
	deadline time.Time // of the retry window
	known    bool      // whether the machine's identity is known
	results  []preflight.Result
}

// identify determines the identity of the machine and its role, and retries temporary faults of metadata until the
// retry window ends.
func (r *run) identify(ctx context.Context) {
	backoff := r.provider.roundPause()
	for {
		r.gatherer.GatherMetadata(ctx, r.request.Config.Mode != preflight.ModeOff)
		err := r.gatherer.Facts.MetadataErr
		if err == nil {
			r.known = true
			r.name(ctx)
			return
		}
		var fault *metadata.Fault
		if !errors.As(err, &fault) || !fault.Temporary() || !r.wait(ctx, backoff, "instance metadata", err.Error()) {
			return // the check metadata-service reports it
		}
	}
}

// name replaces a name in the domain of the VPC's DHCP options by the one that EC2 has. If EC2 cannot be asked, the
// name stays, and the check node-name fails.
func (r *run) name(ctx context.Context) {
	known, backoff := &r.gatherer.Facts.Metadata, r.provider.roundPause()
	for !known.HasEC2Name() {
		name, err := r.gatherer.PrivateDNSName(ctx)
		if err == nil {
			known.Hostname = name
			return
		}
		if !mayPass(err) || !r.wait(ctx, backoff, "the private DNS name", awserr.Describe(err)) {
			r.log.Warn("EC2 does not say which private DNS name the instance has", "error", awserr.Describe(err))
			return
		}
	}
}

// mayPass reports whether an error of metadata or EC2 may disappear by itself.
func mayPass(err error) bool {
	var fault *metadata.Fault
	if errors.As(err, &fault) {
		return fault.Temporary()
	}
	switch awserr.Classify(err) {
	case awserr.Throttled, awserr.UnknownID, awserr.Server, awserr.Malformed, awserr.Unreachable:
		return true
	default:
		return false
	}
}

// wait pauses before another attempt; it returns false if the retry window or the context does not allow one.
func (r *run) wait(ctx context.Context, backoff *preflight.Backoff, waitingFor, last string) bool {
	left := r.deadline.Sub(r.provider.now())
	if left <= 0 || ctx.Err() != nil {
		return false
	}
	pause := min(backoff.Next(), left)
	r.log.Info(
		"waiting", "for", waitingFor, "last", last, "next_attempt_in", pause.Round(time.Millisecond), "window_left",
		left.Round(time.Second),
	)
	return poll.Sleep(ctx, pause) == nil
}

// rounds gathers facts and runs the checks until the result is final.
func (r *run) rounds(ctx context.Context) {
	identified := facts.FromMetadata | facts.FromProfile | facts.FromCredentials // identify has just read them
	wanted := facts.Everything &^ identified
	if !r.known {
		unknown := awserr.NotAsked(facts.NoMetadata)
		r.gatherer.Facts.ProfileErr, r.gatherer.Facts.CredentialsErr = unknown, unknown
		r.gatherer.GiveUp(facts.Everything, unknown)
		r.gatherer.Facts.Local, r.gatherer.Facts.LocalErr = r.provider.localAddresses()
		r.check()
		return
	}
	if r.request.Config.Checks["registry-endpoint"] == preflight.Off {
		wanted &^= facts.FromRegistry
	}
	backoff := r.provider.roundPause()
	for first := true; ; first = false {
		r.gatherer.Gather(ctx, wanted, r.deadline)
		if first { // time spent on throttled calls does not shorten the wait for changes to become visible
			r.deadline = r.provider.now().Add(time.Duration(r.request.Config.RetryWindow))
		}
		var waitingFor, last string
		wanted, waitingFor, last = r.check()
		wanted &^= facts.FromMetadata // an instance's identity does not change
		if wanted == 0 || !r.wait(ctx, backoff, waitingFor, last) {
			return
		}
	}
}

// check runs every check on the current facts. It returns the sources to ask again, which is none if no check fails or
// if one fails that will not change by itself, and the first failure that may disappear.
func (r *run) check() (again facts.Source, waitingFor, last string) {
	r.results = r.results[:0]
	final := false
	enforced := r.request.Config // mode warn waits for the same changes
	enforced.Mode = preflight.ModeEnforce
	for _, c := range checks.All() {
		if !slices.Contains(c.Roles, r.request.Config.Role) {
			continue
		}
		outcome, described := c.Evaluate(r.gatherer.Facts), c.Public()
		result, ok := r.request.Config.Grade(described, outcome)
		if !ok {
			continue
		}
		r.results = append(r.results, result)
		if graded, _ := enforced.Grade(described, outcome); graded.Status != preflight.Failed {
			continue
		}
		for _, f := range result.Findings {
			if !f.Eventual {
				final = true
				continue
			}
			again |= c.Needs
			if waitingFor == "" {
				waitingFor, last = c.ID, f.Resource+": "+f.Found
			}
		}
	}
	if final {
		return 0, "", ""
	}
	return again, waitingFor, last
}

func (r *run) outcome() *cloud.Outcome {
	f := r.gatherer.Facts
	out := &cloud.Outcome{
		Machine: f.InstanceID(),
		Results: r.results,
		Calls:   r.gatherer.Recorder.List(),
		Secrets: r.gatherer.Secrets.List(),
	}
	if r.known {
		id := f.Metadata.Identity()
		out.Identity = &id
	}
	if r.request.Config.Mode != preflight.ModeOff && f.IsControl() && f.WhyNoChoice() == "" {
		out.Explanations = []preflight.Explanation{
			f.Choices().Choose(false).Explain(),
			f.Choices().Choose(true).Explain(),
		}
	}
	return out
}
