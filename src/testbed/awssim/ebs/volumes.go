// Package ebs has the actions of EC2 on volumes, snapshots and their encryption.
package ebs

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"kubernetes-release/testbed/awssim/api"
	"kubernetes-release/testbed/awssim/ec2api"
	"kubernetes-release/testbed/awssim/store"
)

// RootDevice is the device of the root volume of instances from the lab's image.
const RootDevice = "/dev/sda1"

// volumeType has the limits of a type of volume (the table in EBS's user guide, "Amazon EBS volume types"). A maximum
// of 0 means that the parameter is not supported.
type volumeType struct {
	name                         string
	minSize, maxSize             int // GiB
	minIOPS, maxIOPS, ratio      int // ratio of IOPS to GiB
	minThroughput, maxThroughput int // MiB/s
	needsIOPS                    bool
}

var volumeTypes = []volumeType{
	{name: "standard", minSize: 1, maxSize: 1024},
	{name: "gp2", minSize: 1, maxSize: 16384},
	{
		name:          "gp3",
		minSize:       1,
		maxSize:       65536,
		minIOPS:       3000,
		maxIOPS:       80000,
		ratio:         500,
		minThroughput: 125,
		maxThroughput: 2000,
	},
	{name: "io1", minSize: 4, maxSize: 16384, minIOPS: 100, maxIOPS: 64000, ratio: 50, needsIOPS: true},
	{name: "io2", minSize: 4, maxSize: 65536, minIOPS: 100, maxIOPS: 256000, ratio: 1000, needsIOPS: true},
	{name: "st1", minSize: 125, maxSize: 16384},
	{name: "sc1", minSize: 125, maxSize: 16384},
}

// check completes a volume's shape with the defaults of its type and refuses what EBS refuses.
func check(s *store.VolumeShape) error {
	i := slices.IndexFunc(volumeTypes, func(t volumeType) bool { return t.name == s.Type })
	if i < 0 {
		return api.Errorf("UnknownVolumeType", "Unsupported volume type '%s' for volume creation.", s.Type)
	}
	t := volumeTypes[i]
	if s.MultiAttach {
		return api.Errorf(
			"UnsupportedOperation", "awssim does not simulate volumes that are attached to several instances.",
		)
	}
	if err := t.checkIOPS(s); err != nil {
		return err
	}
	if s.Size < t.minSize {
		return api.Errorf(
			"InvalidParameterValue", "Volume of %dGiB is too small for volume type %s; minimum is %dGiB.", s.Size,
			t.name, t.minSize,
		)
	}
	if s.Size > t.maxSize {
		return api.Errorf(
			"InvalidParameterValue", "Volume of %dGiB is too large for volume type %s; maximum is %dGiB.", s.Size,
			t.name, t.maxSize,
		)
	}
	return t.checkThroughput(s)
}

func (t volumeType) checkIOPS(s *store.VolumeShape) error {
	if t.maxIOPS == 0 {
		if s.IOPS != 0 {
			return api.Errorf(
				"InvalidParameterCombination", "The parameter iops is not supported for %s volumes.", t.name,
			)
		}
		if t.name == "gp2" {
			s.IOPS = max(100, min(16000, 3*s.Size))
		}
		return nil
	}
	if s.IOPS == 0 {
		if t.needsIOPS {
			return api.Errorf("MissingParameter", "The request must contain the parameter iops")
		}
		s.IOPS = t.minIOPS
	}
	switch {
	case s.IOPS < t.minIOPS:
		return api.Errorf("InvalidParameterValue", "Volume iops of %d is too low; minimum is %d.", s.IOPS, t.minIOPS)
	case t.name == "io2" && (s.IOPS > t.maxIOPS || s.IOPS > t.ratio*s.Size):
		return api.Errorf(
			"InvalidParameterCombination",
			"io2 volumes configured with greater than 64 TiB or 256K IOPS or 1000:1 IOPS:GB ratio are not supported.",
		)
	case s.IOPS > t.maxIOPS:
		return api.Errorf("InvalidParameterValue", "Volume iops of %d is too high; maximum is %d.", s.IOPS, t.maxIOPS)
	case s.IOPS > t.minIOPS && s.IOPS > t.ratio*s.Size:
		return api.Errorf(
			"InvalidParameterValue", "Iops to volume size ratio of %f is too high; maximum is %d",
			float64(s.IOPS)/float64(s.Size), t.ratio,
		)
	}
	return nil
}

