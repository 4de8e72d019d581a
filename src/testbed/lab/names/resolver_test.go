package names

import (
	"net/netip"
	"strings"
	"testing"

	"kubernetes-release/testbed/lab/agent"
)

func TestResolver(t *testing.T) {
	instance := func(id string, index int, az, address string) namedInstance {
		return namedInstance{
			ID:      id,
			Group:   "my_db",
			Network: "default",
			AZ:      az,
			Index:   index,
			Address: netip.MustParseAddr(address),
			VM:      "vm-" + id,
		}
	}
	gone := instance("gone", 3, "z1", "10.0.0.4")
	gone.VM = ""
	n := names{
		Deployment: "shop",
		Zones:      map[string]int{"z1": 1, "z2": 2},
		Instances: []namedInstance{
			instance("aa", 0, "z1", "10.0.0.1"),
			instance("bb", 1, "z2", "10.0.0.2"),
			instance("cc", 2, "z2", "10.0.0.3"),
			gone,
		},
		Aliases: []alias{
			{Domain: "db.internal", Group: "my_db", Network: "default", HealthFilter: "smart"},
			{Domain: "healthy.internal", Group: "my_db", Network: "default", HealthFilter: "healthy"},
			{Domain: "ill.internal", Group: "my_db", Network: "default", HealthFilter: "unhealthy"},
			{Domain: "checked.internal", Group: "my_db", Job: "db", Network: "default", HealthFilter: "smart"},
			{
				Domain:          "_.each.internal",
				Group:           "my_db",
				Network:         "default",
				HealthFilter:    "all",
				PlaceholderType: "uuid",
			},
		},
	}
	states := map[string]health{"aa": {state: "running"}, "bb": {state: "failing"}}
	failing := map[string]health{"aa": {state: "failing"}, "bb": {state: "stopped"}, "cc": {state: "failing"}}
	// The script of the job db fails on aa, which makes the instance unhealthy, and succeeds on bb, where something
	// else fails.
	checked := map[string]health{
		"aa": {
			"failing",
			map[string]agent.RunState{"db": "failing"},
		},
		"bb": {"failing", map[string]agent.RunState{"db": "running"}},
		"cc": {"running", map[string]agent.RunState{"db": "running"}},
	}
	for _, c := range []struct {
		name   string
		health map[string]health
		want   string // last bytes of the addresses; ! for an unknown name
	}{
		{"aa.my-db.default.shop.bosh", states, "1"},
		{"1.my-db.default.shop.bosh", states, "2"},
		{"zz.my-db.default.shop.bosh", states, "!"},
		{"q-s0.my-db.default.shop.bosh", states, "1 3"},
		{"q-s4.my-db.default.shop.bosh", states, "1 2 3"},
		{"q-s3.my-db.default.shop.bosh", states, "1"},
		{"q-s1.my-db.default.shop.bosh", states, "2"},
		{"q-a2s0.my-db.default.shop.bosh", states, "3"},
		{"q-a1a2s4.my-db.default.shop.bosh", states, "1 2 3"},
		{"q-i2s0.my-db.default.shop.bosh", states, "3"},
		{"q-a9s0.my-db.default.shop.bosh", states, ""},
		{"q-s0.web.default.shop.bosh", states, "!"},
		{"q-s0.my-db.default.other.bosh", states, "!"},
		{"db.internal", states, "1 3"},
		{"db.internal", failing, "1 2 3"},
		{"checked.internal", states, "1 3"},
		{"checked.internal", checked, "2 3"},
		{"db.internal", checked, "3"},
		{"healthy.internal", states, "1"},
		{"healthy.internal", nil, ""},
		{"ill.internal", states, "2"},
		{"bb.each.internal", states, "2"},
		{"each.internal", states, "!"},
		{"zz.each.internal", states, "!"},
		{"gone.my-db.default.shop.bosh", states, ""},
		{"example.com", states, "!"},
	} {
		r := new(Resolver)
		r.current.Store(&snapshot{n, c.health})
		addresses, found := r.Lookup(c.name)
		got := "!"
		if found {
			var list []string
			for _, a := range addresses {
				list = append(list, strings.TrimPrefix(a.String(), "10.0.0."))
			}
			got = strings.Join(list, " ")
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}
