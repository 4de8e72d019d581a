package awssim

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

const timeFormat = "2006-01-02T15:04:05.000Z"

func formatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(timeFormat)
}

// volumeType has the limits of a type of volume (the table in EBS's user guide, "Amazon EBS volume types"). A maximum of 0 means that the
// parameter is not supported.
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
	{name: "gp3", minSize: 1, maxSize: 65536, minIOPS: 3000, maxIOPS: 80000, ratio: 500, minThroughput: 125, maxThroughput: 2000},
	{name: "io1", minSize: 4, maxSize: 16384, minIOPS: 100, maxIOPS: 64000, ratio: 50, needsIOPS: true},
	{name: "io2", minSize: 4, maxSize: 65536, minIOPS: 100, maxIOPS: 256000, ratio: 1000, needsIOPS: true},
	{name: "st1", minSize: 125, maxSize: 16384},
	{name: "sc1", minSize: 125, maxSize: 16384},
}

// check completes a volume's shape with the defaults of its type and refuses what EBS refuses.
func (s *VolumeShape) check() error {
	i := slices.IndexFunc(volumeTypes, func(t volumeType) bool { return t.name == s.Type })
	if i < 0 {
		return errorf("UnknownVolumeType", "Unsupported volume type '%s' for volume creation.", s.Type)
	}
	t := volumeTypes[i]
	if s.MultiAttach {
		return errorf("UnsupportedOperation", "awssim does not simulate volumes that are attached to several instances.")
	}
	if err := t.checkIOPS(s); err != nil {
		return err
	}
	if s.Size < t.minSize {
		return errorf("InvalidParameterValue", "Volume of %dGiB is too small for volume type %s; minimum is %dGiB.", s.Size, t.name, t.minSize)
	}
	if s.Size > t.maxSize {
		return errorf("InvalidParameterValue", "Volume of %dGiB is too large for volume type %s; maximum is %dGiB.", s.Size, t.name, t.maxSize)
	}
	return t.checkThroughput(s)
}

func (t volumeType) checkIOPS(s *VolumeShape) error {
	if t.maxIOPS == 0 {
		if s.IOPS != 0 {
			return errorf("InvalidParameterCombination", "The parameter iops is not supported for %s volumes.", t.name)
		}
		if t.name == "gp2" {
			s.IOPS = max(100, min(16000, 3*s.Size))
		}
		return nil
	}
	if s.IOPS == 0 {
		if t.needsIOPS {
			return errorf("MissingParameter", "The request must contain the parameter iops")
		}
		s.IOPS = t.minIOPS
	}
	switch {
	case s.IOPS < t.minIOPS:
		return errorf("InvalidParameterValue", "Volume iops of %d is too low; minimum is %d.", s.IOPS, t.minIOPS)
	case t.name == "io2" && (s.IOPS > t.maxIOPS || s.IOPS > t.ratio*s.Size):
		return errorf("InvalidParameterCombination", "io2 volumes configured with greater than 64 TiB or 256K IOPS or 1000:1 IOPS:GB ratio are not supported.")
	case s.IOPS > t.maxIOPS:
		return errorf("InvalidParameterValue", "Volume iops of %d is too high; maximum is %d.", s.IOPS, t.maxIOPS)
	case s.IOPS > t.minIOPS && s.IOPS > t.ratio*s.Size:
		return errorf("InvalidParameterValue", "Iops to volume size ratio of %f is too high; maximum is %d", float64(s.IOPS)/float64(s.Size), t.ratio)
	}
	return nil
}

func (t volumeType) checkThroughput(s *VolumeShape) error {
	if t.maxThroughput == 0 {
		if s.Throughput != 0 {
			return errorf("InvalidParameterCombination", "The parameter throughput is not supported for %s volumes.", t.name)
		}
		return nil
	}
	s.Throughput = cmp.Or(s.Throughput, t.minThroughput)
	switch {
	case s.Throughput < t.minThroughput:
		return errorf("InvalidParameterValue", "Volume throughput of %d MiB/s is too low; minimum is %d MiB/s.", s.Throughput, t.minThroughput)
	case s.Throughput > t.maxThroughput:
		return errorf("InvalidParameterValue", "Volume throughput of %d MiB/s is too high; maximum is %d MiB/s.", s.Throughput, t.maxThroughput)
	case 4*s.Throughput > s.IOPS:
		return errorf("InvalidParameterValue", "Throughput (MiBps) to iops ratio of %f is too high; maximum is 0.250000 MiBps per iops.", float64(s.Throughput)/float64(s.IOPS))
	}
	return nil
}

