package facts

import (
	"kubernetes-release/cloud/aws/iampolicy"
)

// Source is one thing that is asked for. Checks list the sources that they need, so that only those are asked again.
type Source uint

// The sources.
const (
	FromMetadata Source = 1 << iota
	FromProfile
	FromCredentials
	FromInstance
	FromSubnets
	FromRouteTables
	FromZones
	FromGroups
	FromProbes
	FromPolicies
	FromRegistry
	FromTokenService
	FromNode
	FromStorage
	FromCluster
	FromEncryption
	FromIssuer
	FromLeftBehind
	Everything Source = 1<<iota - 1
)

// FromEC2 are the sources that require credentials.
const FromEC2 = FromInstance | FromSubnets | FromRouteTables | FromZones | FromGroups |
	FromProbes | FromPolicies | FromStorage | FromCluster | FromEncryption | FromIssuer | FromLeftBehind

// SourceActions are the permissions that asking a source requires. Probes test permissions instead of requiring them.
var SourceActions = map[Source][]string{
	FromInstance:    {"ec2:DescribeInstances"},
	FromSubnets:     {"ec2:DescribeSubnets"},
	FromRouteTables: {"ec2:DescribeRouteTables"},
	FromZones:       {"ec2:DescribeAvailabilityZones"},
	FromGroups:      {"ec2:DescribeSecurityGroups"},
	FromCluster:     {"ec2:DescribeInstances"},
	FromPolicies:    {iampolicy.SimulateAction, iampolicy.FindRoleAction},
	FromIssuer:      {iampolicy.ProviderAction},
	FromEncryption:  {iampolicy.DecryptAction, iampolicy.EncryptAction},
	FromLeftBehind: {
		"ec2:DescribeSecurityGroups", "elasticloadbalancing:DescribeLoadBalancers",
		"elasticloadbalancing:DescribeTags", "elasticloadbalancing:DescribeTargetGroups",
	},
	FromStorage: {"ec2:DescribeInstanceTypes", "ec2:GetEbsDefaultKmsKeyId", "ec2:GetEbsEncryptionByDefault"},
}
