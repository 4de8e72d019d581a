package openstacksim_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/applicationcredentials"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/loadbalancers"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/layer3/floatingips"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/testbed/openstacksim"
)

// loopback is a network whose addresses the machine has.
var loopback = netip.MustParsePrefix("127.66.0.0/16")

func start(t *testing.T, world *openstacksim.World, settle time.Duration) (*openstacksim.Simulator, string) {
	t.Helper()
	return startWith(t, world, openstacksim.Options{Settle: settle})
}

func startWith(
	t *testing.T, world *openstacksim.World, options openstacksim.Options,
) (*openstacksim.Simulator, string) {
	t.Helper()
	sim, err := openstacksim.New(world, options)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(sim.Handler())
	t.Cleanup(func() {
		server.Close()
		if err := sim.Close(); err != nil {
			t.Error(err)
		}
		for _, c := range sim.Unknown() {
			t.Errorf("called what is not simulated: %s %s", c.Method, c.Path)
		}
	})
	return sim, server.URL
}

func password(endpoint string) gophercloud.AuthOptions {
	return gophercloud.AuthOptions{
		IdentityEndpoint: endpoint + "/identity", Username: openstacksim.LabUserName,
		Password: openstacksim.LabPassword, DomainName: "Default", TenantID: openstacksim.LabProject,
	}
}

func credential(endpoint string) gophercloud.AuthOptions {
	return gophercloud.AuthOptions{
		IdentityEndpoint: endpoint + "/identity/v3", ApplicationCredentialID: openstacksim.LabCredential,
		ApplicationCredentialSecret: openstacksim.LabCredentialSecret,
	}
}

var region = gophercloud.EndpointOpts{Region: openstacksim.LabRegion}

func must[T any](value T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func TestAuthentication(t *testing.T) {
	world := openstacksim.LabWorld(loopback)
	expires := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
	world.Credentials[0].Expires = expires
	sim, endpoint := start(t, world, 0)
	ctx := t.Context()
	must(openstack.AuthenticatedClient(ctx, password(endpoint)))(t)
	client := must(openstack.AuthenticatedClient(ctx, credential(endpoint)))(t)
	identity := must(openstack.NewIdentityV3(client, region))(t)
	found := must(applicationcredentials.Get(
		ctx, identity, openstacksim.LabUser, openstacksim.LabCredential,
	).Extract())(t)
	if !found.ExpiresAt.Equal(expires) {
		t.Errorf("expires at %s, want %s", found.ExpiresAt, expires)
	}
	refused := func(what string, options gophercloud.AuthOptions) {
		t.Helper()
		if _, err := openstack.AuthenticatedClient(ctx, options); !gophercloud.ResponseCodeIs(err, 401) {
			t.Errorf("%s: %v", what, err)
		}
	}
	wrong := password(endpoint)
	wrong.Password = "other"
	refused("wrong password", wrong)
	wrong = credential(endpoint)
	wrong.ApplicationCredentialSecret = "other"
	refused("wrong secret", wrong)
	wrong.ApplicationCredentialID = "other"
	refused("wrong id", wrong)
	compute := must(openstack.NewComputeV2(client, region))(t)
	if err := sim.Update(func(w *openstacksim.World) { w.ClockOffset = 2 * time.Hour }); err != nil {
		t.Fatal(err)
	}
	refused("expired credential", credential(endpoint))
	if _, err := servers.Get(ctx, compute, "x").Extract(); !gophercloud.ResponseCodeIs(err, 401) {
		t.Errorf("expired token: %v", err)
	}
}

// TestServersAndMetadata: what BOSH's CPI does, and what a VM then knows of itself.
func TestServersAndMetadata(t *testing.T) {
	sim, endpoint := start(t, openstacksim.LabWorld(loopback), 0)
	ctx := t.Context()
	client := must(openstack.AuthenticatedClient(ctx, password(endpoint)))(t)
	network := must(openstack.NewNetworkV2(client, region))(t)
	compute := must(openstack.NewComputeV2(client, region))(t)
	port := must(ports.Create(ctx, network, ports.CreateOpts{
		NetworkID:      openstacksim.LabNetwork,
		FixedIPs:       []ports.IP{{SubnetID: openstacksim.LabSubnet, IPAddress: "127.66.16.9"}},
		SecurityGroups: &[]string{openstacksim.LabSecurityGroup},
	}).Extract())(t)
	created := must(servers.Create(ctx, compute, servers.CreateOpts{
		Name: "worker", FlavorRef: openstacksim.LabFlavor, AvailabilityZone: openstacksim.LabZone,
		Networks: []servers.Network{{Port: port.ID}},
	}, nil).Extract())(t)
	server := must(servers.Get(ctx, compute, created.ID).Extract())(t)
	if server.Name != "worker" || server.Status != "ACTIVE" {
		t.Errorf("%+v", server)
	}
	metadata := httptest.NewUnstartedServer(sim.MetadataHandler())
	metadata.Listener.Close()
	metadata.Listener = must(net.Listen("tcp4", "127.0.0.1:0"))(t)
	metadata.Start()
	defer metadata.Close()
	from := func(address string) int {
		dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
		web := &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}}
		answer, err := web.Get(metadata.URL + "/openstack/latest/meta_data.json")
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		return answer.StatusCode
	}
	if own, other := from("127.66.16.9"), from("127.66.16.10"); own != 200 || other != 404 {
		t.Errorf("metadata answers %d to the server and %d to another", own, other)
	}
	if err := servers.Delete(ctx, compute, created.ID).ExtractErr(); err != nil {
		t.Fatal(err)
	}
	if _, err := servers.Get(ctx, compute, created.ID).Extract(); !gophercloud.ResponseCodeIs(err, 404) {
		t.Errorf("deleted server: %v", err)
	}
	if n := len(sim.World().Ports); n != 1 {
		t.Errorf("%d ports are left, want the router's", n)
	}
}

