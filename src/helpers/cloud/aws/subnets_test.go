package aws

import (
	"slices"
	"strings"
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

func tagsOf(keys ...string) []types.Tag {
	var tags []types.Tag
	for _, k := range keys {
		key, value, _ := strings.Cut(k, "=")
		tags = append(tags, types.Tag{Key: awssdk.String(key), Value: awssdk.String(value)})
	}
	return tags
}

func subnetOf(id, zone string, tags ...string) types.Subnet {
	return types.Subnet{SubnetId: awssdk.String(id), AvailabilityZone: awssdk.String(zone), Tags: tagsOf(tags...)}
}

func mainTable(gateway string) types.RouteTable {
	return types.RouteTable{RouteTableId: awssdk.String("rtb-main"), Associations: []types.RouteTableAssociation{{Main: awssdk.Bool(true)}},
		Routes: []types.Route{{GatewayId: awssdk.String("local")}, {GatewayId: awssdk.String(gateway)}}}
}

func tableOf(gateway string, subnets ...string) types.RouteTable {
	t := types.RouteTable{RouteTableId: awssdk.String("rtb-x"), Routes: []types.Route{{GatewayId: awssdk.String(gateway)}}}
	for _, s := range subnets {
		t.Associations = append(t.Associations, types.RouteTableAssociation{SubnetId: awssdk.String(s)})
	}
	return t
}

func TestChoose(t *testing.T) {
	const own, other = TagPrefix + "prod", TagPrefix + "other"
	tests := map[string]struct {
		subnets         []types.Subnet
		tables          []types.RouteTable
		zones           []types.AvailabilityZone
		public, private string // chosen ids
		explained       string // somewhere in the explanation of the public choice
	}{
		"role tag beats cluster tag": {[]types.Subnet{subnetOf("subnet-1", "a", own), subnetOf("subnet-2", "a", publicRoleTag)},
			[]types.RouteTable{mainTable("igw-1")}, nil, "subnet-2", "subnet-1", "a  subnet-2 (tag kubernetes.io/role/elb); not subnet-1: no tag kubernetes.io/role/elb"},
		"cluster tag beats a lower id": {[]types.Subnet{subnetOf("subnet-1", "a"), subnetOf("subnet-2", "a", own)},
			[]types.RouteTable{mainTable("igw-1")}, nil, "subnet-2", "subnet-2", "a  subnet-2 (the cluster's tag)"},
		"lowest id": {[]types.Subnet{subnetOf("subnet-2", "a"), subnetOf("subnet-1", "a"), subnetOf("subnet-3", "a")},
			[]types.RouteTable{mainTable("igw-1")}, nil, "subnet-1", "subnet-1", "not subnet-2: its id is higher"},
		"old tag counts as the cluster's": {[]types.Subnet{subnetOf("subnet-1", "a"), subnetOf("subnet-2", "a", legacyTag+"=prod")},
			[]types.RouteTable{mainTable("igw-1")}, nil, "subnet-2", "subnet-2", ""},
		"others' subnets are left out": {[]types.Subnet{subnetOf("subnet-1", "a", other), subnetOf("subnet-2", "a")},
			[]types.RouteTable{mainTable("igw-1")}, nil, "subnet-2", "subnet-2", `not subnet-1 in a: tagged only for cluster "other"`},
		"shared with another cluster": {[]types.Subnet{subnetOf("subnet-1", "a", other, own)}, []types.RouteTable{mainTable("igw-1")}, nil, "subnet-1", "subnet-1", ""},
		"all are others': its own": {[]types.Subnet{subnetOf("subnet-1", "a", other), subnetOf("subnet-own", "b", other)},
			[]types.RouteTable{mainTable("igw-1")}, nil, "subnet-own", "subnet-own", "for want of any other"},
		"its own table counts before the main one": {[]types.Subnet{subnetOf("subnet-1", "a"), subnetOf("subnet-2", "b")},
			[]types.RouteTable{mainTable("igw-1"), tableOf("nat-1", "subnet-1")}, nil, "subnet-2", "subnet-1 subnet-2", "not subnet-1 in a: no route to an internet gateway"},
		"local zones": {[]types.Subnet{subnetOf("subnet-1", "a"), subnetOf("subnet-2", "l")}, []types.RouteTable{mainTable("igw-1")},
			[]types.AvailabilityZone{{ZoneName: awssdk.String("l"), ZoneType: awssdk.String("local-zone")}}, "subnet-1", "subnet-1", "zone l is not of the type availability-zone"},
		"zones in order": {[]types.Subnet{subnetOf("subnet-1", "c"), subnetOf("subnet-2", "a"), subnetOf("subnet-3", "b")}, []types.RouteTable{mainTable("igw-1")}, nil,
			"subnet-2 subnet-3 subnet-1", "subnet-2 subnet-3 subnet-1", ""},
		"nothing": {nil, nil, nil, "", "", "no subnet"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			v := vpc{cluster: "prod", ownSubnet: "subnet-own", subnets: test.subnets, tables: test.tables, zones: test.zones}
			public := v.choose(false)
			if got := strings.Join(public.ids(), " "); got != test.public {
				t.Errorf("public: %s, want %s", got, test.public)
			}
			if got := strings.Join(v.choose(true).ids(), " "); got != test.private {
				t.Errorf("internal: %s, want %s", got, test.private)
			}
			if text := strings.Join(public.explain().Lines, "\n"); !strings.Contains(text, test.explained) {
				t.Errorf("explanation lacks %q:\n%s", test.explained, text)
			}
		})
	}
}

func TestChooseWithoutRouteTable(t *testing.T) {
	v := vpc{cluster: "prod", subnets: []types.Subnet{subnetOf("subnet-2", "a"), subnetOf("subnet-1", "a")}}
	if got := v.choose(true).Unrouted; !slices.Equal(got, []string{"subnet-1", "subnet-2"}) {
		t.Errorf("unrouted: %v", got)
	}
}
