package boshdns

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const content = `{"version": 7, "records": [["10.0.0.4", "x.bosh"]], "aliases": {},
"record_keys": ["id", "num_id", "instance_group", "group_ids", "az", "az_id",
	"network", "network_id", "deployment", "ip", "domain", "agent_id", "instance_index"],
"record_infos": [
["3c5e8f1a-0000-4000-8000-000000000001", "3", "worker-gpu", ["1"], "z1", "1", "private", "1",
	"kube-prod", "10.0.0.4", "bosh", "agent", 0],
["3c5e8f1a-0000-4000-8000-000000000002", "4", "worker-gpu", ["1"], null, null, "private", "1",
	"kube-prod", "10.0.0.5", "bosh", "agent", 1],
["3c5e8f1a-0000-4000-8000-000000000003", "5", "worker-gpu", ["1"], "z1", "1", "private", "1",
	"other", "10.0.0.6", "bosh", "agent", 0]]}`

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "records.json")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	load := func(path string) ([]Record, error) { return Deployment{"kube-prod", "bosh", path}.Load() }
	write(content)
	records, err := Deployment{"Kube_Prod", "bosh", path}.Load()
	want := Record{
		"3c5e8f1a-0000-4000-8000-000000000001",
		"worker-gpu",
		"z1",
		"private",
		"kube-prod",
		"bosh",
		"agent",
		netip.MustParseAddr("10.0.0.4"),
	}
	if err != nil || len(records) != 2 || records[0] != want || records[1].AZ != "" {
		t.Errorf("got %+v, %v", records, err)
	}
	write(strings.Replace(content, `"10.0.0.6"`, `""`, 1))
	if records, err := load(path); err != nil || len(records) != 2 {
		t.Errorf("with an instance of another deployment that has no address: %+v, %v", records, err)
	}
	write(strings.NewReplacer(`, "agent_id"`, "", `, "agent"`, "").Replace(content))
	if records, err := load(path); err != nil || len(records) != 2 || records[0].Agent != "" {
		t.Errorf("of a Director that does not write the agents: %+v, %v", records, err)
	}
	for _, broken := range []string{
		"", "[]", `{"record_keys": ["id"]}`, strings.Replace(content, `"10.0.0.5"`, `"ten"`, 1),
		strings.Replace(content, `, "agent", 1]`, `]`, 1), strings.Replace(content, `"z1"`, `1`, 1),
	} {
		write(broken)
		if _, err := load(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error %v", broken, err)
		}
	}
	if _, err := load(path + "x"); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("no file: %v", err)
	}
}
