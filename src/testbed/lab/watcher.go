package lab

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"kubernetes-release/testbed/lab/agent"
	"kubernetes-release/testbed/lab/vm"
)

// bosh-dns checks health every 20 s; the lab is faster, so that tests need not wait.
const (
	namesInterval  = 200 * time.Millisecond
	healthInterval = 2 * time.Second
	healthTimeout  = 5 * time.Second
)

// watcher follows the names file that the Director writes, and the health of the instances in it.
type watcher struct {
	lab *Lab
	log *slog.Logger
	// changed is called after each change of names or health; must be set before run.
	changed func(names, map[string]health)

	mutex  sync.Mutex
	names  names
	read   time.Time         // modification time of the names file that was read
	health map[string]health // by instance id
}

func newWatcher(l *Lab, log *slog.Logger) *watcher {
	return &watcher{lab: l, log: log, health: map[string]health{}}
}

// run polls until ctx ends.
func (w *watcher) run(ctx context.Context) {
	healthTicker := time.NewTicker(healthInterval)
	defer healthTicker.Stop()
	namesTicker := time.NewTicker(namesInterval)
	defer namesTicker.Stop()
	w.readNames()
	for {
		select {
		case <-ctx.Done():
			return
		case <-namesTicker.C:
			w.readNames()
		case <-healthTicker.C:
			w.checkHealth(ctx)
		}
	}
}

// readNames reads the names file if it has changed.
func (w *watcher) readNames() {
	info, err := os.Stat(w.lab.path(namesFile))
	if err != nil || info.ModTime().Equal(w.read) {
		return
	}
	text, err := os.ReadFile(w.lab.path(namesFile))
	if err != nil {
		return
	}
	var n names
	if err := json.Unmarshal(text, &n); err != nil {
		w.log.Error("reading the names", "error", err)
		return
	}
	w.mutex.Lock()
	w.names, w.read = n, info.ModTime()
	w.mutex.Unlock()
	w.log.Info("names changed", "instances", len(n.Instances), "aliases", len(n.Aliases))
	w.notify()
}

func (w *watcher) notify() {
	w.mutex.Lock()
	n := w.names
	current := maps.Clone(w.health)
	w.mutex.Unlock()
	if w.changed != nil {
		w.changed(n, current)
	}
}

// checkHealth asks all instances for their health, concurrently.
func (w *watcher) checkHealth(ctx context.Context) {
	w.mutex.Lock()
	instances := w.names.Instances
	w.mutex.Unlock()
	states := make([]health, len(instances))
	var group sync.WaitGroup
	for n, i := range instances {
		group.Go(func() { states[n] = w.state(ctx, i) })
	}
	group.Wait()
	current := map[string]health{}
	changed := false
	w.mutex.Lock()
	for n, i := range instances {
		current[i.ID] = states[n]
		if before := w.health[i.ID]; before.state != states[n].state || !maps.Equal(before.jobs, states[n].jobs) {
			changed = true
			w.log.Info("health changed", "instance", i.Group+"/"+i.ID, "state", states[n].state, "jobs", states[n].jobs)
		}
	}
	w.health = current
	w.mutex.Unlock()
	if changed {
		w.notify()
	}
}

// state returns the health of an instance; the zero value if the instance has no VM.
func (w *watcher) state(ctx context.Context, i namedInstance) health {
	if i.VM == "" {
		return health{}
	}
	v, err := vm.Open(w.lab.Dir, i.VM)
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
