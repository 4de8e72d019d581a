package names

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"kubernetes-release/testbed/lab/agent"
	"kubernetes-release/testbed/lab/vm"
)

// bosh-dns checks health every 20 s; the lab is faster, so that tests need not wait, but on a machine that is slow.
const (
	namesInterval     = 200 * time.Millisecond
	healthInterval    = 2 * time.Second
	maxHealthInterval = 20 * time.Second
	healthTimeout     = 5 * time.Second
)

// Run follows the names file and the health of the instances in it until ctx ends.
func (r *Resolver) Run(ctx context.Context) {
	healthTicker := time.NewTicker(healthInterval)
	defer healthTicker.Stop()
	namesTicker := time.NewTicker(namesInterval)
	defer namesTicker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-namesTicker.C:
			r.readNames()
		case <-healthTicker.C:
			began := time.Now()
			r.checkHealth(ctx)
			const slowdown = 4
			healthTicker.Reset(max(healthInterval, min(slowdown*time.Since(began), maxHealthInterval)))
		}
	}
}

// readNames reads the names file if it has changed.
func (r *Resolver) readNames() {
	path := filepath.Join(r.dir, file)
	info, err := os.Stat(path)
	if err != nil || info.ModTime().Equal(r.read) {
		return
	}
	n, err := read(r.dir)
	if err != nil {
		r.log.Error("reading the names", "error", err)
		return
	}
	r.read = info.ModTime()
	r.log.Info("names changed", "instances", len(n.Instances), "aliases", len(n.Aliases))
	r.current.Store(&snapshot{n, r.current.Load().health})
}

// checkHealth asks all instances for their health, concurrently.
func (r *Resolver) checkHealth(ctx context.Context) {
	before := r.current.Load()
	instances := before.names.Instances
	states := make([]health, len(instances))
	var group sync.WaitGroup
	for n, i := range instances {
		group.Go(func() { states[n] = r.health(ctx, i) })
	}
	group.Wait()
	current := map[string]health{}
	for n, i := range instances {
		current[i.ID] = states[n]
		if old := before.health[i.ID]; old.state != states[n].state || !maps.Equal(old.jobs, states[n].jobs) {
			r.log.Info("health changed", "instance", i.Group+"/"+i.ID, "state", states[n].state, "jobs", states[n].jobs)
		}
	}
	r.current.Store(&snapshot{before.names, current})
}

// health returns the health of an instance; the zero value if the instance has no VM.
func (r *Resolver) health(ctx context.Context, i namedInstance) health {
	if i.VM == "" {
		return health{}
	}
	v, err := vm.Open(r.dir, i.VM)
	if err != nil || !v.Alive() {
		return health{state: agent.Failing}
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	if !reachable(ctx, i.Address) {
		return health{state: agent.Failing}
	}
	a := agent.New(v)
	processes, err := a.State(ctx)
	if err != nil {
		return health{state: agent.Failing}
	}
	h := health{state: processes.State}
	if h.jobs, err = a.JobHealth(ctx); err != nil {
		return health{state: agent.Failing} // a script does not end, or bosh-dns would not run
	}
	for _, state := range h.jobs {
		if state != agent.Running {
			h.state = state
		}
	}
	return h
}

// healthPort is where the bosh-dns of a VM tells others its health (bosh-dns-release, jobs/bosh-dns/spec). In the lab
// nothing listens there.
const healthPort = 8853

// reachable says whether packets get to a VM and back. bosh-dns asks others for their health over the network, the lab
// does not.
func reachable(ctx context.Context, address netip.Addr) bool {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", netip.AddrPortFrom(address, healthPort).String())
	if err == nil {
		_ = conn.Close()
	}
	return err == nil || errors.Is(err, syscall.ECONNREFUSED)
}
