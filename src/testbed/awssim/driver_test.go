package awssim_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/emptypb"

	"kubernetes-release/cloud/aws/iampolicy"
	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/awssim/store"
)

// TestDriverGetsTheIOPSOfClasses has the real EBS CSI driver, with the role and the generated policy of control VMs,
// create volumes of classes that ask for as many IOPS as a property of the release allows. It needs COMPONENTS_DIR.
func TestDriverGetsTheIOPSOfClasses(t *testing.T) {
	program := filepath.Join(os.Getenv("COMPONENTS_DIR"), "csi/bin/aws-ebs-csi-driver")
	if _, err := os.Stat(program); os.Getenv("COMPONENTS_DIR") == "" || err != nil {
		t.Skipf("needs the real driver: set COMPONENTS_DIR (%v)", err)
	}
	world := ccmWorld()
	setStoragePolicy(t, world)
	b := start(t, world, awssim.Options{Disks: &disks{}})
	client := startDriver(t, program, b)

	for _, class := range []struct {
		kind, parameter string
		value, size     int // of the parameter, and in GiB
		iops            int
	}{
		{"gp3", "iops", 20000, 40, 20000},
		{"gp3", "iops", 80000, 160, 80000},
		{"gp3", "iopsPerGB", 500, 60, 30000},
		{"io1", "iops", 64000, 1280, 64000},
		{"io2", "iops", 256000, 256, 256000},
		{"gp3", "iops", 20000, 20, 10000}, // for which the driver knows the limit itself: 500 for each GiB
		{"gp3", "iopsPerGB", 500, 200, 80000},
	} {
		name := fmt.Sprintf("%s %d %s %d GiB", class.kind, class.value, class.parameter, class.size)
		request := createVolumeRequest(
			name, class.size,
			map[string]string{"type": class.kind, class.parameter: strconv.Itoa(class.value)},
		)
		var answer emptypb.Empty
		if err := client.Invoke(t.Context(), "/csi.v1.Controller/CreateVolume", request, &answer); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if v := newestVolume(b); v.IOPS != class.iops || v.Size != class.size || v.Tags["CSIVolumeName"] != name {
			t.Errorf("%s: created %+v, want %d IOPS", name, v, class.iops)
		}
	}
	if t.Failed() {
		for _, c := range b.sim.Calls("ec2:CreateVolume") {
			t.Logf("%s dry run %v: %d %s", c.Action, c.DryRun, c.Status, c.Code)
		}
	}
	var dry, question []string
	for _, c := range b.sim.Calls("ec2:CreateVolume") {
		if !c.DryRun {
			continue
		}
		dry = append(dry, c.Code)
		question = append(question, c.Params["Iops"]+" "+c.Params["TagSpecification.1.Tag.1.Value"])
	}
	// One for each type, and the driver remembers the answers.
	want := fmt.Sprintf("%d %s", iampolicy.LimitsIOPS, iampolicy.LimitsValue)
	if len(dry) != 3 || strings.Join(question, ";") != strings.Join([]string{want, want, want}, ";") {
		t.Errorf("dry runs were answered with %v to the questions %v, want three of %s", dry, question, want)
	}
}

// TestDriverChangesTags has the real EBS CSI driver change tags of a volume, as for a VolumeAttributesClass, with the
// generated policy, and with one of before, which refused it. It needs COMPONENTS_DIR.
func TestDriverChangesTags(t *testing.T) {
	program := filepath.Join(os.Getenv("COMPONENTS_DIR"), "csi/bin/aws-ebs-csi-driver")
	if _, err := os.Stat(program); os.Getenv("COMPONENTS_DIR") == "" || err != nil {
		t.Skipf("needs the real driver: set COMPONENTS_DIR (%v)", err)
	}
	for _, allowed := range []bool{false, true} {
		t.Run(fmt.Sprintf("allowed=%v", allowed), func(t *testing.T) {
			world := ccmWorld()
			setStoragePolicy(t, world, func(s iampolicy.Statement) bool { return allowed || s.Sid != "Ec2TagDrivers" })
			b := start(t, world, awssim.Options{Disks: &disks{}})
			client := startDriver(t, program, b)
			var answer emptypb.Empty
			request := createVolumeRequest("data", 8, map[string]string{"type": "gp3"})
			if err := client.Invoke(t.Context(), "/csi.v1.Controller/CreateVolume", request, &answer); err != nil {
				t.Fatal(err)
			}
			modify := func(parameters map[string]string) error {
				request := modifyVolumeRequest(newestVolume(b).ID, parameters)
				return client.Invoke(t.Context(), "/csi.v1.Controller/ControllerModifyVolume", request, &answer)
			}
			err := modify(map[string]string{"tagSpecification_1": "team=blue", "iops": "4000"})
			v := newestVolume(b)
			if !allowed {
				if err == nil || !strings.Contains(err.Error(), "ec2:CreateTags") || v.Tags["team"] != "" {
					t.Errorf("the tags are %v, although no policy allows them: %v", v.Tags, err)
				}
				if modified := b.sim.Calls("ec2:ModifyVolume"); len(modified) > 0 {
					t.Errorf("the driver changed IOPS, although it could not tag: %+v", modified)
				}
				return
			}
			if err != nil || v.Tags["team"] != "blue" || v.Modification == nil || v.Modification.Target.IOPS != 4000 {
				t.Errorf("%v: %+v", err, v)
			}
			if err := modify(map[string]string{"tagDeletion_1": "team"}); err != nil {
				t.Error(err)
			}
			v = newestVolume(b)
			if _, left := v.Tags["team"]; left || v.Tags[clusterTag] != "owned" {
				t.Errorf("after the deletion of a tag the volume has %v", v.Tags)
			}
		})
	}
}

