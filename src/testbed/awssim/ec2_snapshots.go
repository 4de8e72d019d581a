package awssim

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

type snapshotView struct {
	ID          string `xml:"snapshotId"`
	Volume      string `xml:"volumeId"`
	State       string `xml:"status"`
	Started     string `xml:"startTime"`
	Progress    string `xml:"progress"`
	Owner       string `xml:"ownerId"`
	Size        int    `xml:"volumeSize"`
	Description string `xml:"description"`
	Encrypted   bool   `xml:"encrypted"`
	KMSKey      string `xml:"kmsKeyId,omitempty"`
	Tier        string `xml:"storageTier"`
	Tags        []tag  `xml:"tagSet>item"`
}

func (c *call) snapshotView(s *Snapshot) snapshotView {
	progress := "0%"
	if s.State == snapshotCompleted {
		progress = "100%"
	}
	return snapshotView{s.ID, s.Volume, s.State, formatTime(s.Started), progress, c.Account, s.Size, s.Description, s.Encrypted, s.KMSKey, "standard", s.Tags.list()}
}

type createSnapshotInput struct {
	VolumeId, Description string
	TagSpecification      []tagSpecification
}

func (c *call) createSnapshot(in createSnapshotInput) (*snapshotView, error) {
	tags, err := tagsFor(in.TagSpecification, "snapshot")
	if err != nil {
		return nil, err
	}
	v, err := c.volume(in.VolumeId)
	if err != nil {
		return nil, err
	}
	created := c.ec2ARN("snapshot", "*")
	if err := c.allow(target{arn: created, requestTags: tags, context: map[string][]string{"ec2:ParentVolume": {c.ec2ARN("volume", v.ID)}}}); err != nil {
		return nil, err
	}
	if err := c.allowTagsOnCreate("ec2:CreateTags", "ec2:CreateAction", created, tags); err != nil {
		return nil, err
	}
	if v.State != volumeAvailable && v.State != volumeInUse {
		return nil, errorf("IncorrectState", "Volume '%s' is in the '%s' state.", v.ID, v.State)
	}
	early := c.now.Add(-time.Duration(c.Settings.Volumes.Snapshots))
	if slices.ContainsFunc(c.Snapshots, func(s Snapshot) bool { return s.Volume == v.ID && s.Started.After(early) }) {
		return nil, errorf("SnapshotCreationPerVolumeRateExceeded", "The maximum per volume CreateSnapshot request rate has been exceeded. Use an increasing or variable sleep interval between requests.")
	}
	if err := c.begin(); err != nil {
		return nil, err
	}
	s := Snapshot{
		ID: c.newID("snap"), Volume: v.ID, Size: v.Size, Description: in.Description, Encrypted: v.Encrypted, KMSKey: v.KMSKey, Tags: tags,
		State: snapshotPending, Started: c.now, Due: c.now.Add(time.Duration(c.Settings.Volumes.Snapshot)),
	}
	// The content is that of the time of the call; only then the snapshot is completed in the background.
	if err := c.sim.options.Disks.Snapshot(v.ID, s.ID); err != nil {
		return nil, err
	}
	c.Snapshots = append(c.Snapshots, s)
	view := c.snapshotView(&s)
	return &view, nil
}

type deleteSnapshotInput struct{ SnapshotId string }

func (c *call) deleteSnapshot(in deleteSnapshotInput) (*done, error) {
	if err := checkSnapshotID(in.SnapshotId); err != nil {
		return nil, err
	}
	s := find(c.Snapshots, in.SnapshotId)
	subject := target{arn: c.ec2ARN("snapshot", in.SnapshotId)}
	if s != nil {
		subject.tags = s.Tags
	}
	if err := c.allow(subject); err != nil {
		return nil, err
	}
	if s == nil {
		return nil, snapshotNotFound(in.SnapshotId)
	}
	if err := c.begin(); err != nil {
		return nil, err
	}
	if err := c.sim.options.Disks.Remove(s.ID); err != nil {
		return nil, err
	}
	c.Snapshots = remove(c.Snapshots, s.ID)
	return &done{true}, nil
}

func snapshotNotFound(id string) error {
	return errorf("InvalidSnapshot.NotFound", "The snapshot '%s' does not exist.", id)
}

func checkSnapshotID(id string) error {
	if !strings.HasPrefix(id, "snap-") {
		return errorf("InvalidParameterValue", "Value (%s) for parameter snapshotId is invalid. Expected: 'snap-...'.", id)
	}
	return nil
}

type describeSnapshotsInput struct {
	page
	SnapshotId          []string
	Owner, RestorableBy []string // all snapshots are the account's
}

type describeSnapshotsOutput struct {
	Snapshots []snapshotView `xml:"snapshotSet>item"`
	NextToken string         `xml:"nextToken,omitempty"`
}

func (c *call) describeSnapshots(in describeSnapshotsInput) (*describeSnapshotsOutput, error) {
	list := c.Snapshots
	if len(in.SnapshotId) > 0 {
		list = nil
	}
	for _, id := range in.SnapshotId {
		if err := checkSnapshotID(id); err != nil {
			return nil, err
		}
		s := find(c.Snapshots, id)
		if s == nil {
			return nil, snapshotNotFound(id)
		}
		list = append(list, *s)
	}
	if in.MaxResults != nil && *in.MaxResults == 0 { // ListSnapshots of the EBS CSI driver sends it for no limit
		in.MaxResults = nil
	}
	views, next, err := described(list, in.page, 1000, c.snapshotAttributes, c.snapshotView)
	return &describeSnapshotsOutput{views, next}, err
}

func (c *call) snapshotAttributes(s *Snapshot) (attributes, Tags) {
	return attributes{
		"snapshot-id": one(s.ID), "volume-id": one(s.Volume), "status": one(s.State), "owner-id": one(c.Account), "encrypted": one(strconv.FormatBool(s.Encrypted)),
		"description": one(s.Description), "volume-size": one(strconv.Itoa(s.Size)),
	}, s.Tags
}
