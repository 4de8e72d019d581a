// Package forward is the data path of simulated load balancers: it listens on their addresses, probes the registered
// targets and forwards TCP connections to healthy ones. Engine.Apply declares the complete desired state; the engine
// applies the difference and keeps what did not change, including open connections and health.
package forward

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Plumbing adds the addresses of load balancers to the machine.
type Plumbing interface {
	Add(netip.Addr) error
	Remove(netip.Addr) error
}

// NoPlumbing is for addresses that the machine already has, such as 127.0.0.0/8.
type NoPlumbing struct{}

// Add does nothing.
func (NoPlumbing) Add(netip.Addr) error { return nil }

// Remove does nothing.
func (NoPlumbing) Remove(netip.Addr) error { return nil }

// dialTimeout is how long connecting to a target can take before the client's connection is closed.
const dialTimeout = 5 * time.Second

// Engine runs a Config. Its methods may be called concurrently.
type Engine struct {
	plumbing Plumbing
	log      *slog.Logger

	mu        sync.Mutex
	addresses map[netip.Addr]bool
	listeners map[listenerKey]*listener
	groups    map[string]*group
	closed    bool
}

type listenerKey struct {
	balancer string
	address  netip.AddrPort
}

// New returns an engine without load balancers.
func New(plumbing Plumbing, log *slog.Logger) *Engine {
	return &Engine{
		plumbing:  plumbing,
		log:       log,
		addresses: map[netip.Addr]bool{},
		listeners: map[listenerKey]*listener{},
		groups:    map[string]*group{},
	}
}

// Apply applies the desired state. The error has all parts that failed, such as ports in use; the others work, and the
// next Apply retries the failed ones.
func (e *Engine) Apply(c Config) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return errors.New("load balancers are shut down")
	}
	e.applyGroups(c.Groups)
	return errors.Join(e.applyListeners(c.Balancers)...)
}

func (e *Engine) applyGroups(want []Group) {
	keep := map[string]bool{}
	for _, g := range want {
		keep[g.ID] = true
		running := e.groups[g.ID]
		if running == nil {
			running = newGroup()
			e.groups[g.ID] = running
		}
		running.apply(g)
	}
	for id, g := range e.groups {
		if !keep[id] {
			g.apply(Group{})
			delete(e.groups, id)
		}
	}
}

func (e *Engine) applyListeners(balancers []Balancer) (errs []error) {
	addresses := map[netip.Addr]bool{}
	routes := map[listenerKey]route{}
	for _, b := range balancers {
		for _, address := range b.Addresses {
			addresses[address] = true
			for _, l := range b.Listeners {
				key := listenerKey{b.ID, netip.AddrPortFrom(address, uint16(l.Port))}
				r := route{group: e.groups[l.Group], port: l.TargetPort}
				for _, certificate := range l.Certificates {
					pair, err := tls.X509KeyPair([]byte(certificate.Chain), []byte(certificate.Key))
					if err != nil {
						errs = append(errs, fmt.Errorf("certificate of load balancer %s: %w", b.ID, err))
						continue
					}
					r.certificates = append(r.certificates, pair)
				}
				for _, rule := range l.Rules {
					groups := map[string]*group{}
					for _, g := range rule.Groups {
						groups[g.Group] = e.groups[g.Group]
					}
					r.rules = append(r.rules, ruleRoute{rule, groups})
				}
				routes[key] = r
			}
		}
	}
	for key, l := range e.listeners {
		if r, ok := routes[key]; !ok || !l.speaks(r) {
			l.close()
			delete(e.listeners, key)
		}
	}
	for address := range e.addresses {
		if !addresses[address] {
			if err := e.plumbing.Remove(address); err != nil {
				errs = append(errs, fmt.Errorf("remove load balancer address %s: %w", address, err))
				continue
			}
			delete(e.addresses, address)
		}
	}
	for _, address := range slices.SortedFunc(maps.Keys(addresses), netip.Addr.Compare) {
		if !e.addresses[address] {
			if err := e.plumbing.Add(address); err != nil {
				errs = append(errs, fmt.Errorf("add load balancer address %s: %w", address, err))
				continue
			}
			e.addresses[address] = true
		}
	}
	for key, r := range routes {
		if l := e.listeners[key]; l != nil {
			l.route.Store(&r)
			continue
		}
		l, err := listen(key.address, r, e.log.With("load_balancer", key.balancer))
		if err != nil {
			errs = append(errs, fmt.Errorf("load balancer %s: %w", key.balancer, err))
			continue
		}
		e.listeners[key] = l
	}
	return errs
}