func (t volumeType) checkThroughput(s *store.VolumeShape) error {
	if t.maxThroughput == 0 {
		if s.Throughput != 0 {
			return api.Errorf(
				"InvalidParameterCombination", "The parameter throughput is not supported for %s volumes.", t.name,
			)
		}
		return nil
	}
	s.Throughput = cmp.Or(s.Throughput, t.minThroughput)
	switch {
	case s.Throughput < t.minThroughput:
		return api.Errorf(
			"InvalidParameterValue", "Volume throughput of %d MiB/s is too low; minimum is %d MiB/s.", s.Throughput,
			t.minThroughput,
		)
	case s.Throughput > t.maxThroughput:
		return api.Errorf(
			"InvalidParameterValue", "Volume throughput of %d MiB/s is too high; maximum is %d MiB/s.", s.Throughput,
			t.maxThroughput,
		)
	case 4*s.Throughput > s.IOPS:
		return api.Errorf(
			"InvalidParameterValue",
			"Throughput (MiBps) to iops ratio of %f is too high; maximum is 0.250000 MiBps per iops.",
			float64(s.Throughput)/float64(s.IOPS),
		)
	}
	return nil
}

type volumeAttachmentView struct {
	Volume              string                `xml:"volumeId"`
	Instance            string                `xml:"instanceId"`
	Device              string                `xml:"device"`
	State               store.AttachmentState `xml:"status"`
	Time                string                `xml:"attachTime"`
	DeleteOnTermination bool                  `xml:"deleteOnTermination"` // false for what AttachVolume attaches
}

type volumeView struct {
	ID                 string                 `xml:"volumeId"`
	Size               int                    `xml:"size"`
	Snapshot           string                 `xml:"snapshotId"`
	Source             string                 `xml:"sourceVolumeId,omitempty"`
	AvailabilityZone   string                 `xml:"availabilityZone"`
	AvailabilityZoneID string                 `xml:"availabilityZoneId"`
	State              store.VolumeState      `xml:"status"`
	Created            string                 `xml:"createTime"`
	Type               string                 `xml:"volumeType"`
	IOPS               int                    `xml:"iops,omitempty"`
	Throughput         int                    `xml:"throughput,omitempty"`
	Encrypted          bool                   `xml:"encrypted"`
	KMSKey             string                 `xml:"kmsKeyId,omitempty"`
	MultiAttach        bool                   `xml:"multiAttachEnabled"`
	Attachments        []volumeAttachmentView `xml:"attachmentSet>item"`
	Tags               []store.Tag            `xml:"tagSet>item"`
}

func viewVolume(c *api.Call, v *store.Volume) volumeView {
	view := volumeView{
		ID:                 v.ID,
		Size:               v.Size,
		Snapshot:           v.Snapshot,
		Source:             v.Source,
		AvailabilityZone:   v.AvailabilityZone,
		AvailabilityZoneID: c.ZoneID(v.AvailabilityZone),
		State:              v.State,
		Created:            ec2api.FormatTime(v.Created),
		Type:               v.Type,
		IOPS:               v.IOPS,
		Throughput:         v.Throughput,
		Encrypted:          v.Encrypted,
		KMSKey:             v.KMSKey,
		MultiAttach:        v.MultiAttach,
		Tags:               v.Tags.List(),
	}
	for i := range v.Attachments {
		view.Attachments = append(view.Attachments, viewAttachment(v, &v.Attachments[i]))
	}
	return view
}

func viewAttachment(v *store.Volume, a *store.Attachment) volumeAttachmentView {
	return volumeAttachmentView{v.ID, a.Instance, a.Device, a.State, ec2api.FormatTime(a.Time), false}
}

// DeviceView is an element of an instance's block device mapping.
type DeviceView struct {
	Name string `xml:"deviceName"`
	EBS  struct {
		Volume              string                `xml:"volumeId"`
		Status              store.AttachmentState `xml:"status"`
		Time                string                `xml:"attachTime"`
		DeleteOnTermination bool                  `xml:"deleteOnTermination"`
	} `xml:"ebs"`
}

// DeviceViews are the root volume, which exists only here, and the attached volumes.
func DeviceViews(c *api.Call, i *store.Instance) []DeviceView {
	root := DeviceView{Name: RootDevice}
	root.EBS.Volume, root.EBS.Status = "vol-"+i.ID[len("i-"):], store.AttachmentAttached
	root.EBS.Time, root.EBS.DeleteOnTermination = ec2api.FormatTime(i.LaunchTime), true
	views := []DeviceView{root}
	for k := range c.Volumes {
		for _, a := range c.Volumes[k].Attachments {
			if a.Instance != i.ID {
				continue
			}
			view := DeviceView{Name: a.Device}
			view.EBS.Volume, view.EBS.Status, view.EBS.Time = c.Volumes[k].ID, a.State, ec2api.FormatTime(a.Time)
			views = append(views, view)
		}
	}
	return views
}

