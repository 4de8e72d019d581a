package cpi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"

	"kubernetes-release/internal/poll"
)

// The errors of calls about disks.
var (
	ErrNoDisk      = errors.New("there is no such disk")
	ErrNotAttached = errors.New("the disk is not attached to the VM")
)

const (
	// diskTimeout is how long a volume or a snapshot may take to change its state. A volume that is mounted does not
	// detach.
	diskTimeout = 2 * time.Minute
	diskPoll    = 200 * time.Millisecond
	mibInGiB    = 1024
)

// Disk is a volume. Instance is the one that it is attached to, or is being attached to or detached from.
type Disk struct {
	ID, State, Instance string
	MiB                 int
}

// diskError is ErrNoDisk for a volume or a snapshot that does not exist.
func diskError(err error) error {
	var known smithy.APIError
	if errors.As(err, &known) && (known.ErrorCode() == "InvalidVolume.NotFound" ||
		known.ErrorCode() == "InvalidSnapshot.NotFound" || strings.Contains(known.ErrorMessage(), "Expected: 'vol-")) {
		return fmt.Errorf("%w: %s", ErrNoDisk, known.ErrorMessage())
	}
	return err
}

func gib(mib int) *int32 { return aws.Int32(int32((mib + mibInGiB - 1) / mibInGiB)) }

// CreateDisk creates a volume of at least this size, in the zone of an instance, or in that of the first subnet.
func (a *AWS) CreateDisk(ctx context.Context, mib int, kind, instance string) (string, error) {
	var zone *string
	if instance != "" {
		i, err := a.instance(ctx, instance)
		if err != nil {
			return "", err
		}
		zone = i.Placement.AvailabilityZone
	} else {
		output, err := a.client.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{})
		if err != nil {
			return "", err
		}
		zone = output.Subnets[0].AvailabilityZone
	}
	volume, err := a.client.CreateVolume(ctx, &ec2.CreateVolumeInput{
		AvailabilityZone: zone, Size: gib(mib), VolumeType: types.VolumeType(kind),
	})
	if err != nil {
		return "", err
	}
	id := aws.ToString(volume.VolumeId)
	return id, a.await(ctx, id, func(d Disk) bool { return d.State == string(types.VolumeStateAvailable) })
}

func (a *AWS) instance(ctx context.Context, id string) (types.Instance, error) {
	output, err := a.client.DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{id}})
	if err != nil {
		return types.Instance{}, err
	}
	return output.Reservations[0].Instances[0], nil
}

// Disk returns a volume.
func (a *AWS) Disk(ctx context.Context, id string) (Disk, error) {
	output, err := a.client.DescribeVolumes(ctx, &ec2.DescribeVolumesInput{VolumeIds: []string{id}})
	if err != nil {
		return Disk{}, diskError(err)
	}
	v := output.Volumes[0]
	d := Disk{ID: id, State: string(v.State), MiB: int(aws.ToInt32(v.Size)) * mibInGiB}
	if len(v.Attachments) > 0 {
		d.Instance, d.State = aws.ToString(v.Attachments[0].InstanceId), string(v.Attachments[0].State)
	}
	return d, nil
}

func (a *AWS) await(ctx context.Context, id string, reached func(Disk) bool) error {
	return poll.Within(ctx, diskTimeout, diskPoll, func(ctx context.Context) error {
		d, err := a.Disk(ctx, id)
		if errors.Is(err, ErrNoDisk) {
			return poll.Permanent(err)
		}
		if err == nil && !reached(d) {
			err = fmt.Errorf("volume %s is %s", id, strings.TrimSpace(d.State+" "+d.Instance))
		}
		return err
	})
}

// DeleteDisk deletes a volume, and waits until it is gone.
func (a *AWS) DeleteDisk(ctx context.Context, id string) error {
	if _, err := a.client.DeleteVolume(ctx, &ec2.DeleteVolumeInput{VolumeId: &id}); err != nil {
		return diskError(err)
	}
	err := a.await(ctx, id, func(Disk) bool { return false })
	if errors.Is(err, ErrNoDisk) {
		return nil
	}
	return err
}

