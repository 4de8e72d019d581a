package aws

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"kubernetes-release/cloud"
	"kubernetes-release/cloud/aws/awstest"
	"kubernetes-release/cloud/aws/checks"
	"kubernetes-release/cloud/aws/cloudconfig"
	"kubernetes-release/cloud/aws/clustertags"
	"kubernetes-release/cloud/aws/facts"
	"kubernetes-release/cloud/aws/iampolicy"
	"kubernetes-release/cloud/aws/metadata"
	"kubernetes-release/preflight"
)

const testKey = clustertags.Prefix + "prod"

// mistake is one change to a working account or configuration, and what the check that it concerns must report.
type mistake struct {
	change func(*fakeCloud)
	config func(*awstest.Config)
	conf   string // content of the cloud controller's configuration
	worker bool   // on a worker, else on a control VM

	check    string
	status   preflight.Status
	resource string   // of the finding
	found    []string // values, ids, actions or error codes that the finding or the note contains
	fix      []string // parts of the commands or settings that resolve it
}

func (f *fakeCloud) tagInstance(key, value string) { f.tags[key] = value }

func withCheck(id string, severity preflight.Severity) func(*awstest.Config) {
	return func(c *awstest.Config) { c.Checks = map[string]preflight.Severity{id: severity} }
}

func cloudRoutes(c *awstest.Config) { c.ConfigureCloudRoutes = true }

func podNetwork(c *awstest.Config) { c.ConfigureCloudRoutes, c.PodNetwork = true, "10.244.0.0/16" }

func ownCNI(c *awstest.Config) { c.UnencapsulatedPodNetwork, c.PodNetwork = true, "10.244.0.0/16" }

// rules are the rules of the nodes' security group.
func rules(items string) func(*fakeCloud) { return func(f *fakeCloud) { f.rules = items } }

// allows is a rule that admits networks to ports, such as 0-65535.
func allows(protocol, ports string, networks ...string) string {
	first, last, _ := strings.Cut(ports, "-")
	var ranges strings.Builder
	for _, n := range networks {
		fmt.Fprintf(&ranges, "<item><cidrIp>%s</cidrIp></item>", n)
	}
	limits := ""
	if ports != "" {
		limits = "<fromPort>" + first + "</fromPort><toPort>" + last + "</toPort>"
	}
	return "<item><ipProtocol>" + protocol + "</ipProtocol>" + limits +
		"<ipRanges>" + ranges.String() + "</ipRanges></item>"
}

// allowsGroup is a rule that admits a group to all ports.
func allowsGroup(id string) string {
	return "<item><ipProtocol>-1</ipProtocol><groups><item><groupId>" + id + "</groupId></item></groups></item>"
}

// allowsList is a rule that admits a prefix list to all ports.
func allowsList(id string) string {
	return "<item><ipProtocol>-1</ipProtocol><prefixListIds><item><prefixListId>" + id +
		"</prefixListId></item></prefixListIds></item>"
}

// profileIs gives the instance's role another instance profile.
// noEC2 is what a worker gets while EC2 fails.
func noEC2(f *fakeCloud) {
	for _, action := range []string{"DescribeInstances", "DescribeTags"} {
		answers("ec2:"+action, 500, "<html>")(f)
	}
}

func profileIs(name string) func(*fakeCloud) {
	return func(f *fakeCloud) {
		f.metadata["meta-data/iam/info"] = strings.Replace(
			f.metadata["meta-data/iam/info"], "instance-profile/kubernetes-control", "instance-profile/"+name, 1,
		)
	}
}

func thorough(c *awstest.Config) { c.Thorough = true }

func denies(actions ...string) func(*fakeCloud) {
	return func(f *fakeCloud) {
		for _, a := range actions {
			f.denied[a] = true
		}
	}
}

func answers(action string, status int, body string) func(*fakeCloud) {
	return func(f *fakeCloud) { f.answers[action] = fakeAnswer{status, body} }
}

const credentialsPath = "meta-data/iam/security-credentials/kubernetes-control"

func credentialsAre(document string) func(*fakeCloud) {
	return func(f *fakeCloud) { f.metadata[credentialsPath] = document }
}

var longName = strings.Repeat("a", 106)

// beside runs another instance with the cluster's tag, which has these tags too.
func beside(tags map[string]string) func(*fakeCloud) {
	return func(f *fakeCloud) { f.rival = tags }
}

var tagCases = map[string]mistake{
	"the deployment's own instances": {
		change: beside(map[string]string{"director": "bosh", "deployment": "prod-1"}),
		check:  "other-deployment",
		status: preflight.Passed,
	},
	"another deployment": {
		change:   beside(map[string]string{"director": "bosh", "deployment": "prod-2"}),
		check:    "other-deployment",
		status:   preflight.Failed,
		resource: "i-rival",
		found:    []string{"deployment prod-2 of Director bosh"},
		fix:      []string{"another cluster_name"},
	},
	"another Director": {
		change:   beside(map[string]string{"director": "other", "deployment": "prod-1"}),
		check:    "other-deployment",
		status:   preflight.Failed,
		resource: "i-rival",
		found:    []string{"deployment prod-1 of Director other"},
	},
	"another deployment that is stopped": {
		change: func(f *fakeCloud) {
			f.rival, f.rivalState = map[string]string{"director": "bosh", "deployment": "prod-2"}, "stopped"
		},
		check:    "other-deployment",
		status:   preflight.Failed,
		resource: "i-rival",
		found:    []string{"deployment prod-2 of Director bosh", "stopped"},
	},
	"another deployment that is being created": {
		change: func(f *fakeCloud) {
			f.rival, f.rivalState = map[string]string{"director": "bosh", "deployment": "prod-2"}, "pending"
		},
		check:    "other-deployment",
		status:   preflight.Failed,
		resource: "i-rival",
	},
	"another deployment that was deleted": {
		change: func(f *fakeCloud) {
			f.rival, f.rivalState = map[string]string{"director": "bosh", "deployment": "prod-2"}, "terminated"
		},
		check:  "other-deployment",
		status: preflight.Passed,
	},
	"another deployment in another VPC": {
		change: func(f *fakeCloud) { f.rival, f.rivalVPC = map[string]string{"deployment": "prod-2"}, "vpc-2" },
		check:  "other-deployment",
		status: preflight.Passed,
	},
	"an instance of no deployment": {
		change: beside(map[string]string{"Name": "bastion"}),
		check:  "other-deployment",
		status: preflight.Passed,
	},
	"an instance without BOSH's tags": {
		change: func(f *fakeCloud) { delete(f.tags, "deployment") },
		check:  "other-deployment",
		status: preflight.Skipped,
	},
	"no tag on the instance": {
		worker:   true,
		change:   func(f *fakeCloud) { delete(f.tags, testKey) },
		check:    "instance-cluster-tag",
		status:   preflight.Failed,
		resource: testInstance,
		found:    []string{testKey, "Name"},
		fix: []string{
			"aws ec2 create-tags --region us-east-1 --resources " + testInstance +
				" --tags Key=" + testKey + ",Value=shared",
			"tags: {" + testKey + ": shared}",
		},
	},
	"instance of another cluster": {
		worker:   true,
		change:   func(f *fakeCloud) { f.tags = map[string]string{clustertags.Prefix + "other": "owned"} },
		check:    "instance-cluster-tag",
		status:   preflight.Failed,
		resource: testInstance,
		found:    []string{`"other"`},
	},
	"mode warn": {
		worker:   true,
		change:   func(f *fakeCloud) { delete(f.tags, testKey) },
		config:   func(c *awstest.Config) { c.Mode = preflight.ModeWarn },
		check:    "instance-cluster-tag",
		status:   preflight.Warned,
		resource: testInstance,
	},
	"two cluster ids": {
		change:   func(f *fakeCloud) { f.tagInstance(clustertags.Prefix+"old", "shared") },
		check:    "instance-cluster-ids",
		status:   preflight.Failed,
		resource: testInstance,
		found:    []string{`"old"`, `"prod"`},
		fix: []string{
			"aws ec2 delete-tags --region us-east-1 --resources " + testInstance +
				" --tags Key=" + clustertags.Prefix + "old",
		},
	},
	"two cluster ids on a worker": {
		worker:   true,
		change:   func(f *fakeCloud) { f.tagInstance(clustertags.Prefix+"old", "shared") },
		check:    "instance-cluster-ids",
		status:   preflight.Warned,
		resource: testInstance,
	},
	"two cluster ids with a configured id": {
		change:   func(f *fakeCloud) { f.tagInstance(clustertags.Prefix+"old", "shared") },
		conf:     "[Global]\nKubernetesClusterID = prod\n",
		check:    "instance-cluster-ids",
		status:   preflight.Warned,
		resource: testInstance,
	},
	"two cluster ids, severity overridden": {
		worker:   true,
		change:   func(f *fakeCloud) { f.tagInstance(clustertags.Prefix+"old", "shared") },
		config:   withCheck("instance-cluster-ids", preflight.Fail),
		check:    "instance-cluster-ids",
		status:   preflight.Failed,
		resource: testInstance,
	},
	"legacy tag": {
		change:   func(f *fakeCloud) { f.tagInstance(clustertags.Legacy, "old") },
		check:    "instance-legacy-tag",
		status:   preflight.Failed,
		resource: testInstance,
		found:    []string{"KubernetesCluster=old"},
		fix:      []string{"--tags Key=" + clustertags.Legacy},
	},
	"legacy tag on a worker": {worker: true, change: func(f *fakeCloud) { f.tagInstance(clustertags.Legacy, "old") },
		check: "instance-legacy-tag", status: preflight.Warned, resource: testInstance},
	"value": {
		worker:   true,
		change:   func(f *fakeCloud) { f.tagInstance(testKey, "true") },
		check:    "cluster-tag-value",
		status:   preflight.Warned,
		resource: testInstance,
		found:    []string{`"true"`},
		fix:      []string{"Value=shared"},
	},
	"value of a security group": {
		change:   func(f *fakeCloud) { f.groups["sg-1"][testKey] = "yes" },
		check:    "cluster-tag-value",
		status:   preflight.Warned,
		resource: "sg-1",
		found:    []string{`"yes"`},
		fix:      []string{"--resources sg-1", "Value=shared"},
	},
	"62 tags": {worker: true, change: func(f *fakeCloud) {
		for i := range 58 {
			f.tagInstance(fmt.Sprintf("tag-%d é\n", i), "<&>")
		}
	}, check: "instance-tag-limit", status: preflight.Warned, resource: testInstance, found: []string{"62"}},
	"long cluster name": {
		worker: true,
		change: func(f *fakeCloud) { f.tagInstance(clustertags.Prefix+longName, "") },
		config: func(c *awstest.Config) { c.Cluster = longName },
		check:  "cluster-name",
		status: preflight.Failed,
		found:  []string{"106", "105"},
		fix:    []string{"cluster.name"},
	},
	"unknown key in cloud.conf": {
		conf:     "[Global]\nKubernetesClusterId2 = x\n",
		check:    "cloud-config",
		status:   preflight.Failed,
		resource: "cloud.conf",
		found:    []string{"line 2", `"KubernetesClusterID"`},
	},
	"other cluster id in cloud.conf": {
		conf:     "[Global]\nKubernetesClusterID = x\n",
		check:    "cloud-config",
		status:   preflight.Failed,
		resource: "cloud.conf",
		found:    []string{"KubernetesClusterID = prod", "KubernetesClusterID = x"},
	},
}