type describeVolumesInput struct {
	ec2api.Page
	VolumeId []string
}

type describeVolumesOutput struct {
	Volumes   []volumeView `xml:"volumeSet>item"`
	NextToken string       `xml:"nextToken,omitempty"`
}

func describeVolumes(c *api.Call, in describeVolumesInput) (*describeVolumesOutput, error) {
	if len(in.VolumeId) > 0 && in.MaxResults != nil {
		return nil, api.Errorf(
			"InvalidParameterCombination", "The parameter volumeSet cannot be used with the parameter maxResults",
		)
	}
	list, err := volumesWithIDs(c, in.VolumeId)
	if err != nil {
		return nil, err
	}
	views, next, err := ec2api.Described(c, list, in.Page, 1000, volumeAttributes, viewVolume)
	return &describeVolumesOutput{views, next}, err
}

// volumesWithIDs names all ids that do not exist in its error, as EC2 does.
func volumesWithIDs(c *api.Call, ids []string) ([]store.Volume, error) {
	if len(ids) == 0 {
		return c.Volumes, nil
	}
	var list []store.Volume
	var missing []string
	for _, id := range ids {
		if err := checkVolumeID(id, "volumes"); err != nil {
			return nil, err
		}
		if v := store.Find(c.Volumes, id); v == nil {
			missing = append(missing, id)
		} else if store.Find(list, id) == nil {
			list = append(list, *v)
		}
	}
	if len(missing) > 1 {
		return nil, api.Errorf("InvalidVolume.NotFound", "The volumes '%s' do not exist.", strings.Join(missing, ", "))
	}
	if len(missing) == 1 {
		return nil, volumeNotFound(missing[0])
	}
	return list, nil
}

func volumeNotFound(id string) error {
	return api.Errorf("InvalidVolume.NotFound", "The volume '%s' does not exist.", id)
}

func checkVolumeID(id, parameter string) error {
	if !strings.HasPrefix(id, "vol-") {
		return api.Errorf(
			"InvalidParameterValue", "Value (%s) for parameter %s is invalid. Expected: 'vol-...'.", id, parameter,
		)
	}
	return nil
}

func volumeAttributes(_ *api.Call, v *store.Volume) (ec2api.Attributes, store.Tags) {
	return ec2api.Attributes{
		"volume-id":              ec2api.One(v.ID),
		"status":                 ec2api.One(v.State),
		"volume-type":            ec2api.One(v.Type),
		"size":                   ec2api.One(strconv.Itoa(v.Size)),
		"snapshot-id":            ec2api.One(v.Snapshot),
		"availability-zone":      ec2api.One(v.AvailabilityZone),
		"encrypted":              ec2api.One(strconv.FormatBool(v.Encrypted)),
		"create-time":            ec2api.One(ec2api.FormatTime(v.Created)),
		"multi-attach-enabled":   ec2api.One(strconv.FormatBool(v.MultiAttach)),
		"attachment.instance-id": ec2api.Each(v.Attachments, func(a store.Attachment) string { return a.Instance }),
		"attachment.device":      ec2api.Each(v.Attachments, func(a store.Attachment) string { return a.Device }),
		"attachment.status": ec2api.Each(v.Attachments, func(a store.Attachment) string {
			return string(a.State)
		}),
	}, v.Tags
}

type createVolumeInput struct {
	AvailabilityZone, AvailabilityZoneId string
	Encrypted                            bool
	Iops                                 int
	KmsKeyId                             string
	Size                                 int
	SnapshotId                           string
	VolumeType                           string
	MultiAttachEnabled                   bool
	Throughput                           int
	VolumeInitializationRate             int // ignored
	ClientToken                          string
	TagSpecification                     []ec2api.TagSpecification
}

func createVolume(c *api.Call, in createVolumeInput) (*volumeView, error) {
	tags, err := ec2api.TagsFor(in.TagSpecification, "volume")
	if err != nil {
		return nil, err
	}
	if err := allowCreateVolume(c, in, tags); err != nil {
		return nil, err
	}
	return once(c, in.ClientToken, in.digest(tags), in.SnapshotId, func() (store.Volume, error) {
		return newVolume(c, in, tags)
	})
}

