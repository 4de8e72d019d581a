package awssim

import (
	"fmt"
	"maps"
	"net/netip"
	"time"

	"kubernetes-release/testbed/awssim/iam"
	"kubernetes-release/testbed/awssim/store"
)

// Ids of the lab's world, the same in every lab.
const (
	LabVPC             = "vpc-0a0b0c0d0e0f00001"
	LabSecurityGroup   = "sg-0a0b0c0d0e0f00001"
	LabInternetGateway = "igw-0a0b0c0d0e0f00001"
	LabRouteTable      = "rtb-0a0b0c0d0e0f00001" // of the node subnets
	LabNetworkACL      = "acl-0a0b0c0d0e0f00001" // of all subnets
	LabAccount         = "123456789012"
	LabRegion          = "us-east-1"
	// LabAccessKeyID and LabSecretAccessKey are the static key of the lab's operator and of its CPI. Only the simulator
	// accepts them.
	LabAccessKeyID     = "AKIALABLABLABLABLAB0"
	LabSecretAccessKey = "lab/lab/lab/lab/lab/lab/lab/lab/lab/lab0"
)

// LabOptions configure the lab's world.
type LabOptions struct {
	// Network is the VPC's /16. Tests use one in 127.0.0.0/8, which needs no plumbing.
	Network netip.Prefix
	// Cluster is the name in the kubernetes.io/cluster/NAME tags; if it is empty, subnets and the
	// node security group have none.
	Cluster string
	// UntaggedSubnets are the ids of subnets without the cluster tag.
	UntaggedSubnets []string
	// WithoutRoleTags omits kubernetes.io/role/elb and …/internal-elb on all subnets.
	WithoutRoleTags bool
}

// LabWorld is the VPC of lab number n: 10.n.0.0/16, tagged for the cluster.
func LabWorld(n int, cluster string) *store.World {
	network := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n), 0, 0}), 16)
	return NewLabWorld(LabOptions{Network: network, Cluster: cluster})
}

