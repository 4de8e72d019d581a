package gce

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"
	"testing"

	"kubernetes-release/internal/metadata"
	"kubernetes-release/node"
)

const (
	vmName   = "vm-2f9d0c1e-0000-4000-8000-00000000000a"
	instance = "1a2b3c4d-0000-4000-8000-000000000001"
)

// service is Google's metadata service of a VM, by path. As documented, it refuses questions without its header.
type service map[string]string

func healthy() service {
	return service{
		"project/project-id": "acme-prod", "instance/name": vmName,
		"instance/zone":                           "projects/123456/zones/europe-west1-b",
		"instance/network-interfaces/":            `[{"ip": "10.0.0.7"}, {"ip": "10.1.0.7", "ipv6s": ["fd20::7"]}]`,
		"instance/service-accounts/default/token": `{"access_token": "t0ken", "expires_in": 3599}`,
	}
}

func (s service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, ok := s[strings.TrimPrefix(r.URL.Path, "/computeMetadata/v1/")]
	switch {
	case r.Header.Get("Metadata-Flavor") != "Google":
		w.WriteHeader(http.StatusForbidden)
	case !ok:
		w.WriteHeader(http.StatusNotFound)
	case text == "busy":
		w.WriteHeader(http.StatusServiceUnavailable)
	default:
		if flavor := s["flavor"]; flavor != "none" {
			w.Header().Set("Metadata-Flavor", "Google")
		}
		_, _ = w.Write([]byte(text))
	}
}

// with returns the service with other answers.
func (s service) with(changes service) service {
	changed := maps.Clone(s)
	maps.Copy(changed, changes)
	return changed
}

func serve(t *testing.T, handler http.Handler) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

func TestIdentify(t *testing.T) {
	bosh := node.VM{InstanceGroup: "worker", InstanceID: instance, Address: "10.0.0.7"}
	p := &Provider{MetadataEndpoint: serve(t, healthy())}
	want := node.Identity{
		Name: vmName, ProviderID: "gce://acme-prod/europe-west1-b/" + vmName, Address: "10.0.0.7",
		Zone: "europe-west1-b",
	}
	if got, err := p.Identify(t.Context(), bosh); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	for name, test := range map[string]struct {
		changes   service
		want      string
		temporary bool
	}{
		"starting": {service{"instance/name": "busy"}, "503", true},
		"another VM's answer": {
			service{"instance/network-interfaces/": `[{"ip": "10.0.0.8"}]`}, "another VM has answered", false,
		},
		"IPv6 only": {
			service{"instance/network-interfaces/": `[{"ip": "", "ipv6s": ["fd20::7"]}]`}, "10.0.0.7 in BOSH", false,
		},
		"no DNS name":         {service{"instance/name": "VM_1"}, `name "VM_1" is not a DNS subdomain`, false},
		"no name":             {service{"instance/name": ""}, "name is empty", false},
		"not Google's":        {service{"flavor": "none"}, "no header Metadata-Flavor", false},
		"no list of networks": {service{"instance/network-interfaces/": `{`}, "network interfaces", false},
	} {
		t.Run(name, func(t *testing.T) {
			p := &Provider{MetadataEndpoint: serve(t, healthy().with(test.changes))}
			_, err := p.Identify(t.Context(), bosh)
			if err == nil || !strings.Contains(err.Error(), test.want) ||
				errors.Is(err, metadata.ErrTemporary) != test.temporary {
				t.Errorf("%v", err)
			}
		})
	}
	closed := httptest.NewServer(healthy())
	closed.Close()
	if _, err := (&Provider{MetadataEndpoint: closed.URL}).Identify(t.Context(), bosh); !errors.Is(
		err, metadata.ErrTemporary,
	) {
		t.Errorf("not answering: %v", err)
	}
}

// compute is a project, as instances.aggregatedList shows it: with a filter, in pages of one VM, and with empty ones.
// instances.get answers too.
type compute struct {
	t      *testing.T
	vms    []vm
	status int
	asked  []url.Values
}

