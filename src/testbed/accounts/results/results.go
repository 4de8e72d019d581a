// Package results runs the preflight of AWS in random accounts and checks its results.
package results

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"kubernetes-release/cloud/aws"
	"kubernetes-release/preflight"
	"kubernetes-release/testbed/accounts"
	"kubernetes-release/testbed/awssim"
)

// Account returns the random account with this seed; every eighth is right.
func Account(seed uint64) (*accounts.Account, error) {
	a, err := brokenOnly(seed)
	if err == nil && seed%8 != 0 {
		a.BreakByHand()
	}
	return a, err
}

// brokenOnly returns the account without what operators write by hand.
func brokenOnly(seed uint64) (*accounts.Account, error) {
	a, err := accounts.New(rand.New(rand.NewPCG(seed, 8)), policy)
	if err == nil && seed%8 != 0 {
		a.Break()
	}
	return a, err
}

// policy is what cloud-preflight iam-policy prints.
func policy(role preflight.Role, cluster, partition string) ([]byte, error) {
	p, err := aws.NewPolicy(
		aws.PolicyOptions{Role: role, Cluster: cluster, Partition: partition, VPC: awssim.LabVPC, CloudRoutes: true},
	)
	if err != nil {
		return nil, err
	}
	return p.JSON()
}

// Checker runs preflights, one after the other.
type Checker struct {
	api, metadata       *httptest.Server
	apiNow, metadataNow atomic.Pointer[http.Handler]
}

// NewChecker starts the servers that preflights call. The caller must call Close.
func NewChecker() *Checker {
	c := &Checker{}
	serve := func(current *atomic.Pointer[http.Handler]) *httptest.Server {
		return httptest.NewServer(
			http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*current.Load()).ServeHTTP(w, r) }),
		)
	}
	c.api, c.metadata = serve(&c.apiNow), serve(&c.metadataNow)
	return c
}

// Close stops the servers.
func (c *Checker) Close() {
	c.api.Close()
	c.metadata.Close()
}

// use lets the servers answer for a simulator, and instance metadata for the account's instance.
func (c *Checker) use(sim *awssim.Simulator, a *accounts.Account) {
	source := netip.AddrPortFrom(a.World.Instances[a.Self].Address, 1024).String()
	answer := sim.MetadataServer().Handler
	var metadata http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.RemoteAddr = source
		answer.ServeHTTP(w, r)
	})
	api := sim.Handler()
	c.metadataNow.Store(&metadata)
	c.apiNow.Store(&api)
}

// URL is the address of the API of the account whose preflight ran last.
func (c *Checker) URL() string { return c.api.URL }

// Preflight returns the report of the account's instance.
func (c *Checker) Preflight(ctx context.Context, a *accounts.Account) (*preflight.Report, error) {
	sim, err := awssim.New(a.World, awssim.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { _ = sim.Close() }()
	return c.PreflightIn(ctx, sim, a)
}

// PreflightIn returns the report of the account's instance in a simulator, where the account may have changed.
func (c *Checker) PreflightIn(
	ctx context.Context, sim *awssim.Simulator, a *accounts.Account,
) (*preflight.Report, error) {
	c.use(sim, a)
	address := a.World.Instances[a.Self].Address
	provider := &aws.Provider{
		MetadataEndpoint: c.metadata.URL, Endpoint: c.api.URL,
		Reachable:      func(string) error { return nil },
		LocalAddresses: func() ([]netip.Addr, error) { return []netip.Addr{address}, nil },
	}
	started := time.Now()
	out, err := provider.Preflight(ctx, a.Config.Request())
	if err != nil {
		return nil, err
	}
	r := preflight.NewReport(a.Config.Config, out.Results, started, time.Since(started))
	r.Node, r.Machine, r.Explanations, r.Calls = out.Identity, out.Machine, out.Explanations, out.Calls
	return r, nil
}

// Wrong compares a report with what is wrong in the account, and returns how the result is wrong, or "". A result is
// right if it is that of the account, or if it passes an account in which the only problem is a permission that the
// report warns of by name.
func Wrong(r *preflight.Report, problems []accounts.Problem) string {
	failed := r.Result == preflight.RunFailed
	switch {
	case failed && len(problems) == 0:
		return "the preflight fails, but nothing is wrong"
	case failed:
		return ""
	}
	for _, p := range problems {
		if p.Action == "" || !named(r, p.Action) {
			return "the preflight passes, but: " + p.String()
		}
	}
	return ""
}

// named reports whether a finding is about the action, or says that it is unknown whether it is allowed.
func named(r *preflight.Report, action string) bool {
	return slices.ContainsFunc(r.Results, func(result preflight.Result) bool {
		return slices.ContainsFunc(result.Findings, func(f preflight.Finding) bool {
			return slices.Contains(strings.FieldsFunc(f.Resource+" "+f.Why, func(r rune) bool {
				return strings.ContainsRune(" ,.", r)
			}), action)
		})
	})
}

// Score is the result of many accounts.
type Score struct {
	Accounts, Right int
	Failed          int // accounts that the preflight failed
	Took            time.Duration
}

// String is the share that has the right result.
func (s Score) String() string {
	return fmt.Sprintf(
		"%d of %d random accounts with the right result (%.2f %%); %d of them failed; %.1f ms each",
		s.Right, s.Accounts, 100*float64(s.Right)/float64(max(1, s.Accounts)), s.Failed,
		float64(s.Took.Milliseconds())/float64(max(1, s.Accounts)),
	)
}

// Try checks the accounts with the seeds first, first+1 and so on, and calls wrong for each wrong result.
func Try(ctx context.Context, first uint64, count int, wrong func(seed uint64, why string)) (Score, error) {
	return try(ctx, Account, first, count, wrong)
}

func try(
	ctx context.Context, account func(seed uint64) (*accounts.Account, error), first uint64, count int,
	wrong func(seed uint64, why string),
) (Score, error) {
	c := NewChecker()
	defer c.Close()
	score := Score{Accounts: count}
	started := time.Now()
	for seed := first; seed < first+uint64(count); seed++ {
		a, err := account(seed)
		if err != nil {
			return score, fmt.Errorf("account %d: %w", seed, err)
		}
		var problems []accounts.Problem
		var modelErr error
		var model sync.WaitGroup
		model.Go(func() { problems, modelErr = a.Problems(ctx) })
		r, err := c.Preflight(ctx, a)
		model.Wait()
		if err := errors.Join(err, modelErr); err != nil {
			return score, fmt.Errorf("account %d (%v): %w", seed, a, err)
		}
		if r.Result == preflight.RunFailed {
			score.Failed++
		}
		if why := Wrong(r, problems); why != "" {
			wrong(seed, fmt.Sprintf("%v: %s\n%s", a, why, text(r)))
			continue
		}
		score.Right++
	}
	score.Took = time.Since(started)
	return score, nil
}

func text(r *preflight.Report) string {
	var b bytes.Buffer
	preflight.Printer{}.Findings(&b, r)
	return b.String()
}
