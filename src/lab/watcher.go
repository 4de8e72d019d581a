package lab

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"sync"
	"time"

	"kubernetes-release/lab/agent"
	"kubernetes-release/lab/vm"
)

// How often the watcher looks. bosh-dns asks for health every 20 s; the lab is quicker, so that tests need not wait.
const (
	namesInterval  = 200 * time.Millisecond
	healthInterval = 2 * time.Second
	healthTimeout  = 5 * time.Second
)

// watcher follows the director's names file and the health of the instances in it.
type watcher struct {
	lab *Lab
	log *slog.Logger
	// changed is called after each change of names or health; set before run.
	changed func(names, map[string]string)

	mutex  sync.Mutex
	names  names
	stamp  time.Time
	health map[string]string // by instance id: agent's state
}

func newWatcher(l *Lab, log *slog.Logger) *watcher {
	return &watcher{lab: l, log: log, health: map[string]string{}}
}

// run looks until ctx ends.
func (w *watcher) run(ctx context.Context) {
	lookAtHealth := time.NewTicker(healthInterval)
	defer lookAtHealth.Stop()
	lookAtNames := time.NewTicker(namesInterval)
	defer lookAtNames.Stop()
	w.read()
	for {
		select {
		case <-ctx.Done():
			return
		case <-lookAtNames.C:
			w.read()
		case <-lookAtHealth.C:
			w.ask(ctx)
		}
	}
}

// read takes over the names file when it has changed.
func (w *watcher) read() {
	info, err := os.Stat(w.lab.path(namesFile))
	if err != nil || info.ModTime().Equal(w.stamp) {
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
	w.names, w.stamp = n, info.ModTime()
	w.mutex.Unlock()
	w.log.Info("names have changed", "instances", len(n.Instances), "aliases", len(n.Aliases))
	w.tell()
}

func (w *watcher) tell() {
	w.mutex.Lock()
	n := w.names
	health := make(map[string]string, len(w.health))
	for id, state := range w.health {
		health[id] = state
	}
	w.mutex.Unlock()
	if w.changed != nil {
		w.changed(n, health)
	}
}

// ask asks all instances for their state at the same time.
func (w *watcher) ask(ctx context.Context) {
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
	different := false
	w.mutex.Lock()
	for n, i := range instances {
		health[i.ID] = states[n]
		if w.health[i.ID] != states[n] {
			different = true
			w.log.Info("health", "instance", i.Group+"/"+i.ID, "state", states[n])
		}
	}
	w.health = health
	w.mutex.Unlock()
	if different {
		w.tell()
	}
}

// state gives the agent's word for an instance; empty where nothing is known.
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
	state, err := agent.New(v).State(ctx)
	if err != nil {
		return agent.Failing
	}
	return state.State
}
