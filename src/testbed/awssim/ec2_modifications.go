package awssim

import (
	"cmp"
	"time"
)

type modificationView struct {
	Volume   string `xml:"volumeId"`
	State    string `xml:"modificationState"`
	Progress int    `xml:"progress"`
	Start    string `xml:"startTime"`
	End      string `xml:"endTime,omitempty"`

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

func (v *Volume) modificationView() modificationView {
	m, from, to := v.Modification, v.Modification.Original, v.Modification.Target
	progress := map[string]int{modificationOptimizing: 50, modificationCompleted: 100}[m.State]
	return modificationView{
		v.ID, m.State, progress, formatTime(m.Start), formatTime(m.End),
		to.Size, to.Type, to.IOPS, to.Throughput, to.MultiAttach, from.Size, from.Type, from.IOPS, from.Throughput, from.MultiAttach,
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

func (c *call) modifyVolume(in modifyVolumeInput) (*modifyVolumeOutput, error) {
	v, err := c.volume(in.VolumeId)
	if err != nil {
		return nil, err
	}
	target, err := in.over(v.shape())
	if err != nil {
		return nil, err
	}
	if err := c.checkModify(v); err != nil {
		return nil, err
	}
	if err := c.begin(); err != nil {
		return nil, err
	}
	v.Modification = &Modification{
		State: modificationModifying, Start: c.now, Due: c.now.Add(time.Duration(c.Settings.Volumes.Modify)), Original: v.shape(), Target: target,
	}
	return &modifyVolumeOutput{v.modificationView()}, nil
}

// over merges the request into a volume's shape. What a new type does not support, or derives from the size, is not kept.
func (in modifyVolumeInput) over(old VolumeShape) (VolumeShape, error) {
	s := VolumeShape{
		Type: cmp.Or(in.VolumeType, old.Type), Size: cmp.Or(in.Size, old.Size), IOPS: in.Iops, Throughput: in.Throughput, MultiAttach: old.MultiAttach,
	}
	if s.Type == old.Type && s.Type != "gp2" {
		s.IOPS, s.Throughput = cmp.Or(s.IOPS, old.IOPS), cmp.Or(s.Throughput, old.Throughput)
	}
	if in.MultiAttachEnabled != nil {
		s.MultiAttach = *in.MultiAttachEnabled
	}
	if s.Size < old.Size {
		return s, errorf("InvalidParameterValue", "New size cannot be smaller than existing size")
	}
	return s, s.check()
}

func (c *call) checkModify(v *Volume) error {
	m := v.Modification
	switch {
	case v.State != volumeAvailable && v.State != volumeInUse:
		return errorf("IncorrectState", "Volume '%s' is in the '%s' state.", v.ID, v.State)
	case m == nil:
		return nil
	case m.State == modificationModifying:
		return errorf("IncorrectModificationState", "Cannot modify volume in modification state: MODIFYING")
	case m.State == modificationOptimizing:
		return errorf("IncorrectModificationState", "Cannot modify volume in modification state: OPTIMIZING")
	case c.now.Before(m.Start.Add(time.Duration(c.Settings.Volumes.Modifications))):
		return errorf("VolumeModificationRateExceeded", "You've reached the maximum modification rate per volume limit. Wait at least 6 hours between modifications per EBS volume.")
	}
	return nil
}

type describeVolumesModificationsInput struct {
	page
	VolumeId []string
}

type describeVolumesModificationsOutput struct {
	Modifications []modificationView `xml:"volumeModificationSet>item"`
	NextToken     string             `xml:"nextToken,omitempty"`
}

func (c *call) describeVolumesModifications(in describeVolumesModificationsInput) (*describeVolumesModificationsOutput, error) {
	list, err := c.volumesWithIDs(in.VolumeId)
	if err != nil {
		return nil, err
	}
	var modified []Volume
	for _, v := range list {
		if v.Modification != nil {
			modified = append(modified, v)
		} else if len(in.VolumeId) > 0 {
			return nil, errorf("InvalidVolumeModification.NotFound", "Modification for volume '%s' does not exist.", v.ID)
		}
	}
	views, next, err := described(modified, in.page, 500, modificationAttributes, (*Volume).modificationView)
	return &describeVolumesModificationsOutput{views, next}, err
}

func modificationAttributes(v *Volume) (attributes, Tags) {
	state := ""
	if v.Modification != nil {
		state = v.Modification.State
	}
	return attributes{"volume-id": one(v.ID), "modification-state": one(state)}, nil
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
func (c *call) describeVolumeStatus(in describeVolumesInput) (*describeVolumeStatusOutput, error) {
	list, err := c.volumesWithIDs(in.VolumeId)
	if err != nil {
		return nil, err
	}
	views, next, err := described(list, in.page, 1000, c.volumeAttributes, func(v *Volume) volumeStatusView {
		return volumeStatusView{v.ID, v.AvailabilityZone, "ok", []statusDetailView{
			{"io-enabled", "passed"}, {"io-performance", "not-applicable"}, {"initialization-state", "completed"},
		}}
	})
	return &describeVolumeStatusOutput{views, next}, err
}
