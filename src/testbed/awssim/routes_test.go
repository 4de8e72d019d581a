package awssim_test

import (
	"maps"
	"net/netip"
	"testing"

	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/awssim/store"
)

// router records the routes that a simulator sets.
type router struct{ routes map[netip.Prefix]netip.Addr }

func (r *router) SetRoutes(routes map[netip.Prefix]netip.Addr) error {
	r.routes = routes
	return nil
}

// TestRoutesToInstances: packets to a network reach an instance only under the conditions of a VPC.
func TestRoutesToInstances(t *testing.T) {
	pods := netip.MustParsePrefix("10.244.0.0/16")
	subnet := netip.MustParsePrefix("10.244.3.0/24")
	off, on := false, true
	for name, test := range map[string]struct {
		change func(w *store.World, target *store.Instance)
		routed bool
	}{
		"as documented": {func(*store.World, *store.Instance) {}, true},
		"source/destination check": {
			func(_ *store.World, target *store.Instance) { target.SourceDestCheck = &on }, false,
		},
		"stopped instance": {func(_ *store.World, target *store.Instance) { target.State = store.Stopped }, false},
		"no rule for pods": {func(w *store.World, _ *store.Instance) {
			w.SecurityGroups[0].Ingress = w.SecurityGroups[0].Ingress[:1]
		}, false},
		"rule for other networks": {
			func(w *store.World, _ *store.Instance) { w.SecurityGroups[0].Ingress[1].CIDR = "10.245.0.0/16" }, false,
		},
		"rule for one protocol": {
			func(w *store.World, _ *store.Instance) { w.SecurityGroups[0].Ingress[1].Protocol = "tcp" }, false,
		},
		"table of other subnets": {func(w *store.World, _ *store.Instance) {
			w.RouteTables[1].Routes, w.RouteTables[0].Routes = w.RouteTables[0].Routes, w.RouteTables[1].Routes
		}, false},
		"no route": {
			func(w *store.World, _ *store.Instance) { w.RouteTables[0].Routes = w.RouteTables[0].Routes[:1] }, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			world := testWorld(t)
			awssim.RoutePods(world, "prod", pods)
			table, target := &world.RouteTables[0], &world.Instances[1]
			table.Routes = append(table.Routes, store.Route{Destination: subnet.String(), Instance: target.ID})
			target.SourceDestCheck = &off
			recorded := &router{}
			bed := start(t, world, awssim.Options{Router: recorded})
			if err := bed.sim.Update(func(w *store.World) error {
				test.change(w, &w.Instances[1])
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			want := map[netip.Prefix]netip.Addr{}
			if test.routed {
				want[subnet] = target.Address
			}
			if !maps.Equal(recorded.routes, want) {
				t.Errorf("routes %v, want %v", recorded.routes, want)
			}
		})
	}
}
