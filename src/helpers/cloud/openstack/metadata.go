package openstack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"kubernetes-release/node"
)

// metadataService is where servers ask about themselves (metadataURLTemplate in pkg/util/metadata/metadata.go of
// cloud-provider-openstack).
const metadataService = "http://169.254.169.254"

// metadata is what the metadata service says of the server that asks.
type metadata struct {
	UUID    string `json:"uuid"`
	Name    string `json:"name"`
	Zone    string `json:"availability_zone"`
	Project string `json:"project_id"`
	// clock is the service's time, by the header Date; zero without.
	clock time.Time
}

// errTemporary marks a failure that may end by itself.
var errTemporary = errors.New("temporary")

func readMetadata(ctx context.Context, endpoint string) (metadata, error) {
	url := endpoint + "/openstack/latest/meta_data.json"
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return metadata{}, err
	}
	// A proxy would ask about itself.
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return metadata{}, errors.Join(err, errTemporary)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		err := fmt.Errorf("%s answers %s", url, response.Status)
		if response.StatusCode >= http.StatusInternalServerError {
			err = errors.Join(err, errTemporary)
		}
		return metadata{}, err
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return metadata{}, errors.Join(err, errTemporary)
	}
	var m metadata
	if err := json.Unmarshal(body, &m); err != nil {
		return metadata{}, fmt.Errorf("%s: %w", url, err)
	}
	if m.UUID == "" {
		return metadata{}, fmt.Errorf("%s has no uuid", url)
	}
	m.clock, _ = http.ParseTime(response.Header.Get("Date"))
	return m, nil
}

// identity is that of the Node: BOSH's name, and the provider ID by which the cloud controller finds the server
// (instanceIDFromProviderID in pkg/openstack/instances.go). It accepts an ID without a region in every region.
func (m metadata) identity(vm node.VM) node.Identity {
	id := vm.Identity()
	id.ProviderID, id.Zone = "openstack:///"+m.UUID, m.Zone
	return id
}