// once creates a volume with the content of a snapshot or another volume, or empty if source is "". If the token is
// known, it returns the volume of the earlier request instead.
func once(
	c *api.Call, token, request, source string, create func() (store.Volume, error),
) (*volumeView, error) {
	if i := slices.IndexFunc(
		c.ClientTokens, func(t store.ClientToken) bool { return t.Token == token },
	); i >= 0 &&
		token != "" {
		// A token whose volume is gone stays used up, see tokenLifetime.
		if v := store.Find(c.Volumes, c.ClientTokens[i].Volume); v != nil && c.ClientTokens[i].Request == request {
			view := viewVolume(c, v)
			return &view, c.Begin()
		}
		return nil, api.Errorf(
			"IdempotentParameterMismatch",
			"The client token you have provided is associated with a resource that has already been deleted, or with "+
				"a request with other parameters. Please use a different client token.",
		)
	}
	v, err := create()
	if err != nil {
		return nil, err
	}
	if err := c.Begin(); err != nil {
		return nil, err
	}
	v.ID = c.NewID("vol")
	if err := c.Disks.Create(v.ID, int64(v.Size)*store.Gib, source); err != nil {
		return nil, err
	}
	c.Volumes = append(c.Volumes, v)
	if token != "" {
		c.ClientTokens = append(
			c.ClientTokens, store.ClientToken{Token: token, Request: request, Volume: v.ID, Used: c.Now},
		)
	}
	view := viewVolume(c, &v)
	return &view, nil
}

// digest tells requests with one token apart. The order of tags does not matter: the EBS CSI driver repeats a request
// with its tags in another order (CreateDisk in pkg/cloud/cloud.go ranges over a map), and relies on getting the same
// volume.
func (in createVolumeInput) digest(tags store.Tags) string {
	in.TagSpecification = nil
	return digest(in, tags)
}

func digest(request any, tags store.Tags) string {
	sum := sha256.Sum256(fmt.Append(nil, request, tags)) // fmt sorts maps
	return hex.EncodeToString(sum[:])
}

// allowCreateVolume checks the permissions on the new volume, on the snapshot that it is created from, and to tag it.
func allowCreateVolume(c *api.Call, in createVolumeInput, tags store.Tags) error {
	created := ec2api.ARN(c, "volume", "*")
	targets := []api.Target{{ARN: created, RequestTags: tags, Context: in.conditionContext()}}
	if in.SnapshotId != "" {
		source := api.Target{ARN: ec2api.ARN(c, "snapshot", in.SnapshotId)}
		if s := store.Find(c.Snapshots, in.SnapshotId); s != nil {
			source.Tags = s.Tags
		}
		targets = append(targets, source)
	}
	if err := c.Allow(targets...); err != nil {
		return err
	}
	return ec2api.AllowTagsOnCreate(c, "ec2:CreateTags", "ec2:CreateAction", created, tags)
}

// conditionContext has EC2's condition keys for the new volume (the table for CreateVolume in AWS's service
// authorization reference). What the request leaves out has no key.
func (in createVolumeInput) conditionContext() map[string][]string {
	context := map[string][]string{
		"ec2:VolumeType":       {cmp.Or(in.VolumeType, defaultVolumeType)},
		"ec2:Encrypted":        {strconv.FormatBool(in.Encrypted)},
		"ec2:AvailabilityZone": {in.AvailabilityZone},
	}
	for key, value := range map[string]int{
		"ec2:VolumeSize": in.Size, "ec2:VolumeIops": in.Iops, "ec2:VolumeThroughput": in.Throughput,
	} {
		if value != 0 {
			context[key] = []string{strconv.Itoa(value)}
		}
	}
	return context
}

// defaultVolumeType is the type of volumes that are created without one.
const defaultVolumeType = "gp2"