func (c *compute) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	c.asked = append(c.asked, query)
	if zone, name, one := strings.Cut(
		strings.TrimPrefix(r.URL.Path, "/compute/v1/projects/acme-prod/zones/"), "/instances/",
	); one {
		i := slices.IndexFunc(c.vms, func(v vm) bool { return v.Name == name && path.Base(v.Zone) == zone })
		if i < 0 {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		if err := json.NewEncoder(w).Encode(struct {
			vm
			Type string `json:"machineType"`
		}{c.vms[i], c.vms[i].Zone + "/machineTypes/e2-small"}); err != nil {
			c.t.Error(err)
		}
		return
	}
	if r.URL.Path != "/compute/v1/projects/acme-prod/aggregated/instances" ||
		r.Header.Get("Authorization") != "Bearer t0ken" || query.Get("returnPartialSuccess") != "true" {
		c.t.Errorf("asked %s with %v", r.URL, r.Header)
	}
	if c.status != 0 {
		w.WriteHeader(c.status)
		fmt.Fprint(w, `{"error": {"code": 403, "message": "Required 'compute.instances.list' permission"}}`)
		return
	}
	field, value, _ := strings.Cut(query.Get("filter"), " = ")
	var fitting []vm
	for _, v := range c.vms {
		if field == "name" && fmt.Sprintf("%q", v.Name) == value ||
			field == "labels.id" && fmt.Sprintf("%q", v.Labels["id"]) == value {
			fitting = append(fitting, v)
		}
	}
	var number int
	_, _ = fmt.Sscan(query.Get("pageToken"), &number)
	empty := map[string]any{"warning": map[string]string{"code": "NO_RESULTS_ON_PAGE"}}
	zones := map[string]any{"zones/us-east1-a": empty}
	answer := map[string]any{"items": zones}
	if number > 0 && number <= len(fitting) { // the first page is empty
		zones["zones/any"] = map[string]any{"instances": fitting[number-1 : number]}
	}
	if number < len(fitting) {
		answer["nextPageToken"] = fmt.Sprint(number + 1)
	}
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		c.t.Error(err)
	}
}

// machine is a VM of the project.
func machine(name, zone, id string, addresses ...string) vm {
	v := vm{
		Name: name, Zone: "https://www.googleapis.com/compute/v1/projects/acme-prod/zones/" + zone,
		Labels: map[string]string{"id": id, "deployment": "prod"},
	}
	for _, address := range addresses {
		v.Interfaces = append(v.Interfaces, struct {
			IP   string `json:"networkIP"`
			IPv6 string `json:"ipv6Address"`
		}{IP: address})
	}
	return v
}