// ClientToken is a token of a successful CreateVolume.
type ClientToken struct {
	Token   string    `json:"token"`
	Request string    `json:"request"` // digest of the parameters
	Volume  string    `json:"volume"`
	Used    time.Time `json:"used"`
}

// tokenLifetime is how long EC2 was measured to remember a token (CreateDisk in pkg/cloud/cloud.go of the EBS CSI driver).
const tokenLifetime = 12 * time.Hour

func (s *Simulator) forgetTokens() {
	deadline := s.now().Add(-tokenLifetime)
	s.world.ClientTokens = slices.DeleteFunc(s.world.ClientTokens, func(t ClientToken) bool { return t.Used.Before(deadline) })
}

type volumeAttachmentView struct {
	Volume              string `xml:"volumeId"`
	Instance            string `xml:"instanceId"`
	Device              string `xml:"device"`
	State               string `xml:"status"`
	Time                string `xml:"attachTime"`
	DeleteOnTermination bool   `xml:"deleteOnTermination"` // false for what AttachVolume attaches
}

type volumeView struct {
	ID                 string                 `xml:"volumeId"`
	Size               int                    `xml:"size"`
	Snapshot           string                 `xml:"snapshotId"`
	AvailabilityZone   string                 `xml:"availabilityZone"`
	AvailabilityZoneID string                 `xml:"availabilityZoneId"`
	State              string                 `xml:"status"`
	Created            string                 `xml:"createTime"`
	Type               string                 `xml:"volumeType"`
	IOPS               int                    `xml:"iops,omitempty"`
	Throughput         int                    `xml:"throughput,omitempty"`
	Encrypted          bool                   `xml:"encrypted"`
	KMSKey             string                 `xml:"kmsKeyId,omitempty"`
	MultiAttach        bool                   `xml:"multiAttachEnabled"`
	Attachments        []volumeAttachmentView `xml:"attachmentSet>item"`
	Tags               []tag                  `xml:"tagSet>item"`
}

func (c *call) volumeView(v *Volume) volumeView {
	view := volumeView{
		ID: v.ID, Size: v.Size, Snapshot: v.Snapshot, AvailabilityZone: v.AvailabilityZone, AvailabilityZoneID: c.zoneID(v.AvailabilityZone), State: v.State,
		Created: formatTime(v.Created), Type: v.Type, IOPS: v.IOPS, Throughput: v.Throughput, Encrypted: v.Encrypted, KMSKey: v.KMSKey, MultiAttach: v.MultiAttach,
		Tags: v.Tags.list(),
	}
	for i := range v.Attachments {
		view.Attachments = append(view.Attachments, v.attachmentView(&v.Attachments[i]))
	}
	return view
}

func (v *Volume) attachmentView(a *Attachment) volumeAttachmentView {
	return volumeAttachmentView{v.ID, a.Instance, a.Device, a.State, formatTime(a.Time), false}
}

// deviceView is an element of an instance's block device mapping.
type deviceView struct {
	Name string `xml:"deviceName"`
	EBS  struct {
		Volume              string `xml:"volumeId"`
		Status              string `xml:"status"`
		Time                string `xml:"attachTime"`
		DeleteOnTermination bool   `xml:"deleteOnTermination"`
	} `xml:"ebs"`
}

// deviceViews are the root volume, which exists only here, and the attached volumes.
func (c *call) deviceViews(i *Instance) []deviceView {
	root := deviceView{Name: rootDevice}
	root.EBS.Volume, root.EBS.Status, root.EBS.Time, root.EBS.DeleteOnTermination = "vol-"+i.ID[len("i-"):], attachmentAttached, formatTime(i.LaunchTime), true
	views := []deviceView{root}
	for k := range c.Volumes {
		for _, a := range c.Volumes[k].Attachments {
			if a.Instance != i.ID {
				continue
			}
			view := deviceView{Name: a.Device}
			view.EBS.Volume, view.EBS.Status, view.EBS.Time = c.Volumes[k].ID, a.State, formatTime(a.Time)
			views = append(views, view)
		}
	}
	return views
}

type describeVolumesInput struct {
	page
	VolumeId []string
}

type describeVolumesOutput struct {
	Volumes   []volumeView `xml:"volumeSet>item"`
	NextToken string       `xml:"nextToken,omitempty"`
}

func (c *call) describeVolumes(in describeVolumesInput) (*describeVolumesOutput, error) {
	if len(in.VolumeId) > 0 && in.MaxResults != nil {
		return nil, errorf("InvalidParameterCombination", "The parameter volumeSet cannot be used with the parameter maxResults")
	}
	list, err := c.volumesWithIDs(in.VolumeId)
	if err != nil {
		return nil, err
	}
	views, next, err := described(list, in.page, 1000, c.volumeAttributes, c.volumeView)
	return &describeVolumesOutput{views, next}, err
}