// newVolume validates a request.
func newVolume(c *api.Call, in createVolumeInput, tags store.Tags) (v store.Volume, err error) {
	zone, err := volumeZone(c, in)
	if err != nil {
		return v, err
	}
	shape := store.VolumeShape{
		Type:        cmp.Or(in.VolumeType, defaultVolumeType),
		Size:        in.Size,
		IOPS:        in.Iops,
		Throughput:  in.Throughput,
		MultiAttach: in.MultiAttachEnabled,
	}
	v = store.Volume{
		AvailabilityZone: zone,
		Encrypted:        in.Encrypted,
		KMSKey:           in.KmsKeyId,
		Snapshot:         in.SnapshotId,
		Created:          c.Now,
		Tags:             tags,
		State:            store.VolumeCreating,
		Due:              c.Now.Add(time.Duration(c.Settings.Volumes.Create)),
	}
	if in.SnapshotId != "" {
		s := store.Find(c.Snapshots, in.SnapshotId)
		switch {
		case s == nil:
			return v, snapshotNotFound(in.SnapshotId)
		case s.State != store.SnapshotCompleted:
			return v, api.Errorf("IncorrectState", "The snapshot '%s' is not 'completed'.", s.ID)
		case in.Size != 0 && in.Size < s.Size:
			return v, api.Errorf(
				"InvalidParameterValue", "Volume of %dGiB is smaller than snapshot '%s', expect size >= %dGiB", in.Size,
				s.ID, s.Size,
			)
		}
		shape.Size = cmp.Or(in.Size, s.Size)
		v.Encrypted, v.KMSKey = v.Encrypted || s.Encrypted, cmp.Or(v.KMSKey, s.KMSKey)
	}
	if shape.Size == 0 {
		return v, api.Errorf("MissingParameter", "The request must contain the parameter size/snapshot")
	}
	if in.KmsKeyId != "" && !in.Encrypted {
		return v, api.Errorf(
			"InvalidParameterDependency", "The parameter KmsKeyId requires the parameter Encrypted to be set.",
		)
	}
	err = check(&shape)
	v.SetShape(shape)
	encrypt(c, &v)
	return v, err
}

func snapshotNotFound(id string) error {
	return api.Errorf("InvalidSnapshot.NotFound", "The snapshot '%s' does not exist.", id)
}

func volumeZone(c *api.Call, in createVolumeInput) (string, error) {
	if in.AvailabilityZone != "" && in.AvailabilityZoneId != "" {
		return "", api.Errorf(
			"InvalidParameterCombination",
			"The parameters AvailabilityZone and AvailabilityZoneId cannot be used together",
		)
	}
	if in.AvailabilityZone == "" && in.AvailabilityZoneId == "" {
		return "", api.Errorf(
			"MissingParameter", "The request must contain the parameter AvailabilityZone or AvailabilityZoneId",
		)
	}
	for _, s := range c.Subnets {
		if s.AvailabilityZone == in.AvailabilityZone || c.ZoneID(s.AvailabilityZone) == in.AvailabilityZoneId {
			return s.AvailabilityZone, nil
		}
	}
	return "", api.Errorf(
		"InvalidZone.NotFound", "The zone '%s' does not exist.", cmp.Or(in.AvailabilityZone, in.AvailabilityZoneId),
	)
}

// volume finds a volume for a changing action and checks the permission.
func volume(c *api.Call, id string) (*store.Volume, error) {
	if err := checkVolumeID(id, "volumeId"); err != nil {
		return nil, err
	}
	v := store.Find(c.Volumes, id)
	subject := api.Target{ARN: ec2api.ARN(c, "volume", id)}
	if v != nil {
		subject.Tags = v.Tags
	}
	if err := c.Allow(subject); err != nil {
		return nil, err
	}
	if v == nil {
		return nil, volumeNotFound(id)
	}
	return v, nil
}

// checkCreated refuses a volume that is not created yet, or is being deleted.
func checkCreated(v *store.Volume) error {
	if v.State != store.VolumeAvailable && v.State != store.VolumeInUse {
		return api.Errorf("IncorrectState", "Volume '%s' is in the '%s' state.", v.ID, v.State)
	}
	return nil
}

type deleteVolumeInput struct{ VolumeId string }

func deleteVolume(c *api.Call, in deleteVolumeInput) (*ec2api.Done, error) {
	v, err := volume(c, in.VolumeId)
	if err != nil {
		return nil, err
	}
	switch v.State {
	case store.VolumeInUse:
		return nil, api.Errorf("VolumeInUse", "Volume %s is currently attached to %s", v.ID, v.Attachments[0].Instance)
	case store.VolumeAvailable:
	default:
		return nil, api.Errorf("IncorrectState", "Volume '%s' is in the '%s' state.", v.ID, v.State)
	}
	if err := c.Begin(); err != nil {
		return nil, err
	}
	if err := c.Disks.Remove(v.ID); err != nil {
		return nil, err
	}
	v.State, v.Due = store.VolumeDeleting, c.Now.Add(time.Duration(c.Settings.Volumes.Delete))
	return &ec2api.Done{Return: true}, nil
}

