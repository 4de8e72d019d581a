package openstacksim

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"kubernetes-release/internal/atomicfile"
	"kubernetes-release/testbed/awssim/forward"
	"kubernetes-release/testbed/awssim/store"
)

// Options connect a Simulator to its environment. The zero value uses loopback addresses and keeps everything in
// memory.
type Options struct {
	StateFile string           // JSON, replaced on each change; "" keeps the state in memory only
	Plumbing  forward.Plumbing // adds the load balancers' addresses to the machine
	Disks     store.Disks      // the volumes' devices; nil: volumes exist only in the APIs
	Log       *slog.Logger
	// Settle is how long a load balancer remains in a state PENDING_…, and a volume in one such as creating.
	Settle time.Duration
}

// Call is a request that was answered.
type Call struct {
	Service, Method, Path string
	Status                int
	// Error is the message of the answer.
	Error string
	// Unknown: the simulator has no such request.
	Unknown bool
}

// tokenLifetime is Keystone's default.
const tokenLifetime = time.Hour

// Simulator is a running simulation. Its methods may be called concurrently.
type Simulator struct {
	options Options
	engine  *forward.Engine
	handler http.Handler

	mu     sync.Mutex
	world  *World
	tokens map[string]token
	calls  []Call
}

type token struct {
	expires    time.Time
	credential string // id of the application credential; "" with a password
}

