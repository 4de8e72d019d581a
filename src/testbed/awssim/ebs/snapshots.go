package ebs

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"kubernetes-release/testbed/awssim/api"
	"kubernetes-release/testbed/awssim/ec2api"
	"kubernetes-release/testbed/awssim/store"
)

type snapshotView struct {
	ID          string              `xml:"snapshotId"`
	Volume      string              `xml:"volumeId"`
	State       store.SnapshotState `xml:"status"`
	Started     string              `xml:"startTime"`
	Progress    string              `xml:"progress"`
	Owner       string              `xml:"ownerId"`
	Size        int                 `xml:"volumeSize"`
	Description string              `xml:"description"`
	Encrypted   bool                `xml:"encrypted"`
	KMSKey      string              `xml:"kmsKeyId,omitempty"`
	Tier        string              `xml:"storageTier"`
	Tags        []store.Tag         `xml:"tagSet>item"`
}

func viewSnapshot(c *api.Call, s *store.Snapshot) snapshotView {
	progress := "0%"
	if s.State == store.SnapshotCompleted {
		progress = "100%"
	}
	return snapshotView{
		s.ID,
		s.Volume,
		s.State,
		ec2api.FormatTime(s.Started),
		progress,
		c.Account,
		s.Size,
		s.Description,
		s.Encrypted,
		s.KMSKey,
		"standard",
		s.Tags.List(),
	}
}

type createSnapshotInput struct {
	VolumeId, Description string
	TagSpecification      []ec2api.TagSpecification
}

func createSnapshot(c *api.Call, in createSnapshotInput) (*snapshotView, error) {
	tags, err := ec2api.TagsFor(in.TagSpecification, "snapshot")
	if err != nil {
		return nil, err
	}
	v, err := volume(c, in.VolumeId)
	if err != nil {
		return nil, err
	}
	created := ec2api.ARN(c, "snapshot", "*")
	if err := c.Allow(
		api.Target{
			ARN:         created,
			RequestTags: tags,
			Context:     map[string][]string{"ec2:ParentVolume": {ec2api.ARN(c, "volume", v.ID)}},
		},
	); err != nil {
		return nil, err
	}
	if err := ec2api.AllowTagsOnCreate(c, "ec2:CreateTags", "ec2:CreateAction", created, tags); err != nil {
		return nil, err
	}
	if err := checkCreated(v); err != nil {
		return nil, err
	}
	early := c.Now.Add(-time.Duration(c.Settings.Volumes.Snapshots))
	if slices.ContainsFunc(
		c.Snapshots, func(s store.Snapshot) bool { return s.Volume == v.ID && s.Started.After(early) },
	) {
		return nil, api.Errorf(
			"SnapshotCreationPerVolumeRateExceeded",
			"The maximum per volume CreateSnapshot request rate has been exceeded. Use an increasing or variable "+
				"sleep interval between requests.",
		)
	}
	if err := c.Begin(); err != nil {
		return nil, err
	}
	s := store.Snapshot{
		ID:          c.NewID("snap"),
		Volume:      v.ID,
		Size:        v.Size,
		Description: in.Description,
		Encrypted:   v.Encrypted,
		KMSKey:      v.KMSKey,
		Tags:        tags,
		State:       store.SnapshotPending,
		Started:     c.Now,
		Due:         c.Now.Add(time.Duration(c.Settings.Volumes.Snapshot)),
	}
	// The content is that of the time of the call; only then the snapshot is completed in the background.
	if err := c.Disks.Snapshot(v.ID, s.ID); err != nil {
		return nil, err
	}
	c.Snapshots = append(c.Snapshots, s)
	view := viewSnapshot(c, &s)
	return &view, nil
}

type deleteSnapshotInput struct{ SnapshotId string }

