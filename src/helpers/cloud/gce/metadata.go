package gce

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path"

	"kubernetes-release/cloud"
	"kubernetes-release/internal/metadata"
	"kubernetes-release/node"
)

var _ cloud.Identifier = (*Provider)(nil)

// flavor is the header of questions and of answers.
const flavor = "Metadata-Flavor"

// ask asks the metadata service. Single values are asked for, since BOSH keeps the agent's credentials beside them.
func (p *Provider) ask(ctx context.Context, name string) ([]byte, error) {
	url := cmp.Or(p.MetadataEndpoint, metadata.Service) + "/computeMetadata/v1/" + name
	answer, err := metadata.Get(ctx, url, map[string]string{flavor: "Google"})
	if err != nil {
		return nil, err
	}
	if answer.Header.Get(flavor) != "Google" {
		return nil, fmt.Errorf("%s does not answer as Google's metadata service: no header %s", url, flavor)
	}
	return answer.Body, nil
}

func (p *Provider) text(ctx context.Context, name string) (string, error) {
	body, err := p.ask(ctx, name)
	return string(body), err
}

// Identify implements cloud.Identifier. The name of the Node is that of the VM, by which the cloud controller adds it
// to load balancers (getInstancesByNames in providers/gce/gce_instances.go of cloud-provider-gcp).
func (p *Provider) Identify(ctx context.Context, vm node.VM) (node.Identity, error) {
	id := node.Identity{Address: vm.Address}
	project, err := p.text(ctx, "project/project-id")
	if err != nil {
		return id, err
	}
	if id.Name, err = p.text(ctx, "instance/name"); err != nil {
		return id, err
	}
	zone, err := p.text(ctx, "instance/zone")
	if err != nil {
		return id, err
	}
	content, err := p.ask(ctx, "instance/network-interfaces/?recursive=true")
	if err != nil {
		return id, err
	}
	var interfaces []struct {
		IP    string   `json:"ip"`
		IPv6s []string `json:"ipv6s"`
	}
	if err := json.Unmarshal(content, &interfaces); err != nil {
		return id, fmt.Errorf("network interfaces in metadata: %w", err)
	}
	var addresses []string
	for _, i := range interfaces {
		addresses = append(append(addresses, i.IP), i.IPv6s...)
	}
	id.Zone = path.Base(zone) // projects/NUMBER/zones/ZONE
	id.ProviderID = providerID(project, id.Zone, id.Name)
	return id, cloud.CheckIdentity(id, addresses)
}

// providerID is as splitProviderID in providers/gce/gce_util.go reads it.
func providerID(project, zone, name string) string {
	return "gce://" + project + "/" + zone + "/" + name
}
