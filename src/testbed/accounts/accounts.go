// Package accounts makes up AWS accounts for the simulator, right ones and broken ones, and says what a cloud
// controller manager would meet in them. It uses nothing of the preflight, whose results are compared with it.
package accounts

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	"kubernetes-release/cloud/aws/awstest"
	"kubernetes-release/preflight"
	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/awssim/iam"
	"kubernetes-release/testbed/awssim/store"
)

// Names that the cloud controller manager and the release's documentation prescribe.
const (
	tagPrefix       = "kubernetes.io/cluster/"
	legacyTag       = "KubernetesCluster"
	publicRoleTag   = "kubernetes.io/role/elb"
	internalRoleTag = "kubernetes.io/role/internal-elb"
	inlinePolicy    = "kubernetes"
	longestName     = 127 - len(tagPrefix) // BOSH truncates tag keys to 127 characters
)

// Account is an AWS account with an instance whose preflight is checked.
type Account struct {
	World  *store.World
	Self   int // index of the instance
	Config awstest.Config
	Broken []string // names of the breaks
	random *rand.Rand
}

func (a *Account) instance() *store.Instance { return &a.World.Instances[a.Self] }
func (a *Account) key() string               { return tagPrefix + a.Config.Cluster }

// Role is that of the instance's profile.
func (a *Account) Role() *store.Role { return Find(a.World.Roles, profile(a.Config.Role)) }

// Find returns the role with the name.
func Find(roles []store.Role, name string) *store.Role {
	at := slices.IndexFunc(roles, func(r store.Role) bool { return r.Name == name })
	return &roles[at]
}

// Indexes of the lab's route tables.
const (
	NodesTable  = 0
	PublicTable = 1
)

// breaks are the ways to break an account that commands can fix. Each changes the world or what the deployment requires
// of it.
var breaks = map[string]func(*Account){
	"no instance tag":       func(a *Account) { delete(a.instance().Tags, a.key()) },
	"another cluster's tag": func(a *Account) { a.instance().Tags[tagPrefix+"other (it's)"] = "shared" },
	"another cluster's tag only": func(a *Account) {
		a.instance().Tags = store.Tags{tagPrefix + "old name": "shared"}
	},
	"another cluster's old tag":      func(a *Account) { a.instance().Tags[legacyTag] = "other" },
	"a wrong value":                  func(a *Account) { a.instance().Tags[a.key()] = "yes" },
	"untagged node subnet":           func(a *Account) { delete(a.World.Subnets[0].Tags, a.key()) },
	"foreign node subnet":            func(a *Account) { a.retag(0, "other") },
	"untagged public subnet":         func(a *Account) { delete(a.World.Subnets[1+2*a.random.IntN(3)].Tags, a.key()) },
	"foreign public subnet":          func(a *Account) { a.retag(1+2*a.random.IntN(3), "other") },
	"all public subnets are foreign": func(a *Account) { a.retag(1, "o"); a.retag(3, "o"); a.retag(5, "o") },
	"all subnets are foreign":        func(a *Account) { a.retagAll("other") },
	"no role tags":                   func(a *Account) { a.dropTag(publicRoleTag) },
	"no internal role tags":          func(a *Account) { a.dropTag(internalRoleTag) },
	"role tag on the node subnet":    func(a *Account) { a.World.Subnets[0].Tags[publicRoleTag] = "1" },
	"no route to the internet": func(a *Account) {
		a.World.RouteTables[PublicTable].Routes = a.World.RouteTables[PublicTable].Routes[:1]
	},
	"a NAT route in the public table": func(a *Account) { a.natInPublic() },
	"public subnets in the main table": func(a *Account) {
		subnets := a.World.RouteTables[PublicTable].Subnets
		a.World.RouteTables[PublicTable].Subnets = slices.Clone(subnets[:min(a.random.IntN(3), len(subnets))])
	},
	"public subnets with the nodes' table": func(a *Account) {
		tables := a.World.RouteTables
		tables[NodesTable].Subnets = append(tables[NodesTable].Subnets, tables[PublicTable].Subnets...)
		tables[PublicTable].Subnets = nil
	},
	"no internet gateway": func(a *Account) {
		a.World.InternetGateways = nil
		a.World.RouteTables[PublicTable].Routes = a.World.RouteTables[PublicTable].Routes[:1]
	},
	"untagged security group": func(a *Account) { delete(a.World.SecurityGroups[0].Tags, a.key()) },
	"two tagged security groups": func(a *Account) {
		a.addGroup(store.Tags{a.key(): "shared"})
	},
	"two groups, one with the old tag": func(a *Account) { a.addGroup(store.Tags{legacyTag: a.Config.Cluster}) },
	"two untagged security groups": func(a *Account) {
		a.addGroup(store.Tags{tagPrefix + "other": "shared"})
		delete(a.World.SecurityGroups[0].Tags, a.key())
	},
	"no policy":              func(a *Account) { a.Role().Policies = nil },
	"a statement is missing": func(a *Account) { a.dropStatement() },
	"an action is missing":   func(a *Account) { a.dropAction() },
	"no instance profile":    func(a *Account) { a.instance().InstanceProfile = "" },
	"the other profile": func(a *Account) {
		a.instance().InstanceProfile = profile(
			map[preflight.Role]preflight.Role{
				preflight.Control: preflight.Worker, preflight.Worker: preflight.Control,
			}[a.Config.Role],
		)
	},
	"a profile without a role": func(a *Account) {
		for i := range a.World.InstanceProfiles {
			if a.World.InstanceProfiles[i].Name == profile(a.Config.Role) {
				a.World.InstanceProfiles[i].Role = ""
			}
		}
	},
	"EC2 cannot assume the role": func(a *Account) { a.Role().Untrusted = true },
	"credentials fail":           func(a *Account) { a.instance().CredentialStatus = "Failed" },
	"metadata is off":            func(a *Account) { a.instance().Metadata.HTTPEndpoint = "disabled" },
	"pods reach metadata":        func(a *Account) { a.instance().Metadata.HopLimit = 2 },
	"source/destination check": func(a *Account) {
		on := true
		a.instance().SourceDestCheck = &on
		a.Config.UnencapsulatedPodNetwork = true
	},
	"no DNS host names": func(a *Account) { a.World.VPCs[0].NoDNSHostnames = true },
	"no rule for the pod network": func(a *Account) {
		group := &a.World.SecurityGroups[0]
		group.Ingress = slices.DeleteFunc(group.Ingress, func(r store.Rule) bool { return r.CIDR == PodNetwork })
		a.Config.ConfigureCloudRoutes = true
	},
	"no tagged route table": func(a *Account) {
		delete(a.World.RouteTables[NodesTable].Tags, a.key())
		a.Config.ConfigureCloudRoutes = true
	},
	"two tagged route tables": func(a *Account) {
		a.World.RouteTables[PublicTable].Tags[a.key()] = "shared"
		a.Config.ConfigureCloudRoutes = true
	},
}