// New starts a simulation of the world. If the state file exists, the simulation resumes from it and ignores world. The
// caller must call Close.
func New(world *World, o Options) (*Simulator, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Plumbing == nil {
		o.Plumbing = forward.NoPlumbing{}
	}
	if o.Disks == nil {
		o.Disks = store.NoDisks{}
	}
	if o.StateFile != "" {
		switch text, err := os.ReadFile(o.StateFile); {
		case err == nil:
			world = &World{}
			if err := json.Unmarshal(text, world); err != nil {
				return nil, fmt.Errorf("state %s: %w", o.StateFile, err)
			}
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	world, err := world.clone()
	if err != nil {
		return nil, err
	}
	s := &Simulator{options: o, engine: forward.New(o.Plumbing, o.Log), world: world, tokens: map[string]token{}}
	s.handler = s.routes()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s, s.commit()
}

// Close stops the load balancers and removes their addresses. It keeps the state file.
func (s *Simulator) Close() error { return s.engine.Close() }

// World returns a copy of what exists now.
func (s *Simulator) World() *World {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, err := s.world.clone()
	if err != nil {
		panic(err) // it was decoded from JSON
	}
	return w
}

// Update changes the world outside of the APIs.
func (s *Simulator) Update(change func(*World)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s.world)
	return s.commit()
}

// Calls returns all requests so far.
func (s *Simulator) Calls() []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

// Unknown returns the requests that are not simulated.
func (s *Simulator) Unknown() []Call {
	return slices.DeleteFunc(s.Calls(), func(c Call) bool { return !c.Unknown })
}

// now is the cloud's time. The caller must hold the lock.
func (s *Simulator) now() time.Time { return time.Now().Add(s.world.ClockOffset).UTC() }

// commit applies a change: it writes the state file and adapts the load balancers. The caller must hold the lock.
func (s *Simulator) commit() error {
	if err := s.engine.Apply(s.world.forwarding()); err != nil {
		s.options.Log.Error("load balancers", "error", err)
	}
	if s.options.StateFile == "" {
		return nil
	}
	text, err := json.MarshalIndent(s.world, "", " ")
	if err != nil {
		return err
	}
	return atomicfile.Write(s.options.StateFile, text, 0o600)
}

// forwarding is the data path of the load balancers.
func (w *World) forwarding() forward.Config {
	var c forward.Config
	for _, l := range w.LoadBalancers {
		b := forward.Balancer{ID: l.ID}
		for _, text := range w.reachedAt(l) {
			if address, err := netip.ParseAddr(text); err == nil {
				b.Addresses = append(b.Addresses, address)
			}
		}
		for _, listener := range w.listenersOf(l.ID) {
			if listener.Protocol == "TCP" && listener.DefaultPoolID != "" {
				b.Listeners = append(
					b.Listeners, forward.Listener{Port: listener.ProtocolPort, Group: listener.DefaultPoolID},
				)
			}
		}
		c.Balancers = append(c.Balancers, b)
	}
	for _, p := range w.Pools {
		g := forward.Group{ID: p.ID, Check: forward.Check{
			Protocol: "TCP", Interval: 500 * time.Millisecond, Timeout: time.Second, Healthy: 1, Unhealthy: 1,
		}}
		for _, m := range p.Members {
			if address, err := netip.ParseAddr(m.Address); err == nil {
				g.Targets = append(g.Targets, forward.Target{ID: m.ID, Address: address, Port: m.ProtocolPort})
			}
		}
		c.Groups = append(c.Groups, g)
	}
	return c
}

// reachedAt are the addresses of a load balancer: that of its port, and the floating IPs of the port.
func (w *World) reachedAt(l LoadBalancer) []string {
	addresses := []string{l.VIPAddress}
	for _, f := range w.FloatingIPs {
		if f.PortID != nil && *f.PortID == l.VIPPortID {
			addresses = append(addresses, f.Address)
		}
	}
	return addresses
}

// Paths are where Handler serves the APIs.
var Paths = []string{"/identity/", "/compute/", "/network/", "/load-balancer/", "/volume/"}

// Handler serves the APIs, each below a path of its own.
func (s *Simulator) Handler() http.Handler { return s.handler }

// answer is what a request is answered with.
type answer struct {
	status  int
	body    any
	headers map[string]string
}

// failure is an answer with an error of a service.
type failure struct {
	status  int
	message string
}

func (f failure) Error() string { return f.message }

func notFound(kind, id string) error {
	return failure{http.StatusNotFound, fmt.Sprintf("%s %s could not be found.", kind, id)}
}

func badRequest(format string, a ...any) error {
	return failure{http.StatusBadRequest, fmt.Sprintf(format, a...)}
}

// action answers a request while the world is locked. What it has changed is committed if it returns no error.
type action func(s *Simulator, r *http.Request) (answer, error)

// service is one API.
type service struct {
	name string
	// prefix is the path of its version.
	prefix string
	// actions by method and path, as for http.ServeMux.
	actions map[string]action
	// errors puts a message into the form of the service.
	errors func(failure) any
	open   bool // needs no token
}

func (s *Simulator) routes() http.Handler {
	mux := http.NewServeMux()
	for _, service := range services() {
		for pattern, do := range service.actions {
			mux.Handle(methodAndPath(pattern, service.prefix), s.serve(service, do))
		}
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.options.Log.Error("not simulated", "method", r.Method, "path", r.URL.Path)
		s.remember(Call{Method: r.Method, Path: r.URL.RequestURI(), Status: http.StatusNotImplemented, Unknown: true})
		http.Error(w, "the simulator has no such request", http.StatusNotImplemented)
	})
	return mux
}

func services() []service {
	return slices.Concat(keystone(), []service{nova()}, neutron(), octavia(), cinder())
}

// methodAndPath puts the prefix of a service before the path of a pattern. Paths match as a whole.
func methodAndPath(pattern, prefix string) string {
	var method, path string
	_, _ = fmt.Sscan(pattern, &method, &path)
	if path == "/" {
		path = "/{$}"
	}
	return method + " " + prefix + path
}

func (s *Simulator) remember(c Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, c)
}