var subnetCases = map[string]mistake{
	"node subnet": {
		worker:   true,
		change:   func(f *fakeCloud) { f.subnets[0].tags = nil },
		check:    "node-subnet-cluster-tag",
		status:   preflight.Failed,
		resource: "subnet-node-a",
		fix:      []string{"--resources subnet-node-a --tags Key=" + testKey},
	},
	"node subnet of another cluster": {
		worker:   true,
		change:   func(f *fakeCloud) { f.subnets[0].tags = map[string]string{clustertags.Prefix + "other": "1"} },
		check:    "node-subnet-cluster-tag",
		status:   preflight.Failed,
		resource: "subnet-node-a",
		found:    []string{`"other"`},
	},
	"node subnet does not exist": {
		change:   func(f *fakeCloud) { f.subnets = f.subnets[1:] },
		check:    "node-subnet-cluster-tag",
		status:   preflight.Failed,
		resource: "subnet-node-a",
		fix:      []string{"--subnet-ids subnet-node-a"},
	},
	"public subnet": {
		change:   func(f *fakeCloud) { f.subnets[3].tags = nil },
		check:    "public-subnet-cluster-tag",
		status:   preflight.Failed,
		resource: "subnet-public-b",
		fix:      []string{"--resources subnet-public-b --tags"},
	},
	"public subnets of others only": {change: func(f *fakeCloud) {
		f.subnets[2].tags, f.subnets[3].tags = map[string]string{
			clustertags.Prefix + "x": "1",
		}, map[string]string{
			clustertags.Prefix + "x": "1",
		}
	}, check: "public-subnet-cluster-tag", status: preflight.Failed, resource: "subnet-public-a, subnet-public-b",
		found: []string{`"x"`}},
	"one zone of others only": {
		change:   func(f *fakeCloud) { f.subnets[2].tags = map[string]string{clustertags.Prefix + "x": "1"} },
		check:    "foreign-public-subnets",
		status:   preflight.Warned,
		resource: "subnet-public-a",
		fix:      []string{"--resources subnet-public-a"},
	},
	"no public route": {
		change:   func(f *fakeCloud) { f.tables[1].gateway = "nat-1" },
		check:    "public-subnet-route",
		status:   preflight.Failed,
		resource: "vpc-1",
		fix:      []string{"public-subnet-route: off"},
	},
	"a public subnet behind a firewall": {
		change: func(f *fakeCloud) {
			f.tables[1].gateway = "vpce-1"
			f.subnets[2].tags[clustertags.PublicRole] = ""
		},
		check:    "public-subnet-route",
		status:   preflight.Failed,
		resource: "subnet-public-a",
		fix:      []string{"the default route of subnet-public-a, in rtb-public, leads to vpce-1"},
	},
	"the internet gateway is gone": {
		change:   func(f *fakeCloud) { f.tables[1].blackhole = true },
		check:    "public-subnet-route",
		status:   preflight.Failed,
		resource: "subnet-public-a, subnet-public-b",
		found:    []string{"rtb-public", "igw-1", "blackhole"},
		fix: []string{
			"describe-internet-gateways",
			"replace-route --region us-east-1 --route-table-id rtb-public --destination-cidr-block 0.0.0.0/0 " +
				`--gateway-id "$gateway"`,
		},
	},
	"the internet gateway of one zone is gone": {
		change: func(f *fakeCloud) {
			f.tables[1].subnets = []string{"subnet-public-a"}
			f.tables = append(f.tables, fakeTable{
				id: "rtb-b", subnets: []string{"subnet-public-b"}, gateway: "igw-2", blackhole: true,
			})
		},
		check:    "public-subnet-route",
		status:   preflight.Warned,
		resource: "subnet-public-b",
		fix:      []string{"--route-table-id rtb-b --destination-cidr-block 0.0.0.0/0 --gateway-id igw-1"},
	},
	"a route to a part of the internet": {
		change:   func(f *fakeCloud) { f.tables[1].destinations = []string{"192.0.2.0/24", "0.0.0.0/1"} },
		check:    "public-subnet-route",
		status:   preflight.Warned,
		resource: "subnet-public-a, subnet-public-b",
		found:    []string{"rtb-public", "0.0.0.0/1, 192.0.2.0/24"},
		fix: []string{
			"create-route --region us-east-1 --route-table-id rtb-public --destination-cidr-block 0.0.0.0/0 " +
				"--gateway-id igw-1",
		},
	},
	"a route for each half of the internet": {
		change: func(f *fakeCloud) { f.tables[1].destinations = []string{"0.0.0.0/1", "128.0.0.0/1"} },
		check:  "public-subnet-route",
		status: preflight.Passed,
	},
	"no route table": {
		change:   func(f *fakeCloud) { f.tables = f.tables[1:] },
		check:    "public-subnet-route",
		status:   preflight.Failed,
		resource: "subnet-node-a, subnet-node-b",
		fix:      []string{"aws ec2 associate-route-table --region us-east-1 --subnet-id subnet-node-a"},
	},
	"no route table of a public subnet": {
		change: func(f *fakeCloud) {
			f.tables = f.tables[1:]
			f.tables[0].subnets = []string{"subnet-public-b"}
			f.subnets = append(f.subnets, fakeSubnet{
				"subnet-public-c", "us-east-1c", map[string]string{testKey: "shared", clustertags.PublicRole: ""},
			})
		},
		check:    "public-subnet-route",
		status:   preflight.Failed,
		resource: "subnet-node-a, subnet-node-b, subnet-public-a, subnet-public-c",
		fix: []string{
			"associate-route-table --region us-east-1 --subnet-id subnet-public-c --route-table-id rtb-public",
			`--subnet-id subnet-node-a --route-table-id "$table"`,
		},
	},
	"public by its tag only": {
		change:   func(f *fakeCloud) { f.subnets[0].tags[clustertags.PublicRole] = "" },
		check:    "public-subnet-route",
		status:   preflight.Warned,
		resource: "subnet-node-a",
		fix: []string{
			"delete-tags --region us-east-1 --resources subnet-node-a --tags Key=" + clustertags.PublicRole,
		},
	},
	"several public subnets, one tagged": {
		change: func(f *fakeCloud) { f.addPublic("subnet-public-0", nil) },
		check:  "public-subnet-choice",
		status: preflight.Passed,
	},
	"several public subnets, all tagged": {
		change:   func(f *fakeCloud) { f.addPublic("subnet-public-0", map[string]string{testKey: "shared"}) },
		check:    "public-subnet-choice",
		status:   preflight.Warned,
		resource: "us-east-1a",
		found:    []string{"subnet-public-0"},
		fix:      []string{"--resources subnet-public-0 --tags Key=" + clustertags.PublicRole},
	},
	"several public subnets with the role tag": {
		change: func(f *fakeCloud) {
			for _, id := range []string{"subnet-public-0", "subnet-public-1"} {
				f.addPublic(id, map[string]string{testKey: "shared", clustertags.PublicRole: ""})
			}
		},
		check:    "public-subnet-choice",
		status:   preflight.Warned,
		resource: "us-east-1a",
		found:    []string{"subnet-public-0"},
		fix: []string{
			"delete-tags --region us-east-1 --resources subnet-public-1 --tags Key=" + clustertags.PublicRole,
		},
	},
	"several internal subnets": {
		change:   func(f *fakeCloud) { delete(f.subnets[0].tags, clustertags.InternalRole) },
		check:    "internal-subnet-choice",
		status:   preflight.Warned,
		resource: "us-east-1a",
		fix:      []string{"Key=" + clustertags.InternalRole + ",Value=1"},
	},
	"local zones only": {change: func(f *fakeCloud) {
		f.zones = map[string]string{"us-east-1a": "local-zone", "us-east-1b": "local-zone"}
	}, check: "internal-subnets", status: preflight.Failed, resource: "vpc-1", fix: []string{"create a subnet " +
		"in a zone of the type"}},
	"node zone without a public subnet": {
		change:   func(f *fakeCloud) { f.subnets = f.subnets[:3] },
		check:    "node-zone-public-subnet",
		status:   preflight.Warned,
		resource: "us-east-1b",
		fix:      []string{"node-zone-public-subnet: off"},
	},
	"local zone without a public subnet": {change: func(f *fakeCloud) {
		f.subnets = f.subnets[:3]
		f.zones["us-east-1b"] = "local-zone"
	}, check: "node-zone-public-subnet", status: preflight.Passed},
	"two route tables": {change: func(f *fakeCloud) {
		f.tables[0].tags, f.tables[1].tags = map[string]string{testKey: ""}, map[string]string{testKey: ""}
	}, config: cloudRoutes, check: "cloud-routes-table", status: preflight.Failed, found: []string{"rtb-main, " +
		"rtb-public"}, fix: []string{"--resources rtb-public --tags Key=" + testKey, "RouteTableID"}},
	"a route table of two clusters": {
		change: func(f *fakeCloud) {
			f.tables[0].tags = map[string]string{testKey: "", clustertags.Prefix + "other": ""}
		},
		config:   cloudRoutes,
		check:    "cloud-routes-table",
		status:   preflight.Warned,
		resource: "rtb-main",
		found:    []string{`"other"`},
	},
	"a route table of no node": {
		change:   func(f *fakeCloud) { f.tables[1].tags = map[string]string{testKey: ""} },
		config:   cloudRoutes,
		check:    "cloud-routes-table",
		status:   preflight.Failed,
		resource: "rtb-public",
		fix: []string{
			"--resources rtb-main --tags Key=" + testKey, "delete-tags --region us-east-1 --resources rtb-public",
		},
	},
	"a route table of subnets for load balancers, which lack a route": {
		change: func(f *fakeCloud) {
			f.tables[1].tags, f.tables[1].gateway = map[string]string{testKey: ""}, ""
			f.subnets[2].tags[clustertags.PublicRole], f.subnets[3].tags[clustertags.PublicRole] = "1", "1"
		},
		config:   cloudRoutes,
		check:    "cloud-routes-table",
		status:   preflight.Failed,
		resource: "rtb-public",
		fix: []string{
			"--resources rtb-main --tags Key=" + testKey, "delete-tags --region us-east-1 --resources rtb-public",
		},
	},
	"a route table of another VPC": {
		change:   func(f *fakeCloud) { f.tables[0].tags, f.tables[0].vpc = map[string]string{testKey: ""}, "vpc-2" },
		config:   cloudRoutes,
		check:    "cloud-routes-table",
		status:   preflight.Failed,
		resource: "rtb-main",
		found:    []string{"vpc-2"},
	},
	"another cluster's route table": {
		change: func(f *fakeCloud) { f.tables[0].tags = map[string]string{clustertags.Prefix + "other": ""} },
		config: cloudRoutes,
		check:  "cloud-routes-table",
		status: preflight.Failed,
		fix:    []string{"a route table of their own"},
	},
	"one route table": {change: func(f *fakeCloud) { f.tables[0].tags = map[string]string{testKey: ""} },
		config: cloudRoutes, check: "cloud-routes-table", status: preflight.Passed},
}

