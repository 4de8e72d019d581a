package aws

import (
	"kubernetes-release/cloud/aws/awstest"
	"kubernetes-release/preflight"
)

const noIngress = "[Global]\nDisableSecurityGroupIngress = true\n"

// configCases are configurations of the cloud controller that do not fit this machine.
var configCases = map[string]mistake{
	"other region": {
		conf:     "[Global]\nRegion = eu-west-1\n",
		check:    "cloud-config-scope",
		status:   preflight.Failed,
		resource: "cloud.conf: Region",
		found:    []string{"us-east-1", "eu-west-1"},
	},
	"zone of another region": {
		conf:     "[Global]\nZone = eu-west-1a\nRegion = us-east-1\n",
		check:    "cloud-config-scope",
		status:   preflight.Failed,
		resource: "cloud.conf: Zone",
		found:    []string{"us-east-1", "eu-west-1"},
	},
	"zone of this region": {
		conf:   "[Global]\nZone = us-east-1b\n",
		check:  "cloud-config-scope",
		status: preflight.Passed,
	},
	"VPC that is ignored": {
		conf:     "[Global]\nVPC = vpc-2\n",
		check:    "cloud-config-scope",
		status:   preflight.Failed,
		resource: "cloud.conf: VPC",
		found:    []string{"vpc-2, which the cloud controller ignores"},
	},
	"own VPC, which is ignored": {
		conf:     "[Global]\nVPC = vpc-1\n",
		check:    "cloud-config-scope",
		status:   preflight.Warned,
		resource: "cloud.conf: VPC",
	},
	"VPC without nodes": {
		conf:     "[Global]\nVPC = vpc-2\nSubnetID = subnet-node-a\nKubernetesClusterID = prod\n",
		check:    "cloud-config-scope",
		status:   preflight.Failed,
		resource: "cloud.conf: VPC",
		fix:      []string{"VPC: vpc-1"},
	},
	"subnet that is ignored": {
		conf:     "[Global]\nSubnetID = subnet-9\n",
		check:    "cloud-config-scope",
		status:   preflight.Warned,
		resource: "cloud.conf: SubnetID",
	},
	"subnet of no VPC": {
		conf:     "[Global]\nVPC = vpc-1\nSubnetID = subnet-9\nKubernetesClusterID = prod\n",
		check:    "cloud-config-scope",
		status:   preflight.Warned,
		resource: "cloud.conf: SubnetID",
	},
	"endpoint of another region": {
		conf:     "[ServiceOverride \"1\"]\nService = EC2\nRegion = r\nURL = http://127.0.0.1:1\nSigningRegion = r\n",
		check:    "cloud-config-scope",
		status:   preflight.Failed,
		resource: "cloud.conf: ServiceOverride for EC2",
	},
	"endpoint that does not work": {
		conf: "[ServiceOverride \"1\"]\nService = EC2\nRegion = us-east-1\nURL = http://127.0.0.1:1\nSigningRegion " +
			"= us-east-1\n",
		check:  "ec2-endpoint",
		status: preflight.Failed,
	},
	"load balancing endpoint that does not work": {
		conf: "[ServiceOverride \"1\"]\nService = Elastic Load Balancing v2\nRegion = us-east-1\nURL = " +
			"http://127.0.0.1:1\nSigningRegion = us-east-1\n",
		check:  "load-balancer-endpoint",
		status: preflight.Failed,
	},
	"IPv6 only": {
		worker: true,
		conf:   "[Global]\nNodeIPFamilies = ipv6\n",
		check:  "node-ip-families",
		status: preflight.Failed,
		found:  []string{"10.0.16.4"},
	},
	"IPv6 without an address": {
		conf:   "[Global]\nNodeIPFamilies = ipv4\nNodeIPFamilies = ipv6\n",
		check:  "node-ip-families",
		status: preflight.Failed,
		found:  []string{"an IPv6 address"},
	},
	"IPv4": {
		conf:   "[Global]\nNodeIPFamilies = ipv4\n",
		check:  "node-ip-families",
		status: preflight.Passed,
	},
	"role that cannot be assumed": {
		change: answers(
			"sts:AssumeRole", 403,
			"<ErrorResponse><Error><Code>AccessDenied</Code><Message>User: x is not authorized to perform: "+
				"sts:AssumeRole</Message></Error></ErrorResponse>",
		),
		conf:     "[Global]\nRoleARN = arn:aws:iam::123456789012:role/ccm\n",
		check:    "assumed-role",
		status:   preflight.Failed,
		resource: "arn:aws:iam::123456789012:role/ccm",
		fix:      []string{"sts:AssumeRole", "--role-name ccm"},
	},
	"no group for load balancers": {
		change: answers(
			"ec2:DescribeSecurityGroups",
			400,
			"<Response><Errors><Error><Code>InvalidGroup.NotFound</Code><Message>m</Message></Error></Errors>"+
				"</Response>",
		),
		conf:     "[Global]\nElbSecurityGroup = sg-9\n",
		check:    "load-balancer-security-group",
		status:   preflight.Failed,
		resource: "sg-9",
		found:    []string{"InvalidGroup.NotFound"},
	},
	"nodes open to one port": {
		change: rules(allows("tcp", "30000-30000", "10.0.0.0/16")),
		conf:   noIngress,
		check:  "node-ports",
		status: preflight.Warned,
		found:  []string{"none"},
		fix: []string{
			"--group-id sg-1 --protocol tcp --port 30000-32767 --cidr 10.0.0.0/24",
			"--group-id sg-1 --protocol tcp --port 30000-32767 --cidr 10.0.16.0/20",
		},
	},
	"nodes of a worker open to one port": {
		worker: true,
		change: rules(allows("tcp", "31000-31000", "10.0.0.0/16")),
		conf:   noIngress,
		check:  "node-ports",
		status: preflight.Warned,
		found:  []string{"none"},
	},
	"nodes open to a foreign address": {
		change: rules(allows("tcp", "30000-32767", "203.0.113.7/32")),
		conf:   noIngress,
		check:  "node-ports",
		status: preflight.Warned,
		found:  []string{"none for 10.0.0.0/24, 10.0.1.0/24, 10.0.16.0/20, 10.0.32.0/20"},
	},
	"nodes of a worker open to an address": {
		worker: true,
		change: rules(allows("tcp", "30000-32767", "203.0.113.7/32")),
		conf:   noIngress,
		check:  "node-ports",
		status: preflight.Skipped,
		found:  []string{"203.0.113.7/32"},
	},
	"nodes open to some load balancers": {
		change: rules(allows("tcp", "30000-32767", "10.0.0.0/24", "10.0.16.0/20")),
		conf:   noIngress,
		check:  "node-ports",
		status: preflight.Warned,
		found:  []string{"none for 10.0.1.0/24, 10.0.32.0/20"},
		fix:    []string{"--cidr 10.0.32.0/20"},
	},
	"nodes open to internal load balancers only": {
		change: rules(allows("tcp", "30000-32767", "10.0.16.0/20", "10.0.32.0/20")),
		config: withCheck("public-subnet-route", preflight.Off),
		conf:   noIngress,
		check:  "node-ports",
		status: preflight.Passed,
	},
	"nodes open to another group": {
		change: rules(allowsGroup("sg-8")),
		conf:   noIngress + "ElbSecurityGroup = sg-1\n",
		check:  "node-ports",
		status: preflight.Warned,
		fix:    []string{"--source-group sg-1"},
	},
	"nodes open to the load balancers' group": {
		change: rules(allowsGroup("sg-1")),
		conf:   noIngress + "ElbSecurityGroup = sg-1\n",
		check:  "node-ports",
		status: preflight.Passed,
	},
	"nodes open to the VPC": {
		change: rules(allows("-1", "", "10.0.0.0/16")),
		conf:   noIngress,
		check:  "node-ports",
		status: preflight.Passed,
	},
	"nodes open at the cluster's ports": {
		change: rules(allows("tcp", "20000-20999", "10.0.0.0/16")),
		config: func(c *awstest.Config) { c.NodePorts = "20000-20999" },
		conf:   noIngress,
		check:  "node-ports",
		status: preflight.Passed,
	},
	"nodes open at other ports than the cluster's": {
		change: rules(allows("tcp", "30000-32767", "10.0.0.0/16")),
		config: func(c *awstest.Config) { c.NodePorts = "20000-20999" },
		conf:   noIngress,
		check:  "node-ports",
		status: preflight.Warned,
		fix:    []string{"--port 20000-20999 --cidr 10.0.32.0/20"},
	},
	"nodes open to the VPC by two rules": {
		change: rules(allows("tcp", "30000-31000", "10.0.0.0/16") + allows("tcp", "31001-32767", "10.0.0.0/16")),
		conf:   noIngress,
		check:  "node-ports",
		status: preflight.Passed,
	},
	"nodes of a worker open to everyone": {
		worker: true,
		change: rules(allows("tcp", "30000-32767", "0.0.0.0/0")),
		conf:   noIngress,
		check:  "node-ports",
		status: preflight.Passed,
	},
	"nodes open to a prefix list": {
		change: rules(allowsList("pl-1")),
		conf:   noIngress,
		check:  "node-ports",
		status: preflight.Skipped,
		found:  []string{"pl-1"},
	},
	"nodes closed to load balancers": {
		worker: true,
		conf:   noIngress,
		check:  "node-ports",
		status: preflight.Warned,
		found:  []string{"30000 to 32767"},
	},
}
