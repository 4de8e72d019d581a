package forward

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Health is the state of a target according to its probes.
type Health struct {
	Healthy bool
	// Initial is true until enough probes have run to tell whether the target is healthy.
	Initial bool
	// Reason is the last failure, empty if the target is healthy.
	Reason string
}

// group probes its targets, each in its own goroutine.
type group struct {
	mu      sync.Mutex
	check   Check
	tls     bool
	probers map[string]*prober
	order   []string
	next    int
}

// grpc reports whether targets speak gRPC.
func (g *group) grpc() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.check.GRPC
}

// encrypts reports whether connections to targets are encrypted.
func (g *group) encrypts() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.tls
}

// prober is a target with its state.
type prober struct {
	target Target
	cancel context.CancelFunc

	mu        sync.Mutex
	health    Health
	run       int // successes (positive) or failures (negative) in a row
	healthy   int
	unhealthy int
}

func newGroup() *group { return &group{probers: map[string]*prober{}} }

// apply starts, stops and keeps probers; a changed check restarts all of them and keeps their health.
func (g *group) apply(want Group) {
	g.mu.Lock()
	defer g.mu.Unlock()
	changed := g.check != want.Check
	g.check, g.tls = want.Check, want.TLS
	g.order = g.order[:0]
	keep := map[string]bool{}
	for _, t := range want.Targets {
		keep[t.ID] = true
		g.order = append(g.order, t.ID)
		old := g.probers[t.ID]
		if old != nil && old.target == t && !changed {
			continue
		}
		p := &prober{
			target:    t,
			health:    Health{Initial: true},
			healthy:   want.Check.Healthy,
			unhealthy: want.Check.Unhealthy,
		}
		if old != nil {
			old.cancel()
			if old.target == t {
				p.health, _ = g.snapshot(old)
			}
		}
		var ctx context.Context
		ctx, p.cancel = context.WithCancel(context.Background())
		g.probers[t.ID] = p
		go p.loop(ctx, want.Check)
	}
	for id, p := range g.probers {
		if !keep[id] {
			p.cancel()
			delete(g.probers, id)
		}
	}
}

func (g *group) snapshot(p *prober) (Health, bool) {
	if p == nil {
		return Health{}, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.health, true
}

func (g *group) health(target string) (Health, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.snapshot(g.probers[target])
}

// candidates returns the healthy targets, each time starting with a different one.
func (g *group) candidates() []Target {
	g.mu.Lock()
	defer g.mu.Unlock()
	var healthy []Target
	for i := range g.order {
		p := g.probers[g.order[(g.next+i)%len(g.order)]]
		if h, _ := g.snapshot(p); h.Healthy {
			healthy = append(healthy, p.target)
		}
	}
	if len(g.order) > 0 {
		g.next = (g.next + 1) % len(g.order)
	}
	return healthy
}

func (p *prober) loop(ctx context.Context, check Check) {
	ticker := time.NewTicker(check.Interval)
	defer ticker.Stop()
	for {
		err := probe(ctx, check, p.target)
		if ctx.Err() != nil {
			return
		}
		p.record(err)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (p *prober) record(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		p.run = max(p.run, 0) + 1
		if p.run >= p.healthy {
			p.health = Health{Healthy: true}
		}
		return
	}
	p.run = min(p.run, 0) - 1
	if -p.run >= p.unhealthy {
		p.health = Health{Reason: err.Error()}
	} else if !p.health.Healthy {
		p.health.Reason = err.Error()
	}
}

// probe probes a target once.
func probe(ctx context.Context, check Check, t Target) error {
	ctx, cancel := context.WithTimeout(ctx, check.Timeout)
	defer cancel()
	address := net.JoinHostPort(t.Address.String(), strconv.Itoa(cmp.Or(check.Port, t.Port)))
	if check.Protocol != "HTTP" {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		return conn.Close()
	}
	if check.GRPC {
		return probeGRPC(ctx, check, address)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+check.Path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "ELB-HealthChecker/2.0")
	req.Close = true
	resp, err := probeClient.Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if !codeAccepted(check.Codes, resp.StatusCode) {
		return fmt.Errorf("health checks failed with these codes: [%d]", resp.StatusCode)
	}
	return nil
}

// probeGRPC calls the method that the path names. A server that does not have it answers with the code 12.
func probeGRPC(ctx context.Context, check Check, address string) error {
	empty := strings.NewReader("\x00\x00\x00\x00\x00") // a message without fields
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+check.Path, empty)
	if err != nil {
		return err
	}
	req.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}}
	resp, err := overHTTP2.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil { // trailers follow
		return err
	}
	status := cmp.Or(resp.Header.Get("Grpc-Status"), resp.Trailer.Get("Grpc-Status"))
	if code, err := strconv.Atoi(status); err != nil || !codeAccepted(check.Codes, code) {
		return fmt.Errorf("health checks failed with these codes: [%s]", status)
	}
	return nil
}

// overHTTP2 speaks HTTP/2 without TLS, as gRPC does.
var overHTTP2 = http2Transport()

func http2Transport() *http.Transport {
	protocols := &http.Protocols{}
	protocols.SetUnencryptedHTTP2(true)
	return &http.Transport{Protocols: protocols}
}

// probeClient follows no redirects and keeps no connections: a probe checks a single response of the target.
var probeClient = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// codeAccepted evaluates a matcher: codes and ranges, separated by commas.
func codeAccepted(matcher string, code int) bool {
	for part := range strings.SplitSeq(matcher, ",") {
		low, high, isRange := strings.Cut(strings.TrimSpace(part), "-")
		from, err := strconv.Atoi(low)
		if err != nil {
			continue
		}
		to := from
		if isRange {
			if to, err = strconv.Atoi(high); err != nil {
				continue
			}
		}
		if from <= code && code <= to {
			return true
		}
	}
	return false
}