var groupCases = map[string]mistake{
	"two tagged groups": {
		worker:   true,
		change:   func(f *fakeCloud) { f.addGroup("sg-2", map[string]string{testKey: "owned"}) },
		check:    "tagged-security-groups",
		status:   preflight.Failed,
		resource: "sg-1, sg-2",
		fix:      []string{"aws ec2 delete-tags --region us-east-1 --resources sg-2"},
	},
	"two untagged groups": {
		worker:   true,
		change:   func(f *fakeCloud) { f.groups["sg-1"] = nil; f.addGroup("sg-2", nil) },
		check:    "untagged-security-groups",
		status:   preflight.Failed,
		resource: "sg-1, sg-2",
		fix:      []string{"aws ec2 create-tags --region us-east-1 --resources sg-1"},
	},
	"another cluster's group, and an untagged one": {change: func(f *fakeCloud) {
		f.groups["sg-1"] = map[string]string{clustertags.Prefix + "other": "owned"}
		f.addGroup("sg-2", nil)
	}, check: "untagged-security-groups", status: preflight.Failed, fix: []string{"aws ec2 create-tags --region " +
		"us-east-1 --resources sg-2"}},
	"another cluster's group is not the one to tag for permissions": {change: func(f *fakeCloud) {
		f.groups["sg-1"] = map[string]string{clustertags.Prefix + "other": "owned"}
		f.addGroup("sg-2", nil)
		f.denied["ec2:AuthorizeSecurityGroupIngress"] = true
	}, check: "security-group-permissions", status: preflight.Failed, fix: []string{"aws ec2 create-tags --region " +
		"us-east-1 --resources sg-2"}},
	"only another cluster's group": {
		change:   func(f *fakeCloud) { f.groups["sg-1"] = map[string]string{clustertags.Prefix + "other": "owned"} },
		check:    "untagged-security-groups",
		status:   preflight.Failed,
		resource: "sg-1",
		found:    []string{`"other"`},
		fix:      []string{"aws ec2 create-security-group", "--groups \"$nodes\" sg-1"},
	},
	"only another cluster's group, on a worker": {
		worker:   true,
		change:   func(f *fakeCloud) { f.groups["sg-1"] = map[string]string{clustertags.Prefix + "other": "owned"} },
		check:    "untagged-security-groups",
		status:   preflight.Failed,
		resource: "sg-1",
		fix:      []string{"aws ec2 create-security-group"},
	},
	"only another cluster's group, on a worker without DescribeTags": {
		worker: true,
		change: func(f *fakeCloud) {
			f.groups["sg-1"] = map[string]string{clustertags.Prefix + "other": "owned"}
			f.denied["ec2:DescribeTags"] = true
		},
		check:    "untagged-security-groups",
		status:   preflight.Failed,
		resource: "sg-1",
	},
	"only a group of two clusters, on a worker": {
		worker:   true,
		change:   func(f *fakeCloud) { f.groups["sg-1"][clustertags.Prefix+"other"] = "shared" },
		check:    "tagged-security-groups",
		status:   preflight.Warned,
		resource: "sg-1",
	},
	"only an untagged group, on a worker": {
		worker: true,
		change: func(f *fakeCloud) { f.groups["sg-1"] = nil },
		check:  "untagged-security-groups",
		status: preflight.Passed,
	},
	"a group of two clusters": {
		change:   func(f *fakeCloud) { f.groups["sg-1"][clustertags.Prefix+"other"] = "shared" },
		check:    "tagged-security-groups",
		status:   preflight.Warned,
		resource: "sg-1",
		found:    []string{`"other"`},
		fix:      []string{"security_groups"},
	},
	"two tagged groups, the first of two clusters": {change: func(f *fakeCloud) {
		f.groups["sg-1"][clustertags.Prefix+"other"] = "shared"
		f.addGroup("sg-2", map[string]string{testKey: "owned"})
	}, check: "tagged-security-groups", status: preflight.Failed, fix: []string{"aws ec2 delete-tags --region " +
		"us-east-1 --resources sg-1"}},
	"one of two groups is tagged": {
		worker: true,
		change: func(f *fakeCloud) { f.addGroup("sg-2", nil) },
		check:  "untagged-security-groups",
		status: preflight.Passed,
	},
	"the tag of the group has a value that policies do not allow": {
		change: func(f *fakeCloud) {
			f.groups["sg-1"][testKey] = "yes"
			f.denied["ec2:AuthorizeSecurityGroupIngress"] = true
		},
		check:  "security-group-permissions",
		status: preflight.Failed,
		found:  []string{"the group does not have the tag " + testKey},
		fix:    []string{"aws ec2 create-tags --region us-east-1 --resources sg-1", "Value=shared"},
	},
	"groups are not managed": {
		change: func(f *fakeCloud) { f.groups["sg-1"] = nil; f.addGroup("sg-2", nil) },
		conf:   "[Global]\nDisableSecurityGroupIngress = true\n",
		check:  "untagged-security-groups",
		status: preflight.Passed,
	},
}

