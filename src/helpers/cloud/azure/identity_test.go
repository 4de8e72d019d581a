package azure

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"kubernetes-release/internal/metadata"
	"kubernetes-release/node"
)

// answer is what the metadata service answers, as documented.
const answer = `{"compute": {"name": "` + own + `", "location": "WestEurope", "zone": "2",
"resourceGroupName": "RG-Prod", "subscriptionId": "8D10DA13-0000-4000-8000-000000000001", "vmSize": "Standard_D2s_v5",
"resourceId": "/subscriptions/8D10DA13-0000-4000-8000-000000000001/resourceGroups/RG-Prod/providers/` +
	`Microsoft.Compute/virtualMachines/` + own + `"},
"network": {"interface": [
	{"ipv4": {"ipAddress": [{"privateIpAddress": "10.1.0.5", "publicIpAddress": ""}]}, "ipv6": {"ipAddress": []}},
	{"ipv4": {"ipAddress": [{"privateIpAddress": "10.0.0.5", "publicIpAddress": "203.0.113.9"}]}}]}}`

// serve is the metadata service. As documented, it refuses questions without its header, and without a version.
func serve(t *testing.T, status int, text string) *Provider {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != "/metadata/instance" || r.URL.Query().Get("api-version") == "" ||
			!strings.EqualFold(r.Header.Get("Metadata"), "true"):
			w.WriteHeader(http.StatusBadRequest)
		case status != 0:
			w.WriteHeader(status)
		default:
			_, _ = w.Write([]byte(text))
		}
	}))
	t.Cleanup(server.Close)
	return &Provider{MetadataEndpoint: server.URL}
}

func TestIdentify(t *testing.T) {
	bosh := node.VM{InstanceGroup: "worker", InstanceID: "1a2b3c4d", Address: "10.0.0.5"}
	want := node.Identity{
		Name: own, Address: "10.0.0.5", Region: "westeurope", Zone: "westeurope-2",
		ProviderID: "azure:///subscriptions/8d10da13-0000-4000-8000-000000000001/resourceGroups/rg-prod/providers/" +
			"Microsoft.Compute/virtualMachines/" + own,
	}
	if got, err := serve(t, 0, answer).Identify(t.Context(), bosh); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	change := func(from, to string) string { return strings.ReplaceAll(answer, from, to) }
	for name, test := range map[string]struct {
		status    int
		text      string
		want      string
		temporary bool
	}{
		"starting":            {503, "", "503", true},
		"busy":                {429, "", "429", true},
		"gone":                {404, "", "404", false},
		"another VM's answer": {0, change("10.0.0.5", "10.0.0.6"), "another VM has answered", false},
		"IPv6 only": {0, `{"compute": {"name": "a", "resourceId": "/r"}, "network": {"interface": [
			{"ipv6": {"ipAddress": [{"privateIpAddress": "fd00::5"}]}}]}}`, "[fd00::5]", false},
		"no DNS name":    {0, change(own, "vm_1"), `name "vm_1" is not a DNS subdomain`, false},
		"no resource":    {0, change("resourceId", "other"), "no compute.resourceId", false},
		"something else": {0, "<html>", "/metadata/instance", false},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := serve(t, test.status, test.text).Identify(t.Context(), bosh)
			if err == nil || !strings.Contains(err.Error(), test.want) ||
				errors.Is(err, metadata.ErrTemporary) != test.temporary {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestLocate: the VM of an instance has the ID of the agent as its name, whatever it says itself.
func TestLocate(t *testing.T) {
	namer := (&Provider{}).NewLocator("").(node.Namer)
	got, err := namer.Locate(t.Context(), node.Instance{ID: "1a2b3c4d", Agent: own})
	if err != nil || got != (node.Location{Node: own}) {
		t.Errorf("%+v, %v", got, err)
	}
	var refusal *node.Refusal
	if _, err := namer.Locate(t.Context(), node.Instance{ID: "1a2b3c4d"}); !errors.As(err, &refusal) ||
		!strings.Contains(refusal.Reason, "no agent_id of instance 1a2b3c4d") {
		t.Errorf("an old Director: %v", err)
	}
	if got, err := namer.Owner(t.Context(), own); err != nil || got.Agent != own {
		t.Errorf("%+v, %v", got, err)
	}
}