// volumesWithIDs names all ids that do not exist in its error, as EC2 does.
func (c *call) volumesWithIDs(ids []string) ([]Volume, error) {
	if len(ids) == 0 {
		return c.Volumes, nil
	}
	var list []Volume
	var missing []string
	for _, id := range ids {
		if err := checkVolumeID(id, "volumes"); err != nil {
			return nil, err
		}
		if v := find(c.Volumes, id); v == nil {
			missing = append(missing, id)
		} else if find(list, id) == nil {
			list = append(list, *v)
		}
	}
	if len(missing) > 1 {
		return nil, errorf("InvalidVolume.NotFound", "The volumes '%s' do not exist.", strings.Join(missing, ", "))
	}
	if len(missing) == 1 {
		return nil, volumeNotFound(missing[0])
	}
	return list, nil
}

func volumeNotFound(id string) error {
	return errorf("InvalidVolume.NotFound", "The volume '%s' does not exist.", id)
}

func checkVolumeID(id, parameter string) error {
	if !strings.HasPrefix(id, "vol-") {
		return errorf("InvalidParameterValue", "Value (%s) for parameter %s is invalid. Expected: 'vol-...'.", id, parameter)
	}
	return nil
}

func (c *call) volumeAttributes(v *Volume) (attributes, Tags) {
	attachments := func(get func(Attachment) string) func() []string {
		return func() (values []string) {
			for _, a := range v.Attachments {
				values = append(values, get(a))
			}
			return values
		}
	}
	return attributes{
		"volume-id": one(v.ID), "status": one(v.State), "volume-type": one(v.Type), "size": one(strconv.Itoa(v.Size)), "snapshot-id": one(v.Snapshot),
		"availability-zone": one(v.AvailabilityZone), "encrypted": one(strconv.FormatBool(v.Encrypted)), "create-time": one(formatTime(v.Created)),
		"multi-attach-enabled":   one(strconv.FormatBool(v.MultiAttach)),
		"attachment.instance-id": attachments(func(a Attachment) string { return a.Instance }),
		"attachment.device":      attachments(func(a Attachment) string { return a.Device }),
		"attachment.status":      attachments(func(a Attachment) string { return a.State }),
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
	TagSpecification                     []tagSpecification
}

func (c *call) createVolume(in createVolumeInput) (*volumeView, error) {
	tags, err := tagsFor(in.TagSpecification, "volume")
	if err != nil {
		return nil, err
	}
	if err := c.allowCreateVolume(in, tags); err != nil {
		return nil, err
	}
	request := in.digest(tags)
	if i := slices.IndexFunc(c.ClientTokens, func(t ClientToken) bool { return t.Token == in.ClientToken }); i >= 0 && in.ClientToken != "" {
		// A token whose volume is gone stays used up, see tokenLifetime.
		if v := find(c.Volumes, c.ClientTokens[i].Volume); v != nil && c.ClientTokens[i].Request == request {
			view := c.volumeView(v)
			return &view, c.begin()
		}
		return nil, errorf("IdempotentParameterMismatch", "The client token you have provided is associated with a resource that has already been deleted, or with a request with other parameters. Please use a different client token.")
	}
	v, err := c.newVolume(in, tags)
	if err != nil {
		return nil, err
	}
	if err := c.begin(); err != nil {
		return nil, err
	}
	v.ID = c.newID("vol")
	if err := c.sim.options.Disks.Create(v.ID, int64(v.Size)*gib, v.Snapshot); err != nil {
		return nil, err
	}
	c.Volumes = append(c.Volumes, v)
	if in.ClientToken != "" {
		c.ClientTokens = append(c.ClientTokens, ClientToken{in.ClientToken, request, v.ID, c.now})
	}
	view := c.volumeView(&v)
	return &view, nil
}

// digest tells requests with one token apart. The order of tags does not matter: the EBS CSI driver repeats a request with its tags in
// another order (CreateDisk in pkg/cloud/cloud.go ranges over a map), and relies on getting the same volume.
func (in createVolumeInput) digest(tags Tags) string {
	in.TagSpecification = nil
	digest := sha256.Sum256(fmt.Append(nil, in, tags)) // fmt sorts maps
	return hex.EncodeToString(digest[:])
}

// allowCreateVolume checks the permissions on the new volume, on the snapshot that it is created from, and to tag it.
func (c *call) allowCreateVolume(in createVolumeInput, tags Tags) error {
	created := c.ec2ARN("volume", "*")
	targets := []target{{arn: created, requestTags: tags, context: map[string][]string{
		"ec2:VolumeType": {cmp.Or(in.VolumeType, defaultVolumeType)}, "ec2:VolumeSize": {strconv.Itoa(in.Size)}, "ec2:Encrypted": {strconv.FormatBool(in.Encrypted)},
		"ec2:AvailabilityZone": {in.AvailabilityZone},
	}}}
	if in.SnapshotId != "" {
		source := target{arn: c.ec2ARN("snapshot", in.SnapshotId)}
		if s := find(c.Snapshots, in.SnapshotId); s != nil {
			source.tags = s.Tags
		}
		targets = append(targets, source)
	}
	if err := c.allow(targets...); err != nil {
		return err
	}
	return c.allowTagsOnCreate("ec2:CreateTags", "ec2:CreateAction", created, tags)
}

// defaultVolumeType is the type of volumes that are created without one.
const defaultVolumeType = "gp2"

// newVolume validates a request.
func (c *call) newVolume(in createVolumeInput, tags Tags) (v Volume, err error) {
	zone, err := c.volumeZone(in)
	if err != nil {
		return v, err
	}
	shape := VolumeShape{Type: cmp.Or(in.VolumeType, defaultVolumeType), Size: in.Size, IOPS: in.Iops, Throughput: in.Throughput, MultiAttach: in.MultiAttachEnabled}
	v = Volume{
		AvailabilityZone: zone, Encrypted: in.Encrypted, KMSKey: in.KmsKeyId, Snapshot: in.SnapshotId, Created: c.now, Tags: tags,
		State: volumeCreating, Due: c.now.Add(time.Duration(c.Settings.Volumes.Create)),
	}
	if in.SnapshotId != "" {
		s := find(c.Snapshots, in.SnapshotId)
		switch {
		case s == nil:
			return v, snapshotNotFound(in.SnapshotId)
		case s.State != snapshotCompleted:
			return v, errorf("IncorrectState", "The snapshot '%s' is not 'completed'.", s.ID)
		case in.Size != 0 && in.Size < s.Size:
			return v, errorf("InvalidParameterValue", "Volume of %dGiB is smaller than snapshot '%s', expect size >= %dGiB", in.Size, s.ID, s.Size)
		}
		shape.Size = cmp.Or(in.Size, s.Size)
		v.Encrypted, v.KMSKey = v.Encrypted || s.Encrypted, cmp.Or(v.KMSKey, s.KMSKey)
	}
	if shape.Size == 0 {
		return v, errorf("MissingParameter", "The request must contain the parameter size/snapshot")
	}
	if in.KmsKeyId != "" && !in.Encrypted {
		return v, errorf("InvalidParameterDependency", "The parameter KmsKeyId requires the parameter Encrypted to be set.")
	}
	err = shape.check()
	v.setShape(shape)
	c.encrypt(&v)
	return v, err
}

func (c *call) volumeZone(in createVolumeInput) (string, error) {
	if in.AvailabilityZone != "" && in.AvailabilityZoneId != "" {
		return "", errorf("InvalidParameterCombination", "The parameters AvailabilityZone and AvailabilityZoneId cannot be used together")
	}
	if in.AvailabilityZone == "" && in.AvailabilityZoneId == "" {
		return "", errorf("MissingParameter", "The request must contain the parameter AvailabilityZone or AvailabilityZoneId")
	}
	for _, s := range c.Subnets {
		if s.AvailabilityZone == in.AvailabilityZone || c.zoneID(s.AvailabilityZone) == in.AvailabilityZoneId {
			return s.AvailabilityZone, nil
		}
	}
	return "", errorf("InvalidZone.NotFound", "The zone '%s' does not exist.", cmp.Or(in.AvailabilityZone, in.AvailabilityZoneId))
}

// volume finds a volume for a changing action and checks the permission.
func (c *call) volume(id string) (*Volume, error) {
	if err := checkVolumeID(id, "volumeId"); err != nil {
		return nil, err
	}
	v := find(c.Volumes, id)
	subject := target{arn: c.ec2ARN("volume", id)}
	if v != nil {
		subject.tags = v.Tags
	}
	if err := c.allow(subject); err != nil {
		return nil, err
	}
	if v == nil {
		return nil, volumeNotFound(id)
	}
	return v, nil
}

type deleteVolumeInput struct{ VolumeId string }

func (c *call) deleteVolume(in deleteVolumeInput) (*done, error) {
	v, err := c.volume(in.VolumeId)
	if err != nil {
		return nil, err
	}
	switch v.State {
	case volumeInUse:
		return nil, errorf("VolumeInUse", "Volume %s is currently attached to %s", v.ID, v.Attachments[0].Instance)
	case volumeAvailable:
	default:
		return nil, errorf("IncorrectState", "Volume '%s' is in the '%s' state.", v.ID, v.State)
	}
	if err := c.begin(); err != nil {
		return nil, err
	}
	if err := c.sim.options.Disks.Remove(v.ID); err != nil {
		return nil, err
	}
	v.State, v.Due = volumeDeleting, c.now.Add(time.Duration(c.Settings.Volumes.Delete))
	return &done{true}, nil
}

type attachVolumeInput struct {
	Device, InstanceId, VolumeId string
	EbsCardIndex                 int
}

func (c *call) attachVolume(in attachVolumeInput) (*volumeAttachmentView, error) {
	v, err := c.volume(in.VolumeId)
	if err != nil {
		return nil, err
	}
	i, err := c.instance(in.InstanceId, nil)
	if err != nil {
		return nil, err
	}
	if err := c.checkAttach(v, i, in.Device); err != nil {
		return nil, err
	}
	if err := c.begin(); err != nil {
		return nil, err
	}
	a := Attachment{Instance: i.ID, Device: in.Device, State: attachmentAttaching, Time: c.now, Due: c.now.Add(time.Duration(c.Settings.Volumes.Attach))}
	v.State, v.Attachments = volumeInUse, append(v.Attachments, a)
	view := v.attachmentView(&a)
	return &view, nil
}

func (c *call) checkAttach(v *Volume, i *Instance, device string) error {
	devices, limit := c.deviceViews(i), typeLimits(i.Type).volumes
	switch {
	case v.State == volumeInUse:
		return errorf("VolumeInUse", "%s is already attached to an instance", v.ID)
	case v.State != volumeAvailable:
		return errorf("IncorrectState", "Volume '%s' is not 'available'.", v.ID)
	case i.State != Running && i.State != Stopped:
		return errorf("IncorrectState", "Instance '%s' is not 'running'.", i.ID)
	case c.place(i).AvailabilityZone != v.AvailabilityZone:
		return errorf("InvalidVolume.ZoneMismatch", "The volume '%s' is not in the same availability zone as instance '%s'", v.ID, i.ID)
	case device == "":
		return errorf("MissingParameter", "The request must contain the parameter device")
	case !strings.HasPrefix(device, "/dev/sd") && !strings.HasPrefix(device, "/dev/xvd"):
		return errorf("InvalidParameterValue", "Value (%s) for parameter device is invalid. %s is not a valid EBS device name.", device, device)
	case slices.ContainsFunc(devices, func(d deviceView) bool { return d.Name == device }):
		return errorf("InvalidParameterValue", "Invalid value '%s' for unixDevice. Attachment point %s is already in use", device, device)
	case len(devices) >= limit:
		return errorf("AttachmentLimitExceeded", "Volume attachment limit exceeded: instance '%s' of type %s has %d of %d volumes.", i.ID, i.Type, len(devices), limit)
	}
	return nil
}

type detachVolumeInput struct {
	Device, InstanceId, VolumeId string
	Force                        bool
}

func (c *call) detachVolume(in detachVolumeInput) (*volumeAttachmentView, error) {
	v, err := c.volume(in.VolumeId)
	if err != nil {
		return nil, err
	}
	if in.InstanceId != "" {
		if _, err := c.instance(in.InstanceId, nil); err != nil {
			return nil, err
		}
	}
	if v.State != volumeInUse {
		return nil, errorf("IncorrectState", "Volume '%s' is in the '%s' state.", v.ID, v.State)
	}
	k := slices.IndexFunc(v.Attachments, func(a Attachment) bool {
		return (in.InstanceId == "" || a.Instance == in.InstanceId) && (in.Device == "" || a.Device == in.Device)
	})
	if k < 0 {
		return nil, errorf("InvalidAttachment.NotFound", "The volume '%s' is not attached to instance '%s' as device '%s'.", v.ID, in.InstanceId, in.Device)
	}
	a := &v.Attachments[k]
	if in.InstanceId == "" {
		if _, err := c.instance(a.Instance, nil); err != nil {
			return nil, err
		}
	}
	if a.State == attachmentDetaching && !in.Force {
		return nil, errorf("IncorrectState", "Volume '%s' is in the 'detaching' state.", v.ID)
	}
	if err := c.begin(); err != nil {
		return nil, err
	}
	a.State, a.Force, a.Due = attachmentDetaching, in.Force, c.now.Add(time.Duration(c.Settings.Volumes.Detach))
	view := v.attachmentView(a)
	return &view, nil
}