func (s *Simulator) serve(service service, do action) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		s.mu.Lock()
		defer s.mu.Unlock()
		var a answer
		if err == nil {
			a, err = s.answer(service, do, r)
		}
		call := Call{Service: service.name, Method: r.Method, Path: r.URL.RequestURI(), Status: a.status}
		if err != nil {
			var f failure
			if !errors.As(err, &f) {
				f = failure{http.StatusInternalServerError, err.Error()}
			}
			a = answer{status: f.status, body: service.errors(f)}
			call.Status, call.Error = f.status, f.message
		}
		s.calls = append(s.calls, call)
		s.options.Log.Debug("call", "service", service.name, "method", r.Method, "path", call.Path, "status", a.status)
		for name, value := range a.headers {
			w.Header().Set(name, value)
		}
		w.Header().Set("Date", s.now().Format(http.TimeFormat))
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(a.status)
		if a.body != nil {
			_ = json.NewEncoder(w).Encode(a.body)
		}
	})
}

// answer authenticates a request and runs its action on a copy of the world, which replaces the world if it succeeds.
func (s *Simulator) answer(service service, do action, r *http.Request) (answer, error) {
	if !service.open {
		if _, err := s.authenticated(r.Header.Get("X-Auth-Token")); err != nil {
			return answer{}, err
		}
	}
	if changed := s.settleVolumes(); s.settle() || changed {
		if err := s.commit(); err != nil {
			return answer{}, err
		}
	}
	before := s.world
	copied, err := before.clone()
	if err != nil {
		return answer{}, err
	}
	s.world = copied
	a, err := do(s, r)
	if err != nil {
		s.world = before
		return answer{}, err
	}
	if r.Method == http.MethodGet {
		return a, nil
	}
	return a, s.commit()
}

func (s *Simulator) authenticated(id string) (token, error) {
	t, known := s.tokens[id]
	if !known || !t.expires.After(s.now()) {
		return token{}, failure{http.StatusUnauthorized, "The request you have made requires authentication."}
	}
	if t.credential != "" {
		c := find(s.world.Credentials, func(c *ApplicationCredential) bool { return c.ID == t.credential })
		if c == nil {
			return token{}, failure{http.StatusUnauthorized, "The request you have made requires authentication."}
		}
	}
	return t, nil
}

func (s *Simulator) newToken(t token) string {
	id := make([]byte, 32)
	_, _ = rand.Read(id)
	text := "gAAAAA" + hex.EncodeToString(id)
	maps.DeleteFunc(s.tokens, func(_ string, old token) bool { return !old.expires.After(s.now()) })
	s.tokens[text] = t
	return text
}

// read decodes the object with this name in a request's body. Fields that the type does not have are errors: the
// simulator would ignore them.
func read(r *http.Request, name string, value any) error {
	var body map[string]json.RawMessage
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		return badRequest("body: %v", err)
	}
	if body[name] == nil {
		return badRequest("body has no %s", name)
	}
	decoder := json.NewDecoder(bytes.NewReader(body[name]))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(value); err != nil {
		return badRequest("%s: %v", name, err)
	}
	return nil
}

func ok(name string, value any) (answer, error) {
	return answer{status: http.StatusOK, body: map[string]any{name: value}}, nil
}

func created(name string, value any) (answer, error) {
	return answer{status: http.StatusCreated, body: map[string]any{name: value}}, nil
}

func deleted() (answer, error) { return answer{status: http.StatusNoContent}, nil }

// query returns the list's objects that have all properties in the request's query. A property that is not in the
// table is an error: the simulator would return too much.
func query[T any](r *http.Request, list []T, properties map[string]func(T) []string) ([]T, error) {
	found := []T{}
	for name := range r.URL.Query() {
		if properties[name] == nil {
			return nil, failure{http.StatusNotImplemented, "the simulator does not filter by " + name}
		}
	}
	for _, item := range list {
		matches := true
		for name, wanted := range r.URL.Query() {
			has := properties[name](item)
			matches = matches && slices.ContainsFunc(wanted, func(w string) bool { return slices.Contains(has, w) })
		}
		if matches {
			found = append(found, item)
		}
	}
	return found, nil
}

func one(text string) []string { return []string{text} }

// owner is the project_id of an object.
func (s *Simulator) owner(id string) []string { return one(cmp.Or(id, s.world.Project.ID)) }
