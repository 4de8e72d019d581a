package openstacksim_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"kubernetes-release/cloud/openstack"
	"kubernetes-release/node"
	"kubernetes-release/testbed/openstacksim"
)

// boshServer adds a server with the metadata that the Director sets.
func boshServer(w *openstacksim.World, address, deployment, instance string) string {
	id := w.AddServer("vm", netip.MustParseAddr(address))
	w.Servers[len(w.Servers)-1].Metadata = map[string]string{"deployment": deployment, "id": instance}
	return id
}

// locate asks for the provider ID of instance "own" of deployment "kube", which has the address 127.66.16.9 in BOSH.
func locate(t *testing.T, world *openstacksim.World) (string, error) {
	t.Helper()
	_, endpoint := start(t, world, 0)
	return (&openstack.Provider{}).NewLocator(cloudConfig(t, endpoint)).ProviderID(t.Context(), node.Instance{
		Deployment: "kube", ID: "own", Addresses: []netip.Addr{netip.MustParseAddr("127.66.16.9")},
	})
}

// TestServerOfAnInstance: the provider ID comes from the server that has the instance's address and metadata, and is
// not guessed.
func TestServerOfAnInstance(t *testing.T) {
	other := func(w *openstacksim.World, at string) { boshServer(w, at, "kube", "other") }
	for name, test := range map[string]struct {
		others func(w *openstacksim.World)
		region bool
	}{
		"alone":                   {},
		"with region":             {region: true},
		"beside a neighbor":       {others: func(w *openstacksim.World) { other(w, "127.66.16.90") }},
		"address in two networks": {others: func(w *openstacksim.World) { other(w, "127.66.16.9") }},
		"instance of another deployment with this ID": {
			others: func(w *openstacksim.World) { boshServer(w, "127.66.16.9", "kube2", "own") },
		},
		"its metadata at another address": {
			others: func(w *openstacksim.World) { boshServer(w, "127.66.16.10", "kube", "own") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			world := openstacksim.LabWorld(loopback)
			want := "openstack:///"
			if test.region {
				t.Setenv("OS_CCM_REGIONAL", "true")
				want = "openstack://" + openstacksim.LabRegion + "/"
			}
			want += boshServer(world, "127.66.16.9", "kube", "own")
			if test.others != nil {
				test.others(world)
			}
			if got, err := locate(t, world); got != want || err != nil {
				t.Errorf("%q, %v; want %q", got, err, want)
			}
		})
	}
	for name, test := range map[string]struct {
		servers func(w *openstacksim.World) []string
		want    string
	}{
		"none": {func(*openstacksim.World) []string { return nil }, "no server in the project"},
		"an address that contains it": {
			func(w *openstacksim.World) []string { boshServer(w, "127.66.16.90", "kube", "own"); return nil },
			"no server in the project",
		},
		"as a floating IP": {
			func(w *openstacksim.World) []string {
				boshServer(w, "127.66.16.10", "kube", "own")
				w.FloatingIPs = []openstacksim.FloatingIP{{
					ID: "f", NetworkID: openstacksim.LabExternalNetwork, Address: "127.66.16.9",
					PortID: &w.Ports[len(w.Ports)-1].ID,
				}}
				return nil
			},
			"no server in the project",
		},
		"two that fit": {
			func(w *openstacksim.World) []string {
				return []string{
					boshServer(w, "127.66.16.9", "kube", "own"), boshServer(w, "127.66.16.9", "kube", "own"),
				}
			},
			"delete those that are not BOSH's",
		},
		"another instance": {
			func(w *openstacksim.World) []string { return []string{boshServer(w, "127.66.16.9", "kube", "other")} },
			`id="other"`,
		},
		"a VM that BOSH has not created": {
			func(w *openstacksim.World) []string {
				return []string{w.AddServer("vm", netip.MustParseAddr("127.66.16.9"))}
			},
			`deployment=""`,
		},
		"a refused credential": {
			func(w *openstacksim.World) []string { w.Credentials = nil; return nil }, "authenticate to Keystone",
		},
	} {
		t.Run(name, func(t *testing.T) {
			world := openstacksim.LabWorld(loopback)
			named := append(test.servers(world), test.want)
			got, err := locate(t, world)
			if got != "" || err == nil ||
				slices.ContainsFunc(named, func(text string) bool { return !strings.Contains(err.Error(), text) }) {
				t.Errorf("%q, %v; want an error with %q", got, err, named)
			}
		})
	}
}