type attachVolumeInput struct {
	Device, InstanceId, VolumeId string
	EbsCardIndex                 int
}

func attachVolume(c *api.Call, in attachVolumeInput) (*volumeAttachmentView, error) {
	v, err := volume(c, in.VolumeId)
	if err != nil {
		return nil, err
	}
	i, err := ec2api.Instance(c, in.InstanceId, nil)
	if err != nil {
		return nil, err
	}
	if err := checkAttach(c, v, i, in.Device); err != nil {
		return nil, err
	}
	if err := c.Begin(); err != nil {
		return nil, err
	}
	a := store.Attachment{
		Instance: i.ID,
		Device:   in.Device,
		State:    store.AttachmentAttaching,
		Time:     c.Now,
		Due:      c.Now.Add(time.Duration(c.Settings.Volumes.Attach)),
	}
	v.State, v.Attachments = store.VolumeInUse, append(v.Attachments, a)
	view := viewAttachment(v, &a)
	return &view, nil
}

func checkAttach(c *api.Call, v *store.Volume, i *store.Instance, device string) error {
	devices, limit := DeviceViews(c, i), typeLimits(i.Type).volumes
	switch {
	case v.State == store.VolumeInUse:
		return api.Errorf("VolumeInUse", "%s is already attached to an instance", v.ID)
	case v.State != store.VolumeAvailable:
		return api.Errorf("IncorrectState", "Volume '%s' is not 'available'.", v.ID)
	case i.State != store.Running && i.State != store.Stopped:
		return api.Errorf("IncorrectState", "Instance '%s' is not 'running'.", i.ID)
	case c.Place(i).AvailabilityZone != v.AvailabilityZone:
		return api.Errorf(
			"InvalidVolume.ZoneMismatch", "The volume '%s' is not in the same availability zone as instance '%s'", v.ID,
			i.ID,
		)
	case device == "":
		return api.Errorf("MissingParameter", "The request must contain the parameter device")
	case !strings.HasPrefix(device, "/dev/sd") && !strings.HasPrefix(device, "/dev/xvd"):
		return api.Errorf(
			"InvalidParameterValue", "Value (%s) for parameter device is invalid. %s is not a valid EBS device name.",
			device, device,
		)
	case slices.ContainsFunc(devices, func(d DeviceView) bool { return d.Name == device }):
		return api.Errorf(
			"InvalidParameterValue", "Invalid value '%s' for unixDevice. Attachment point %s is already in use", device,
			device,
		)
	case len(devices) >= limit:
		return api.Errorf(
			"AttachmentLimitExceeded",
			"Volume attachment limit exceeded: instance '%s' of type %s has %d of %d volumes.", i.ID, i.Type,
			len(devices), limit,
		)
	}
	return nil
}

type detachVolumeInput struct {
	Device, InstanceId, VolumeId string
	Force                        bool
}

func detachVolume(c *api.Call, in detachVolumeInput) (*volumeAttachmentView, error) {
	v, err := volume(c, in.VolumeId)
	if err != nil {
		return nil, err
	}
	if in.InstanceId != "" {
		if _, err := ec2api.Instance(c, in.InstanceId, nil); err != nil {
			return nil, err
		}
	}
	if v.State != store.VolumeInUse {
		return nil, api.Errorf("IncorrectState", "Volume '%s' is in the '%s' state.", v.ID, v.State)
	}
	k := slices.IndexFunc(v.Attachments, func(a store.Attachment) bool {
		return (in.InstanceId == "" || a.Instance == in.InstanceId) && (in.Device == "" || a.Device == in.Device)
	})
	if k < 0 {
		return nil, api.Errorf(
			"InvalidAttachment.NotFound", "The volume '%s' is not attached to instance '%s' as device '%s'.", v.ID,
			in.InstanceId, in.Device,
		)
	}
	a := &v.Attachments[k]
	if in.InstanceId == "" {
		if _, err := ec2api.Instance(c, a.Instance, nil); err != nil {
			return nil, err
		}
	}
	if a.State == store.AttachmentDetaching && !in.Force {
		return nil, api.Errorf("IncorrectState", "Volume '%s' is in the 'detaching' state.", v.ID)
	}
	if err := c.Begin(); err != nil {
		return nil, err
	}
	a.State, a.Force, a.Due = store.AttachmentDetaching, in.Force, c.Now.Add(time.Duration(c.Settings.Volumes.Detach))
	view := viewAttachment(v, a)
	return &view, nil
}