var permissionCases = map[string]mistake{
	"no DescribeInstances": {
		worker:   true,
		change:   denies("ec2:DescribeInstances"),
		check:    "ec2-read-permissions",
		status:   preflight.Failed,
		resource: "ec2:DescribeInstances",
		fix:      []string{"replace-iam-instance-profile-association", "Name=kubernetes-worker"},
	},
	"no DescribeTags, as in policies of before": {
		worker: true,
		change: denies("ec2:DescribeTags"),
		check:  "ec2-read-permissions",
		status: preflight.Passed,
	},
	"neither DescribeTags nor what takes its place": {
		worker:   true,
		change:   denies("ec2:DescribeTags", "ec2:DescribeSubnets"),
		check:    "ec2-read-permissions",
		status:   preflight.Failed,
		resource: "ec2:DescribeSubnets",
	},
	"no DescribeTags, in the errand": {
		worker:   true,
		change:   denies("ec2:DescribeTags"),
		config:   thorough,
		check:    "other-permissions",
		status:   preflight.Warned,
		resource: "ec2:DescribeTags",
	},
	"no DescribeAvailabilityZones": {
		change:   denies("ec2:DescribeAvailabilityZones"),
		check:    "ec2-read-permissions",
		status:   preflight.Failed,
		resource: "ec2:DescribeAvailabilityZones",
	},
	"no CreateTags": {
		change:   denies("ec2:CreateTags"),
		check:    "security-group-permissions",
		status:   preflight.Failed,
		resource: "ec2:CreateTags",
	},
	"no Authorize": {
		change:   denies("ec2:AuthorizeSecurityGroupIngress"),
		check:    "security-group-permissions",
		status:   preflight.Failed,
		resource: "ec2:AuthorizeSecurityGroupIngress",
	},
	"no DescribeLoadBalancers": {
		change:   denies("elasticloadbalancing:DescribeLoadBalancers"),
		check:    "load-balancer-permissions",
		status:   preflight.Failed,
		resource: "elasticloadbalancing:DescribeLoadBalancers",
	},
	"no RegisterTargets, and two of IAM's answers are cut off": {
		change: func(f *fakeCloud) {
			f.denied["elasticloadbalancing:RegisterTargets"] = true
			f.cutOff = map[string]int{iampolicy.SimulateAction: 2}
		},
		check:    "load-balancer-write-permissions",
		status:   preflight.Failed,
		resource: "elasticloadbalancing:RegisterTargets",
	},
	"no RegisterTargets": {
		change:   denies("elasticloadbalancing:RegisterTargets"),
		check:    "load-balancer-write-permissions",
		status:   preflight.Failed,
		resource: "elasticloadbalancing:RegisterTargets",
	},
	"two load balancer permissions": {
		change:   denies("elasticloadbalancing:RegisterTargets", "elasticloadbalancing:DeleteTargetGroup"),
		check:    "load-balancer-write-permissions",
		status:   preflight.Failed,
		resource: "elasticloadbalancing:DeleteTargetGroup, elasticloadbalancing:RegisterTargets",
	},
	"a condition on something else": {change: func(f *fakeCloud) {
		f.denied["elasticloadbalancing:RegisterTargets"] = true
		f.conditions["elasticloadbalancing:RegisterTargets"] = "aws:SourceVpc"
	}, check: "load-balancer-write-permissions", status: preflight.Warned, resource: "elasticloadbalancing:Regis" +
		"terTargets", found: []string{"aws:SourceVpc"}},
	"a policy of the organization, according to the simulation": {
		change:   func(f *fakeCloud) { f.organization = []string{"elasticloadbalancing:RegisterTargets"} },
		check:    "load-balancer-write-permissions",
		status:   preflight.Warned,
		resource: "elasticloadbalancing:RegisterTargets",
		found:    []string{"in IAM's simulation a policy of the organization denies it"},
		fix:      []string{"the organization's policies (SCPs)"},
	},
	"no statement, among statements with conditions": {change: func(f *fakeCloud) {
		f.denied["elasticloadbalancing:RegisterTargets"] = true
		f.conditions["elasticloadbalancing:RegisterTargets"] = "aws:RequestTag/" + testKey
	}, check: "load-balancer-write-permissions", status: preflight.Failed, resource: "elasticloadbalancing:Regis" +
		"terTargets"},
	"a policy that is limited to the region": {
		change: func(f *fakeCloud) { f.regionOnly = true },
		check:  "load-balancer-write-permissions",
		status: preflight.Passed,
	},
	"AddTags on load balancers, not on target groups": {
		change:   func(f *fakeCloud) { f.onlyFor = map[string]string{"elasticloadbalancing:AddTags": "loadbalancer"} },
		check:    "load-balancer-write-permissions",
		status:   preflight.Failed,
		resource: "elasticloadbalancing:AddTags",
	},
	"RegisterTargets on load balancers only": {
		change: func(f *fakeCloud) {
			f.onlyFor = map[string]string{"elasticloadbalancing:RegisterTargets": "loadbalancer"}
		},
		check:    "load-balancer-write-permissions",
		status:   preflight.Failed,
		resource: "elasticloadbalancing:RegisterTargets",
	},
	"RegisterTargets on target groups only": {change: func(f *fakeCloud) {
		f.onlyFor = map[string]string{"elasticloadbalancing:RegisterTargets": "targetgroup"}
	},
		check: "load-balancer-write-permissions", status: preflight.Passed},
	"CreateVolume, not from a snapshot": {
		change: func(f *fakeCloud) {
			f.unlessTag = map[string]string{"ec2:CreateVolume": "aws:ResourceTag/" + testKey}
		},
		config:   func(c *awstest.Config) { c.Storage = true },
		check:    "storage-permissions",
		status:   preflight.Failed,
		resource: "ec2:CreateVolume",
	},
	"CreateTags on security groups, not on volumes": {
		change:   func(f *fakeCloud) { f.onlyFor = map[string]string{"ec2:CreateTags": "security-group"} },
		config:   func(c *awstest.Config) { c.Storage = true },
		check:    "storage-permissions",
		status:   preflight.Failed,
		resource: "ec2:CreateTags",
	},
	"IAM cannot be asked": {
		change: denies(iampolicy.SimulateAction),
		check:  "load-balancer-write-permissions",
		status: preflight.Warned,
		found:  []string{iampolicy.SimulateAction},
	},
	"role with a path": {
		change: func(f *fakeCloud) { f.rolePath = "/team/" },
		check:  "load-balancer-write-permissions",
		status: preflight.Passed,
	},
	"role with a path that is not found": {
		change: func(f *fakeCloud) { f.rolePath = "/team/"; f.denied[iampolicy.FindRoleAction] = true },
		check:  "other-permissions",
		status: preflight.Warned,
		found:  []string{iampolicy.FindRoleAction},
	},
	"IAM is throttled for a while": {
		change: func(f *fakeCloud) { f.throttle[iampolicy.SimulateAction] = 20 },
		check:  "load-balancer-write-permissions",
		status: preflight.Passed,
	},
	"IAM cannot be asked, must be known": {
		change:   denies(iampolicy.SimulateAction),
		config:   withCheck("load-balancer-write-permissions", preflight.Fail),
		check:    "load-balancer-write-permissions",
		status:   preflight.Failed,
		resource: "role kubernetes-control",
	},
	"IAM fails": {
		change: answers(iampolicy.SimulateAction, 500, ""),
		check:  "load-balancer-write-permissions",
		status: preflight.Warned,
		found:  []string{"HTTP 500"},
	},
	"no DescribeInstanceTopology": {
		change:   denies("ec2:DescribeInstanceTopology"),
		check:    "other-permissions",
		status:   preflight.Warned,
		resource: "ec2:DescribeInstanceTopology",
	},
	"no DeleteSecurityGroup": {
		change:   denies("ec2:DeleteSecurityGroup"),
		check:    "other-permissions",
		status:   preflight.Failed,
		resource: "ec2:DeleteSecurityGroup",
	},
	"no CreateRoute": {change: func(f *fakeCloud) {
		f.denied["ec2:CreateRoute"] = true
		f.tables[0].tags = map[string]string{testKey: ""}
	}, config: cloudRoutes, check: "other-permissions", status: preflight.Failed, resource: "ec2:CreateRoute",
		fix: []string{"--policy-name kubernetes ", "ec2:CreateRoute"}},
	"no BatchGetImage": {
		worker:   true,
		change:   denies("ecr:BatchGetImage"),
		config:   thorough,
		check:    "other-permissions",
		status:   preflight.Warned,
		resource: "ecr:BatchGetImage",
	},
}

var credentialCases = map[string]mistake{
	"no profile": {
		worker:   true,
		change:   func(f *fakeCloud) { f.noProfile() },
		check:    "instance-profile",
		status:   preflight.Failed,
		resource: testInstance,
		found:    []string{"404"},
		fix: []string{
			"aws ec2 associate-iam-instance-profile --region us-east-1 --instance-id " + testInstance,
			"iam_instance_profile",
		},
	},
	"profile without a role": {
		worker: true,
		change: func(f *fakeCloud) { delete(f.metadata, "meta-data/iam/security-credentials/") },
		check:  "role-credentials",
		status: preflight.Failed,
		fix:    []string{"aws iam add-role-to-instance-profile"},
	},
	"credentials in place of the list of roles": {
		worker: true,
		change: func(f *fakeCloud) {
			f.metadata["meta-data/iam/security-credentials/"] = `{"SecretAccessKey":"` + testSecret + `"}`
		},
		check:  "role-credentials",
		status: preflight.Failed,
		found:  []string{"does not start with the name of a role"},
	},
	"tag in capitals": {
		worker: true,
		change: func(f *fakeCloud) {
			delete(f.tags, testKey)
			f.tagInstance("Kubernetes.io/cluster/PROD", "owned")
		},
		check:  "instance-cluster-tag",
		status: preflight.Failed,
		found:  []string{`"Kubernetes.io/cluster/PROD" with the value "owned" is not ` + testKey},
	},
	"role cannot be assumed": {worker: true, change: credentialsAre(`{"Code": "AssumeRoleUnauthorizedAccess"}`),
		check: "role-credentials", status: preflight.Failed, found: []string{"AssumeRoleUnauthorizedAccess"}},
	"credentials expired": {
		worker: true,
		change: credentialsAre(credentialsDocument(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))),
		check:  "role-credentials",
		status: preflight.Failed,
		found:  []string{"2026-01-02T03:04:05Z"},
	},
	"credentials rejected": {
		worker: true,
		change: credentialsAre(
			strings.Replace(credentialsDocument(time.Now().Add(time.Hour)), testKeyID, "ASIASOMETHINGELSE123", 1),
		),
		check:    "role-credentials",
		status:   preflight.Failed,
		resource: "role kubernetes-control",
		found:    []string{"AuthFailure"},
	},
	"wrong profile": {
		worker:   true,
		config:   func(c *awstest.Config) { c.InstanceProfile = "kubernetes-worker" },
		check:    "instance-role",
		status:   preflight.Failed,
		resource: testInstance,
		found:    []string{"kubernetes-worker", "kubernetes-control"},
		fix:      []string{"iam_instance_profile: kubernetes-worker"},
	},
	"right profile": {
		worker: true,
		config: func(c *awstest.Config) { c.InstanceProfile = "kubernetes-control" },
		check:  "instance-role",
		status: preflight.Passed,
	},
	"clock": {
		worker:   true,
		change:   func(f *fakeCloud) { f.dateOffset = 10 * time.Minute },
		check:    "clock",
		status:   preflight.Failed,
		resource: testInstance,
		found:    []string{"behind"},
	},
	"clock, 1 minute": {
		worker:   true,
		change:   func(f *fakeCloud) { f.dateOffset = -time.Minute },
		check:    "clock",
		status:   preflight.Warned,
		resource: testInstance,
		found:    []string{"1m", "ahead"},
	},
}