// AttachDisk attaches a volume, unless it is attached to this instance, and waits until the VM has it. It has a device
// name as BOSH's AWS CPI gives them, which the VM does not see.
func (a *AWS) AttachDisk(ctx context.Context, id, instance string) error {
	d, err := a.Disk(ctx, id)
	if err != nil {
		return err
	}
	if d.Instance != instance {
		i, err := a.instance(ctx, instance)
		if err != nil {
			return err
		}
		name := 'f'
		for n := 0; n < len(i.BlockDeviceMappings); n++ {
			if aws.ToString(i.BlockDeviceMappings[n].DeviceName) == "/dev/sd"+string(name) {
				name, n = name+1, -1
			}
		}
		_, err = a.client.AttachVolume(ctx, &ec2.AttachVolumeInput{
			VolumeId: &id, InstanceId: &instance, Device: aws.String("/dev/sd" + string(name)),
		})
		if err != nil {
			return diskError(err)
		}
	}
	return a.await(ctx, id, func(d Disk) bool { return d.State == string(types.VolumeAttachmentStateAttached) })
}

// DetachDisk detaches a volume from an instance, and waits until that is done.
func (a *AWS) DetachDisk(ctx context.Context, id, instance string) error {
	d, err := a.Disk(ctx, id)
	switch {
	case err != nil:
		return err
	case d.Instance != instance:
		return fmt.Errorf("%w: volume %s, instance %s", ErrNotAttached, id, instance)
	case d.State != string(types.VolumeAttachmentStateDetaching):
		input := &ec2.DetachVolumeInput{VolumeId: &id, InstanceId: &instance}
		if _, err := a.client.DetachVolume(ctx, input); err != nil {
			return diskError(err)
		}
	}
	return a.await(ctx, id, func(d Disk) bool { return d.Instance == "" })
}

// Disks returns the ids of the volumes that are attached to an instance.
func (a *AWS) Disks(ctx context.Context, instance string) ([]string, error) {
	output, err := a.client.DescribeVolumes(ctx, &ec2.DescribeVolumesInput{Filters: []types.Filter{
		{Name: aws.String("attachment.instance-id"), Values: []string{instance}},
	}})
	if err != nil {
		return nil, err
	}
	ids := []string{}
	for _, v := range output.Volumes {
		ids = append(ids, aws.ToString(v.VolumeId))
	}
	return ids, nil
}

// GrowDisk makes a volume at least this large, and waits until it is.
func (a *AWS) GrowDisk(ctx context.Context, id string, mib int) error {
	if _, err := a.client.ModifyVolume(ctx, &ec2.ModifyVolumeInput{VolumeId: &id, Size: gib(mib)}); err != nil {
		return diskError(err)
	}
	return a.await(ctx, id, func(d Disk) bool { return d.MiB >= mib })
}

// SnapshotDisk copies a volume to a snapshot, and waits until that is done.
func (a *AWS) SnapshotDisk(ctx context.Context, id string, tags map[string]string) (string, error) {
	snapshot, err := a.client.CreateSnapshot(ctx, &ec2.CreateSnapshotInput{
		VolumeId:          &id,
		TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypeSnapshot, Tags: tagList(tags)}},
	})
	if err != nil {
		return "", diskError(err)
	}
	name := aws.ToString(snapshot.SnapshotId)
	return name, poll.Within(ctx, diskTimeout, diskPoll, func(ctx context.Context) error {
		output, err := a.client.DescribeSnapshots(ctx, &ec2.DescribeSnapshotsInput{SnapshotIds: []string{name}})
		if err == nil && output.Snapshots[0].State != types.SnapshotStateCompleted {
			err = fmt.Errorf("snapshot %s is %s", name, output.Snapshots[0].State)
		}
		return err
	})
}

// DeleteSnapshot deletes a snapshot.
func (a *AWS) DeleteSnapshot(ctx context.Context, id string) error {
	_, err := a.client.DeleteSnapshot(ctx, &ec2.DeleteSnapshotInput{SnapshotId: &id})
	return diskError(err)
}

// TagDisk adds tags to a volume.
func (a *AWS) TagDisk(ctx context.Context, id string, tags map[string]string) error {
	return diskError(a.setTags(ctx, id, tags))
}
