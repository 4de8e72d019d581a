package iampolicy

import (
	"math"
	"slices"
)

// storagePermissions are the calls of the EBS CSI driver's controller, which uses the role of the control machines'
// instance profile (pkg/cloud/cloud.go in its source). What the driver has created, or an operator has tagged as it
// does, it may delete; what an operator tags as the cluster's only, it may attach, resize, copy and restore.
func storagePermissions() []Permission {
	var table []Permission
	row := func(s scope, resources []string, why string, actions ...string) {
		for _, a := range actions {
			table = append(
				table,
				Permission{
					Action:    a,
					roles:     controlMachines,
					holder:    machines,
					Storage:   true,
					Scope:     s,
					Resources: resources,
					Why:       why,
				},
			)
		}
	}
	volume, snapshot := []string{"ec2:*:*:volume/*"}, []string{"ec2:*::snapshot/*"}
	changing := func(resources []string, why string, actions ...string) {
		row(changesDrivers, resources, why, actions...)
		row(changesByHand, resources, why, actions...)
	}
	row(
		anything, nil, "The EBS CSI driver finds volumes, snapshots and what they are attached to with it.",
		"ec2:DescribeAvailabilityZones", "ec2:DescribeInstanceTypes", "ec2:DescribeSnapshots",
		"ec2:DescribeVolumeStatus", "ec2:DescribeVolumes", "ec2:DescribeVolumesModifications",
	)
	row(
		anything, nil, "The checks find the key that volumes are encrypted with by default with it.",
		"ec2:GetEbsDefaultKmsKeyId", "ec2:GetEbsEncryptionByDefault",
	)
	row(creates, volume, "The EBS CSI driver creates volumes with it.", "ec2:CreateVolume")
	const clones = "The EBS CSI driver creates volumes with it for claims that are copies of others."
	row(creates, volume, clones, "ec2:CopyVolumes")
	changing(volume, clones, "ec2:CopyVolumes")
	row(creates, snapshot, "The EBS CSI driver creates snapshots with it.", "ec2:CreateSnapshot")
	row(
		TagsNew, slices.Concat(volume, snapshot), "The EBS CSI driver tags volumes and snapshots with it.",
		createTags,
	)
	row(
		AsksLimits, volume, WhyLimits, "ec2:CreateVolume", createTags,
	)
	changing(
		volume, "The EBS CSI driver attaches, resizes and copies volumes with it.", "ec2:AttachVolume",
		"ec2:CreateSnapshot", "ec2:DetachVolume", "ec2:ModifyVolume",
	)
	row(tagsDrivers, volume, whyTags, createTags, "ec2:DeleteTags")
	changing(snapshot, "The EBS CSI driver restores volumes from snapshots with it.", "ec2:CreateVolume")
	row(
		onNodes, []string{"ec2:*:*:instance/*"}, "The EBS CSI driver attaches volumes to nodes with it.",
		"ec2:AttachVolume", "ec2:DetachVolume",
	)
	row(changesDrivers, volume, "The EBS CSI driver deletes volumes with it.", "ec2:DeleteVolume")
	row(changesDrivers, snapshot, "The EBS CSI driver deletes snapshots with it.", "ec2:DeleteSnapshot")
	row(DeletesRetagged, volume, WhyRetagged, "ec2:DeleteVolume")
	// What EBS does with a customer managed key it does with the caller's permissions ("How Amazon EBS encryption
	// works" in its user guide).
	row(
		UsesKeys,
		nil,
		"Without it encrypted volumes disappear while they are created, or cannot be attached.",
		KeyActions...)
	for i := range table {
		if table[i].Scope == UsesKeys {
			table[i].when = withKeys
		}
		table[i].Rare = table[i].Scope == tagsDrivers
	}
	return table
}

// The question of the EBS CSI driver for limits is a dry run of CreateVolume with this tag alone and the largest number
// of IOPS that a request can have, which EC2 refuses with the type's limit in its message (getVolumeLimits and
// extractMaxIOPSFromError in pkg/cloud/cloud.go of its source). No policy can allow dry runs only. This one is for
// exactly that number, which no type of volume has, so the same request without DryRun creates no volume either.
const (
	LimitsTag   = "CSIVolumeName"
	LimitsValue = "IopsLimitDryRun"
	LimitsIOPS  = math.MaxInt32
	WhyLimits   = "The EBS CSI driver asks EC2 with it how many IOPS volumes of a type can have. Without an answer " +
		"it lowers those of gp3 volumes to 16,000, without an event."
)

// DriverTag is what the EBS CSI driver sets on all that it creates, with the value true (AwsEbsDriverTagKey in
// pkg/cloud/cloud.go of its source). Neither BOSH nor the AWS CPI sets it.
const DriverTag = "ebs.csi.aws.com/cluster"

// reservedTags are the keys that the EBS CSI driver refuses in a VolumeAttributesClass (validateExtraTags in
// pkg/driver/validation.go of its source), among them those that decide what the policies allow.
var reservedTags = []string{"kubernetes.io/*", "ebs.csi.aws.com/*", LimitsTag}

const (
	createTags = "ec2:CreateTags"
	whyTags    = "The EBS CSI driver changes the tags of volumes with it that a VolumeAttributesClass names, and " +
		"with ec2:CreateTags. Without both, volumes of such a class keep their tags, type and IOPS."
)

// DirectorTag is the condition key of a tag that BOSH sets on instances and disks (metadata_updater.rb of the
// Director). The AWS CPI also sets the tags of an instance on the volumes that are attached to it, those of claims
// included (set_vm_metadata in cloud_v1.rb of bosh-aws-cpi-release).
const DirectorTag = "aws:ResourceTag/director"

// Retagged is the case of deletions of volumes whose tags BOSH has changed.
const (
	Retagged    = " of a volume that BOSH has tagged"
	WhyRetagged = "A deployment that only changes tags gives attached volumes the cluster's tag with the value " +
		"shared. If they cannot be deleted then, their PersistentVolumes stay Released. A policy from before the " +
		"one that allows it also allows changes of BOSH's own disks."
)

// DescribeKeyAction is the permission to see a key.
const DescribeKeyAction = "kms:DescribeKey"

// KeyActions are the permissions that the use of a key for volumes requires.
var KeyActions = []string{"kms:CreateGrant", "kms:Decrypt", DescribeKeyAction, "kms:GenerateDataKeyWithoutPlaintext"}

// IsStorage selects the rows of the EBS CSI driver, except those for keys.
func IsStorage(p Permission) bool { return p.Storage && p.Scope != UsesKeys }

// IsForKeys selects the rows for the keys of volumes.
func IsForKeys(p Permission) bool { return p.Scope == UsesKeys }
