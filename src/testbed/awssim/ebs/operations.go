package ebs

import (
	"kubernetes-release/testbed/awssim/api"
)

// Operations is the table of EBS's actions, which are part of the API of EC2.
var Operations = map[string]api.Operation{
	"AttachVolume":                 api.Changing(attachVolume),
	"CopyVolumes":                  api.Changing(copyVolumes),
	"CreateSnapshot":               api.Changing(createSnapshot),
	"CreateVolume":                 api.Changing(createVolume),
	"DeleteSnapshot":               api.Changing(deleteSnapshot),
	"DeleteVolume":                 api.Changing(deleteVolume),
	"DescribeInstanceTypes":        api.Reading(describeInstanceTypes),
	"DescribeSnapshots":            api.Reading(describeSnapshots),
	"DescribeVolumeStatus":         api.Reading(describeVolumeStatus),
	"DescribeVolumes":              api.Reading(describeVolumes),
	"DescribeVolumesModifications": api.Reading(describeVolumesModifications),
	"DetachVolume":                 api.Changing(detachVolume),
	"EnableFastSnapshotRestores":   api.Changing(enableFastRestores),
	"GetEbsDefaultKmsKeyId":        api.Reading(getDefaultKey),
	"GetEbsEncryptionByDefault":    api.Reading(getEncryptionByDefault),
	"ModifyVolume":                 api.Changing(modifyVolume),
	"ResetEbsDefaultKmsKeyId":      api.Changing(resetDefaultKey),
}