func TestLocate(t *testing.T) {
	own := machine(vmName, "europe-west1-b", instance, "10.1.0.7", "10.0.0.7")
	for name, test := range map[string]struct {
		vms  []vm
		want string // of the refusal
	}{
		"one":       {[]vm{own, machine("vm-other", "europe-west1-b", "other", "10.0.0.8")}, ""},
		"a network": {[]vm{machine("vm-copy", "europe-west1-c", "other", "10.0.0.7"), own}, ""},
		"with the previous one, which BOSH deletes": {
			[]vm{machine("vm-old", "europe-west1-b", instance, "10.0.0.6"), own}, "",
		},
		"none":             {nil, "it has 0 of the VMs with the label: []"},
		"another's label":  {[]vm{machine(vmName, "z", "other", "10.0.0.7")}, "it has 0"},
		"another address":  {[]vm{machine(vmName, "z-1", instance, "10.0.0.9")}, vmName + " in z-1 [10.0.0.9]"},
		"IPv6 only":        {[]vm{machine(vmName, "z-1", instance, "fd20::7")}, "it has 0"},
		"two with a label": {[]vm{own, machine("vm-copy", "z", instance, "10.0.0.7")}, "it has 2"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &Provider{
				MetadataEndpoint: serve(t, healthy()), ComputeEndpoint: serve(t, &compute{t: t, vms: test.vms}),
			}
			got, err := p.NewLocator("").Locate(t.Context(), node.Instance{
				Deployment: "prod", ID: instance, Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.7")},
			})
			want := node.Location{Node: vmName, ProviderID: "gce://acme-prod/europe-west1-b/" + vmName}
			if test.want == "" {
				if err != nil || got != want {
					t.Errorf("%+v, %v", got, err)
				}
				return
			}
			var refusal *node.Refusal
			if !errors.As(err, &refusal) || !strings.Contains(refusal.Reason, test.want) || got != (node.Location{}) {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}

func TestOwner(t *testing.T) {
	project := &compute{t: t, vms: []vm{
		machine("vm-1", "z-1", "one", "10.0.0.1"), machine("vm-2", "z-1", "two", "10.0.0.2"),
		machine("vm-2", "z-2", "three", "10.0.0.3"), machine("vm-3", "z-1", "", "10.0.0.4"),
	}}
	p := &Provider{MetadataEndpoint: serve(t, healthy()), ComputeEndpoint: serve(t, project)}
	namer := p.NewLocator("").(node.Namer)
	if got, err := namer.Owner(t.Context(), "vm-1"); err != nil || got.ID != "one" {
		t.Errorf("%+v, %v", got, err)
	}
	for name, want := range map[string]string{"vm-2": "it has 2", "vm-3": "it has 0", "vm-4": "it has 0"} {
		var refusal *node.Refusal
		if _, err := namer.Owner(t.Context(), name); !errors.As(err, &refusal) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestComputeFails: that nobody knows is no refusal, and the message says which permission is missing.
func TestComputeFails(t *testing.T) {
	const token = "instance/service-accounts/default/token"
	withoutAccount := healthy()
	delete(withoutAccount, token)
	for name, test := range map[string]struct {
		service service
		status  int
		want    []string
	}{
		"no permission": {healthy(), 403, []string{"Required 'compute.instances.list' permission", "compute.readonly"}},
		"unavailable":   {healthy(), 503, []string{"503 Service Unavailable"}},
		"no account":    {withoutAccount, 0, []string{"service account", "404"}},
		"no token":      {healthy().with(service{token: "x"}), 0, []string{"token of the VM's service account"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := &Provider{
				MetadataEndpoint: serve(t, test.service),
				ComputeEndpoint:  serve(t, &compute{t: t, status: test.status}),
			}
			namer := p.NewLocator("").(node.Namer)
			_, located := namer.Locate(t.Context(), node.Instance{ID: instance})
			_, owned := namer.Owner(t.Context(), vmName)
			for _, err := range []error{located, owned} {
				var refusal *node.Refusal
				if err == nil || errors.As(err, &refusal) ||
					slices.ContainsFunc(test.want, func(w string) bool { return !strings.Contains(err.Error(), w) }) {
					t.Errorf("%v", err)
				}
			}
		})
	}
}

// TestTheAPIIsBehindAProxy: it is asked by way of the proxy of the environment, the metadata service never.
func TestTheAPIIsBehindAProxy(t *testing.T) {
	var proxied []string
	project := &compute{t: t, vms: []vm{machine(vmName, "z-1", instance, "10.0.0.7")}}
	proxy := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		proxied = append(proxied, r.URL.String())
		project.ServeHTTP(w, r)
	}))
	l := (&Provider{MetadataEndpoint: serve(t, healthy()), ComputeEndpoint: "http://compute.invalid"}).
		NewLocator("").(*locator)
	address, err := url.Parse(proxy)
	if err != nil {
		t.Fatal(err)
	}
	transport := l.client.Transport.(*http.Transport)
	if transport.Proxy == nil {
		t.Fatal("the proxy of the environment is not used")
	}
	transport.Proxy = http.ProxyURL(address) // that of the environment is read once in a process
	if _, err := l.Owner(t.Context(), vmName); err != nil || len(proxied) != 2 ||
		!strings.HasPrefix(proxied[0], "http://compute.invalid/compute/v1/") {
		t.Errorf("%v, by way of the proxy: %q", err, proxied)
	}
}
