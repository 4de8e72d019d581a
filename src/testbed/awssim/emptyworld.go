package awssim

import (
	"net/netip"

	"kubernetes-release/testbed/awssim/iam"
	"kubernetes-release/testbed/awssim/store"
)

// The Director of an empty account: its security group, and the key of the IAM user bosh, which its CPI has.
const (
	DirectorSecurityGroup   = "sg-0d0d0d0d0d0d0d0d0"
	DirectorUser            = "bosh"
	DirectorAccessKeyID     = "AKIADIRECTORDIRECTO0"
	DirectorSecretAccessKey = "director/director/director/director/dire"
)

// EmptyWorld is an account with the VPC and the subnets of the lab's and with a Director, in which nobody has prepared
// anything for a cluster: there are no roles, no tags, and the Director may not pass roles to VMs.
func EmptyWorld(network netip.Prefix) *store.World {
	w := NewLabWorld(LabOptions{Network: network, WithoutRoleTags: true})
	w.Roles, w.InstanceProfiles = nil, nil
	w.SecurityGroups = []store.SecurityGroup{{
		ID: DirectorSecurityGroup, Name: "bosh", Description: "The Director", VPC: LabVPC,
		Egress: []store.Rule{{Protocol: "-1", CIDR: "0.0.0.0/0"}}, Tags: store.Tags{},
	}}
	w.StaticKeys = append(w.StaticKeys, store.StaticKey{
		AccessKeyID:     DirectorAccessKeyID,
		SecretAccessKey: DirectorSecretAccessKey,
		User:            DirectorUser,
		Policies: []iam.Policy{
			allow(
				"ec2:RunInstances", "ec2:CreateTags", "ec2:DescribeInstances", "ec2:DescribeSubnets",
				"ec2:TerminateInstances", "ec2:AttachVolume", "ec2:CreateSnapshot", "ec2:CreateVolume",
				"ec2:DeleteSnapshot", "ec2:DeleteVolume", "ec2:DescribeSnapshots", "ec2:DescribeVolumes",
				"ec2:DetachVolume", "ec2:ModifyVolume",
			),
		},
	})
	return w
}
