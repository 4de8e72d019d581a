package gce

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"kubernetes-release/cloud"
	"kubernetes-release/node"
)

var _ cloud.Locator = (*Provider)(nil)

// timeout limits one request, maxAnswer its answer.
const (
	timeout   = 20 * time.Second
	maxAnswer = 64 << 20
)

// idLabel has the ID of the instance, which the CPI sets on every VM to what the Director says (SetMetadata in
// google_instance_set_metadata.go of bosh-google-cpi-release). A UUID is a label as it is; the name of a deployment
// need not be one.
const idLabel = "id"

// NewLocator implements cloud.Locator. The credential is that of the VM's service account, as the cloud controller's.
func (p *Provider) NewLocator(string) node.Locator {
	// Google's API can be behind a proxy, which its metadata service never is.
	return &locator{p, http.Client{Timeout: timeout, Transport: &http.Transport{Proxy: http.ProxyFromEnvironment}}}
}

// locator asks Compute Engine. It implements node.Namer.
type locator struct {
	*Provider
	client http.Client
}

var _ node.Namer = (*locator)(nil)

// vm is what Compute Engine says of a VM.
type vm struct {
	Name       string            `json:"name"`
	Zone       string            `json:"zone"` // a URL
	Labels     map[string]string `json:"labels"`
	Interfaces []struct {
		IP   string `json:"networkIP"`
		IPv6 string `json:"ipv6Address"`
	} `json:"networkInterfaces"`
}

func (v vm) addresses() []string {
	var all []string
	for _, i := range v.Interfaces {
		all = append(all, i.IP, i.IPv6)
	}
	return slices.DeleteFunc(all, func(a string) bool { return a == "" })
}

func (v vm) String() string {
	return fmt.Sprintf("%s in %s %v", v.Name, path.Base(v.Zone), v.addresses())
}

// Locate implements node.Locator. The VM of an instance has its ID as a label, which a VM cannot change, and one of its
// addresses. The label alone is a claim of whoever may write it.
func (l *locator) Locate(ctx context.Context, instance node.Instance) (node.Location, error) {
	project, err := l.text(ctx, "project/project-id")
	if err != nil {
		return node.Location{}, err
	}
	vms, err := l.list(ctx, project, "labels."+idLabel, instance.ID)
	if err != nil {
		return node.Location{}, err
	}
	var own []vm
	for _, v := range vms {
		if v.Labels[idLabel] == instance.ID && cloud.HasAddress(v.addresses(), instance.Addresses...) {
			own = append(own, v)
		}
	}
	if len(own) != 1 {
		return node.Location{}, &node.Refusal{Reason: fmt.Sprintf(
			"project %s must have one VM with the label %s=%s, which the CPI sets, and an address of %v; it has %d of "+
				"the VMs with the label: %v", project, idLabel, instance.ID, instance.Addresses, len(own), vms,
		)}
	}
	name := own[0].Name
	return node.Location{Node: name, ProviderID: providerID(project, path.Base(own[0].Zone), name)}, nil
}

// Owner implements node.Namer.
func (l *locator) Owner(ctx context.Context, name string) (node.Instance, error) {
	project, err := l.text(ctx, "project/project-id")
	if err != nil {
		return node.Instance{}, err
	}
	vms, err := l.list(ctx, project, "name", name)
	if err != nil {
		return node.Instance{}, err
	}
	var ids []string
	for _, v := range vms {
		if id := v.Labels[idLabel]; v.Name == name && id != "" {
			ids = append(ids, id)
		}
	}
	if len(ids) != 1 {
		return node.Instance{}, &node.Refusal{Reason: fmt.Sprintf(
			"project %s must have one VM %s with a label %s, which the CPI sets; it has %d: %v", project, name, idLabel,
			len(ids), vms,
		)}
	}
	return node.Instance{ID: ids[0]}, nil
}

// list returns the VMs in all zones of which a field has this value. Those of a zone that does not answer are missing,
// so that VMs of others can join.
func (l *locator) list(ctx context.Context, project, field, value string) ([]vm, error) {
	query := url.Values{"filter": {fmt.Sprintf("%s = %q", field, value)}, "returnPartialSuccess": {"true"}}
	var found []vm
	for {
		var page struct {
			Items map[string]struct {
				Instances []vm `json:"instances"`
			} `json:"items"`
			Next string `json:"nextPageToken"`
		}
		if err := l.get(ctx, project, query, &page); err != nil {
			return nil, fmt.Errorf("ask Compute Engine for the VM with the %s %s: %w", field, value, err)
		}
		for _, zone := range page.Items {
			found = append(found, zone.Instances...)
		}
		if page.Next == "" {
			return found, nil
		}
		query.Set("pageToken", page.Next)
	}
}

func (l *locator) get(ctx context.Context, project string, query url.Values, into any) error {
	content, err := l.ask(ctx, "instance/service-accounts/default/token")
	if err != nil {
		return fmt.Errorf("token of the VM's service account, which the VM extension of control VMs gives it: %w", err)
	}
	var token struct {
		Access string `json:"access_token"`
	}
	if err := json.Unmarshal(content, &token); err != nil {
		return fmt.Errorf("token of the VM's service account: %w", err)
	}
	request, err := http.NewRequestWithContext(
		ctx, http.MethodGet, cmp.Or(l.ComputeEndpoint, "https://compute.googleapis.com")+"/compute/v1/projects/"+
			url.PathEscape(project)+"/aggregated/instances?"+query.Encode(), nil,
	)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+token.Access)
	response, err := l.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return err
	}
	if response.StatusCode == http.StatusOK {
		return json.Unmarshal(body, into)
	}
	var failure struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	_ = json.Unmarshal(body, &failure) // what is not JSON has no message
	hint := ""
	if response.StatusCode == http.StatusForbidden {
		hint = "; the service account of control VMs requires compute.instances.list, and the scope compute.readonly"
	}
	return fmt.Errorf("%s: %s%s", response.Status, strings.TrimSpace(failure.Error.Message), hint)
}
