package cpi

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/flavors"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/groups"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
)

// OpenStack is a Cloud that talks to Nova and Neutron. It connects at its first call.
type OpenStack struct {
	auth     gophercloud.AuthOptions
	endpoint gophercloud.EndpointOpts

	compute, network *gophercloud.ServiceClient
}

// NewOpenStack returns a client of the APIs that a user can reach.
func NewOpenStack(auth gophercloud.AuthOptions, region string) *OpenStack {
	return &OpenStack{auth: auth, endpoint: gophercloud.EndpointOpts{Region: region}}
}

func (o *OpenStack) connect(ctx context.Context) error {
	if o.compute != nil {
		return nil
	}
	client, err := openstack.AuthenticatedClient(ctx, o.auth)
	if err != nil {
		return err
	}
	if o.network, err = openstack.NewNetworkV2(client, o.endpoint); err != nil {
		return err
	}
	o.compute, err = openstack.NewComputeV2(client, o.endpoint)
	return err
}

// Launch implements Cloud. Like BOSH's CPI it creates the port first, and resolves the names of the flavor and of
// security groups (network_configurator.rb and server.rb of bosh-openstack-cpi-release).
func (o *OpenStack) Launch(ctx context.Context, l Launch) (string, error) {
	if err := o.connect(ctx); err != nil {
		return "", err
	}
	flavor, err := o.flavor(ctx, l.InstanceType)
	if err != nil {
		return "", err
	}
	selected, err := o.groups(ctx, l.SecurityGroups)
	if err != nil {
		return "", err
	}
	port, err := ports.Create(ctx, o.network, ports.CreateOpts{
		NetworkID: l.Network, FixedIPs: []ports.IP{{IPAddress: l.Address}}, SecurityGroups: &selected,
	}).Extract()
	if err != nil {
		return "", fmt.Errorf("creating the port: %w", err)
	}
	server, err := servers.Create(ctx, o.compute, servers.CreateOpts{
		Name: "vm-" + port.ID, FlavorRef: flavor, AvailabilityZone: l.AvailabilityZone, Metadata: l.Tags,
		Networks: []servers.Network{{Port: port.ID}},
	}, nil).Extract()
	if err != nil {
		return "", fmt.Errorf("creating the server: %w", err)
	}
	return server.ID, nil
}

func (o *OpenStack) flavor(ctx context.Context, name string) (string, error) {
	page, err := flavors.ListDetail(o.compute, nil).AllPages(ctx)
	if err != nil {
		return "", err
	}
	list, err := flavors.ExtractFlavors(page)
	if err != nil {
		return "", err
	}
	var names []string
	for _, flavor := range list {
		if flavor.Name == name {
			return flavor.ID, nil
		}
		names = append(names, flavor.Name)
	}
	return "", fmt.Errorf("flavor '%s' not found; there are %s", name, strings.Join(names, ", "))
}

func (o *OpenStack) groups(ctx context.Context, names []string) ([]string, error) {
	page, err := groups.List(o.network, groups.ListOpts{}).AllPages(ctx)
	if err != nil {
		return nil, err
	}
	list, err := groups.ExtractGroups(page)
	if err != nil {
		return nil, err
	}
	ids := []string{}
	for _, name := range names {
		found := ""
		for _, group := range list {
			if group.Name == name || group.ID == name {
				found = group.ID
			}
		}
		if found == "" {
			return nil, fmt.Errorf("security group '%s' not found", name)
		}
		ids = append(ids, found)
	}
	return ids, nil
}

// Register implements Cloud.
func (*OpenStack) Register(context.Context, string, string) error {
	return fmt.Errorf("OpenStack has no target groups: remove lb_target_groups from the cloud config")
}

// Terminate implements Cloud.
func (o *OpenStack) Terminate(ctx context.Context, id string) error {
	if err := o.connect(ctx); err != nil {
		return err
	}
	err := servers.Delete(ctx, o.compute, id).ExtractErr()
	if gophercloud.ResponseCodeIs(err, 404) {
		return nil
	}
	return err
}

// Tag implements Cloud.
func (o *OpenStack) Tag(ctx context.Context, id string, tags map[string]string) error {
	if err := o.connect(ctx); err != nil {
		return err
	}
	_, err := servers.UpdateMetadata(ctx, o.compute, id, servers.MetadataOpts(tags)).Extract()
	return err
}

// FindByAddress implements Cloud.
func (o *OpenStack) FindByAddress(ctx context.Context, address string) ([]string, error) {
	if err := o.connect(ctx); err != nil {
		return nil, err
	}
	page, err := servers.List(o.compute, servers.ListOpts{IP: "^" + regexp.QuoteMeta(address) + "$"}).AllPages(ctx)
	if err != nil {
		return nil, err
	}
	list, err := servers.ExtractServers(page)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, server := range list {
		ids = append(ids, server.ID)
	}
	return ids, nil
}

// Clouds are the lab's two clouds. A VM is in OpenStack if its network has a net_id.
type Clouds struct{ AWS, OpenStack Cloud }

var _ Cloud = Clouds{}

// of returns the cloud that has given this id.
func (c Clouds) of(id string) Cloud {
	if strings.HasPrefix(id, "i-") {
		return c.AWS
	}
	return c.OpenStack
}

// Launch implements Cloud.
func (c Clouds) Launch(ctx context.Context, l Launch) (string, error) {
	if l.Network != "" {
		return c.OpenStack.Launch(ctx, l)
	}
	return c.AWS.Launch(ctx, l)
}

// Register implements Cloud.
func (c Clouds) Register(ctx context.Context, id, group string) error {
	return c.of(id).Register(ctx, id, group)
}

// Terminate implements Cloud.
func (c Clouds) Terminate(ctx context.Context, id string) error { return c.of(id).Terminate(ctx, id) }

// Tag implements Cloud.
func (c Clouds) Tag(ctx context.Context, id string, tags map[string]string) error {
	return c.of(id).Tag(ctx, id, tags)
}

// FindByAddress implements Cloud.
func (c Clouds) FindByAddress(ctx context.Context, address string) ([]string, error) {
	ids, err := c.AWS.FindByAddress(ctx, address)
	if err != nil {
		return nil, err
	}
	more, err := c.OpenStack.FindByAddress(ctx, address)
	return append(ids, more...), err
}
