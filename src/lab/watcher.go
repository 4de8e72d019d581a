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

	"kubernetes-release/lab/agent"
	"kubernetes-release/lab/vm"
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
	changed func(names, map[string]string)

	mutex  sync.Mutex
	names  names
	read   time.Time         // modification time of the names file that was read
	health map[string]string // by instance id: the agent's state
}

func newWatcher(l *Lab, log *slog.Logger) *watcher {
	return &watcher{lab: l, log: log, health: map[string]string{}}
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
	health := maps.Clone(w.health)
	w.mutex.Unlock()
	if w.changed != nil {
		w.changed(n, health)
	}
}

// checkHealth asks the agents of all instances for their states, concurrently.
func (w *watcher) checkHealth(ctx context.Context) {
	w.mutex.Lock()
	instances := w.names.Instances
	w.mutex.Unlock()
	states := make([]string, len(instances))
	var group sync.WaitGroup
	for n, i := range instances {
		group.Go(func() { states[n] = w.state(ctx, i) })
	}
	group.Wait()
	health := map[string]string{}
	changed := false
	w.mutex.Lock()
	for n, i := range instances {
		health[i.ID] = states[n]
		if w.health[i.ID] != states[n] {
			changed = true
			w.log.Info("health changed", "instance", i.Group+"/"+i.ID, "state", states[n])
		}
	}
	w.health = health
	w.mutex.Unlock()
	if changed {
		w.notify()
	}
}

// state returns the state that the agent of an instance reports; empty if the instance has no VM.
func (w *watcher) state(ctx context.Context, i namedInstance) string {
	if i.VM == "" {
		return ""
	}
	v, err := vm.Open(w.lab.Dir, i.VM)
	if err != nil || !v.Alive() {
		return agent.Failing
	}
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	if !reachable(ctx, i.Address) {
		return agent.Failing
	}
	state, err := agent.New(v).State(ctx)
	if err != nil {
		return agent.Failing
	}
	return state.State
}

// healthPort is where the bosh-dns of a VM tells others its health (bosh-dns-release, jobs/bosh-dns/spec). In the lab nothing listens there.
const healthPort = 8853

// reachable says whether packets get to a VM and back. bosh-dns asks others for their health over the network, the lab does not.
func reachable(ctx context.Context, address netip.Addr) bool {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", netip.AddrPortFrom(address, healthPort).String())
	if err == nil {
		_ = conn.Close()
	}
	return err == nil || errors.Is(err, syscall.ECONNREFUSED)
}
