package awssim_test

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

func (v *volumes) copy(in ec2.CopyVolumesInput) (ec2types.Volume, error) {
	v.covered["ec2:CopyVolumes"] = true
	out, err := v.ec2.CopyVolumes(v.t.Context(), &in)
	if err != nil {
		return ec2types.Volume{}, err
	}
	return out.Volumes[0], nil
}

// checkCopies copies a volume while it is attached.
func checkCopies(t *testing.T, v *volumes) {
	t.Helper()
	source, err := v.create(ec2.CreateVolumeInput{Size: aws.Int32(10), VolumeType: "gp3", Encrypted: aws.Bool(true)})
	wantCode(t, "create", err, "")
	_, err = v.copy(ec2.CopyVolumesInput{SourceVolumeId: &source})
	wantCode(t, "copy while creating", err, "IncorrectState")
	v.clock.advance(time.Second)
	wantCode(t, "attach", v.attach(source, controlID, "/dev/xvdz"), "")
	v.clock.advance(time.Second)
	v.wantState("attached", source, "in-use attached /dev/xvdz")
	v.wantEvents("source", "create 10, attach 10")

	_, err = v.copy(ec2.CopyVolumesInput{SourceVolumeId: aws.String("vol-00000000000000fff")})
	wantCode(t, "copy what does not exist", err, "InvalidVolume.NotFound")
	_, err = v.copy(ec2.CopyVolumesInput{SourceVolumeId: &source, Size: aws.Int32(9)})
	wantCode(t, "a smaller copy", err, "InvalidParameterValue")
	_, err = v.copy(ec2.CopyVolumesInput{SourceVolumeId: &source, VolumeType: "gp3", Iops: aws.Int32(1)})
	wantCode(t, "too few IOPS", err, "InvalidParameterValue")
	request := ec2.CopyVolumesInput{
		SourceVolumeId: &source, VolumeType: "gp3", Size: aws.Int32(20), ClientToken: aws.String("copy"),
	}
	made, err := v.copy(request)
	wantCode(t, "copy", err, "")
	v.wantEvents("copied", "create 20 from a vol")
	id := *made.VolumeId
	if *made.SourceVolumeId != source || *made.AvailabilityZone != "us-east-1a" || !*made.Encrypted {
		t.Errorf("the copy is %+v", made)
	}
	if again, err := v.copy(request); err != nil || *again.VolumeId != id {
		t.Errorf("the same request: %v, %v, want %s", again.VolumeId, err, id)
	}
	request.Size = aws.Int32(21)
	_, err = v.copy(request)
	wantCode(t, "another size with the same token", err, "IdempotentParameterMismatch")
	v.wantState("copied", id, "creating")
	v.clock.advance(time.Second)
	v.wantState("created", id, "available")

	wantCode(t, "detach", v.detach(source, controlID, false), "")
	v.clock.advance(time.Second)
	wantCode(t, "delete the source", v.remove(source), "")
	v.wantState("the source is gone", id, "available")
	wantCode(t, "delete the copy", v.remove(id), "")
	v.wantEvents("deleted", "detach 10 false, remove vol, remove vol")
}
