package azure

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"kubernetes-release/cloud"
	"kubernetes-release/internal/metadata"
	"kubernetes-release/node"
)

var (
	_ cloud.Identifier = (*Provider)(nil)
	_ cloud.Locator    = (*Provider)(nil)
	_ node.Namer       = locator{}
)

// described is what the metadata service says of the VM that asks (pkg/provider/azure_instance_metadata.go of
// cloud-provider-azure).
type described struct {
	Compute struct {
		Name           string `json:"name"`
		ResourceID     string `json:"resourceId"`
		ResourceGroup  string `json:"resourceGroupName"`
		SubscriptionID string `json:"subscriptionId"`
		Location       string `json:"location"`
		Zone           string `json:"zone"`
	} `json:"compute"`
	Network struct {
		Interfaces []struct {
			IPv4 addresses `json:"ipv4"`
			IPv6 addresses `json:"ipv6"`
		} `json:"interface"`
	} `json:"network"`
}

type addresses struct {
	List []struct {
		Private string `json:"privateIpAddress"`
	} `json:"ipAddress"`
}

// Identify implements cloud.Identifier. The name of the Node is that of the VM, by which the cloud controller finds it
// (mapNodeNameToVMName in pkg/provider/azure_instances_v1.go).
func (p *Provider) Identify(ctx context.Context, vm node.VM) (node.Identity, error) {
	url := cmp.Or(p.MetadataEndpoint, metadata.Service) + "/metadata/instance?api-version=2021-02-01&format=json"
	answer, err := metadata.Get(ctx, url, map[string]string{"Metadata": "true"})
	if err != nil {
		return node.Identity{}, err
	}
	var d described
	if err := json.Unmarshal(answer.Body, &d); err != nil {
		return node.Identity{}, fmt.Errorf("%s: %w", url, err)
	}
	// As getLocalInstanceProviderID there.
	resource := d.Compute.ResourceID
	if resource == "" {
		return node.Identity{}, fmt.Errorf("%s has no compute.resourceId", url)
	}
	for _, part := range []string{d.Compute.SubscriptionID, d.Compute.ResourceGroup} {
		resource = strings.ReplaceAll(resource, part, strings.ToLower(part))
	}
	id := node.Identity{
		Name: strings.ToLower(d.Compute.Name), ProviderID: "azure://" + resource, Address: vm.Address,
		Region: strings.ToLower(d.Compute.Location),
	}
	if d.Compute.Zone != "" {
		id.Zone = id.Region + "-" + d.Compute.Zone
	}
	var own []string
	for _, i := range d.Network.Interfaces {
		for _, a := range append(i.IPv4.List, i.IPv6.List...) {
			own = append(own, a.Private)
		}
	}
	return id, cloud.CheckIdentity(id, own)
}

// NewLocator implements cloud.Locator. It asks nobody: the name of a VM is the ID of its agent (InstanceId in
// lib/cloud/azure/models/instance_id.rb of bosh-azure-cpi-release), which BOSH's records have. The controllers set the
// provider ID, by the name.
func (*Provider) NewLocator(string) node.Locator { return locator{} }

// locator implements node.Namer.
type locator struct{}

// Locate implements node.Locator.
func (locator) Locate(_ context.Context, instance node.Instance) (node.Location, error) {
	if instance.Agent == "" {
		return node.Location{}, &node.Refusal{Reason: fmt.Sprintf(
			"BOSH's records have no agent_id of instance %s, which is the name of its VM: update the Director",
			instance.ID,
		)}
	}
	return node.Location{Node: strings.ToLower(instance.Agent)}, nil
}

// Owner implements node.Namer.
func (locator) Owner(_ context.Context, name string) (node.Instance, error) {
	return node.Instance{Agent: name}, nil
}