// TestDriverEnablesFastRestores has the real EBS CSI driver create a snapshot of a class with fast restores, which the
// generated policy leaves out: nothing is left of the snapshot, however often. With the policy of docs/storage.md the
// snapshot stays. It needs COMPONENTS_DIR.
func TestDriverEnablesFastRestores(t *testing.T) {
	program := filepath.Join(os.Getenv("COMPONENTS_DIR"), "csi/bin/aws-ebs-csi-driver")
	if _, err := os.Stat(program); os.Getenv("COMPONENTS_DIR") == "" || err != nil {
		t.Skipf("needs the real driver: set COMPONENTS_DIR (%v)", err)
	}
	for _, permitted := range []bool{false, true} {
		t.Run(fmt.Sprintf("permitted=%v", permitted), func(t *testing.T) {
			world := ccmWorld()
			setStoragePolicy(t, world)
			if permitted {
				store.Find(world.Roles, "kubernetes-control").Policies["snapshots"] = ownPolicyOfSnapshots(t, cluster)
			}
			b := start(t, world, awssim.Options{Disks: &disks{}})
			client := startDriver(t, program, b)
			var answer emptypb.Empty
			request := createVolumeRequest("data", 8, map[string]string{"type": "gp3"})
			if err := client.Invoke(t.Context(), "/csi.v1.Controller/CreateVolume", request, &answer); err != nil {
				t.Fatal(err)
			}
			v := newestVolume(b)
			zones := map[string]string{"fastSnapshotRestoreAvailabilityZones": v.AvailabilityZone}
			request = createSnapshotRequest(v.ID, "daily", zones)
			for range 2 {
				err := client.Invoke(t.Context(), "/csi.v1.Controller/CreateSnapshot", request, &answer)
				left := len(b.sim.World().Snapshots)
				if permitted && (err != nil || left != 1) {
					t.Errorf("%d snapshots: %v", left, err)
				}
				if !permitted && (left != 0 || err == nil || !strings.Contains(err.Error(), "UnauthorizedOperation") ||
					!strings.Contains(err.Error(), "not authorized to perform: ec2:EnableFastSnapshotRestores")) {
					t.Errorf("%d snapshots, although no policy allows fast restores: %v", left, err)
				}
			}
			if created := len(b.sim.Calls("ec2:CreateSnapshot")); permitted != (created == 1) {
				t.Errorf("the driver created %d snapshots", created)
			}
		})
	}
}

// newestVolume is what EC2 has created last.
func newestVolume(b *bed) store.Volume {
	volumes := b.sim.World().Volumes
	if len(volumes) == 0 {
		return store.Volume{}
	}
	return volumes[len(volumes)-1]
}

// startDriver starts the controller of the EBS CSI driver with the flags of the job ebs-csi-controller.
func startDriver(t *testing.T, program string, b *bed) *grpc.ClientConn {
	t.Helper()
	dir := t.TempDir()
	socket := "unix://" + filepath.Join(dir, "csi.sock")
	command := exec.Command(
		program, "controller", "--endpoint="+socket, "--batching=true", "--k8s-tag-cluster-id="+cluster,
		"--metadata-sources=imds", "--v=5",
	)
	command.Env = []string{
		"AWS_ENDPOINT_URL=" + b.api, "AWS_EC2_METADATA_SERVICE_ENDPOINT=" + b.metadata, "HOME=" + dir,
	}
	log, _ := kubetest.StartProgram(t, command)
	logged(t, log)
	client, err := grpc.NewClient(socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	eventually.Succeeds(t, 30*time.Second, "driver answers", func() error {
		return client.Invoke(t.Context(), "/csi.v1.Identity/Probe", &emptypb.Empty{}, &emptypb.Empty{})
	})
	return client
}

// createVolumeRequest encodes CreateVolumeRequest of the Container Storage Interface (csi.proto in its repository),
// whose definitions no module of the release needs: a volume of this size, in GiB, that one node mounts.
func createVolumeRequest(name string, size int, parameters map[string]string) *emptypb.Empty {
	integer := func(number protowire.Number, value uint64) []byte {
		return protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.VarintType), value)
	}
	const mount, accessMode, singleNodeWriter = 2, 3, 1
	capability := append(text(mount, ""), text(accessMode, string(integer(1, singleNodeWriter)))...)
	return message(
		text(1, name), text(2, string(integer(1, uint64(size)<<30))), text(3, string(capability)), pairs(4, parameters),
	)
}

// modifyVolumeRequest encodes ControllerModifyVolumeRequest in the same way.
func modifyVolumeRequest(id string, parameters map[string]string) *emptypb.Empty {
	return message(text(1, id), pairs(3, parameters))
}

// createSnapshotRequest encodes CreateSnapshotRequest in the same way.
func createSnapshotRequest(volume, name string, parameters map[string]string) *emptypb.Empty {
	return message(text(1, volume), text(2, name), pairs(4, parameters))
}

func text(number protowire.Number, value string) []byte {
	return protowire.AppendString(protowire.AppendTag(nil, number, protowire.BytesType), value)
}

// pairs encodes a map.
func pairs(number protowire.Number, values map[string]string) (field []byte) {
	for key, value := range values {
		field = append(field, text(number, string(append(text(1, key), text(2, value)...)))...)
	}
	return field
}

func message(fields ...[]byte) *emptypb.Empty {
	request := &emptypb.Empty{}
	request.ProtoReflect().SetUnknown(slices.Concat(fields...))
	return request
}
