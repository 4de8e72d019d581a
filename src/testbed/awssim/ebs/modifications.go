package ebs

import (
	"cmp"
	"time"

	"kubernetes-release/testbed/awssim/api"
	"kubernetes-release/testbed/awssim/ec2api"
	"kubernetes-release/testbed/awssim/store"
)

type modificationView struct {
	Volume   string                  `xml:"volumeId"`
	State    store.ModificationState `xml:"modificationState"`
	Progress int                     `xml:"progress"`
	Start    string                  `xml:"startTime"`
	End      string                  `xml:"endTime,omitempty"`

	TargetSize          int    `xml:"targetSize"`
	TargetType          string `xml:"targetVolumeType"`
	TargetIOPS          int    `xml:"targetIops,omitempty"`
	TargetThroughput    int    `xml:"targetThroughput,omitempty"`
	TargetMultiAttach   bool   `xml:"targetMultiAttachEnabled"`
	OriginalSize        int    `xml:"originalSize"`
	OriginalType        string `xml:"originalVolumeType"`
	OriginalIOPS        int    `xml:"originalIops,omitempty"`
	OriginalThroughput  int    `xml:"originalThroughput,omitempty"`
	OriginalMultiAttach bool   `xml:"originalMultiAttachEnabled"`
}

func viewModification(v *store.Volume) modificationView {
	m, from, to := v.Modification, v.Modification.Original, v.Modification.Target
	progress := map[store.ModificationState]int{
		store.ModificationOptimizing: 50,
		store.ModificationCompleted:  100,
	}[m.State]
	return modificationView{
		v.ID,
		m.State,
		progress,
		ec2api.FormatTime(m.Start),
		ec2api.FormatTime(m.End),
		to.Size,
		to.Type,
		to.IOPS,
		to.Throughput,
		to.MultiAttach,
		from.Size,
		from.Type,
		from.IOPS,
		from.Throughput,
		from.MultiAttach,
	}
}

type modifyVolumeInput struct {
	VolumeId           string
	Size               int
	VolumeType         string
	Iops               int
	Throughput         int
	MultiAttachEnabled *bool
}

type modifyVolumeOutput struct {
	Modification modificationView `xml:"volumeModification"`
}

func modifyVolume(c *api.Call, in modifyVolumeInput) (*modifyVolumeOutput, error) {
	v, err := volume(c, in.VolumeId)
	if err != nil {
		return nil, err
	}
	target, err := in.over(v.Shape())
	if err != nil {
		return nil, err
	}
	if err := checkModify(c, v); err != nil {
		return nil, err
	}
	if err := c.Begin(); err != nil {
		return nil, err
	}
	v.Modification = &store.Modification{
		State:    store.ModificationModifying,
		Start:    c.Now,
		Due:      c.Now.Add(time.Duration(c.Settings.Volumes.Modify)),
		Original: v.Shape(),
		Target:   target,
	}
	return &modifyVolumeOutput{viewModification(v)}, nil
}

// over merges the request into a volume's shape. What a new type does not support, or derives from the size, is not
// kept.
func (in modifyVolumeInput) over(old store.VolumeShape) (store.VolumeShape, error) {
	s := store.VolumeShape{
		Type:        cmp.Or(in.VolumeType, old.Type),
		Size:        cmp.Or(in.Size, old.Size),
		IOPS:        in.Iops,
		Throughput:  in.Throughput,
		MultiAttach: old.MultiAttach,
	}
	if s.Type == old.Type && s.Type != "gp2" {
		s.IOPS, s.Throughput = cmp.Or(s.IOPS, old.IOPS), cmp.Or(s.Throughput, old.Throughput)
	}
	if in.MultiAttachEnabled != nil {
		s.MultiAttach = *in.MultiAttachEnabled
	}
	if s.Size < old.Size {
		return s, api.Errorf("InvalidParameterValue", "New size cannot be smaller than existing size")
	}
	return s, check(&s)
}

func checkModify(c *api.Call, v *store.Volume) error {
	if err := checkCreated(v); err != nil {
		return err
	}
	m := v.Modification
	switch {
	case m == nil:
		return nil
	case m.State == store.ModificationModifying:
		return api.Errorf("IncorrectModificationState", "Cannot modify volume in modification state: MODIFYING")
	case m.State == store.ModificationOptimizing:
		return api.Errorf("IncorrectModificationState", "Cannot modify volume in modification state: OPTIMIZING")
	case c.Now.Before(m.Start.Add(time.Duration(c.Settings.Volumes.Modifications))):
		return api.Errorf(
			"VolumeModificationRateExceeded",
			"You've reached the maximum modification rate per volume limit. Wait at least 6 hours between "+
				"modifications per EBS volume.",
		)
	}
	return nil
}

type describeVolumesModificationsInput struct {
	ec2api.Page
	VolumeId []string
}

type describeVolumesModificationsOutput struct {
	Modifications []modificationView `xml:"volumeModificationSet>item"`
	NextToken     string             `xml:"nextToken,omitempty"`
}

func describeVolumesModifications(
	c *api.Call, in describeVolumesModificationsInput,
) (*describeVolumesModificationsOutput, error) {
	list, err := volumesWithIDs(c, in.VolumeId)
	if err != nil {
		return nil, err
	}
	var modified []store.Volume
	for _, v := range list {
		if v.Modification != nil {
			modified = append(modified, v)
		} else if len(in.VolumeId) > 0 {
			return nil, api.Errorf(
				"InvalidVolumeModification.NotFound", "Modification for volume '%s' does not exist.", v.ID,
			)
		}
	}
	views, next, err := ec2api.Described(
		c, modified, in.Page, 500, modificationAttributes,
		func(_ *api.Call, v *store.Volume) modificationView { return viewModification(v) },
	)
	return &describeVolumesModificationsOutput{views, next}, err
}

func modificationAttributes(_ *api.Call, v *store.Volume) (ec2api.Attributes, store.Tags) {
	var state store.ModificationState
	if v.Modification != nil {
		state = v.Modification.State
	}
	return ec2api.Attributes{"volume-id": ec2api.One(v.ID), "modification-state": ec2api.One(state)}, nil
}

type statusDetailView struct {
	Name   string `xml:"name"`
	Status string `xml:"status"`
}

type volumeStatusView struct {
	Volume           string             `xml:"volumeId"`
	AvailabilityZone string             `xml:"availabilityZone"`
	Status           string             `xml:"volumeStatus>status"`
	Details          []statusDetailView `xml:"volumeStatus>details>item"`
}

type describeVolumeStatusOutput struct {
	Volumes   []volumeStatusView `xml:"volumeStatusSet>item"`
	NextToken string             `xml:"nextToken,omitempty"`
}

// describeVolumeStatus finds every volume in order, and initialized from its snapshot.
func describeVolumeStatus(c *api.Call, in describeVolumesInput) (*describeVolumeStatusOutput, error) {
	list, err := volumesWithIDs(c, in.VolumeId)
	if err != nil {
		return nil, err
	}
	views, next, err := ec2api.Described(
		c, list, in.Page, 1000, volumeAttributes,
		func(_ *api.Call, v *store.Volume) volumeStatusView {
			return volumeStatusView{v.ID, v.AvailabilityZone, "ok", []statusDetailView{
				{"io-enabled", "passed"}, {"io-performance", "not-applicable"}, {"initialization-state", "completed"},
			}}
		},
	)
	return &describeVolumeStatusOutput{views, next}, err
}
