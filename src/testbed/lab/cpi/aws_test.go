package cpi_test

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/awssim/store"
	"kubernetes-release/testbed/lab/cpi"
)

// lab returns the CPI of a lab, and its cloud.
func lab(t *testing.T) (*cpi.AWS, *awssim.Simulator) {
	t.Helper()
	sim, err := awssim.New(awssim.LabWorld(77, "lab"), awssim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sim.Close() })
	server := httptest.NewServer(sim.Handler())
	t.Cleanup(server.Close)
	return cpi.NewAWS(server.URL, awssim.LabRegion, awssim.LabAccessKeyID, awssim.LabSecretAccessKey), sim
}

// TestTagsOfAttachedVolumes: BOSH's CPI sets the tags of a VM on the volumes of claims that are attached to it.
func TestTagsOfAttachedVolumes(t *testing.T) {
	const tag = "kubernetes.io/cluster/lab"
	attached := store.Volume{
		ID: "vol-00000000000000001", AvailabilityZone: awssim.LabRegion + "a", State: store.VolumeInUse,
		Type: "gp3", Size: 1, IOPS: 3000, Throughput: 125, Created: time.Now(),
		Tags: store.Tags{tag: "owned"},
	}
	other := attached
	other.ID, other.State, other.Tags = "vol-00000000000000002", store.VolumeAvailable, store.Tags{tag: "owned"}
	cloud, sim := lab(t)
	id, err := cloud.Launch(t.Context(), cpi.Launch{
		Address: "10.77.16.4", Subnet: awssim.LabNodeSubnet(1), SecurityGroups: []string{awssim.LabSecurityGroup},
		InstanceType: "m6i.large",
	})
	if err != nil {
		t.Fatal(err)
	}
	attached.Attachments = []store.Attachment{{
		Instance: id, Device: "/dev/xvdaa", State: store.AttachmentAttached, Time: time.Now(),
	}}
	if err := sim.Update(func(w *store.World) error {
		w.Volumes = []store.Volume{attached, other}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := cloud.Tag(t.Context(), id, map[string]string{tag: "shared", "director": "bosh"}); err != nil {
		t.Fatal(err)
	}
	volumes := sim.World().Volumes
	if got := volumes[0].Tags; got[tag] != "shared" || got["director"] != "bosh" {
		t.Errorf("the attached volume has the tags %v", got)
	}
	if got := volumes[1].Tags; got[tag] != "owned" || len(got) != 1 {
		t.Errorf("the other volume has the tags %v", got)
	}
}

// TestZoneOfTheSubnet: with the availability zones of bosh-deployment's cloud config, which are one zone of AWS, a VM
// in another subnet than the first one's cannot be created.
func TestZoneOfTheSubnet(t *testing.T) {
	cloud, _ := lab(t)
	launch := cpi.Launch{
		Address: "10.77.32.4", Subnet: awssim.LabNodeSubnet(2), SecurityGroups: []string{awssim.LabSecurityGroup},
		InstanceType: "m6i.large", AvailabilityZone: awssim.LabRegion + "a",
	}
	_, err := cloud.Launch(t.Context(), launch)
	const want = "can't use multiple availability zones: subnet in us-east-1b, VM in us-east-1a"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v; want %s", err, want)
	}
	for _, zone := range []string{awssim.LabRegion + "b", ""} {
		launch.AvailabilityZone = zone
		id, err := cloud.Launch(t.Context(), launch)
		if err != nil {
			t.Fatalf("zone %q: %v", zone, err)
		}
		if err := cloud.Terminate(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
}
