package openstack

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	service "kubernetes-release/internal/metadata"
	"kubernetes-release/node"
)

// metadata is what the metadata service says of the server that asks.
type metadata struct {
	UUID    string `json:"uuid"`
	Name    string `json:"name"`
	Zone    string `json:"availability_zone"`
	Project string `json:"project_id"`
	// clock is the service's time, by the header Date; zero without.
	clock time.Time
}

// readMetadata asks the metadata service (metadataURLTemplate in pkg/util/metadata/metadata.go of
// cloud-provider-openstack).
func readMetadata(ctx context.Context, endpoint string) (metadata, error) {
	url := endpoint + "/openstack/latest/meta_data.json"
	answer, err := service.Get(ctx, url, nil)
	if err != nil {
		return metadata{}, err
	}
	var m metadata
	if err := json.Unmarshal(answer.Body, &m); err != nil {
		return metadata{}, fmt.Errorf("%s: %w", url, err)
	}
	if m.UUID == "" {
		return metadata{}, fmt.Errorf("%s has no uuid", url)
	}
	m.clock, _ = http.ParseTime(answer.Header.Get("Date"))
	return m, nil
}

// identity is that of the Node: BOSH's name, and the provider ID by which the cloud controller finds the server
// (instanceIDFromProviderID in pkg/openstack/instances.go). It accepts an ID without a region in every region.
func (m metadata) identity(vm node.VM) node.Identity {
	id := vm.Identity()
	id.ProviderID, id.Zone = "openstack:///"+m.UUID, m.Zone
	return id
}
