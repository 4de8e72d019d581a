package aws

import (
	"slices"
	"strings"
	"testing"

	"kubernetes-release/cloud/aws/clustertags"
)

func tagsOf(list ...string) clustertags.Tags {
	result := clustertags.Tags{}
	for _, t := range list {
		key, value, _ := strings.Cut(t, "=")
		result[key] = value
	}
	return result
}

func subnetOf(id, zone string, tags ...string) subnet {
	return subnet{ID: id, Zone: zone, Tags: tagsOf(tags...)}
}

func mainTable(gateway string) routeTable {
	return routeTable{ID: "rtb-main", Main: true, Gateways: []string{"local", gateway}}
}

func tableOf(gateway string, subnets ...string) routeTable {
	return routeTable{ID: "rtb-x", Subnets: subnets, Gateways: []string{gateway}}
}

func TestChoose(t *testing.T) {
	const own, other = clustertags.Prefix + "prod", clustertags.Prefix + "other"
	tests := map[string]struct {
		subnets         []subnet
		tables          []routeTable
		zones           []zone
		public, private string // chosen ids
		explained       string // somewhere in the explanation of the public choice
	}{
		"role tag beats cluster tag": {
			[]subnet{subnetOf("subnet-1", "a", own), subnetOf("subnet-2", "a", clustertags.PublicRole)},
			[]routeTable{
				mainTable("igw-1"),
			},
			nil,
			"subnet-2",
			"subnet-1",
			"a  subnet-2 (tag kubernetes.io/role/elb); not subnet-1: no tag kubernetes.io/role/elb",
		},
		"cluster tag beats a lower id": {[]subnet{subnetOf("subnet-1", "a"), subnetOf("subnet-2", "a", own)},
			[]routeTable{mainTable("igw-1")}, nil, "subnet-2", "subnet-2", "a  subnet-2 (the cluster's tag)"},
		"lowest id": {[]subnet{subnetOf("subnet-2", "a"), subnetOf("subnet-1", "a"), subnetOf("subnet-3", "a")},
			[]routeTable{mainTable("igw-1")}, nil, "subnet-1", "subnet-1", "not subnet-2: its id is higher"},
		"old tag counts as the cluster's": {
			[]subnet{subnetOf("subnet-1", "a"), subnetOf("subnet-2", "a", clustertags.Legacy+"=prod")},
			[]routeTable{mainTable("igw-1")},
			nil,
			"subnet-2",
			"subnet-2",
			"",
		},
		"others' subnets are left out": {
			[]subnet{subnetOf("subnet-1", "a", other), subnetOf("subnet-2", "a")},
			[]routeTable{
				mainTable("igw-1"),
			},
			nil,
			"subnet-2",
			"subnet-2",
			`not subnet-1 in a: tagged only for cluster "other"`,
		},
		"shared with another cluster": {
			[]subnet{subnetOf("subnet-1", "a", other, own)},
			[]routeTable{mainTable("igw-1")},
			nil,
			"subnet-1",
			"subnet-1",
			"",
		},
		"all are others': its own": {[]subnet{subnetOf("subnet-1", "a", other), subnetOf("subnet-own", "b", other)},
			[]routeTable{mainTable("igw-1")}, nil, "subnet-own", "subnet-own", "this instance's own"},
		"its own table counts before the main one": {
			[]subnet{subnetOf("subnet-1", "a"), subnetOf("subnet-2", "b")},
			[]routeTable{
				mainTable("igw-1"),
				tableOf("nat-1", "subnet-1"),
			},
			nil,
			"subnet-2",
			"subnet-1 subnet-2",
			"not subnet-1 in a: no route to an internet gateway",
		},
		"local zones": {
			[]subnet{subnetOf("subnet-1", "a"), subnetOf("subnet-2", "l")},
			[]routeTable{mainTable("igw-1")},
			[]zone{{"l", "local-zone"}},
			"subnet-1",
			"subnet-1",
			"zone l is not of the type availability-zone",
		},
		"zones in order": {
			[]subnet{subnetOf("subnet-1", "c"), subnetOf("subnet-2", "a"), subnetOf("subnet-3", "b")},
			[]routeTable{mainTable("igw-1")},
			nil,
			"subnet-2 subnet-3 subnet-1",
			"subnet-2 subnet-3 subnet-1",
			"",
		},
		"nothing": {nil, nil, nil, "", "", "no subnet"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			v := vpc{
				cluster:   "prod",
				ownSubnet: "subnet-own",
				subnets:   test.subnets,
				tables:    test.tables,
				zones:     test.zones,
			}
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
	v := vpc{cluster: "prod", subnets: []subnet{subnetOf("subnet-2", "a"), subnetOf("subnet-1", "a")}}
	if got := v.choose(true).Unrouted; !slices.Equal(got, []string{"subnet-1", "subnet-2"}) {
		t.Errorf("unrouted: %v", got)
	}
}
