package aws

import (
	"fmt"
	"slices"
	"strings"

	"kubernetes-release/cloud/aws/awserr"
	"kubernetes-release/cloud/aws/clustertags"
	"kubernetes-release/preflight"
)

// storagePermissions are the calls of the EBS CSI driver's controller, which uses the role of the control machines'
// instance profile (pkg/cloud/cloud.go in its source). What the driver tags as the cluster's it may delete; what an
// operator tags as shared it may attach, resize, copy and restore.
func storagePermissions() []permission {
	var table []permission
	row := func(s scope, resources []string, why string, actions ...string) {
		for _, a := range actions {
			table = append(
				table,
				permission{
					action:    a,
					roles:     controlOnly,
					holder:    machines,
					storage:   true,
					scope:     s,
					resources: resources,
					why:       why,
				},
			)
		}
	}
	volume, snapshot := []string{"ec2:*:*:volume/*"}, []string{"ec2:*::snapshot/*"}
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
	row(creates, snapshot, "The EBS CSI driver creates snapshots with it.", "ec2:CreateSnapshot")
	row(
		tagsNew, slices.Concat(volume, snapshot), "The EBS CSI driver tags volumes and snapshots with it.",
		"ec2:CreateTags",
	)
	row(
		changes, volume, "The EBS CSI driver attaches, resizes and copies volumes with it.", "ec2:AttachVolume",
		"ec2:CreateSnapshot", "ec2:DetachVolume", "ec2:ModifyVolume",
	)
	row(changes, snapshot, "The EBS CSI driver restores volumes from snapshots with it.", "ec2:CreateVolume")
	row(
		onNodes, []string{"ec2:*:*:instance/*"}, "The EBS CSI driver attaches volumes to nodes with it.",
		"ec2:AttachVolume", "ec2:DetachVolume",
	)
	row(
		changesOwn, slices.Concat(volume, snapshot), "The EBS CSI driver deletes volumes and snapshots with it.",
		"ec2:DeleteSnapshot", "ec2:DeleteVolume",
	)
	// What EBS does with a customer managed key it does with the caller's permissions ("How Amazon EBS encryption
	// works" in its user guide).
	row(
		usesKeys,
		nil,
		"Without it encrypted volumes disappear while they are created, or cannot be attached.",
		keyActions...)
	for i := range table {
		if table[i].scope == usesKeys {
			table[i].when = withKeys
		}
	}
	return table
}

var keyActions = []string{"kms:CreateGrant", "kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKeyWithoutPlaintext"}

func isStorage(p permission) bool { return p.storage && p.scope != usesKeys }

func isForKeys(p permission) bool { return p.scope == usesKeys }

// storage reports whether the EBS CSI driver runs on this machine, with permissions that can be checked.
func (f *facts) storage() bool { return f.request.Storage && f.isControl() && !f.assumesRole() }

// onStorage skips a check where there is no storage. With RoleARN all questions are asked as the role that the cloud
// controller assumes, which is not the EBS CSI driver's.
func onStorage(run func(*facts) preflight.Outcome) func(*facts) preflight.Outcome {
	return func(f *facts) preflight.Outcome {
		switch {
		case !f.request.Storage:
			return skipped("there is no storage")
		case f.assumesRole():
			return skipped(
				"the cloud controller assumes another role, and the EBS CSI driver does not; it is not checked",
			)
		}
		return run(f)
	}
}

// encryption are the account's settings for new volumes in the region.
type encryption struct {
	byDefault bool
	key       string // of encryption by default
}

// awsManagedKey ends the name of the key that AWS manages, which everyone in the account may use.
const awsManagedKey = "alias/aws/ebs"

// keys are the customer managed keys that volumes are encrypted with, as they are named.
func (f *facts) keys() []string {
	keys := slices.Clone(f.request.StorageKeys)
	if f.encryption.byDefault {
		keys = append(keys, f.encryption.key)
	}
	keys = slices.DeleteFunc(keys, func(k string) bool { return k == "" || strings.HasSuffix(k, awsManagedKey) })
	slices.Sort(keys)
	return slices.Compact(keys)
}

// keyARNs are those of the keys that are not named by an alias, which only kms:DescribeKey could resolve.
func (f *facts) keyARNs() []string {
	if !f.request.Storage || !f.isControl() {
		return nil
	}
	var arns []string
	for _, k := range f.keys() {
		if own, known := f.machineIdentity(); known && !strings.Contains(k, ":") && !strings.HasPrefix(k, "alias/") {
			k = fmt.Sprintf("arn:%s:kms:%s:%s:key/%s", own.partition, f.region(), own.account, k)
		}
		if keyForm.MatchString(k) {
			arns = append(arns, k)
		}
	}
	return arns
}

// machine is an instance of the cluster with what it has attached.
type machine struct {
	id, vpc, kind       string
	tags                clustertags.Tags
	volumes, interfaces int
	limit               int  // of its type; 0: unknown
	shared              bool // the limit counts further network interfaces
}

