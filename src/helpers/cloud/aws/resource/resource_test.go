package resource

import (
	"net/netip"
	"testing"
)

// TestWaysOut: a default route may be in parts, and gateway endpoints are no way out.
func TestWaysOut(t *testing.T) {
	to := func(network, target string) Route {
		return Route{Destination: netip.MustParsePrefix(network), Target: target}
	}
	gone := to("0.0.0.0/0", "igw-1")
	gone.Blackhole = true
	for name, c := range map[string]struct {
		routes            []Route
		internet, leaving bool
	}{
		"within the VPC":      {[]Route{to("10.0.0.0/16", "local")}, false, false},
		"internet gateway":    {[]Route{to("0.0.0.0/0", "igw-1")}, true, true},
		"in two halves":       {[]Route{to("0.0.0.0/1", "igw-1"), to("128.0.0.0/1", "igw-1")}, true, true},
		"in different ways":   {[]Route{to("0.0.0.0/1", "igw-1"), to("128.0.0.0/1", "nat-1")}, false, true},
		"one half":            {[]Route{to("0.0.0.0/1", "igw-1")}, false, false},
		"a gateway of before": {[]Route{gone}, false, false},
		"a firewall":          {[]Route{to("0.0.0.0/0", "vpce-1")}, false, true},
	} {
		table := RouteTable{Routes: c.routes}
		internet, leaving := table.LeadsAnywhere(Route.ToOpenInternet), table.LeadsAnywhere(Route.LeadsOut)
		if internet != c.internet || leaving != c.leaving {
			t.Errorf("%s: to the internet %v, out %v", name, internet, leaving)
		}
	}
	for target, want := range map[string]bool{"vpce-1": false, "tgw-1": true} {
		if got := (Route{List: true, Target: target}).LeadsOut(); got != want {
			t.Errorf("a prefix list to %s leads out: %v", target, got)
		}
	}
}

// TestRulesOpenPortsTogether: each port of a range needs a rule, and several may open it.
func TestRulesOpenPortsTogether(t *testing.T) {
	opens := func(protocol string, from, to int) Rule {
		return Rule{Protocols: []string{protocol}, From: from, To: to, Groups: []string{"sg-1"}}
	}
	for name, c := range map[string]struct {
		rules Rules
		want  bool
	}{
		"one rule":         {Rules{opens("tcp", 0, 65535)}, true},
		"two rules":        {Rules{opens("tcp", 30001, 40000), opens("tcp", 30000, 30000)}, true},
		"a gap":            {Rules{opens("tcp", 30000, 30100), opens("tcp", 30102, 32767)}, false},
		"the last port":    {Rules{opens("tcp", 30000, 32766)}, false},
		"another protocol": {Rules{opens("udp", 0, 65535)}, false},
		"no rule":          {nil, false},
	} {
		admits := func(r Rules) bool { return r.Admit("sg-1") }
		if got := c.rules.Each("tcp", FirstNodePort, LastNodePort, admits); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