func (a *Account) retag(subnet int, cluster string) {
	tags := a.World.Subnets[subnet].Tags
	delete(tags, a.key())
	tags[tagPrefix+cluster] = "shared"
}

func (a *Account) retagAll(cluster string) {
	for i := range a.World.Subnets {
		a.retag(i, cluster)
	}
}

func (a *Account) dropTag(key string) {
	for i := range a.World.Subnets {
		delete(a.World.Subnets[i].Tags, key)
	}
}

func (a *Account) natInPublic() {
	t := &a.World.RouteTables[PublicTable]
	t.Routes = []store.Route{t.Routes[0], {Destination: "0.0.0.0/0", NAT: "nat-0a0b0c0d0e0f00001"}}
}

func (a *Account) addGroup(tags store.Tags) {
	const id = "sg-00000000000000002"
	if slices.Contains(a.instance().SecurityGroups, id) {
		return
	}
	a.World.SecurityGroups = append(
		a.World.SecurityGroups, store.SecurityGroup{ID: id, Name: "second", VPC: awssim.LabVPC, Tags: tags},
	)
	a.instance().SecurityGroups = append(a.instance().SecurityGroups, id)
}

func (a *Account) dropStatement() {
	if policy, ok := a.Role().Policies[inlinePolicy]; ok && len(policy.Statement) > 1 {
		at := a.random.IntN(len(policy.Statement))
		policy.Statement = slices.Delete(slices.Clone(policy.Statement), at, at+1)
		a.Role().Policies[inlinePolicy] = policy
	}
}

func (a *Account) dropAction() {
	if policy, ok := a.Role().Policies[inlinePolicy]; ok {
		policy.Statement = slices.Clone(policy.Statement)
		s := &policy.Statement[a.random.IntN(len(policy.Statement))]
		if len(s.Action) > 1 {
			at := a.random.IntN(len(s.Action))
			s.Action = slices.Delete(slices.Clone(s.Action), at, at+1)
		}
		a.Role().Policies[inlinePolicy] = policy
	}
}

