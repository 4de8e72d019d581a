package openstacksim

import (
	"fmt"
	"net/netip"
)

// Names and ids of the lab's project, the same in every lab.
const (
	LabRegion = "RegionOne"
	LabZone   = "nova"

	LabNetwork         = "0a0b0c0d-0000-4000-8000-000000000001"
	LabSubnet          = "0a0b0c0d-0000-4000-8000-000000000002"
	LabExternalNetwork = "0a0b0c0d-0000-4000-8000-000000000003"
	LabExternalSubnet  = "0a0b0c0d-0000-4000-8000-000000000004"
	LabRouter          = "0a0b0c0d-0000-4000-8000-000000000005"
	LabSecurityGroup   = "0a0b0c0d-0000-4000-8000-000000000006"
	LabProject         = "0a0b0c0d000040008000000000000007"
	LabUser            = "0a0b0c0d000040008000000000000008"
	LabFlavor          = "0a0b0c0d-0000-4000-8000-000000000009"

	// The credentials: a user, for BOSH's CPI, and an application credential, for the cluster. Only the simulator
	// accepts them.
	LabUserName         = "bosh"
	LabPassword         = "lab-password"
	LabCredential       = "0a0b0c0d00004000800000000000000a"
	LabCredentialSecret = "lab-secret"
)

// LabWorld is a project in a /16: a network with the subnet x.y.16.0/20, of which load balancers get addresses from
// x.y.24.0 on, and an external network with the subnet x.y.101.0/24, connected by a router; a security group; and no
// servers.
func LabWorld(network netip.Prefix) *World {
	base := network.Addr().As4()
	address := func(third, last byte) string {
		return netip.AddrFrom4([4]byte{base[0], base[1], third, last}).String()
	}
	text := func(s string) *string { return &s }
	domain := Domain{ID: "default", Name: "Default"}
	return &World{
		Region:  LabRegion,
		Project: Project{ID: LabProject, Name: "kubernetes", Domain: domain},
		User:    User{ID: LabUser, Name: LabUserName, Password: LabPassword, Domain: domain},
		Credentials: []ApplicationCredential{
			{ID: LabCredential, Name: "kubernetes", Secret: LabCredentialSecret},
		},
		Quota:   Quota{LoadBalancers: 10, FloatingIPs: 50, Volumes: 100, Snapshots: 100, Gigabytes: 1000},
		Flavors: []Flavor{{ID: LabFlavor, Name: "m1.large"}},
		// The first is what volumes without a type get.
		VolumeTypes: []VolumeType{
			{ID: "0a0b0c0d-0000-4000-8000-00000000000f", Name: "standard"},
			{ID: "0a0b0c0d-0000-4000-8000-000000000010", Name: "ssd"},
		},
		Networks: []Network{
			{ID: LabNetwork, Name: "kubernetes", Status: "ACTIVE", Subnets: []string{LabSubnet}},
			{
				ID: LabExternalNetwork, Name: "public", Status: "ACTIVE", External: true,
				Subnets: []string{LabExternalSubnet},
			},
		},
		Subnets: []Subnet{
			{
				ID: LabSubnet, Name: "kubernetes", NetworkID: LabNetwork, CIDR: address(16, 0) + "/20",
				GatewayIP: address(16, 1), IPVersion: 4, ProjectID: LabProject, First: address(24, 1),
			},
			{
				ID: LabExternalSubnet, Name: "public", NetworkID: LabExternalNetwork, CIDR: address(101, 0) + "/24",
				GatewayIP: address(101, 1), IPVersion: 4, ProjectID: LabProject,
			},
		},
		Routers: []Router{{
			ID: LabRouter, Name: "kubernetes", Status: "ACTIVE", AdminUp: true,
			Gateway: &Gateway{NetworkID: LabExternalNetwork},
		}},
		Ports: []Port{{
			ID: "0a0b0c0d-0000-4000-8000-00000000000b", Status: "ACTIVE", NetworkID: LabNetwork, DeviceID: LabRouter,
			DeviceOwner: "network:router_interface",
			FixedIPs:    []FixedIP{{SubnetID: LabSubnet, IPAddress: address(16, 1)}},
		}},
		SecurityGroups: []SecurityGroup{{
			ID: LabSecurityGroup, Name: "kubernetes-nodes", Rules: []Rule{
				{
					ID: "0a0b0c0d-0000-4000-8000-00000000000c", GroupID: LabSecurityGroup, Direction: "ingress",
					EtherType: "IPv4", RemoteGroupID: text(LabSecurityGroup),
				},
				{
					ID: "0a0b0c0d-0000-4000-8000-00000000000d", GroupID: LabSecurityGroup, Direction: "egress",
					EtherType: "IPv4",
				},
				{
					// Octavia's load balancers connect from the subnet, and are in no group of nodes.
					ID: "0a0b0c0d-0000-4000-8000-00000000000e", GroupID: LabSecurityGroup, Direction: "ingress",
					EtherType: "IPv4", RemotePrefix: text(address(16, 0) + "/20"),
				},
			},
		}},
	}
}

// AddServer adds a server with an address in the lab's subnet, and returns its id. Requests to metadata from this
// address are the server's.
func (w *World) AddServer(name string, address netip.Addr) string {
	server := Server{
		ID: newID(), Name: name, Status: "ACTIVE", Flavor: map[string]string{"id": LabFlavor},
		AvailabilityZone: LabZone,
	}
	w.Servers = append(w.Servers, server)
	w.Ports = append(w.Ports, Port{
		ID: newID(), Status: "ACTIVE", NetworkID: LabNetwork, DeviceID: server.ID, DeviceOwner: "compute:" + LabZone,
		FixedIPs: []FixedIP{{SubnetID: LabSubnet, IPAddress: address.String()}}, PortSecurity: true,
		SecurityGroups: []string{LabSecurityGroup},
	})
	return server.ID
}

// CloudConfig is a configuration of the cloud controller manager for the lab's project.
func CloudConfig(endpoint string) string {
	return fmt.Sprintf(`[Global]
auth-url = "%s/identity/v3"
region = %q
application-credential-id = %q
application-credential-secret = %q
[LoadBalancer]
subnet-id = %q
floating-network-id = %q
`, endpoint, LabRegion, LabCredential, LabCredentialSecret, LabSubnet, LabExternalNetwork)
}
