package openstack

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"

	"kubernetes-release/cloud"
	"kubernetes-release/node"
)

var _ cloud.Locator = (*Provider)(nil)

// regional is the variable with which the cloud controller gives provider IDs a region (RegionalProviderIDEnv in
// pkg/openstack/instances.go of cloud-provider-openstack).
const regional = "OS_CCM_REGIONAL"

// NewLocator implements cloud.Locator.
func (*Provider) NewLocator(cloudConfigFile string) node.Locator {
	return &locator{file: cloudConfigFile}
}

// locator asks Nova, with the credential of the cloud controller.
type locator struct {
	file string

	mu      sync.Mutex
	compute *gophercloud.ServiceClient
	region  string // of provider IDs
}

// connect gets a token at the first call, and again when that call has failed. Later the client renews it.
func (l *locator) connect(ctx context.Context) (*gophercloud.ServiceClient, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.compute != nil {
		return l.compute, nil
	}
	text, err := os.ReadFile(l.file)
	if err != nil {
		return nil, err
	}
	c, err := parseConfig(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", l.file, err)
	}
	client, err := c.newClient(l.file, func(t http.RoundTripper) http.RoundTripper { return t })
	if err != nil {
		return nil, err
	}
	auth := c.auth()
	auth.AllowReauth = true
	if err := openstack.Authenticate(ctx, client, auth); err != nil {
		return nil, fmt.Errorf("authenticate to Keystone: %w", err)
	}
	compute, err := openstack.NewComputeV2(client, c.endpoint())
	if err != nil {
		return nil, err
	}
	if os.Getenv(regional) == "true" {
		l.region = c.get("Global", "region")
	}
	l.compute = compute
	return compute, nil
}

// Locate implements node.Locator. The server of an instance has one of its addresses as a fixed IP, and in its
// metadata the deployment and the instance, which the Director sets (metadata_updater.rb in bosh-director) and a server
// cannot change. The address alone would not do: two networks of a project can have the same.
func (l *locator) Locate(ctx context.Context, instance node.Instance) (node.Location, error) {
	compute, err := l.connect(ctx)
	if err != nil {
		return node.Location{}, err
	}
	holders := map[string]servers.Server{} // of one of the addresses, by ID
	for _, address := range instance.Addresses {
		if !address.Is4() {
			continue // Nova lets administrators only search for others
		}
		// Nova takes the address as an expression, or as a part of one; in both cases the server is among the answers.
		list, err := all(ctx, servers.List(compute, servers.ListOpts{IP: address.String()}), servers.ExtractServers)
		if err != nil {
			return node.Location{}, fmt.Errorf("ask Nova for the server with the address %s: %w", address, err)
		}
		for _, server := range list {
			if hasFixed(server, address) {
				holders[server.ID] = server
			}
		}
	}
	var others, ids []string
	for id, server := range holders {
		deployment, of := server.Metadata["deployment"], server.Metadata["id"]
		if deployment == instance.Deployment && of == instance.ID {
			ids = append(ids, id)
		} else {
			others = append(others, fmt.Sprintf("%s (metadata deployment=%q, id=%q)", id, deployment, of))
		}
	}
	reason := fmt.Sprintf(
		"no server in the project of the credential has an address of %v as a fixed IP", instance.Addresses,
	)
	switch {
	case len(ids) == 1:
		return node.Location{ProviderID: "openstack://" + l.region + "/" + ids[0]}, nil
	case len(ids) > 1:
		reason = fmt.Sprintf(
			"the servers %s all have an address of %v, and the metadata deployment=%q and id=%q; delete those that "+
				"are not BOSH's (bosh vms)",
			strings.Join(ids, ", "), instance.Addresses, instance.Deployment, instance.ID,
		)
	case len(others) > 0:
		reason = fmt.Sprintf(
			"of the servers with an address of %v, none has the metadata deployment=%q and id=%q, which the Director "+
				"sets: %s",
			instance.Addresses, instance.Deployment, instance.ID, strings.Join(others, ", "),
		)
	}
	return node.Location{}, &node.Refusal{Reason: reason}
}

// hasFixed reports whether an address is one of the server's own, and not a floating IP.
func hasFixed(server servers.Server, address netip.Addr) bool {
	for _, network := range server.Addresses {
		list, _ := network.([]any)
		for _, entry := range list {
			fields, _ := entry.(map[string]any)
			if fields["addr"] == address.String() && fields["OS-EXT-IPS:type"] == "fixed" {
				return true
			}
		}
	}
	return false
}