var instanceCases = map[string]mistake{
	"unknown instance": {
		worker:   true,
		change:   func(f *fakeCloud) { f.unknown = true },
		check:    "instance-known",
		status:   preflight.Failed,
		resource: testInstance,
		found:    []string{"InvalidInstanceID.NotFound"},
	},
	"empty answer": {
		worker:   true,
		change:   func(f *fakeCloud) { f.empty = true },
		check:    "instance-known",
		status:   preflight.Failed,
		resource: testInstance,
	},
	"EC2 fails": {
		worker:   true,
		change:   answers("ec2:DescribeInstances", 500, "<html>"),
		check:    "ec2-endpoint",
		status:   preflight.Failed,
		resource: "ec2.us-east-1",
		found:    []string{"ec2:DescribeInstances", "HTTP 500"},
	},
	"EC2 answers no call, permissions": {
		worker: true,
		change: noEC2,
		config: withCheck("ec2-endpoint", preflight.Off),
		check:  "ec2-read-permissions",
		status: preflight.Skipped,
	},
	"EC2 answers no call, credentials": {
		worker: true,
		change: noEC2,
		config: withCheck("ec2-endpoint", preflight.Off),
		check:  "role-credentials",
		status: preflight.Skipped,
	},
	"truncated XML": {
		worker:   true,
		change:   answers("ec2:DescribeTags", 200, "<DescribeTagsResponse><tagSet><item><res"),
		check:    "ec2-endpoint",
		status:   preflight.Failed,
		resource: "ec2.us-east-1",
		found:    []string{"ec2:DescribeTags", "HTTP 200"},
	},
	"EC2's answers are cut off": {
		worker:   true,
		change:   func(f *fakeCloud) { f.cutOff = map[string]int{"ec2:DescribeTags": 1 << 30} },
		check:    "ec2-endpoint",
		status:   preflight.Failed,
		resource: "ec2.us-east-1",
		found:    []string{"ec2:DescribeTags", "cut off (HTTP 200): unexpected EOF"},
	},
	"EC2 answers with text": {
		change:   answers("ec2:DescribeInstances", 200, "hello"),
		check:    "ec2-endpoint",
		status:   preflight.Failed,
		resource: "ec2.us-east-1",
		found:    []string{"ec2:DescribeInstances", "hello"},
	},
	"EC2 answers nothing": {
		worker:   true,
		change:   answers("ec2:DescribeTags", 200, ""),
		check:    "ec2-endpoint",
		status:   preflight.Failed,
		resource: "ec2.us-east-1",
		found:    []string{"ec2:DescribeTags"},
	},
	"EC2 answers another question": {
		change:   answers("ec2:DescribeSecurityGroups", 200, "<DescribeVpcsResponse/>"),
		check:    "ec2-endpoint",
		status:   preflight.Failed,
		resource: "ec2.us-east-1",
		found:    []string{"ec2:DescribeSecurityGroups", "DescribeVpcsResponse"},
	},
	"EC2 answers a DryRun with text": {
		change:   answers("ec2:CreateSecurityGroup", 200, "hello"),
		check:    "ec2-endpoint",
		status:   preflight.Failed,
		resource: "ec2.us-east-1",
		found:    []string{"ec2:CreateSecurityGroup", "hello"},
	},
	"EC2 ignores DryRun": {
		change:   answers("ec2:CreateSecurityGroup", 200, "<CreateSecurityGroupResponse/>"),
		check:    "ec2-endpoint",
		status:   preflight.Failed,
		resource: "ec2.us-east-1",
		found:    []string{"ec2:CreateSecurityGroup"},
	},
	"EC2 fails on a DryRun": {
		change:   answers("ec2:AuthorizeSecurityGroupIngress", 500, ""),
		check:    "ec2-endpoint",
		status:   preflight.Failed,
		resource: "ec2.us-east-1",
		found:    []string{"ec2:AuthorizeSecurityGroupIngress", "HTTP 500"},
	},
	"EC2 rejects a DryRun": {
		change: answers(
			"ec2:CreateSecurityGroup",
			400,
			"<Response><Errors><Error><Code>InvalidParameterValue</Code><Message>m</Message></Error></Errors>"+
				"</Response>",
		),
		check:    "security-group-permissions",
		status:   preflight.Warned,
		resource: "ec2:CreateSecurityGroup, ec2:CreateTags",
		found:    []string{"InvalidParameterValue"},
	},
	"load balancer API answers text": {
		change:   answers("elasticloadbalancing:DescribeLoadBalancers", 200, "hello"),
		check:    "load-balancer-endpoint",
		status:   preflight.Failed,
		resource: "elasticloadbalancing.us-east-1",
		found:    []string{"hello"},
	},
	"IAM answers text": {
		change: answers(iampolicy.SimulateAction, 200, "hello"),
		check:  "load-balancer-write-permissions",
		status: preflight.Warned,
		found:  []string{"hello"},
	},
	"load balancer API fails": {
		change:   answers("elasticloadbalancing:DescribeLoadBalancers", 500, ""),
		check:    "load-balancer-endpoint",
		status:   preflight.Failed,
		resource: "elasticloadbalancing.us-east-1",
		found:    []string{"HTTP 500"},
	},
	"private DNS name": {
		worker:   true,
		change:   func(f *fakeCloud) { f.dnsName = "other.internal" },
		check:    "node-name",
		status:   preflight.Failed,
		resource: testInstance,
		found:    []string{"other.internal", "ip-10-0-16-4.ec2.internal"},
	},
	"no private DNS name": {
		worker:   true,
		change:   func(f *fakeCloud) { f.dnsName = "" },
		check:    "node-name",
		status:   preflight.Failed,
		resource: testInstance,
		fix:      []string{"--vpc-id vpc-1 --enable-dns-hostnames"},
	},
	"address": {worker: true, change: func(f *fakeCloud) {
		f.metadata["dynamic/instance-identity/document"] = strings.Replace(
			f.metadata["dynamic/instance-identity/document"], "10.0.16.4", "10.0.16.5", 1,
		)
	}, check: "node-address", status: preflight.Failed, resource: testInstance,
		found: []string{"10.0.16.5", "10.0.16.4"}},
	"source/destination check": {
		worker:   true,
		config:   func(c *awstest.Config) { c.UnencapsulatedPodNetwork = true },
		check:    "source-dest-check",
		status:   preflight.Failed,
		resource: testInstance,
		found:    []string{"eni-1"},
		fix:      []string{"--no-source-dest-check", "source_dest_check: false"},
	},
	"source/destination check with cloud routes": {
		change:   func(f *fakeCloud) { f.tables[0].tags = map[string]string{testKey: ""} },
		config:   cloudRoutes,
		check:    "source-dest-check",
		status:   preflight.Warned,
		resource: testInstance,
	},
	"a role with another name than its profile": {
		worker:   true,
		change:   profileIs("other"),
		config:   func(c *awstest.Config) { c.JoinRoles = []string{"team-a"} },
		check:    "node-join-role",
		status:   preflight.Failed,
		resource: "kubernetes-control",
		found:    []string{"[team-a]"},
		fix:      []string{"-o ops-files/set-node-roles.yml -v node_roles='[team-a, kubernetes-control]'"},
	},
	"the profile's role, and a list without it": {
		worker:   true,
		change:   profileIs("kubernetes-control"),
		config:   func(c *awstest.Config) { c.JoinRoles = []string{"team-a"} },
		check:    "node-join-role",
		status:   preflight.Failed,
		resource: "kubernetes-control",
		found:    []string{"[team-a]"},
		fix:      []string{"-o ops-files/set-node-roles.yml -v node_roles='[team-a, kubernetes-control]'"},
	},
	"a role with another name than its profile, and no list": {
		worker:   true,
		change:   profileIs("other"),
		check:    "node-join-role",
		status:   preflight.Failed,
		resource: "kubernetes-control",
		found:    []string{"other", "[]"},
		fix:      []string{"-v node_roles='[kubernetes-control]'", "the roles of all other nodes"},
	},
	"a role that is listed": {
		worker: true,
		change: profileIs("other"),
		config: func(c *awstest.Config) { c.JoinRoles = []string{"kubernetes-control"} },
		check:  "node-join-role",
		status: preflight.Passed,
	},
	"nodes that do not join": {
		worker: true,
		change: profileIs("other"),
		config: func(c *awstest.Config) { c.JoinRoles = nil },
		check:  "node-join-role",
		status: preflight.Skipped,
	},
	"no rule for the pod network": {
		worker:   true,
		config:   podNetwork,
		check:    "pod-network-ingress",
		status:   preflight.Failed,
		resource: "sg-1",
		found:    []string{"10.244.0.0/16", "none"},
		fix: []string{
			"aws ec2 authorize-security-group-ingress --region us-east-1 --group-id sg-1 --protocol all --cidr " +
				"10.244.0.0/16",
		},
	},
	"a rule for the pod network": {
		worker: true,
		change: rules(allows("-1", "", "10.244.0.0/16")),
		config: podNetwork,
		check:  "pod-network-ingress",
		status: preflight.Passed,
	},
	"a rule for a larger network": {
		worker: true,
		change: rules(allows("-1", "", "10.0.0.0/8")),
		config: podNetwork,
		check:  "pod-network-ingress",
		status: preflight.Passed,
	},
	"a rule for each half of the pod network": {
		worker: true,
		change: rules(allows("-1", "", "10.244.0.0/17", "10.244.128.0/17")),
		config: podNetwork,
		check:  "pod-network-ingress",
		status: preflight.Passed,
	},
	"a rule for a part of the pod network": {
		worker: true,
		change: rules(allows("-1", "", "10.244.0.0/17", "10.244.128.0/18")),
		config: podNetwork,
		check:  "pod-network-ingress",
		status: preflight.Failed,
	},
	"a rule for each protocol": {
		worker: true,
		change: rules(allows("tcp", "0-65535", "10.244.0.0/16") + allows("17", "1-65535", "0.0.0.0/0")),
		config: podNetwork,
		check:  "pod-network-ingress",
		status: preflight.Passed,
	},
	"a rule for TCP only": {
		worker: true,
		change: rules(allows("tcp", "0-65535", "10.244.0.0/16")),
		config: podNetwork,
		check:  "pod-network-ingress",
		status: preflight.Failed,
	},
	"a rule for some ports": {
		worker: true,
		change: rules(allows("tcp", "443-65535", "10.244.0.0/16") + allows("udp", "0-65535", "10.244.0.0/16")),
		config: podNetwork,
		check:  "pod-network-ingress",
		status: preflight.Failed,
	},
	"a prefix list": {
		worker: true,
		change: rules(allowsList("pl-1")),
		config: podNetwork,
		check:  "pod-network-ingress",
		status: preflight.Skipped,
		found:  []string{"pl-1", "10.244.0.0/16"},
	},
	"no rule for the pod network of an own CNI": {
		worker:   true,
		change:   func(f *fakeCloud) { f.sourceDest = false },
		config:   ownCNI,
		check:    "pod-network-ingress",
		status:   preflight.Warned,
		resource: "sg-1",
	},
	"hop limit": {
		worker:   true,
		change:   func(f *fakeCloud) { f.hopLimit = 2 },
		check:    "metadata-hop-limit",
		status:   preflight.Failed,
		resource: testInstance,
		found:    []string{"2"},
		fix: []string{
			"--http-put-response-hop-limit 1", "http_put_response_hop_limit: 1",
			"instance_metadata_tags: disabled", "metadata-hop-limit: off",
		},
	},
	"IMDSv1": {
		worker:   true,
		change:   func(f *fakeCloud) { f.tokens = "optional" },
		check:    "metadata-hop-limit",
		status:   preflight.Failed,
		resource: testInstance,
		found:    []string{"1, and IMDSv1"},
		fix:      []string{"--http-tokens required", "http_tokens: required", "metadata-hop-limit: off"},
	},
	"hop limit, accepted": {
		worker:   true,
		change:   func(f *fakeCloud) { f.hopLimit = 2 },
		config:   withCheck("metadata-hop-limit", preflight.Warn),
		check:    "metadata-hop-limit",
		status:   preflight.Warned,
		resource: testInstance,
		found:    []string{"2"},
	},
}

