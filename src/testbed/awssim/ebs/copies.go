package ebs

import (
	"cmp"
	"time"

	"kubernetes-release/testbed/awssim/api"
	"kubernetes-release/testbed/awssim/ec2api"
	"kubernetes-release/testbed/awssim/store"
)

type copyVolumesInput struct {
	SourceVolumeId     string
	Encrypted          bool
	Iops               int
	KmsKeyId           string
	Size               int
	VolumeType         string
	MultiAttachEnabled bool
	Throughput         int
	ClientToken        string
	TagSpecification   []ec2api.TagSpecification
}

type copyVolumesOutput struct {
	Volumes []volumeView `xml:"volumeSet>item"`
}

// copyVolumes creates a volume in the zone of another one and with its content. The permission is that of the policy
// which the EBS CSI driver documents (docs/example-iam-policy.json): for the source, and for the new volume.
func copyVolumes(c *api.Call, in copyVolumesInput) (*copyVolumesOutput, error) {
	tags, err := ec2api.TagsFor(in.TagSpecification, "volume")
	if err != nil {
		return nil, err
	}
	source, err := volume(c, in.SourceVolumeId)
	if err != nil {
		return nil, err
	}
	created := ec2api.ARN(c, "volume", "*")
	if err := c.Allow(api.Target{ARN: created, RequestTags: tags}); err != nil {
		return nil, err
	}
	if err := ec2api.AllowTagsOnCreate(c, "ec2:CreateTags", "ec2:CreateAction", created, tags); err != nil {
		return nil, err
	}
	view, err := once(c, in.ClientToken, in.digest(tags), source.ID, func() (store.Volume, error) {
		return newCopy(c, in, source, tags)
	})
	if err != nil {
		return nil, err
	}
	return &copyVolumesOutput{[]volumeView{*view}}, nil
}

func (in copyVolumesInput) digest(tags store.Tags) string {
	in.TagSpecification = nil
	return digest(in, tags)
}

// newCopy validates a request. A copy of an encrypted volume is always encrypted (EC2's reference of CopyVolumes).
func newCopy(c *api.Call, in copyVolumesInput, source *store.Volume, tags store.Tags) (v store.Volume, err error) {
	if err := checkCreated(source); err != nil {
		return v, err
	}
	shape := store.VolumeShape{
		Type:        cmp.Or(in.VolumeType, defaultVolumeType),
		Size:        cmp.Or(in.Size, source.Size),
		IOPS:        in.Iops,
		Throughput:  in.Throughput,
		MultiAttach: in.MultiAttachEnabled,
	}
	if shape.Size < source.Size {
		return v, api.Errorf(
			"InvalidParameterValue", "Volume of %dGiB is smaller than volume '%s', expect size >= %dGiB", in.Size,
			source.ID, source.Size,
		)
	}
	if err := check(&shape); err != nil {
		return v, err
	}
	v = store.Volume{
		AvailabilityZone: source.AvailabilityZone,
		Encrypted:        in.Encrypted || source.Encrypted,
		KMSKey:           cmp.Or(in.KmsKeyId, source.KMSKey),
		Source:           source.ID,
		Created:          c.Now,
		Tags:             tags,
		State:            store.VolumeCreating,
		Due:              c.Now.Add(time.Duration(c.Settings.Volumes.Create)),
	}
	v.SetShape(shape)
	encrypt(c, &v)
	return v, nil
}
