package aws

import (
	"kubernetes-release/preflight"
)

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
	"nodes closed to load balancers": {
		worker: true,
		conf:   "[Global]\nDisableSecurityGroupIngress = true\n",
		check:  "node-ports",
		status: preflight.Warned,
		found:  []string{"30000 to 32767"},
	},
}