var metadataCases = map[string]mistake{
	"malformed identity": {
		worker: true,
		change: func(f *fakeCloud) { f.metadata["dynamic/instance-identity/document"] = "{" },
		check:  "metadata-service",
		status: preflight.Failed,
		found:  []string{"JSON"},
	},
	"metadata disabled": {
		worker: true,
		change: func(f *fakeCloud) { f.tokenStatus = 403 },
		check:  "metadata-service",
		status: preflight.Failed,
		found:  []string{"HTTP 403"},
		fix:    []string{"--http-endpoint enabled", "http_endpoint: enabled"},
	},
	"no IMDSv2": {
		worker: true,
		change: func(f *fakeCloud) { f.tokenStatus = 404 },
		check:  "metadata-service",
		status: preflight.Failed,
		found:  []string{"IMDSv2", "HTTP 404"},
		fix:    []string{"AWS_EC2_METADATA_SERVICE_ENDPOINT"},
	},
	"metadata fails halfway": {
		worker: true,
		change: func(f *fakeCloud) { f.statuses["meta-data/iam/info"] = 500 },
		check:  "metadata-service",
		status: preflight.Failed,
		found:  []string{"meta-data/iam/info", "HTTP 500"},
	},
	"metadata fails": {
		worker: true,
		change: func(f *fakeCloud) { f.statuses["meta-data/local-hostname"] = 500 },
		check:  "metadata-service",
		status: preflight.Failed,
		found:  []string{"meta-data/local-hostname", "HTTP 500"},
	},
}

const testStorageKey = "arn:aws:kms:us-east-1:123456789012:key/11111111-2222-3333-4444-555555555555"

func storage(c *awstest.Config) { c.Storage = true }

func storageIn(zones ...string) func(*awstest.Config) {
	return func(c *awstest.Config) { c.Storage, c.StorageZones = true, zones }
}

func storageWith(keys ...string) func(*awstest.Config) {
	return func(c *awstest.Config) { c.Storage, c.StorageKeys = true, keys }
}

func encryptsWith(key string, denied ...string) func(*fakeCloud) {
	return func(f *fakeCloud) {
		f.defaultKey = key
		denies(denied...)(f)
	}
}

