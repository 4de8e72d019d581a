package cpi_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/lab/cpi"
)

// TestZoneOfTheSubnet: with the availability zones of bosh-deployment's cloud config, which are one zone of AWS, a VM
// in another subnet than the first one's cannot be created.
func TestZoneOfTheSubnet(t *testing.T) {
	sim, err := awssim.New(awssim.LabWorld(77, "lab"), awssim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sim.Close() })
	server := httptest.NewServer(sim.Handler())
	t.Cleanup(server.Close)
	cloud := cpi.NewAWS(server.URL, awssim.LabRegion, awssim.LabAccessKeyID, awssim.LabSecretAccessKey)
	launch := cpi.Launch{
		Address: "10.77.32.4", Subnet: awssim.LabNodeSubnet(2), SecurityGroups: []string{awssim.LabSecurityGroup},
		InstanceType: "m6i.large", AvailabilityZone: awssim.LabRegion + "a",
	}
	_, err = cloud.Launch(t.Context(), launch)
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