// Health is the state of a target. known is false if the group is not probed or does not have the target.
func (e *Engine) Health(group, target string) (health Health, known bool) {
	e.mu.Lock()
	g := e.groups[group]
	e.mu.Unlock()
	if g == nil {
		return Health{}, false
	}
	return g.health(target)
}

// Close stops everything and removes the addresses.
func (e *Engine) Close() error {
	err := e.Apply(Config{})
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	return err
}

// route is the destination of a listener's connections; it can change while the listener is open.
type route struct {
	group *group
	port  int
	rules []ruleRoute // of HTTP
	// certificates are those of HTTPS and TLS, by the names in them.
	certificates []tls.Certificate
}

type ruleRoute struct {
	Rule

	groups map[string]*group
}

type listener struct {
	socket net.Listener
	http   *http.Server // nil if it forwards connections
	tls    bool
	log    *slog.Logger
	route  atomic.Pointer[route]
	// requests counts those of HTTP.
	requests atomic.Uint64

	mu     sync.Mutex
	open   map[net.Conn]bool
	closed bool
}

func listen(address netip.AddrPort, r route, log *slog.Logger) (*listener, error) {
	socket, err := net.Listen("tcp", address.String())
	if err != nil {
		return nil, err
	}
	l := &listener{socket: socket, log: log, open: map[net.Conn]bool{}, tls: len(r.certificates) > 0}
	l.route.Store(&r)
	if l.tls {
		settings := &tls.Config{GetCertificate: l.certificate}
		if len(r.rules) > 0 {
			settings.NextProtos = []string{"h2", "http/1.1"}
		}
		l.socket = tls.NewListener(socket, settings)
	}
	if len(r.rules) > 0 {
		l.http = &http.Server{
			Handler: l, ReadHeaderTimeout: time.Minute, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelInfo),
		}
		go func() { _ = l.http.Serve(l.socket) }()
		return l, nil
	}
	go l.serve()
	return l, nil
}

// certificate chooses the first certificate that covers the name that a client asks for, or the default one.
func (l *listener) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	certificates := l.route.Load().certificates
	for i := range certificates {
		if certificates[i].Leaf.VerifyHostname(hello.ServerName) == nil {
			return &certificates[i], nil
		}
	}
	return &certificates[0], nil
}

// speaks reports whether a listener has the protocol of a route, which can change.
func (l *listener) speaks(r route) bool {
	return (l.http != nil) == (len(r.rules) > 0) && l.tls == (len(r.certificates) > 0)
}

func (l *listener) serve() {
	for {
		client, err := l.socket.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			l.log.Warn("accept failed", "error", err)
			time.Sleep(100 * time.Millisecond)
			continue
		}
		go l.handle(client)
	}
}

// handle closes the client's connection without sending anything if no target is healthy, as a TCP listener of AWS
// does.
func (l *listener) handle(client net.Conn) {
	if !l.track(client) {
		return
	}
	defer l.untrack(client)
	r := l.route.Load()
	if r.group == nil {
		return
	}
	for _, t := range r.group.candidates() {
		port := cmp.Or(r.port, t.Port)
		server, err := net.DialTimeout("tcp", net.JoinHostPort(t.Address.String(), strconv.Itoa(port)), dialTimeout)
		if err != nil {
			l.log.Info("target refused a connection", "target", t.ID, "port", port, "error", err)
			continue
		}
		if r.group.encrypts() {
			server = tls.Client(server, &tls.Config{
				InsecureSkipVerify: true, //nolint:gosec // load balancers of AWS do not verify targets
			})
		}
		if l.track(server) {
			pipe(client, server)
			l.untrack(server)
		}
		return
	}
}

// track remembers a connection so that close can close it; it returns false if the listener is closed.
func (l *listener) track(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		c.Close()
		return false
	}
	l.open[c] = true
	return true
}

func (l *listener) untrack(c net.Conn) {
	c.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, c)
}

func (l *listener) close() {
	l.socket.Close()
	if l.http != nil {
		l.http.Close()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for c := range l.open {
		c.Close()
	}
}

// pipe copies in both directions until both sides are closed, and passes on half-closes.
func pipe(a, b net.Conn) {
	var wg sync.WaitGroup
	for _, pair := range [][2]net.Conn{{a, b}, {b, a}} {
		wg.Go(func() {
			_, _ = io.Copy(pair[1], pair[0]) // an error closes this direction as the end of the data does
			if half, ok := pair[1].(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite()
			}
		})
	}
	wg.Wait()
}
