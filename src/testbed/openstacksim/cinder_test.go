package openstacksim_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/blockstorage/v3/availabilityzones"
	"github.com/gophercloud/gophercloud/v2/openstack/blockstorage/v3/quotasets"
	"github.com/gophercloud/gophercloud/v2/openstack/blockstorage/v3/snapshots"
	"github.com/gophercloud/gophercloud/v2/openstack/blockstorage/v3/volumes"
	"github.com/gophercloud/gophercloud/v2/openstack/blockstorage/v3/volumetypes"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/volumeattach"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/testbed/awssim/store"
	"kubernetes-release/testbed/openstacksim"
)

// recordedDisks are volumes without devices; it records what the simulator does with them.
type recordedDisks struct {
	store.NoDisks
	calls []string
}

func (d *recordedDisks) Create(volume string, bytes int64, source string) error {
	d.calls = append(d.calls, fmt.Sprintf("create %s of %d from %q", volume, bytes, source))
	return nil
}

func (d *recordedDisks) Resize(volume string, bytes int64) error {
	d.calls = append(d.calls, fmt.Sprintf("resize %s to %d", volume, bytes))
	return nil
}

func (d *recordedDisks) Attach(volume string, machine netip.Addr) error {
	d.calls = append(d.calls, fmt.Sprintf("attach %s to %s", volume, machine))
	return nil
}

func (d *recordedDisks) Detach(volume string, machine netip.Addr, force bool) (bool, error) {
	d.calls = append(d.calls, fmt.Sprintf("detach %s from %s, force %t", volume, machine, force))
	return true, nil
}

func (d *recordedDisks) Snapshot(volume, snapshot string) error {
	d.calls = append(d.calls, fmt.Sprintf("snapshot %s of %s", snapshot, volume))
	return nil
}

func (d *recordedDisks) Remove(id string) error {
	d.calls = append(d.calls, "remove "+id)
	return nil
}

// refused expects an error of the API with a status and a part of the message.
func refused(t *testing.T, what string, err error, status int, message string) {
	t.Helper()
	if !gophercloud.ResponseCodeIs(err, status) || !strings.Contains(err.Error(), message) {
		t.Errorf("%s: got %v, want status %d and %q", what, err, status, message)
	}
}