// TestBalancers: quotas, states, and the path from a subnet to an external network.
func TestBalancers(t *testing.T) {
	world := openstacksim.LabWorld(loopback)
	world.Quota = openstacksim.Quota{LoadBalancers: 1, FloatingIPs: 1}
	sim, endpoint := start(t, world, 50*time.Millisecond)
	ctx := t.Context()
	client := must(openstack.AuthenticatedClient(ctx, credential(endpoint)))(t)
	network := must(openstack.NewNetworkV2(client, region))(t)
	octavia := must(openstack.NewLoadBalancerV2(client, region))(t)
	create := loadbalancers.CreateOpts{Name: "a", VipSubnetID: openstacksim.LabSubnet}
	balancer := must(loadbalancers.Create(ctx, octavia, create).Extract())(t)
	if balancer.ProvisioningStatus != "PENDING_CREATE" {
		t.Errorf("a new load balancer is %s", balancer.ProvisioningStatus)
	}
	remove := loadbalancers.DeleteOpts{Cascade: true}
	err := loadbalancers.Delete(ctx, octavia, balancer.ID, remove).ExtractErr()
	if !gophercloud.ResponseCodeIs(err, 409) {
		t.Errorf("deleting it in that state: %v", err)
	}
	if _, err := loadbalancers.Create(ctx, octavia, create).Extract(); !gophercloud.ResponseCodeIs(err, 403) {
		t.Errorf("beyond the quota: %v", err)
	}
	eventually.Succeeds(t, 30*time.Second, "load balancer is active", func() error {
		_, err := loadbalancers.Update(ctx, octavia, balancer.ID, loadbalancers.UpdateOpts{Tags: &[]string{"x"}}).
			Extract()
		return err
	})
	float := floatingips.CreateOpts{FloatingNetworkID: openstacksim.LabExternalNetwork, PortID: balancer.VipPortID}
	must(floatingips.Create(ctx, network, float).Extract())(t)
	if _, err := floatingips.Create(ctx, network, float).Extract(); !gophercloud.ResponseCodeIs(err, 409) {
		t.Errorf("beyond the quota: %v", err)
	}
	if err := sim.Update(func(w *openstacksim.World) {
		w.Routers, w.FloatingIPs = nil, nil
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := floatingips.Create(ctx, network, float).Extract(); !gophercloud.ResponseCodeIs(err, 404) {
		t.Errorf("without a router: %v", err)
	}
}

// TestUnknownRequests are refused, so that tests notice them.
func TestUnknownRequests(t *testing.T) {
	sim, err := openstacksim.New(openstacksim.LabWorld(loopback), openstacksim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	recorder := httptest.NewRecorder()
	sim.Handler().ServeHTTP(recorder, httptest.NewRequest(http.MethodPatch, "/compute/v2.1/servers/x", nil))
	if recorder.Code != http.StatusNotImplemented || len(sim.Unknown()) != 1 {
		t.Errorf("answered %d; unknown: %v", recorder.Code, sim.Unknown())
	}
}
