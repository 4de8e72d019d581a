package names

import (
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"kubernetes-release/internal/boshdns"
)

// TestRecordsAreReadByTheRelease: what the lab's Director sends to VMs is what the release reads there.
func TestRecordsAreReadByTheRelease(t *testing.T) {
	n := names{Deployment: "Kube_Prod", Zones: map[string]int{"z1": 1}, Instances: []namedInstance{
		{
			ID:      "3c5e8f1a-0000-4000-8000-000000000001",
			Group:   "Worker_GPU",
			Network: "private",
			AZ:      "z1",
			Address: netip.MustParseAddr("10.0.0.4"),
			VM:      "x",
		},
		{
			ID:      "3c5e8f1a-0000-4000-8000-000000000002",
			Group:   "worker",
			Network: "private",
			Address: netip.MustParseAddr("10.0.0.5"),
			VM:      "y",
		},
		{
			ID:      "3c5e8f1a-0000-4000-8000-000000000003",
			Group:   "worker",
			Network: "private",
			Address: netip.MustParseAddr("10.0.0.6"),
		},
	}}
	n.Aliases = []alias{{Domain: "api.prod.internal", Group: "Worker_GPU"}}
	other := names{Deployment: "other", Instances: n.Instances[:1], Aliases: n.Aliases}
	content, err := encode([]names{n, other})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "records.json")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	records, err := boshdns.Deployment{Name: "Kube_Prod", Domain: "bosh", Records: path}.Load()
	if err != nil || len(records) != 2 || records[0].InstanceGroup != "worker-gpu" || records[0].AZ != "z1" ||
		records[1].AZ != "" ||
		records[1].IP.String() != "10.0.0.5" {
		t.Errorf("got %+v, %v", records, err)
	}
	log := slog.New(slog.DiscardHandler)
	if err := boshdns.CheckAlias(path, "api.prod.internal", "Kube_Prod", log); err != nil {
		t.Errorf("of the deployment that had the alias first: %v", err)
	}
	if err := boshdns.CheckAlias(path, "api.prod.internal", "other", log); err == nil {
		t.Error("the alias also leads to another deployment, which is not found")
	}
	if err := boshdns.CheckAlias(path, "api.prod.internal", "third", log); err != nil {
		t.Errorf("of a deployment that has a load balancer in others: %v", err)
	}
}