var storageCases = map[string]mistake{
	"storage": {config: storage, check: "storage-permissions", status: preflight.Passed},
	"no storage": {
		change: denies("ec2:CreateVolume", "ec2:AttachVolume"),
		check:  "storage-permissions",
		status: preflight.Skipped,
		found:  nil,
	},
	"no CreateVolume": {
		config:   storage,
		change:   denies("ec2:CreateVolume"),
		check:    "storage-permissions",
		status:   preflight.Failed,
		resource: "ec2:CreateVolume",
		fix:      []string{"--policy-name kubernetes ", "ec2:CreateVolume"},
	},
	"no limits": {
		config:   storage,
		change:   denies(facts.VolumeLimits),
		check:    "storage-permissions",
		status:   preflight.Warned,
		resource: "ec2:CreateVolume",
		found:    []string{"UnauthorizedOperation", "ec2:CreateVolume"},
		fix:      []string{"--policy-name kubernetes ", "Ec2AskForLimits"},
	},
	"no limits and no AttachVolume": {
		config:   storage,
		change:   denies(facts.VolumeLimits, "ec2:AttachVolume"),
		check:    "storage-permissions",
		status:   preflight.Failed,
		resource: "ec2:AttachVolume",
	},
	"no AttachVolume": {
		config:   storage,
		change:   denies("ec2:AttachVolume"),
		check:    "storage-permissions",
		status:   preflight.Failed,
		resource: "ec2:AttachVolume",
	},
	"no DeleteSnapshot": {
		config:   storage,
		change:   denies("ec2:DeleteSnapshot"),
		check:    "storage-permissions",
		status:   preflight.Failed,
		resource: "ec2:DeleteSnapshot",
	},
	"storage, IAM cannot be asked": {
		config: storage,
		change: denies(iampolicy.SimulateAction),
		check:  "storage-permissions",
		status: preflight.Warned,
		found:  []string{iampolicy.SimulateAction},
	},
	"no GetEbsEncryptionByDefault": {
		config:   storage,
		change:   denies("ec2:GetEbsEncryptionByDefault"),
		check:    "ec2-read-permissions",
		status:   preflight.Failed,
		resource: "ec2:GetEbsEncryptionByDefault",
	},
	"EC2 fails on GetEbsDefaultKmsKeyId": {
		config: storage,
		change: func(f *fakeCloud) {
			f.defaultKey = "arn:aws:kms:us-east-1:123456789012:alias/aws/ebs"
			answers("ec2:GetEbsDefaultKmsKeyId", 500, "")(f)
		},
		check:  "ec2-endpoint",
		status: preflight.Failed,
		found:  []string{"ec2:GetEbsDefaultKmsKeyId"},
	},
	"no DescribeInstanceTypes": {
		config:   storage,
		change:   denies("ec2:DescribeInstanceTypes"),
		check:    "ec2-read-permissions",
		status:   preflight.Failed,
		resource: "ec2:DescribeInstanceTypes",
	},

	"no key": {config: storage, check: "storage-keys", status: preflight.Passed},
	"the key of AWS": {
		config: storage,
		change: encryptsWith("arn:aws:kms:us-east-1:123456789012:alias/aws/ebs", "kms:CreateGrant"),
		check:  "storage-keys",
		status: preflight.Passed,
	},
	"default key": {
		config: storage,
		change: encryptsWith(testStorageKey),
		check:  "storage-keys",
		status: preflight.Passed,
	},
	"default key, not permitted": {
		config:   storage,
		change:   encryptsWith(testStorageKey, "kms:CreateGrant"),
		check:    "storage-keys",
		status:   preflight.Failed,
		resource: "kms:CreateGrant",
		found:    []string{testStorageKey, "all new volumes"},
		fix:      []string{"kms:GrantIsForAWSResource", testStorageKey},
	},
	"configured key, no permission": {
		config:   storageWith("11111111-2222-3333-4444-555555555555"),
		change:   denies("kms:Decrypt"),
		check:    "storage-keys",
		status:   preflight.Failed,
		resource: "kms:Decrypt",
		fix:      []string{testStorageKey},
	},
	"alias": {
		config: storageWith("alias/storage"),
		check:  "storage-keys",
		status: preflight.Passed,
	},
	"alias, no permission for the key": {
		config:   storageWith("alias/storage"),
		change:   denies("kms:CreateGrant"),
		check:    "storage-keys",
		status:   preflight.Failed,
		resource: "kms:CreateGrant",
		fix:      []string{testStorageKey},
	},
	"alias, KMS does not answer": {
		config:   storageWith("alias/storage"),
		change:   answers("kms:DescribeKey", 500, `{"__type": "KMSInternalException"}`),
		check:    "storage-keys",
		status:   preflight.Warned,
		resource: "alias/storage",
		fix:      []string{"aws kms describe-key --region us-east-1 --key-id alias/storage"},
	},
	"KMS does not answer": {
		config: storageWith(testStorageKey),
		change: answers("kms:DescribeKey", 500, `{"__type": "KMSInternalException"}`),
		check:  "storage-keys",
		status: preflight.Skipped,
	},
	"something else answers for KMS": {
		config: storageWith(testStorageKey),
		change: answers("kms:DescribeKey", 200, "<html>Sign in</html>"),
		check:  "storage-keys",
		status: preflight.Skipped,
	},
	"no name of a key": {
		config:   storageWith("arn:aws:kms:us-east-1:123456789012:mykey"),
		check:    "storage-keys",
		status:   preflight.Failed,
		resource: "arn:aws:kms:us-east-1:123456789012:mykey",
		found:    []string{"no such name"},
		fix:      []string{"kms_key_id"},
	},
	"a key of another region": {
		config:   storageWith(strings.Replace(testStorageKey, "us-east-1", "us-east-2", 1)),
		check:    "storage-keys",
		status:   preflight.Failed,
		resource: strings.Replace(testStorageKey, "us-east-1", "us-east-2", 1),
		found:    []string{"another region"},
	},
	"no such key": {
		config: storageWith(testStorageKey),
		change: answers("kms:DescribeKey", 400, `{"__type": "NotFoundException", "message": "Key does not exist"}`),
		check:  "storage-keys", status: preflight.Failed, found: []string{"NotFoundException: Key does not exist"},
	},
	"disabled default key": {
		change: func(f *fakeCloud) {
			encryptsWith(testStorageKey)(f)
			answers("kms:DescribeKey", 200, describedKey("Disabled", "SYMMETRIC_DEFAULT"))(f)
		},
		config: storage, check: "storage-keys", status: preflight.Failed, found: []string{"Disabled"},
		fix: []string{
			"aws kms enable-key --region us-east-1 --key-id " + testStorageKey, "aws ec2 reset-ebs-default-kms-key-id",
		},
	},
	"key that will be deleted": {
		config: storageWith(testStorageKey),
		change: answers("kms:DescribeKey", 200, describedKey("PendingDeletion", "SYMMETRIC_DEFAULT")),
		check:  "storage-keys", status: preflight.Failed, found: []string{"PendingDeletion"},
		fix: []string{"aws kms cancel-key-deletion --region us-east-1 --key-id " + testStorageKey, "enable-key"},
	},
	"key without material": {
		config: storageWith(testStorageKey),
		change: answers("kms:DescribeKey", 200, describedKey("PendingImport", "SYMMETRIC_DEFAULT")),
		check:  "storage-keys", status: preflight.Failed, found: []string{"PendingImport"},
	},
	"key for signatures": {
		config: storageWith(testStorageKey),
		change: answers("kms:DescribeKey", 200, describedKey("Enabled", "RSA_2048")),
		check:  "storage-keys", status: preflight.Failed, found: []string{"RSA_2048, SIGN_VERIFY"},
	},
	"the key's policy excludes the role": {
		config: storageWith(testStorageKey),
		change: answers("kms:DescribeKey", 400, `{"__type": "AccessDeniedException", "message": "User: x is not `+
			`authorized to perform: kms:DescribeKey because no resource-based policy allows the action"}`),
		check: "storage-keys", status: preflight.Failed, resource: testStorageKey,
		found: []string{"no resource-based policy allows"},
		fix: []string{"aws kms create-grant --region us-east-1 --key-id " + testStorageKey +
			" --grantee-principal \"$role\" --operations CreateGrant Decrypt DescribeKey " +
			"GenerateDataKeyWithoutPlaintext"},
	},
	"a key of AWS is configured": {
		config: storageWith("alias/aws/ebs"),
		change: denies("kms:Decrypt"),
		check:  "storage-keys",
		status: preflight.Passed,
	},

	"zones": {
		config: storageIn("us-east-1a", "us-east-1b"),
		check:  "storage-zones",
		status: preflight.Passed,
	},
	"no such zone": {
		config:   storageIn("us-east-1a", "us-east-1z"),
		check:    "storage-zones",
		status:   preflight.Failed,
		resource: "us-east-1z",
		found:    []string{"us-east-1a, us-east-1b"},
	},
	"zone without nodes": {
		config:   storageIn("us-east-1c"),
		change:   func(f *fakeCloud) { f.zones["us-east-1c"] = "availability-zone" },
		check:    "storage-zones",
		status:   preflight.Warned,
		resource: "us-east-1c",
		found:    []string{testKey},
	},

	"26 volumes of 27": {
		config: storage,
		change: func(f *fakeCloud) { f.volumes = 26 },
		check:  "storage-attachments",
		status: preflight.Passed,
	},
	"27 volumes of 27": {
		config:   storage,
		change:   func(f *fakeCloud) { f.volumes = 27 },
		check:    "storage-attachments",
		status:   preflight.Warned,
		resource: testInstance,
		found:    []string{"m5.large can have 27", "27 volumes"},
		fix:      []string{"Values=" + testInstance, "instance_type"},
	},
	"27 volumes of a stopped instance": {
		config: storage,
		change: func(f *fakeCloud) {
			f.rival, f.rivalState, f.rivalVolumes = map[string]string{}, "stopped", 27
		},
		check:  "storage-attachments",
		status: preflight.Passed,
	},
	"27 volumes of another instance": {
		config:   storage,
		change:   func(f *fakeCloud) { f.rival, f.rivalVolumes = map[string]string{}, 27 },
		check:    "storage-attachments",
		status:   preflight.Warned,
		resource: "i-rival",
	},
	"an instance type without a limit": {
		config: storage,
		change: answers(
			"ec2:DescribeInstanceTypes", 200,
			"<DescribeInstanceTypesResponse><instanceTypeSet/></DescribeInstanceTypesResponse>",
		),
		check:  "storage-attachments",
		status: preflight.Skipped,
	},
	"26 volumes and two interfaces": {
		config:   storage,
		change:   func(f *fakeCloud) { f.volumes, f.interfaces = 26, 2 },
		check:    "storage-attachments",
		status:   preflight.Warned,
		resource: testInstance,
		found:    []string{"2 network interfaces"},
	},
}

// TestFindings makes one change at a time. Every check must report a finding for at least one of them.
func TestFindings(t *testing.T) {
	withFinding := map[string]bool{
		"stale-node":        true,
		"registry-endpoint": true,
		"pod-roles":         true,
		"sts-endpoint":      true,

		"left-behind-load-balancers": true,
	} // which have tests of their own
	ran, total := 0, 0
	for _, cases := range []map[string]mistake{
		tagCases,
		subnetCases,
		groupCases,
		permissionCases,
		credentialCases,
		instanceCases,
		metadataCases,
		configCases,
		storageCases,
		encryptionCases,
	} {
		total += len(cases)
		for name, m := range cases {
			t.Run(name, func(t *testing.T) {
				got := m.run(t)
				ran++
				withFinding[m.check] = withFinding[m.check] || len(got.Findings) > 0
			})
		}
	}
	for _, c := range checks.All() {
		if ran == total && !withFinding[c.ID] {
			t.Errorf("no case makes %s report a finding", c.ID)
		}
	}
}

// TestDeniedCallIsNamedOnce: two facts come from DescribeInstances, one of them from DescribeInstanceTypes too.
func TestDeniedCallIsNamedOnce(t *testing.T) {
	f := newFake()
	denies("ec2:DescribeInstances")(f)
	c := awstest.NewConfig(preflight.Control)
	storage(&c)
	r, _ := runAgainst(t, f, c, nil)
	var named []string
	for _, finding := range result(r, "ec2-read-permissions").Findings {
		named = append(named, finding.Resource)
	}
	if !slices.Equal(named, []string{"ec2:DescribeInstances"}) {
		t.Errorf("findings for %q, want ec2:DescribeInstances only", named)
	}
}

