package account

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"kubernetes-release/cloud/aws/resource"
)

// aclEntries are incoming TCP rules, numbered from 1.
func aclEntries(rules ...traffic) []types.NetworkAclEntry {
	var entries []types.NetworkAclEntry
	for i, r := range rules {
		e := entry(int32(i+1), r)
		if r.what == "deny" {
			e.RuleAction = types.RuleActionDeny
		}
		entries = append(entries, e)
	}
	return entries
}

func TestDenies(t *testing.T) {
	rule := func(what string, from, to int32, network string) traffic {
		return traffic{ports: ports{"tcp", from, to, what}, network: netip.MustParsePrefix(network)}
	}
	answers := rule("answers", 1024, 65535, "0.0.0.0/0")
	for name, c := range map[string]struct {
		entries []types.NetworkAclEntry
		want    int32
	}{
		"no rules":     {nil, lastEntry},
		"all":          {aclEntries(rule("", 0, 65535, "0.0.0.0/0")), 0},
		"both halves":  {aclEntries(rule("", 0, 65535, "0.0.0.0/1"), rule("", 0, 65535, "128.0.0.0/1")), 0},
		"one half":     {aclEntries(rule("", 0, 65535, "0.0.0.0/1")), lastEntry},
		"half a range": {aclEntries(rule("", 32768, 65535, "0.0.0.0/0")), lastEntry},
		"two ranges": {
			aclEntries(rule("", 0, 32767, "0.0.0.0/0"), rule("", 32768, 65535, "0.0.0.0/0")), 0,
		},
		"two denials": {
			aclEntries(
				rule("", 1024, 40000, "0.0.0.0/0"), rule("deny", 50000, 50000, "0.0.0.0/0"),
				rule("deny", 45000, 45000, "0.0.0.0/0"), rule("", 0, 65535, "0.0.0.0/0"),
			), 2,
		},
		"a denied port after all": {
			aclEntries(rule("", 0, 65535, "0.0.0.0/0"), rule("deny", 2000, 2000, "0.0.0.0/0")), 0,
		},
		"a blocked address": {
			aclEntries(rule("deny", 0, 65535, "203.0.113.7/32"), rule("", 0, 65535, "0.0.0.0/0")), 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := denies(c.entries, answers); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}

// TestDeniedSinglePorts: a rule that denies the internet a port can be a control of the account; no command undoes it.
func TestDeniedSinglePorts(t *testing.T) {
	a := &Account{ec2: ec2.New(ec2.Options{}), Settings: &Settings{
		Subnet1: "subnet-1", Subnet2: "subnet-2", Subnet3: "subnet-3", PublicSubnets: []string{"subnet-4"},
	}}
	for i, id := range a.subnets() {
		network := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i), 0}), 24)
		a.own = append(a.own, resource.Subnet{ID: id, Network: network})
	}
	rule := func(what, protocol string, egress bool, from, to int32) traffic {
		return traffic{ports: ports{protocol, from, to, what}, egress: egress, network: resource.AnyAddress}
	}
	deny := func(from, to int32) traffic { return rule("deny", "tcp", false, from, to) }
	allowed := []traffic{
		rule("", "tcp", false, 0, 65535), rule("", "tcp", true, 0, 65535),
		rule("", "udp", false, 0, 65535), rule("", "udp", true, 0, 65535),
	}
	for name, c := range map[string]struct {
		denied           []traffic
		failing, warning int
	}{
		"3389":                  {[]traffic{deny(3389, 3389)}, 0, 1},
		"a range":               {[]traffic{deny(3000, 3999)}, 1, 0},
		"3389, and a range":     {[]traffic{deny(3389, 3389), deny(3000, 3999)}, 1, 1},
		"a port that is needed": {[]traffic{deny(10250, 10250)}, 2, 1}, // from both other subnets
	} {
		t.Run(name, func(t *testing.T) {
			entries := aclEntries(slices.Concat(c.denied, allowed)...)
			for i := range entries {
				*entries[i].RuleNumber *= 10
			}
			failing, warning := 0, 0
			findings := a.blocked(&types.NetworkAcl{Entries: entries}, "subnet-1", nil)
			for _, f := range findings {
				switch commands := len(f.Fix[0].Commands); {
				case f.Advisory && commands == 0:
					warning++
				case !f.Advisory && commands == 1:
					failing++
				}
			}
			if failing != c.failing || warning != c.warning || len(findings) != failing+warning {
				t.Errorf("%d fail, %d warn: %+v", failing, warning, findings)
			}
		})
	}
}

// TestRequiredTraffic: what nodes need of AWS is in the VPC if it has no way out.
func TestRequiredTraffic(t *testing.T) {
	a := &Account{Settings: &Settings{
		Subnet1: "subnet-1", Subnet2: "subnet-2", Subnet3: "subnet-3", PublicSubnets: []string{"subnet-4"},
	}}
	network := netip.MustParsePrefix("10.0.0.0/16")
	for _, id := range a.subnets() {
		a.own = append(a.own, resource.Subnet{ID: id, Network: network})
	}
	const anywhere = "0.0.0.0/0"
	local := resource.Route{Destination: network, Target: "local"}
	nat := func(cidr string) resource.Route {
		return resource.Route{Destination: netip.MustParsePrefix(cidr), Target: "nat-1"}
	}
	for name, c := range map[string]struct {
		routes []resource.Route
		want   string
		nat    bool
	}{
		"endpoints":     {[]resource.Route{local}, "10.0.0.0/16", false},
		"default route": {[]resource.Route{local, nat(anywhere)}, anywhere, true},
		"two halves":    {[]resource.Route{local, nat("0.0.0.0/1"), nat("128.0.0.0/1")}, anywhere, true},
	} {
		t.Run(name, func(t *testing.T) {
			tables := resource.RouteTables{{Routes: c.routes, Main: true}}
			if first := a.required("subnet-1", tables)[0]; first.ports != https ||
				first.network.String() != c.want {
				t.Errorf("got %s, want it to %s", first, c.want)
			}
			count := 0
			for _, traffic := range a.required("subnet-4", tables) {
				if traffic.advisory {
					count++
				}
			}
			if want := map[bool]int{true: 5}[c.nat]; count != want { // 443 out, answers, 443 from each node subnet
				t.Errorf("%d of a NAT gateway, want %d", count, want)
			}
		})
	}
}
