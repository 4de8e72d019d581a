package cpi_test

import (
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/gophercloud/gophercloud/v2"

	"kubernetes-release/testbed/lab/cpi"
	"kubernetes-release/testbed/openstacksim"
)

// TestServers: a VM is a server with a port that has BOSH's address, and the Director's metadata.
func TestServers(t *testing.T) {
	sim, err := openstacksim.New(
		openstacksim.LabWorld(netip.MustParsePrefix("10.77.0.0/16")), openstacksim.Options{},
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = sim.Close()
		for _, c := range sim.Unknown() {
			t.Errorf("called what is not simulated: %s %s", c.Method, c.Path)
		}
	})
	server := httptest.NewServer(sim.Handler())
	t.Cleanup(server.Close)
	cloud := cpi.NewOpenStack(gophercloud.AuthOptions{
		IdentityEndpoint: server.URL + "/identity/v3", Username: openstacksim.LabUserName,
		Password: openstacksim.LabPassword, DomainName: "Default", TenantID: openstacksim.LabProject,
	}, openstacksim.LabRegion)
	launch := cpi.Launch{
		Address: "10.77.16.2", Network: openstacksim.LabNetwork, InstanceType: "m1.large",
		SecurityGroups: []string{openstacksim.LabSecurityGroup}, AvailabilityZone: openstacksim.LabZone,
	}
	ports := len(sim.World().Ports)
	id, err := cloud.Launch(t.Context(), launch)
	if err != nil {
		t.Fatal(err)
	}
	if err := cloud.Tag(t.Context(), id, map[string]string{"deployment": "kube"}); err != nil {
		t.Fatal(err)
	}
	world := sim.World()
	got, port := world.Servers[0], world.Ports[ports]
	if got.ID != id || got.Metadata["deployment"] != "kube" || port.DeviceID != id ||
		port.FixedIPs[0] != (openstacksim.FixedIP{SubnetID: openstacksim.LabSubnet, IPAddress: launch.Address}) ||
		!slices.Equal(port.SecurityGroups, launch.SecurityGroups) {
		t.Errorf("server %+v with port %+v", got, port)
	}
	for address, want := range map[string][]string{launch.Address: {id}, "10.77.16.20": nil, "10.77.16.": nil} {
		if found, err := cloud.FindByAddress(t.Context(), address); err != nil || !slices.Equal(found, want) {
			t.Errorf("servers with the address %s: %v, %v", address, found, err)
		}
	}
	for want, change := range map[string]func(*cpi.Launch){
		"already allocated":                    func(*cpi.Launch) {},
		"flavor 'm9' not found; there are m1.": func(l *cpi.Launch) { l.InstanceType = "m9" },
		"security group 'x' not found":         func(l *cpi.Launch) { l.SecurityGroups = []string{"x"} },
	} {
		wrong := launch
		change(&wrong)
		if _, err := cloud.Launch(t.Context(), wrong); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	for range 2 { // also when it is gone
		if err := cloud.Terminate(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	if world := sim.World(); len(world.Servers) > 0 || len(world.Ports) != ports {
		t.Errorf("left behind: %+v, %+v", world.Servers, world.Ports)
	}
}