// TestVolumes is the life of a volume, by the requests of the Cinder CSI driver.
func TestVolumes(t *testing.T) {
	world := openstacksim.LabWorld(loopback)
	address := netip.MustParseAddr("127.66.16.9")
	server, other := world.AddServer("one", address), world.AddServer("two", netip.MustParseAddr("127.66.16.10"))
	disks := &recordedDisks{}
	sim, endpoint := startWith(t, world, openstacksim.Options{Disks: disks, Settle: 20 * time.Millisecond})
	ctx := t.Context()
	client := must(openstack.AuthenticatedClient(ctx, credential(endpoint)))(t)
	storage := must(openstack.NewBlockStorageV3(client, region))(t)
	compute := must(openstack.NewComputeV2(client, region))(t)
	status := func(id, want string) volumes.Volume {
		t.Helper()
		var last volumes.Volume
		eventually.Succeeds(t, 30*time.Second, "the volume is "+want, func() error {
			v, err := volumes.Get(ctx, storage, id).Extract()
			if err != nil {
				return err
			}
			if last = *v; v.Status != want {
				return fmt.Errorf("it is %s", v.Status)
			}
			return nil
		})
		return last
	}

	created := must(volumes.Create(ctx, storage, volumes.CreateOpts{
		Name: "pvc-1", Size: 1, VolumeType: "ssd", AvailabilityZone: openstacksim.LabZone,
		Metadata: map[string]string{"cinder.csi.openstack.org/cluster": "kube"},
	}, nil).Extract())(t)
	id := created.ID
	if created.Status != "creating" || created.CreatedAt.IsZero() || len(created.Attachments) != 0 {
		t.Errorf("created %+v", created)
	}
	if v := status(id, "available"); v.Size != 1 || v.VolumeType != "ssd" ||
		v.AvailabilityZone != openstacksim.LabZone || v.Metadata["cinder.csi.openstack.org/cluster"] != "kube" {
		t.Errorf("available %+v", v)
	}
	page := must(volumes.List(storage, volumes.ListOpts{Name: "pvc-1"}).AllPages(ctx))(t)
	if found := must(volumes.ExtractVolumes(page))(t); len(found) != 1 || found[0].ID != id {
		t.Errorf("listed by name: %+v", found)
	}
	page = must(volumes.List(storage, volumes.ListOpts{Name: "pvc-2"}).AllPages(ctx))(t)
	if found := must(volumes.ExtractVolumes(page))(t); len(found) != 0 {
		t.Errorf("listed by another name: %+v", found)
	}

	attached := must(volumeattach.Create(ctx, compute, server, volumeattach.CreateOpts{VolumeID: id}).Extract())(t)
	if attached.Device != "/dev/vdb" || attached.ServerID != server {
		t.Errorf("attached %+v", attached)
	}
	if v := status(id, "in-use"); len(v.Attachments) != 1 || v.Attachments[0].ServerID != server ||
		v.Attachments[0].Device != "/dev/vdb" {
		t.Errorf("in use %+v", v.Attachments)
	}
	_, err := volumeattach.Create(ctx, compute, other, volumeattach.CreateOpts{VolumeID: id}).Extract()
	refused(t, "a second server", err, 400, "status must be available")
	err = volumes.Delete(ctx, storage, id, nil).ExtractErr()
	refused(t, "delete in use", err, 400, "must not be migrating, attached")
	extend := volumes.ExtendSizeOpts{NewSize: 2}
	refused(t, "grow online, old API", volumes.ExtendSize(ctx, storage, id, extend).ExtractErr(), 400, "status must be")
	newer := *storage
	newer.Microversion = "3.42"
	if err := volumes.ExtendSize(ctx, &newer, id, extend).ExtractErr(); err != nil {
		t.Fatal(err)
	}
	if v := status(id, "in-use"); v.Size != 2 {
		t.Errorf("extended to %d", v.Size)
	}
	refused(t, "shrink", volumes.ExtendSize(ctx, &newer, id, extend).ExtractErr(), 400, "must be greater")

	if _, err := snapshots.Create(ctx, storage, snapshots.CreateOpts{VolumeID: id, Name: "s"}).Extract(); err == nil {
		t.Error("took a snapshot of a volume in use without force")
	}
	snapshot := must(snapshots.Create(
		ctx, storage, snapshots.CreateOpts{VolumeID: id, Name: "s", Force: true},
	).Extract())(t)
	eventually.Succeeds(t, 30*time.Second, "the snapshot is available", func() error {
		c, err := snapshots.Get(ctx, storage, snapshot.ID).Extract()
		if err == nil && (c.Status != "available" || c.Size != 2) {
			err = fmt.Errorf("%+v", c)
		}
		return err
	})
	page = must(snapshots.List(storage, snapshots.ListOpts{Name: "s"}).AllPages(ctx))(t)
	if found := must(snapshots.ExtractSnapshots(page))(t); len(found) != 1 || found[0].VolumeID != id {
		t.Errorf("listed snapshots: %+v", found)
	}
	_, err = volumes.Create(ctx, storage, volumes.CreateOpts{Size: 1, SnapshotID: snapshot.ID}, nil).Extract()
	refused(t, "smaller than the snapshot", err, 400, "cannot be smaller")
	restored := must(volumes.Create(
		ctx, storage, volumes.CreateOpts{Size: 2, SnapshotID: snapshot.ID}, nil,
	).Extract())(t)
	status(restored.ID, "available")

	if err := volumeattach.Delete(ctx, compute, server, id).ExtractErr(); err != nil {
		t.Fatal(err)
	}
	if v := status(id, "available"); len(v.Attachments) != 0 {
		t.Errorf("detached %+v", v.Attachments)
	}
	refused(t, "detach twice", volumeattach.Delete(ctx, compute, server, id).ExtractErr(), 404, "is not attached")
	refused(t, "delete with a snapshot", volumes.Delete(ctx, storage, id, nil).ExtractErr(), 400, "have snapshots")

	// Nova detaches the volumes of a server that is deleted.
	must(volumeattach.Create(ctx, compute, other, volumeattach.CreateOpts{VolumeID: restored.ID}).Extract())(t)
	status(restored.ID, "in-use")
	if err := servers.Delete(ctx, compute, other).ExtractErr(); err != nil {
		t.Fatal(err)
	}
	status(restored.ID, "available")

	if err := snapshots.Delete(ctx, storage, snapshot.ID).ExtractErr(); err != nil {
		t.Fatal(err)
	}
	eventually.Succeeds(t, 30*time.Second, "the snapshot is gone", func() error {
		if _, err := snapshots.Get(ctx, storage, snapshot.ID).Extract(); !gophercloud.ResponseCodeIs(err, 404) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
	for _, volume := range []string{id, restored.ID} {
		if err := volumes.Delete(ctx, storage, volume, nil).ExtractErr(); err != nil {
			t.Fatal(err)
		}
		eventually.Succeeds(t, 30*time.Second, "the volume is gone", func() error {
			if _, err := volumes.Get(ctx, storage, volume).Extract(); !gophercloud.ResponseCodeIs(err, 404) {
				return fmt.Errorf("got %w", err)
			}
			return nil
		})
	}
	if w := sim.World(); len(w.Volumes)+len(w.Snapshots) > 0 {
		t.Errorf("left: %+v, %+v", w.Volumes, w.Snapshots)
	}
	want := []string{
		fmt.Sprintf(`create %s of %d from ""`, id, 1<<30),
		fmt.Sprintf("attach %s to %s", id, address),
		fmt.Sprintf("resize %s to %d", id, 2<<30),
		fmt.Sprintf("snapshot %s of %s", snapshot.ID, id),
		fmt.Sprintf("create %s of %d from %q", restored.ID, 2<<30, snapshot.ID),
		fmt.Sprintf("detach %s from %s, force true", id, address),
		fmt.Sprintf("attach %s to 127.66.16.10", restored.ID),
		fmt.Sprintf("detach %s from 127.66.16.10, force true", restored.ID),
		"remove " + snapshot.ID, "remove " + id, "remove " + restored.ID,
	}
	if !slices.Equal(disks.calls, want) {
		t.Errorf("disks:\n%s\nwant:\n%s", strings.Join(disks.calls, "\n"), strings.Join(want, "\n"))
	}
}

// TestVolumeLimits: what the project does not have or may not have.
func TestVolumeLimits(t *testing.T) {
	world := openstacksim.LabWorld(loopback)
	world.Quota.Volumes, world.Quota.Gigabytes = 2, 10
	_, endpoint := start(t, world, 0)
	ctx := t.Context()
	client := must(openstack.AuthenticatedClient(ctx, credential(endpoint)))(t)
	storage := must(openstack.NewBlockStorageV3(client, region))(t)
	create := func(o volumes.CreateOpts) error {
		_, err := volumes.Create(ctx, storage, o, nil).Extract()
		return err
	}
	refused(t, "type", create(volumes.CreateOpts{Size: 1, VolumeType: "x"}), 404, "Volume type with name x")
	refused(t, "zone", create(volumes.CreateOpts{Size: 1, AvailabilityZone: "x"}), 400, "zone 'x' is invalid")
	refused(t, "size", create(volumes.CreateOpts{Size: 11}), 413, "gigabytes quota")
	for range 2 {
		if err := create(volumes.CreateOpts{Size: 2}); err != nil {
			t.Fatal(err)
		}
	}
	refused(t, "a third", create(volumes.CreateOpts{Size: 1}), 413, "Maximum number of volumes allowed (2) exceeded")
	usage := must(quotasets.GetUsage(ctx, storage, openstacksim.LabProject).Extract())(t)
	if usage.Volumes.Limit != 2 || usage.Volumes.InUse != 2 || usage.Gigabytes.Limit != 10 ||
		usage.Gigabytes.InUse != 4 {
		t.Errorf("%+v", usage)
	}
	page := must(volumetypes.List(storage, nil).AllPages(ctx))(t)
	if types := must(volumetypes.ExtractVolumeTypes(page))(t); len(types) != 2 || types[0].Name != "standard" {
		t.Errorf("types: %+v", types)
	}
	page = must(availabilityzones.List(storage).AllPages(ctx))(t)
	zones := must(availabilityzones.ExtractAvailabilityZones(page))(t)
	if len(zones) != 1 || zones[0].ZoneName != openstacksim.LabZone || !zones[0].ZoneState.Available {
		t.Errorf("zones: %+v", zones)
	}
}