// run makes the change and compares the result of the check.
func (m mistake) run(t *testing.T) preflight.Result {
	f := newFake()
	if m.change != nil {
		m.change(f)
	}
	c := awstest.NewConfig(preflight.Control)
	if m.worker {
		c.Role = preflight.Worker
	}
	if m.config != nil {
		m.config(&c)
	}
	r, _ := runAgainst(t, f, c, func(r *cloud.Request) {
		if m.conf != "" {
			r.Config.CloudConfigFile, r.CloudConfig = "cloud.conf", []byte(m.conf)
		}
	})
	got := result(r, m.check)
	if got.Status != m.status {
		t.Errorf("%s is %q, want %q", m.check, got.Status, m.status)
	}
	seen, fixes, resources := got.Note, "", []string{}
	for _, f := range got.Findings {
		seen += "\n" + f.Wanted + "\n" + f.Found
		for _, fix := range f.Fix {
			fixes += "\n" + fix.Text + "\n" + strings.Join(fix.Commands, "\n")
		}
		resources = append(resources, f.Resource)
		if f.Resource == "" || f.Wanted == "" || f.Found == "" || f.Why == "" || len(f.Fix) == 0 {
			t.Errorf("incomplete finding: %+v", f)
		}
	}
	if m.resource != "" && !slices.Contains(resources, m.resource) {
		t.Errorf("findings for %q, want one for %q", resources, m.resource)
	}
	for _, part := range m.found {
		if !strings.Contains(seen, part) {
			t.Errorf("the result of %s lacks %q: %s", m.check, part, seen)
		}
	}
	pasted(t, r)
	for _, part := range m.fix {
		if !strings.Contains(fixes, part) {
			t.Errorf("the fixes of %s lack %q: %s", m.check, part, fixes)
		}
	}
	if m.check == "metadata-service" &&
		(r.Count(preflight.Failed) != 1 || result(r, "instance-profile").Status != preflight.Skipped) {
		t.Error("without metadata other checks must be skipped")
	}
	if (r.Result == preflight.RunFailed) != (m.status == preflight.Failed) {
		t.Errorf("the result is %s", r.Result)
	}
	for _, secret := range []string{testSecret, testToken, testKeyID} {
		if strings.Contains(text(r), secret) {
			t.Error("the report contains a secret")
		}
	}
	if t.Failed() {
		t.Log(text(r))
	}
	return got
}

// operatorMistakes are the mistakes that operators make most often, with the checks that report each.
var operatorMistakes = map[string][]string{
	"no instance profile":                             {"instance-profile"},
	"a profile without a usable role":                 {"role-credentials"},
	"the wrong role":                                  {"instance-role"},
	"DescribeInstances is denied":                     {"ec2-read-permissions"},
	"no DescribeAvailabilityZones":                    {"ec2-read-permissions"},
	"no CreateSecurityGroup, CreateTags or Authorize": {"security-group-permissions"},
	"no load balancer permissions":                    {"load-balancer-permissions", "load-balancer-write-permissions"},
	"no cluster tag on the instance":                  {"instance-cluster-tag"},
	"two cluster ids":                                 {"instance-cluster-ids"},
	"old and new tag disagree":                        {"instance-legacy-tag"},
	"a value that is neither owned nor shared":        {"cluster-tag-value"},
	"a name that is too long, too many tags":          {"cluster-name", "instance-tag-limit"},
	"a subnet tagged only for another cluster": {
		"node-subnet-cluster-tag",
		"public-subnet-cluster-tag",
		"foreign-public-subnets",
	},
	"no role tag, and several subnets in a zone":   {"public-subnet-choice", "internal-subnet-choice"},
	"a public subnet without a public route":       {"public-subnet-route", "internal-subnets"},
	"two tagged security groups":                   {"tagged-security-groups"},
	"several untagged security groups":             {"untagged-security-groups"},
	"a host name that is not the private DNS name": {"node-name"},
	"a node address that is not the instance's":    {"node-address"},
	"a hop limit of 2":                             {"metadata-hop-limit"},
	"IMDSv1 is on":                                 {"metadata-hop-limit"},
	"instance metadata is off":                     {"metadata-service"},
	"clock skew":                                   {"clock"},
	"EC2, ELB, ECR or STS is not reachable": {
		"ec2-endpoint",
		"load-balancer-endpoint",
		"registry-endpoint",
		"sts-endpoint",
	},
	"the source/destination check is on": {"source-dest-check"},
	"two tagged route tables":            {"cloud-routes-table"},
	"no rule for the pod network":        {"pod-network-ingress"},
	"a Node of a previous VM":            {"stale-node"},
}

func TestOperatorMistakesHaveChecks(t *testing.T) {
	for mistake, ids := range operatorMistakes {
		for _, id := range ids {
			if !slices.ContainsFunc(checks.All(), func(c checks.Check) bool { return c.ID == id }) {
				t.Errorf("%s: there is no check %s", mistake, id)
			}
		}
	}
}

// TestWrongAnswersPassNoCheck has AWS answer every call with status 200 and no answer of its API.
func TestWrongAnswersPassNoCheck(t *testing.T) {
	// These pass by the configuration alone, or by the time in the answer.
	independent := []string{
		"clock", "source-dest-check", "load-balancer-security-group", "node-ports", "assumed-role", "node-ip-families",
		"pod-network-ingress",
	}
	independent = append(independent, "storage-zones") // no zones are configured
	for _, body := range []string{"", "hello", "<html><body>Sign in</body></html>", "{}", "<Response/>"} {
		f := newFake()
		for _, action := range (iampolicy.Needs{Role: preflight.Control, Routes: true, Storage: true}).Actions() {
			f.answers[action] = fakeAnswer{200, body}
		}
		config := awstest.NewConfig(preflight.Control)
		config.Storage = true
		r, _ := runAgainst(t, f, config, nil)
		for _, c := range checks.All() {
			fromEC2Only := c.Needs&facts.FromEC2 != 0 && c.Needs&(facts.FromMetadata|facts.FromCredentials) == 0
			got := result(r, c.ID)
			if fromEC2Only && got.Status == preflight.Passed && !slices.Contains(independent, c.ID) {
				t.Errorf("%q passes %s: %s", body, c.ID, got.Note)
			}
		}
		if got := result(r, "ec2-endpoint"); got.Status != preflight.Failed {
			t.Errorf("%q: ec2-endpoint is %s", body, got.Status)
		}
	}
}

// TestReasonsMatchTheCloudController: which cluster the pinned cloud controller would manage with an instance's tags;
// see init, initFromTags and findClusterIDs in tags.go of k8s.io/cloud-provider-aws.
func TestReasonsMatchTheCloudController(t *testing.T) {
	const starts, runsAs, omitted = "does not start", "would run as cluster", "omits"
	for name, test := range map[string]struct {
		tags   map[string]string
		conf   string
		role   preflight.Role
		Check  string
		reason string
	}{
		"no tag": {
			map[string]string{"Name": "x"},
			"",
			preflight.Control,
			"instance-cluster-tag",
			starts,
		},
		"another cluster's": {
			map[string]string{clustertags.Prefix + "other": ""},
			"",
			preflight.Control,
			"instance-cluster-tag",
			runsAs + ` "other"`,
		},
		"another cluster's, old": {
			map[string]string{clustertags.Legacy: "other"},
			"",
			preflight.Control,
			"instance-cluster-tag",
			runsAs + ` "other"`,
		},
		"another cluster's, old, 2": {
			map[string]string{clustertags.Legacy: "other"},
			"",
			preflight.Control,
			"instance-legacy-tag",
			runsAs + ` "other"`,
		},
		"old and new disagree": {
			map[string]string{testKey: "", clustertags.Legacy: "other"},
			"",
			preflight.Control,
			"instance-legacy-tag",
			starts,
		},
		"two other clusters'": {
			map[string]string{clustertags.Prefix + "a": "", clustertags.Prefix + "b": ""},
			"",
			preflight.Control,
			"instance-cluster-tag",
			starts,
		},
		"configured id": {map[string]string{clustertags.Prefix + "other": ""}, "[Global]\nKubernetesClusterID = " +
			"prod\n", preflight.Control, "instance-cluster-tag", omitted},
		"another cluster's, worker": {
			map[string]string{clustertags.Prefix + "other": ""},
			"",
			preflight.Worker,
			"instance-cluster-tag",
			omitted,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			f.tags = test.tags
			r, _ := runAgainst(t, f, awstest.NewConfig(test.role), func(r *cloud.Request) {
				if test.conf != "" {
					r.Config.CloudConfigFile, r.CloudConfig = "cloud.conf", []byte(test.conf)
				}
			})
			got := result(r, test.Check)
			if len(got.Findings) != 1 || !strings.Contains(got.Findings[0].Why, test.reason) {
				t.Errorf("%+v; want the reason to contain %q", got.Findings, test.reason)
			}
		})
	}
}

// TestPolicyOfTheProfileHasStorage: a fix of the instance profile's role must not take the EBS CSI driver's permissions
// away, which stays with that role when the cloud controller assumes another one.
func TestPolicyOfTheProfileHasStorage(t *testing.T) {
	f := &facts.Facts{
		Request:  awstest.NewConfig(preflight.Control).Config,
		Settings: facts.Settings{Storage: true, StorageKeys: []string{testStorageKey}},
		Conf:     &cloudconfig.Config{},
		Profile:  "arn:aws:iam::123456789012:instance-profile/kubernetes-control",
		Credentials: metadata.Credentials{
			Role: "kubernetes-control",
		},
		Metadata: metadata.Instance{Region: "us-east-1", VPC: "vpc-1"},
	}
	f.ConfText = []byte("[Global]\nRoleARN = arn:aws:iam::123456789012:role/ccm\n")
	f.Conf, f.ConfErr = cloudconfig.Parse(f.ConfText)
	for assumed, want := range map[bool]bool{false: true, true: false} {
		policy, err := iampolicy.New(f.PolicyOptions(assumed))
		if err != nil {
			t.Fatal(err)
		}
		for _, action := range []string{"ec2:CreateVolume", "kms:CreateGrant"} {
			has := slices.ContainsFunc(
				policy.Statement, func(s iampolicy.Statement) bool { return slices.Contains(s.Action, action) },
			)
			if has != want {
				t.Errorf("assumed %v: the policy has %s: %v", assumed, action, has)
			}
		}
	}
	for _, c := range checks.All() {
		if got := c.Evaluate(f); c.ID == "storage-permissions" && got.Skip == "" {
			t.Errorf("with RoleARN the calls are made as another role, so nothing is known: %+v", got)
		}
	}
}
