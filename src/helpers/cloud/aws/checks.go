package aws

import (
	"fmt"

	"kubernetes-release/helpers/preflight"
)

// check is a preflight.Check with the code that judges the facts and the sources that it rests on.
type check struct {
	preflight.Check
	sources source
	run     func(*facts) preflight.Outcome
}

var (
	both        = []preflight.Role{preflight.Control, preflight.Worker}
	controlOnly = []preflight.Role{preflight.Control}
)

// checks are all checks, the most important first: what makes later ones impossible comes before them.
var checks []check

func init() { // not a literal of the variable, because some of the functions refer to it
	define := func(id, title string, severity preflight.Severity, roles []preflight.Role, sources source, run func(*facts) preflight.Outcome) {
		checks = append(checks, check{preflight.Check{ID: id, Title: title, Severity: severity, Mend: mends[id], Roles: roles}, sources, run})
	}
	define("cluster-name", "the cluster's name fits into a tag", preflight.Fail, both, 0, checkClusterName)
	define("cloud-config", "the cloud controller understands its configuration file", preflight.Fail, both, 0, checkCloudConfig)
	define("metadata-service", "instance metadata answers", preflight.Fail, both, fromMetadata|fromProfile|fromCredentials|fromEC2, checkMetadata)
	define("instance-profile", "the instance has an instance profile", preflight.Fail, both, fromProfile|fromCredentials, checkProfile)
	define("role-credentials", "the instance's role gives credentials that AWS accepts", preflight.Fail, both, fromCredentials|fromEC2, checkCredentials)
	define("clock", "the clock agrees with AWS", preflight.Fail, both, fromEC2, checkClock)
	define("ec2-endpoint", "the EC2 API answers", preflight.Fail, both, fromEC2, checkEC2Endpoint)
	define("ec2-read-permissions", "the role may describe what is checked", preflight.Fail, both, fromCredentials|fromEC2, checkReadPermissions)
	define("instance-role", "the instance has the profile meant for it", preflight.Fail, both, fromProfile, checkInstanceRole)
	define("instance-known", "EC2 knows the instance", preflight.Fail, both, fromInstance, checkInstanceKnown)
	define("instance-cluster-tag", "the instance carries the cluster's tag", preflight.Fail, both, fromInstance, checkInstanceTag)
	define("instance-cluster-ids", "the instance names one cluster only", preflight.Fail, both, fromInstance, checkClusterIDs)
	define("instance-legacy-tag", "old and new cluster tag agree", preflight.Fail, both, fromInstance, checkLegacyTag)
	define("node-subnet-cluster-tag", "the node's subnet carries the cluster's tag", preflight.Fail, both, fromSubnets, checkNodeSubnet)
	define("public-subnet-cluster-tag", "public subnets carry the cluster's tag", preflight.Fail, controlOnly, fromSubnets|fromRouteTables|fromZones, checkPublicSubnetTags)
	define("public-subnet-route", "there is a subnet for internet-facing load balancers", preflight.Fail, controlOnly, fromSubnets|fromRouteTables|fromZones, checkPublicRoute)
	define("internal-subnets", "there is a subnet for internal load balancers", preflight.Fail, controlOnly, fromSubnets|fromRouteTables|fromZones, checkInternalSubnets)
	define("tagged-security-groups", "at most one of the instance's security groups is tagged", preflight.Fail, both, fromInstance|fromGroups, checkTaggedGroups)
	define("untagged-security-groups", "one of several security groups is tagged", preflight.Fail, both, fromInstance|fromGroups, checkUntaggedGroups)
	define("security-group-permissions", "the role may manage security groups", preflight.Fail, controlOnly, fromProbes, checkGroupPermissions)
	define("load-balancer-permissions", "the role may use the load balancer APIs", preflight.Fail, controlOnly, fromProbes, checkLoadBalancerPermissions)
	define("load-balancer-write-permissions", "the role may make and manage load balancers", preflight.Fail, controlOnly, fromPolicies, checkLoadBalancerWrites)
	define("other-permissions", "the role has the rest of its permissions", preflight.Fail, both, fromPolicies|fromProbes, checkOtherPermissions)
	define("load-balancer-endpoint", "the load balancer APIs answer", preflight.Fail, controlOnly, fromProbes, checkLoadBalancerEndpoint)
	define("node-name", "node name and private DNS name agree", preflight.Fail, both, fromMetadata|fromInstance, checkNodeName)
	define("node-address", "the node's address is the instance's", preflight.Fail, both, fromMetadata|fromInstance, checkNodeAddress)
	define("source-dest-check", "the source/destination check fits the pod network", preflight.Fail, both, fromInstance, checkSourceDest)
	define("cloud-routes-table", "one route table is the cluster's, for pod routes", preflight.Fail, controlOnly, fromRouteTables, checkRouteTable)
	define("stale-node", "the Node object is not that of an earlier instance", preflight.Fail, both, fromNode, checkStaleNode)
	define("instance-tag-limit", "the instance has room for tags", preflight.Warn, both, fromInstance, checkTagLimit)
	define("cluster-tag-value", "cluster tags have the value owned or shared", preflight.Warn, both, fromInstance|fromSubnets, checkTagValues)
	define("foreign-public-subnets", "no zone has other clusters' public subnets only", preflight.Warn, controlOnly, fromSubnets|fromRouteTables|fromZones, checkForeignSubnets)
	define("public-subnet-choice", "the choice of public subnets is not left to chance", preflight.Warn, controlOnly, fromSubnets|fromRouteTables|fromZones, checkPublicChoice)
	define("internal-subnet-choice", "the choice of internal subnets is not left to chance", preflight.Warn, controlOnly, fromSubnets|fromRouteTables|fromZones, checkInternalChoice)
	define("metadata-hop-limit", "instance metadata is as far away as is wanted", preflight.Warn, both, fromInstance, checkHopLimit)
	define("registry-endpoint", "the ECR API can be reached", preflight.Warn, both, fromRegistry, checkRegistry)
}

func found(findings ...preflight.Finding) preflight.Outcome {
	return preflight.Outcome{Findings: findings}
}

func passed(format string, args ...any) preflight.Outcome {
	return preflight.Outcome{Note: fmt.Sprintf(format, args...)}
}

func skipped(format string, args ...any) preflight.Outcome {
	return preflight.Outcome{Skip: fmt.Sprintf(format, args...)}
}
