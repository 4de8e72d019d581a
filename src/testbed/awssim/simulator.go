package awssim

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"kubernetes-release/internal/atomicfile"
	"kubernetes-release/testbed/awssim/elb"
	"kubernetes-release/testbed/awssim/elbv2"
	"kubernetes-release/testbed/awssim/forward"
	"kubernetes-release/testbed/awssim/iam"
	"kubernetes-release/testbed/awssim/store"
)

// Options connect a Simulator to its environment. The zero value uses loopback addresses and keeps everything in
// memory.
type Options struct {
	StateFile  string           // JSON, replaced atomically on each change; "" keeps the state in memory only
	RecordFile string           // JSON lines, appended; "" keeps the record in memory only
	Registry   netip.Addr       // of RegistryHandler, in the region's DNS
	Plumbing   forward.Plumbing // adds the load balancers' addresses to the machine
	Disks      store.Disks      // holds the volumes' content; nil keeps none
	Router     Router           // delivers packets by the route tables; nil if nothing does
	Log        *slog.Logger
	Now        func() time.Time // the clock before World.Settings.ClockOffset
}

// Router is the data path of a VPC's route tables.
type Router interface {
	// SetRoutes replaces all routes: each network is reached via the instance with that address.
	SetRoutes(map[netip.Prefix]netip.Addr) error
}

// Simulator is a running simulation. Its methods may be called concurrently.
type Simulator struct {
	options Options
	log     *slog.Logger
	engine  *forward.Engine
	record  *recorder
	faults  faultBox
	buckets bucketBox
	// troubles are the volumes that cannot be attached, detached or resized.
	troubles troubleBox
	closing  chan struct{}

	mu    sync.Mutex
	world *store.World
	// objects are the contents of buckets, by bucket/key. They are gone after a restart.
	objects map[string][]byte
}

// World returns a copy of what exists now.
func (s *Simulator) World() *store.World {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, err := s.world.Clone()
	if err != nil {
		panic(fmt.Sprintf("awssim: the world became inconsistent: %v", err))
	}
	return w
}

// Update changes the world outside of the APIs, atomically: if change fails or makes the world inconsistent, the world
// stays as it was.
func (s *Simulator) Update(change func(*store.World) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	w, err := s.world.Clone()
	if err != nil {
		return err
	}
	if err := change(w); err != nil {
		return err
	}
	w.SetDefaults()
	if err := w.Validate(); err != nil {
		return err
	}
	s.world = w
	return s.commit()
}

// now is the simulation's time. The caller must hold the lock.
func (s *Simulator) now() time.Time {
	return s.options.Now().Add(time.Duration(s.world.Settings.ClockOffset)).UTC()
}

// commit applies a change: it writes the state file and adapts load balancers and routes. The caller must hold the
// lock. A load balancer that cannot listen is only logged, as AWS would keep repairing it in the background.
func (s *Simulator) commit() error {
	s.forgetTerminated()
	if err := s.engine.Apply(forwarding(s.world)); err != nil {
		s.log.Error("load balancers", "error", err)
	}
	if s.options.Router != nil {
		if err := s.options.Router.SetRoutes(s.world.InstanceRoutes()); err != nil {
			s.log.Error("routes to instances", "error", err)
		}
	}
	if s.options.StateFile == "" {
		return nil
	}
	data, err := json.MarshalIndent(s.world, "", " ")
	if err != nil {
		return fmt.Errorf("encode state: %w", err)
	}
	return atomicfile.Write(s.options.StateFile, data, 0o600)
}

// forgetTerminated removes instances that were terminated long ago.
func (s *Simulator) forgetTerminated() {
	deadline := s.now().Add(-store.TerminatedFor)
	s.world.Instances = slices.DeleteFunc(s.world.Instances, func(i store.Instance) bool {
		return i.State == store.Terminated && i.TerminationTime.Before(deadline)
	})
}

// forwarding is the data path of the world's load balancers.
func forwarding(w *store.World) forward.Config {
	var c forward.Config
	for i := range w.ClassicLoadBalancers {
		elb.Forwarding(&w.ClassicLoadBalancers[i], w, &c)
	}
	for i := range w.LoadBalancers {
		elbv2.ForwardBalancer(&w.LoadBalancers[i], w, &c)
	}
	for i := range w.TargetGroups {
		elbv2.ForwardGroup(&w.TargetGroups[i], w, &c)
	}
	return c
}

// Lookup resolves the DNS name of a load balancer or an instance to its addresses, as the region's DNS would. Names are
// case-insensitive and can end in a dot. Unknown names have no addresses.
func (s *Simulator) Lookup(name string) []netip.Addr {
	return s.Names()[strings.ToLower(strings.TrimSuffix(name, "."))]
}

// Names maps every DNS name of the region to its addresses, in lower case and without a trailing dot.
func (s *Simulator) Names() map[string][]netip.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := map[string][]netip.Addr{}
	for _, i := range s.world.Instances {
		if i.State != store.Terminated {
			names[s.world.PrivateDNSName(i.Address)] = []netip.Addr{i.Address}
		}
	}
	for _, l := range s.world.ClassicLoadBalancers {
		names[strings.ToLower(l.DNSName)] = store.SortedAddresses(l.Addresses)
	}
	for _, l := range s.world.LoadBalancers {
		names[strings.ToLower(l.DNSName)] = store.SortedAddresses(l.Addresses)
	}
	if s.options.Registry.IsValid() {
		for _, host := range s.world.RegistryHosts() {
			names[host] = []netip.Addr{s.options.Registry}
		}
	}
	return names
}

// InjectFault adds a fault to the end of the list; the first fault that matches a call affects it.
func (s *Simulator) InjectFault(f Fault) error {
	if !slices.Contains([]string{FaultError, FaultTruncate, FaultEmpty, FaultBody, FaultReset}, f.Kind) {
		return fmt.Errorf("fault kind %q; must be error, truncate, empty, body or reset", f.Kind)
	}
	if f.Action == "" {
		return fmt.Errorf("fault without action; must be a pattern such as ec2:Describe*")
	}
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.list = append(s.faults.list, f)
	return nil
}

// Faults returns the pending faults.
func (s *Simulator) Faults() []Fault {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	return slices.Clone(s.faults.list)
}

// ClearFaults removes all faults.
func (s *Simulator) ClearFaults() {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.list = nil
}

// latency is the configured delay of an action.
func (s *Simulator) latency(action string) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, rule := range s.world.Settings.Latency {
		if iam.Match(rule.Action, action) {
			return time.Duration(rule.Delay)
		}
	}
	return 0
}

// remember records and logs a call.
func (s *Simulator) remember(c Call) {
	s.log.Debug(
		"call", "service", c.Service, "action", c.Action, "instance", c.Instance, "status", c.Status, "code", c.Code,
	)
	if err := s.record.add(c); err != nil {
		s.log.Error("cannot record a call", "error", err)
	}
}

// Calls returns the recorded calls whose service:action matches the pattern, oldest first. "" and "*" match all.
func (s *Simulator) Calls(pattern string) []Call {
	s.record.mu.Lock()
	defer s.record.mu.Unlock()
	calls := []Call{}
	for _, c := range s.record.calls {
		if pattern == "" || iam.Match(pattern, c.Service+":"+c.Action) {
			calls = append(calls, c)
		}
	}
	return calls
}

// ForgetCalls clears the record in memory; it does not change the file.
func (s *Simulator) ForgetCalls() {
	s.record.mu.Lock()
	defer s.record.mu.Unlock()
	s.record.calls = nil
}
