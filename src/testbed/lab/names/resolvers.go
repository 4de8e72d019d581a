package names

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"kubernetes-release/testbed/lab/vm"
)

// Resolvers answer queries for the names of all deployments of a lab.
type Resolvers struct {
	root string // the lab's directory
	log  *slog.Logger

	mutex sync.Mutex
	list  []following
}

// following is the resolver of a deployment, until stop is called.
type following struct {
	*Resolver
	stop context.CancelFunc
}

// NewResolvers returns resolvers for the deployments of the lab with that directory.
func NewResolvers(root string, log *slog.Logger) *Resolvers { return &Resolvers{root: root, log: log} }

// Lookup implements dns.Lookup.
func (r *Resolvers) Lookup(name string) ([]netip.Addr, bool) {
	r.mutex.Lock()
	list := slices.Clone(r.list)
	r.mutex.Unlock()
	for _, f := range list {
		if addresses, found := f.Lookup(name); found {
			return addresses, true
		}
	}
	return nil, false
}

// Run follows the deployments until ctx ends.
func (r *Resolvers) Run(ctx context.Context) {
	ticker := time.NewTicker(namesInterval)
	defer ticker.Stop()
	for {
		r.follow(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// follow starts a resolver for each deployment that has none, and ends those of deployments that are deleted.
func (r *Resolvers) follow(ctx context.Context) {
	dirs, err := vm.StateDirs(r.root)
	if err != nil {
		r.log.Error("following the deployments", "error", err)
		return
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.list = slices.DeleteFunc(r.list, func(f following) bool {
		gone := !slices.Contains(dirs, f.dir)
		if gone {
			f.stop()
		}
		return gone
	})
	for _, dir := range dirs {
		if slices.ContainsFunc(r.list, func(f following) bool { return f.dir == dir }) {
			continue
		}
		ctx, stop := context.WithCancel(ctx)
		f := following{NewResolver(dir, r.log), stop}
		go f.Run(ctx)
		r.list = append(r.list, f)
	}
}