// NewLabWorld is a VPC with, in each of three availability zones, a node subnet (x.y.{16,32,48}.0/20) and
// a public subnet (x.y.{101,102,103}.0/24, routed to an internet gateway); a security group
// for nodes; the roles and instance profiles kubernetes-control and kubernetes-worker; and no instances.
func NewLabWorld(o LabOptions) *store.World {
	clusterTags := func(id string) store.Tags {
		tags := store.Tags{}
		if o.Cluster == "" {
			return tags
		}
		for _, untagged := range o.UntaggedSubnets {
			if untagged == id {
				return tags
			}
		}
		tags["kubernetes.io/cluster/"+o.Cluster] = "owned"
		return tags
	}
	base := o.Network.Addr().As4()
	prefix := func(third byte, bits int) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{base[0], base[1], third, 0}), bits)
	}
	w := &store.World{
		Region:  LabRegion,
		Account: LabAccount,
		Settings: store.Settings{
			HealthCheckInterval: store.Duration(time.Second),
		},
		StaticKeys: []store.StaticKey{
			{
				AccessKeyID:     LabAccessKeyID,
				SecretAccessKey: LabSecretAccessKey,
				User:            "operator",
				Policies:        []iam.Policy{allow("*")},
			},
		},
		VPCs:             []store.VPC{{ID: LabVPC, CIDR: o.Network, Tags: store.Tags{"Name": "lab"}}},
		InternetGateways: []store.InternetGateway{{ID: LabInternetGateway, VPC: LabVPC}},
		NetworkACLs: []store.NetworkACL{
			{ID: LabNetworkACL, VPC: LabVPC, Default: true, Entries: store.AllowAll()},
		},
		SecurityGroups: []store.SecurityGroup{{
			ID: LabSecurityGroup, Name: "kubernetes-nodes", Description: "Nodes of the Kubernetes cluster", VPC: LabVPC,
			Ingress: []store.Rule{{Protocol: "-1", Group: LabSecurityGroup}},
			Egress:  []store.Rule{{Protocol: "-1", CIDR: "0.0.0.0/0"}},
			Tags:    clusterTags(LabSecurityGroup),
		}},
		Roles: []store.Role{
			{
				Name:     "kubernetes-control",
				Policies: map[string]iam.Policy{"kubernetes": allow("ec2:*", "elasticloadbalancing:*")},
			},
			{Name: "kubernetes-worker", Policies: map[string]iam.Policy{"kubernetes": allow("ec2:Describe*")}},
		},
		InstanceProfiles: []store.InstanceProfile{
			{Name: "kubernetes-control", Role: "kubernetes-control"},
			{Name: "kubernetes-worker", Role: "kubernetes-worker"},
		},
	}
	local := store.Route{Destination: o.Network.String(), Gateway: "local"}
	nodes := store.RouteTable{
		ID:     LabRouteTable,
		VPC:    LabVPC,
		Main:   true,
		Routes: []store.Route{local, {Destination: "0.0.0.0/0", NAT: "nat-0a0b0c0d0e0f00001"}},
		Tags:   store.Tags{"Name": "nodes"},
	}
	public := store.RouteTable{
		ID:     "rtb-0a0b0c0d0e0f00002",
		VPC:    LabVPC,
		Routes: []store.Route{local, {Destination: "0.0.0.0/0", Gateway: LabInternetGateway}},
		Tags:   store.Tags{"Name": "public"},
	}
	for i, zone := range []string{"a", "b", "c"} {
		add := func(id, name, role string, cidr netip.Prefix) {
			tags := clusterTags(id)
			tags["Name"] = name
			if !o.WithoutRoleTags {
				tags[role] = "1"
			}
			w.Subnets = append(
				w.Subnets,
				store.Subnet{
					ID:               id,
					VPC:              LabVPC,
					AvailabilityZone: LabRegion + zone,
					CIDR:             cidr,
					Tags:             maps.Clone(tags),
				},
			)
		}
		nodeID, publicID := LabNodeSubnet(i+1), LabPublicSubnet(i+1)
		add(nodeID, "nodes-"+zone, "kubernetes.io/role/internal-elb", prefix(byte(16*(i+1)), 20))
		add(publicID, "public-"+zone, "kubernetes.io/role/elb", prefix(byte(101+i), 24))
		nodes.Subnets = append(nodes.Subnets, nodeID)
		public.Subnets = append(public.Subnets, publicID)
	}
	w.RouteTables = []store.RouteTable{nodes, public}
	w.SetDefaults()
	return w
}

// RoutePods adds what operators add to the account for cloud routes (docs/aws.md): the cluster's tag on the nodes'
// route table, and a rule of their security group that admits the pod network.
func RoutePods(w *store.World, cluster string, pods netip.Prefix) {
	store.Find(w.RouteTables, LabRouteTable).Tags["kubernetes.io/cluster/"+cluster] = "owned"
	group := store.Find(w.SecurityGroups, LabSecurityGroup)
	group.Ingress = append(group.Ingress, store.Rule{Protocol: "-1", CIDR: pods.String(), Description: "Pods"})
}

// LabNodeSubnet is the id of the node subnet in zone 1, 2 or 3.
func LabNodeSubnet(zone int) string { return fmt.Sprintf("subnet-0a0b0c0d0e0f000%d1", zone) }

// LabPublicSubnet is the id of the public subnet in zone 1, 2 or 3.
func LabPublicSubnet(zone int) string { return fmt.Sprintf("subnet-0a0b0c0d0e0f000%d2", zone) }

// allow is a policy without conditions.
func allow(actions ...string) iam.Policy {
	return iam.Policy{
		Version:   "2012-10-17",
		Statement: iam.Statements{{Effect: "Allow", Action: actions, Resource: iam.Strings{"*"}}},
	}
}
