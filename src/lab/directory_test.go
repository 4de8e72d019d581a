package lab

import (
	"net/netip"
	"strings"
	"testing"
)

func TestDirectory(t *testing.T) {
	instance := func(id string, index int, az, address string) namedInstance {
		return namedInstance{ID: id, Group: "my_db", Network: "default", AZ: az, Index: index, Address: netip.MustParseAddr(address), VM: "vm-" + id}
	}
	gone := instance("gone", 3, "z1", "10.0.0.4")
	gone.VM = ""
	n := names{
		Deployment: "shop", Zones: map[string]int{"z1": 1, "z2": 2},
		Instances: []namedInstance{instance("aa", 0, "z1", "10.0.0.1"), instance("bb", 1, "z2", "10.0.0.2"), instance("cc", 2, "z2", "10.0.0.3"), gone},
		Aliases: []alias{
			{Domain: "db.internal", Group: "my_db", Network: "default", HealthFilter: "smart"},
			{Domain: "healthy.internal", Group: "my_db", Network: "default", HealthFilter: "healthy"},
			{Domain: "ill.internal", Group: "my_db", Network: "default", HealthFilter: "unhealthy"},
			{Domain: "_.each.internal", Group: "my_db", Network: "default", HealthFilter: "all", PlaceholderType: "uuid"},
		},
	}
	health := map[string]string{"aa": "running", "bb": "failing"}
	d := newDirectory()
	for _, c := range []struct {
		name   string
		health map[string]string
		want   string // last bytes of the addresses; ! for an unknown name
	}{
		{"aa.my-db.default.shop.bosh", health, "1"},
		{"1.my-db.default.shop.bosh", health, "2"},
		{"zz.my-db.default.shop.bosh", health, "!"},
		{"q-s0.my-db.default.shop.bosh", health, "1 3"},
		{"q-s4.my-db.default.shop.bosh", health, "1 2 3"},
		{"q-s3.my-db.default.shop.bosh", health, "1"},
		{"q-s1.my-db.default.shop.bosh", health, "2"},
		{"q-a2s0.my-db.default.shop.bosh", health, "3"},
		{"q-a1a2s4.my-db.default.shop.bosh", health, "1 2 3"},
		{"q-i2s0.my-db.default.shop.bosh", health, "3"},
		{"q-a9s0.my-db.default.shop.bosh", health, ""},
		{"q-s0.web.default.shop.bosh", health, "!"},
		{"q-s0.my-db.default.other.bosh", health, "!"},
		{"db.internal", health, "1 3"},
		{"db.internal", map[string]string{"aa": "failing", "bb": "stopped", "cc": "failing"}, "1 2 3"},
		{"healthy.internal", health, "1"},
		{"healthy.internal", nil, ""},
		{"ill.internal", health, "2"},
		{"bb.each.internal", health, "2"},
		{"each.internal", health, "!"},
		{"zz.each.internal", health, "!"},
		{"gone.my-db.default.shop.bosh", health, ""},
		{"example.com", health, "!"},
	} {
		d.set(n, c.health)
		addresses, found := d.lookup(c.name)
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
