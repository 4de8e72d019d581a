package boshdns

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// aliases are as blobstore_dns_publisher_spec.rb of bosh-director has them: two deployments have the same cluster.name.
const aliases = `{"version": 7, "records": [], "aliases": {
"api.prod.kubernetes.internal": [
	{"root_domain": "bosh", "group_id": "21", "health_filter": "smart", "initial_health_check": null,
		"placeholder_type": null},
	{"root_domain": "bosh", "group_id": "9", "health_filter": "smart", "initial_health_check": null,
		"placeholder_type": null}],
"api.staging.kubernetes.internal": [
	{"root_domain": "bosh", "group_id": "30", "health_filter": "smart", "initial_health_check": null,
		"placeholder_type": null}]},
"record_keys": ["id", "num_id", "instance_group", "group_ids", "az", "az_id",
	"network", "network_id", "deployment", "ip", "domain", "agent_id", "instance_index"],
"record_infos": [
["3c5e8f1a-0000-4000-8000-000000000001", "3", "control", ["20", "21", "22"], "z1", "1", "private", "1",
	"kube-two", "10.0.0.4", "bosh", "agent", 0],
["3c5e8f1a-0000-4000-8000-000000000002", "4", "control", ["8", "9"], "z1", "1", "private", "1",
	"kube-one", "10.0.0.5", "bosh", "agent", 0],
["3c5e8f1a-0000-4000-8000-000000000003", "5", "worker", ["7"], null, null, "private", "1",
	"kube-one", "10.0.0.6", "bosh", "agent", 0],
["3c5e8f1a-0000-4000-8000-000000000004", "6", "control", ["29", "30"], "z1", "1", "private", "1",
	"staging", "10.0.0.7", "bosh", "agent", 0]]}`

// TestCheckAlias: the cluster that was first must not fail because of the other one.
func TestCheckAlias(t *testing.T) {
	const prod, staging = "api.prod.kubernetes.internal", "api.staging.kubernetes.internal"
	for name, test := range map[string]struct {
		content, alias, deployment string
		// refused, warns are parts of the error and of the log.
		refused, warns string
	}{
		"the second deployment":   {aliases, prod, "Kube_Two", "leads to VMs of the deployment kube-one", ""},
		"the first":               {aliases, prod, "Kube_One", "", "kube-two"},
		"a load balancer of BOSH": {aliases, staging, "kube-two", "", ""},
		"the only one":            {aliases, staging, "staging", "", ""},
		"a load balancer":         {aliases, "k8s.example.com", "kube-two", "", ""},
		"a Director before":       {strings.Replace(aliases, `"aliases"`, `"x"`, 1), prod, "kube-two", "", ""},
		"aliases of queries": {
			`{"aliases": {"` + prod + `": ["q-s3.q-g9.bosh"]}}`, prod, "kube-two", "", "looked for",
		},
		"records without them": {strings.Replace(aliases, "group_ids", "x", 1), prod, "kube-two", "", "looked for"},
		"no JSON":              {"", prod, "kube-two", "", "looked for"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "records.json")
			if err := os.WriteFile(path, []byte(test.content), 0o600); err != nil {
				t.Fatal(err)
			}
			var logged strings.Builder
			err := CheckAlias(path, test.alias, test.deployment, slog.New(slog.NewTextHandler(&logged, nil)))
			if refused := err != nil; refused != (test.refused != "") ||
				refused && !strings.Contains(err.Error(), test.refused) {
				t.Errorf("error %v, want %q", err, test.refused)
			}
			if text := logged.String(); !strings.Contains(text, test.warns) || test.warns == "" && text != "" {
				t.Errorf("logged %q, want %q", text, test.warns)
			}
		})
	}
	if err := CheckAlias(filepath.Join(t.TempDir(), "none"), prod, "x", slog.New(slog.DiscardHandler)); err != nil {
		t.Errorf("a VM that has no records yet: %v", err)
	}
}
