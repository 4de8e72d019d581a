package subnetchoice

import (
	"slices"
	"strings"
	"testing"

	"kubernetes-release/cloud/aws/clustertags"
	"kubernetes-release/cloud/aws/resource"
)

// FuzzSubnets uses arbitrary tags and routes. The choice must consist of existing subnets, one per zone.
func FuzzSubnets(f *testing.F) {
	f.Add(
		"subnet-1 a kubernetes.io/cluster/prod=shared\nsubnet-2 a kubernetes.io/cluster/other=\nsubnet-3 b "+
			"kubernetes.io/role/elb=1",
		"igw-1",
	)
	f.Add("  =\nsubnet-1  KubernetesCluster=prod", "nat-1")
	f.Fuzz(func(t *testing.T, lines, gateway string) {
		v := VPC{Cluster: "prod", OwnSubnet: "subnet-1", Tables: []resource.RouteTable{mainTable(gateway)}}
		known := map[string]bool{}
		for line := range strings.Lines(lines) {
			words := strings.Split(strings.TrimSuffix(line, "\n"), " ")
			words = append(words, "", "")
			v.Subnets = append(v.Subnets, subnetOf(words[0], words[1], words[2:]...))
			known[words[0]] = true
		}
		for _, internal := range []bool{false, true} {
			choice := v.Choose(internal)
			zones := map[string]bool{}
			for _, z := range choice.Zones {
				if !known[z.Subnet.ID] || zones[z.Zone] || z.By == "" {
					t.Errorf("%+v of %q", z, lines)
				}
				zones[z.Zone] = true
			}
			if len(choice.Explain().Lines) == 0 {
				t.Errorf("there is no explanation for %q", lines)
			}
		}
	})
}

func tagsOf(list ...string) clustertags.Tags {
	result := clustertags.Tags{}
	for _, t := range list {
		key, value, _ := strings.Cut(t, "=")
		result[key] = value
	}
	return result
}

func subnetOf(id, zone string, tags ...string) resource.Subnet {
	return resource.Subnet{ID: id, Zone: zone, Tags: tagsOf(tags...)}
}

func mainTable(gateway string) resource.RouteTable {
	routes := []resource.Route{{Target: "local"}, {Target: gateway}}
	return resource.RouteTable{ID: "rtb-main", Main: true, Routes: routes}
}

func tableOf(gateway string, subnets ...string) resource.RouteTable {
	return resource.RouteTable{ID: "rtb-x", Subnets: subnets, Routes: []resource.Route{{Target: gateway}}}
}

func TestChoose(t *testing.T) {
	const own, other = clustertags.Prefix + "prod", clustertags.Prefix + "other"
	tests := map[string]struct {
		subnets         []resource.Subnet
		tables          []resource.RouteTable
		zones           []resource.Zone
		public, private string // chosen ids
		explained       string // somewhere in the explanation of the public choice
	}{
		"role tag beats cluster tag": {
			[]resource.Subnet{subnetOf("subnet-1", "a", own), subnetOf("subnet-2", "a", clustertags.PublicRole)},
			[]resource.RouteTable{
				mainTable("igw-1"),
			},
			nil,
			"subnet-2",
			"subnet-1",
			"a  subnet-2 (tag kubernetes.io/role/elb); not subnet-1: no tag kubernetes.io/role/elb",
		},
		"cluster tag beats a lower id": {[]resource.Subnet{subnetOf("subnet-1", "a"), subnetOf("subnet-2", "a", own)},
			[]resource.RouteTable{mainTable("igw-1")}, nil, "subnet-2", "subnet-2", "a  subnet-2 (the cluster's tag)"},
		"lowest id": {[]resource.Subnet{
			subnetOf("subnet-2", "a"),
			subnetOf("subnet-1", "a"),
			subnetOf("subnet-3", "a"),
		},
			[]resource.RouteTable{mainTable("igw-1")}, nil, "subnet-1", "subnet-1", "not subnet-2: its id is higher"},
		"old tag counts as the cluster's": {
			[]resource.Subnet{subnetOf("subnet-1", "a"), subnetOf("subnet-2", "a", clustertags.Legacy+"=prod")},
			[]resource.RouteTable{mainTable("igw-1")},
			nil,
			"subnet-2",
			"subnet-2",
			"",
		},
		"others' subnets are left out": {
			[]resource.Subnet{subnetOf("subnet-1", "a", other), subnetOf("subnet-2", "a")},
			[]resource.RouteTable{
				mainTable("igw-1"),
			},
			nil,
			"subnet-2",
			"subnet-2",
			`not subnet-1 in a: tagged only for cluster "other"`,
		},
		"shared with another cluster": {
			[]resource.Subnet{subnetOf("subnet-1", "a", other, own)},
			[]resource.RouteTable{mainTable("igw-1")},
			nil,
			"subnet-1",
			"subnet-1",
			"",
		},
		"all are others': its own": {[]resource.Subnet{
			subnetOf("subnet-1", "a", other),
			subnetOf("subnet-own", "b", other),
		},
			[]resource.RouteTable{mainTable("igw-1")}, nil, "subnet-own", "subnet-own", "this instance's own"},
		"its own table counts before the main one": {
			[]resource.Subnet{subnetOf("subnet-1", "a"), subnetOf("subnet-2", "b")},
			[]resource.RouteTable{
				mainTable("igw-1"),
				tableOf("nat-1", "subnet-1"),
			},
			nil,
			"subnet-2",
			"subnet-1 subnet-2",
			"not subnet-1 in a: no route to an internet gateway",
		},
		"local zones": {
			[]resource.Subnet{subnetOf("subnet-1", "a"), subnetOf("subnet-2", "l")},
			[]resource.RouteTable{mainTable("igw-1")},
			[]resource.Zone{{Name: "l", Type: "local-zone"}},
			"subnet-1",
			"subnet-1",
			"zone l is not of the type availability-zone",
		},
		"zones in order": {
			[]resource.Subnet{subnetOf("subnet-1", "c"), subnetOf("subnet-2", "a"), subnetOf("subnet-3", "b")},
			[]resource.RouteTable{mainTable("igw-1")},
			nil,
			"subnet-2 subnet-3 subnet-1",
			"subnet-2 subnet-3 subnet-1",
			"",
		},
		"nothing": {nil, nil, nil, "", "", "no subnet"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			v := VPC{
				Cluster:   "prod",
				OwnSubnet: "subnet-own",
				Subnets:   test.subnets,
				Tables:    test.tables,
				Zones:     test.zones,
			}
			public := v.Choose(false)
			if got := strings.Join(public.IDs(), " "); got != test.public {
				t.Errorf("public: %s, want %s", got, test.public)
			}
			if got := strings.Join(v.Choose(true).IDs(), " "); got != test.private {
				t.Errorf("internal: %s, want %s", got, test.private)
			}
			if text := strings.Join(public.Explain().Lines, "\n"); !strings.Contains(text, test.explained) {
				t.Errorf("explanation lacks %q:\n%s", test.explained, text)
			}
		})
	}
}

func TestChooseWithoutRouteTable(t *testing.T) {
	v := VPC{Cluster: "prod", Subnets: []resource.Subnet{subnetOf("subnet-2", "a"), subnetOf("subnet-1", "a")}}
	if got := v.Choose(true).Unrouted; !slices.Equal(got, []string{"subnet-1", "subnet-2"}) {
		t.Errorf("unrouted: %v", got)
	}
}
