package account

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// TestClosed: rules open a port together, and what a prefix list opens is not known.
func TestClosed(t *testing.T) {
	a := &Account{Settings: &Settings{Subnet1: "subnet-1", Subnet2: "subnet-2", Subnet3: "subnet-2"}, group: "sg-1"}
	networks := map[string]netip.Prefix{
		"subnet-1": netip.MustParsePrefix("10.0.0.0/24"), "subnet-2": netip.MustParsePrefix("10.0.1.0/24"),
	}
	permission := func(from, to int32, cidrs ...string) types.IpPermission {
		p := types.IpPermission{IpProtocol: aws.String("tcp"), FromPort: &from, ToPort: &to}
		for _, cidr := range cidrs {
			p.IpRanges = append(p.IpRanges, types.IpRange{CidrIp: &cidr})
		}
		return p
	}
	group := permission(2380, 2380)
	group.UserIdGroupPairs = []types.UserIdGroupPair{{GroupId: aws.String("sg-1")}}
	list := permission(2380, 2380)
	list.PrefixListIds = []types.PrefixListId{{PrefixListId: aws.String("pl-1")}}
	for name, c := range map[string]struct {
		permissions       []types.IpPermission
		closed, uncertain bool // port 2380
	}{
		"no rule":     {nil, true, false},
		"the group":   {[]types.IpPermission{group}, false, false},
		"all subnets": {[]types.IpPermission{permission(2379, 2380, "10.0.0.0/16")}, false, false},
		"one subnet":  {[]types.IpPermission{permission(2379, 2380, "10.0.0.0/24")}, true, false},
		"a rule each": {
			[]types.IpPermission{permission(2380, 2380, "10.0.0.0/24"), permission(0, 65535, "10.0.1.0/24")},
			false, false,
		},
		"halves of a subnet": {
			[]types.IpPermission{permission(0, 65535, "10.0.0.0/24", "10.0.1.0/25", "10.0.1.128/25")}, false, false,
		},
		"a prefix list":             {[]types.IpPermission{list}, false, true},
		"the group and such a list": {[]types.IpPermission{group, list}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			closed, uncertain := a.closed(c.permissions, networks)
			has := func(list []ports) bool {
				return slices.ContainsFunc(list, func(p ports) bool { return p.from == 2380 && p.to == 2380 })
			}
			if has(closed) != c.closed || has(uncertain) != c.uncertain {
				t.Errorf("closed: %v, uncertain: %v", closed, uncertain)
			}
		})
	}
}