func deleteSnapshot(c *api.Call, in deleteSnapshotInput) (*ec2api.Done, error) {
	s, err := changedSnapshot(c, in.SnapshotId)
	if err != nil {
		return nil, err
	}
	if err := c.Begin(); err != nil {
		return nil, err
	}
	if err := c.Disks.Remove(s.ID); err != nil {
		return nil, err
	}
	c.Snapshots = store.Remove(c.Snapshots, s.ID)
	return &ec2api.Done{Return: true}, nil
}

// changedSnapshot finds a snapshot and checks the permission to change it.
func changedSnapshot(c *api.Call, id string) (*store.Snapshot, error) {
	if err := checkSnapshotID(id); err != nil {
		return nil, err
	}
	s := store.Find(c.Snapshots, id)
	subject := api.Target{ARN: ec2api.ARN(c, "snapshot", id)}
	if s != nil {
		subject.Tags = s.Tags
	}
	if err := c.Allow(subject); err != nil {
		return nil, err
	}
	if s == nil {
		return nil, snapshotNotFound(id)
	}
	return s, nil
}

type fastRestoresInput struct{ AvailabilityZone, SourceSnapshotId []string }

type fastRestore struct {
	Snapshot string `xml:"snapshotId"`
	Zone     string `xml:"availabilityZone"`
	State    string `xml:"state"`
	Reason   string `xml:"stateTransitionReason"`
	Owner    string `xml:"ownerId"`
}

type fastRestoresOutput struct {
	Restores []fastRestore `xml:"successful>item"`
}

// enableFastRestores only answers: restores are as fast as without.
func enableFastRestores(c *api.Call, in fastRestoresInput) (*fastRestoresOutput, error) {
	out := &fastRestoresOutput{}
	for _, id := range in.SourceSnapshotId {
		if _, err := changedSnapshot(c, id); err != nil {
			return nil, err
		}
		for _, zone := range in.AvailabilityZone {
			out.Restores = append(out.Restores, fastRestore{id, zone, "enabling", "Client.UserInitiated", c.Account})
		}
	}
	return out, c.Begin()
}

func checkSnapshotID(id string) error {
	if !strings.HasPrefix(id, "snap-") {
		return api.Errorf(
			"InvalidParameterValue", "Value (%s) for parameter snapshotId is invalid. Expected: 'snap-...'.", id,
		)
	}
	return nil
}

type describeSnapshotsInput struct {
	ec2api.Page
	SnapshotId          []string
	Owner, RestorableBy []string // all snapshots are the account's
}

type describeSnapshotsOutput struct {
	Snapshots []snapshotView `xml:"snapshotSet>item"`
	NextToken string         `xml:"nextToken,omitempty"`
}

func describeSnapshots(c *api.Call, in describeSnapshotsInput) (*describeSnapshotsOutput, error) {
	list := c.Snapshots
	if len(in.SnapshotId) > 0 {
		list = nil
	}
	for _, id := range in.SnapshotId {
		if err := checkSnapshotID(id); err != nil {
			return nil, err
		}
		s := store.Find(c.Snapshots, id)
		if s == nil {
			return nil, snapshotNotFound(id)
		}
		list = append(list, *s)
	}
	if in.MaxResults != nil && *in.MaxResults == 0 { // ListSnapshots of the EBS CSI driver sends it for no limit
		in.MaxResults = nil
	}
	views, next, err := ec2api.Described(c, list, in.Page, 1000, snapshotAttributes, viewSnapshot)
	return &describeSnapshotsOutput{views, next}, err
}

func snapshotAttributes(c *api.Call, s *store.Snapshot) (ec2api.Attributes, store.Tags) {
	return ec2api.Attributes{
		"snapshot-id": ec2api.One(s.ID),
		"volume-id":   ec2api.One(s.Volume),
		"status":      ec2api.One(s.State),
		"owner-id":    ec2api.One(c.Account),
		"encrypted":   ec2api.One(strconv.FormatBool(s.Encrypted)),
		"description": ec2api.One(s.Description),
		"volume-size": ec2api.One(strconv.Itoa(s.Size)),
	}, s.Tags
}