// clusterNames include a name as PKS gives, and the longest.
var clusterNames = []string{
	"prod", "service-instance_0f61a1f5-1b72-4cf3-8df5-a1a9e0a3a0f5",
	strings.Repeat("n", 63) + "." + strings.Repeat("n", longestName-64),
}

// PodNetwork is the pod network of all accounts.
const PodNetwork = "10.244.0.0/16"

// Regions are one of each partition.
var Regions = map[string]string{
	"us-east-1": "aws", "cn-north-1": "aws-cn", "us-gov-west-1": "aws-us-gov", "eusc-de-east-1": "aws-eusc",
}

// profile is the name of a role's instance profile in the lab's world.
func profile(role preflight.Role) string { return "kubernetes-" + string(role) }

// World is the lab's world on loopback addresses.
func World(cluster string) *store.World {
	return awssim.NewLabWorld(awssim.LabOptions{Network: netip.MustParsePrefix("127.77.0.0/16"), Cluster: cluster})
}

// Instance returns the nth instance of World, in the first zone.
func Instance(n int, role preflight.Role, cluster string) store.Instance {
	return store.Instance{
		ID:              fmt.Sprintf("i-%017x", n),
		Subnet:          awssim.LabNodeSubnet(1),
		Address:         netip.AddrFrom4([4]byte{127, 77, byte(16 + n/250), byte(n%250 + 4)}),
		SecurityGroups:  []string{awssim.LabSecurityGroup},
		InstanceProfile: profile(role),
		Tags:            store.Tags{tagPrefix + cluster: "shared"},
	}
}

// MoveTo puts a world into a region.
func MoveTo(w *store.World, region string) {
	w.Region, w.Partition = region, Regions[region]
	for i := range w.Subnets {
		zone := &w.Subnets[i].AvailabilityZone
		*zone = region + (*zone)[len(*zone)-1:]
	}
}

// PolicyFunc returns the generated IAM policy of a role, with the permissions for pod routes.
type PolicyFunc func(role preflight.Role, cluster, partition string) ([]byte, error)

// New returns an account in which nothing is wrong.
func New(random *rand.Rand, policy PolicyFunc) (*Account, error) {
	role := []preflight.Role{preflight.Control, preflight.Worker}[random.IntN(2)]
	a := &Account{random: random}
	a.Config.Config = preflight.Config{Provider: "aws", Role: role, Mode: preflight.ModeEnforce}
	a.Config.Cluster = clusterNames[random.IntN(len(clusterNames))]
	a.Config.ConfigureCloudRoutes = role == preflight.Control && random.IntN(2) == 0
	a.Config.Thorough = random.IntN(2) == 0
	a.World = World(a.Config.Cluster)
	MoveTo(a.World, slices.Sorted(maps.Keys(Regions))[random.IntN(len(Regions))])
	i := Instance(1, role, a.Config.Cluster)
	off := false
	i.SourceDestCheck = &off
	a.World.Instances = []store.Instance{i, Instance(2, preflight.Worker, a.Config.Cluster)}
	a.Config.PodNetwork = PodNetwork
	awssim.RoutePods(a.World, a.Config.Cluster, netip.MustParsePrefix(PodNetwork))
	a.World.RouteTables[NodesTable].Tags[a.key()] = "shared"
	for n := range a.World.Roles {
		r := &a.World.Roles[n]
		document, err := policy(
			preflight.Role(strings.TrimPrefix(r.Name, "kubernetes-")), a.Config.Cluster, a.World.Partition,
		)
		if err != nil {
			return nil, err
		}
		var parsed iam.Policy
		if err := json.Unmarshal(document, &parsed); err != nil {
			return nil, err
		}
		r.Policies = map[string]iam.Policy{inlinePolicy: parsed}
	}
	return a, nil
}

// Break breaks the account in one to four ways.
func (a *Account) Break() {
	names := slices.Sorted(maps.Keys(breaks))
	a.random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	a.Broken = names[:1+a.random.IntN(4)]
	for _, name := range a.Broken {
		breaks[name](a)
	}
}

// String describes the account.
func (a *Account) String() string {
	broken := "nothing broken"
	if len(a.Broken) > 0 {
		broken = strings.Join(a.Broken, "; ")
	}
	return fmt.Sprintf("%s, cluster %q in %s: %s", a.Config.Role, a.Config.Cluster, a.World.Region, broken)
}