// free is how many volumes can still be attached (getVolumesLimit in pkg/driver/node.go of the EBS CSI driver).
func (m machine) free() int {
	free := m.limit - m.volumes
	if m.shared {
		free -= max(0, m.interfaces-1)
	}
	return free
}

func checkStoragePermissions(f *facts) preflight.Outcome {
	if tested := f.testedBy("storage-permissions"); len(tested.Findings) > 0 {
		return tested
	}
	if outcome, done := f.withoutPolicies(isStorage); done {
		return outcome
	}
	return f.byPolicy(isStorage)
}

func checkStorageKeys(f *facts) preflight.Outcome {
	if f.encryptionErr != nil {
		return skipped("it is unknown which key EBS uses by default: %s", awserr.Describe(f.encryptionErr))
	}
	keys := f.keys()
	if len(keys) == 0 {
		return passed("volumes are encrypted with the key of AWS, or not")
	}
	var findings []preflight.Finding
	for _, k := range keys {
		if strings.Contains(k, "alias/") {
			findings = append(findings, preflight.Finding{
				Resource: k,
				Wanted:   "the ARN of the key",
				Found:    "an alias",
				Advisory: true,
				Why: "IAM policies do not accept aliases of keys, so it is unknown whether the role can use the " +
					"key.",
				Fix: []preflight.Fix{
					byCommand(
						"find the key, and use its ARN in the StorageClass",
						f.query("KeyMetadata.Arn", "kms", "describe-key", "--key-id", k),
					),
				},
			})
		}
	}
	if len(findings) > 0 {
		return found(findings...)
	}
	if outcome, done := f.withoutPolicies(isForKeys); done {
		return outcome
	}
	outcome := f.byPolicy(isForKeys)
	for i := range outcome.Findings {
		finding := &outcome.Findings[i]
		finding.Found += "; keys: " + strings.Join(keys, ", ")
		if f.encryption.byDefault && slices.Contains(keys, f.encryption.key) {
			finding.Found += "; EBS encrypts all new volumes with " + f.encryption.key
		}
	}
	return outcome
}

func checkStorageZones(f *facts) preflight.Outcome {
	if len(f.request.StorageZones) == 0 {
		return passed("no StorageClass names zones")
	}
	if f.zonesErr != nil {
		return skipped("the zones are unknown: %s", awserr.Describe(f.zonesErr))
	}
	var known []string
	for _, z := range f.zones {
		known = append(known, z.Name)
	}
	slices.Sort(known)
	var findings []preflight.Finding
	for _, name := range f.request.StorageZones {
		switch {
		case !slices.Contains(known, name):
			findings = append(findings, preflight.Finding{
				Resource: name,
				Wanted:   "a zone of " + f.region() + ": " + strings.Join(known, ", "),
				Found:    "no such zone",
				Why:      "EC2 refuses to create volumes in it, and claims stay Pending.",
				Fix:      []preflight.Fix{byHand("correct the zones of the StorageClass in the manifest")},
			})
		case f.subnetsErr == nil && !f.hasSubnetIn(name):
			findings = append(findings, preflight.Finding{
				Resource: name,
				Wanted:   "a subnet with the tag " + f.tagKey(),
				Found:    "none in this zone",
				Advisory: true,
				Why: "A volume can only be attached in its own zone, and no node of the cluster seems to be " +
					"there.",
				Fix: []preflight.Fix{
					byHand("remove the zone from the StorageClass in the manifest, or create nodes there"),
				},
			})
		}
	}
	if len(findings) > 0 {
		return found(findings...)
	}
	return passed("%s", strings.Join(f.request.StorageZones, ", "))
}

// hasSubnetIn reports whether a subnet in the zone has the cluster's tag.
func (f *facts) hasSubnetIn(zone string) bool {
	return slices.ContainsFunc(f.subnets, func(s subnet) bool { return s.Zone == zone && s.Tags.BelongTo(f.cluster()) })
}

func checkStorageAttachments(f *facts) preflight.Outcome {
	if f.machinesErr != nil {
		return skipped("the cluster's instances are unknown: %s", awserr.Describe(f.machinesErr))
	}
	var findings []preflight.Finding
	for _, m := range f.machines {
		if m.limit == 0 || m.free() > 0 {
			continue
		}
		counts := "volumes only"
		if m.shared {
			counts = "volumes and network interfaces"
		}
		findings = append(findings, preflight.Finding{
			Resource: m.id,
			Wanted:   "room for another volume",
			Found: fmt.Sprintf(
				"%s can have %d attachments (%s); it has %d volumes and %d network interfaces", m.kind, m.limit, counts,
				m.volumes, m.interfaces,
			),
			Why: "Pods with claims stay Pending if no other node has room.",
			Fix: []preflight.Fix{
				byCommand(
					"see what is attached, and detach what the cluster does not use",
					f.aws("ec2", "describe-volumes", "--filters", "Name=attachment.instance-id,Values="+m.id),
				),
				byHand("or use an instance_type with more attachments, or more VMs"),
			},
		})
	}
	if len(findings) > 0 {
		return found(findings...)
	}
	return passed("%d instances", len(f.machines))
}
