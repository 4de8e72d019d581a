package account

import (
	"net/netip"
	"slices"
	"testing"

	"kubernetes-release/cloud/aws/resource"
)

// TestClosed: rules open a port together, and what a prefix list opens is not known.
func TestClosed(t *testing.T) {
	a := &Account{Settings: &Settings{Subnet1: "subnet-1", Subnet2: "subnet-2", Subnet3: "subnet-2"}, group: "sg-1"}
	a.own = []resource.Subnet{
		{ID: "subnet-1", Network: netip.MustParsePrefix("10.0.0.0/24")},
		{ID: "subnet-2", Network: netip.MustParsePrefix("10.0.1.0/24")},
	}
	opens := func(from, to int, cidrs ...string) resource.Rule {
		r := resource.Rule{Protocols: []string{"tcp"}, From: from, To: to}
		for _, cidr := range cidrs {
			r.Networks = append(r.Networks, netip.MustParsePrefix(cidr))
		}
		return r
	}
	group, list := opens(2380, 2380), opens(2380, 2380)
	group.Groups, list.Lists = []string{"sg-1"}, []string{"pl-1"}
	for name, c := range map[string]struct {
		rules             resource.Rules
		closed, uncertain bool // port 2380
	}{
		"no rule":     {nil, true, false},
		"the group":   {resource.Rules{group}, false, false},
		"all subnets": {resource.Rules{opens(2379, 2380, "10.0.0.0/16")}, false, false},
		"one subnet":  {resource.Rules{opens(2379, 2380, "10.0.0.0/24")}, true, false},
		"a rule each": {
			resource.Rules{opens(2380, 2380, "10.0.0.0/24"), opens(0, 65535, "10.0.1.0/24")},
			false, false,
		},
		"halves of a subnet": {
			resource.Rules{opens(0, 65535, "10.0.0.0/24", "10.0.1.0/25", "10.0.1.128/25")}, false, false,
		},
		"a prefix list":             {resource.Rules{list}, false, true},
		"the group and such a list": {resource.Rules{group, list}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			closed, uncertain := a.closed(c.rules)
			has := func(list []ports) bool {
				return slices.ContainsFunc(list, func(p ports) bool { return p.from == 2380 && p.to == 2380 })
			}
			if has(closed) != c.closed || has(uncertain) != c.uncertain {
				t.Errorf("closed: %v, uncertain: %v", closed, uncertain)
			}
		})
	}
}
