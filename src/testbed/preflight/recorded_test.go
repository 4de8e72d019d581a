package preflight_test

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"testing"

	"kubernetes-release/cloud/aws"
	"kubernetes-release/cloud/aws/awstest"
	"kubernetes-release/cloud/owners/ownerstest"
	"kubernetes-release/testbed/awssim/store"
)

// recordedActions is what the simulator saw the programs of this release call, by program. The policies are compared
// with it.
const recordedActions = "../../helpers/cloud/aws/iampolicy/testdata/recorded-actions.json"

// TestRecordedPreflight compares the record with what the preflight calls on a control VM and a worker.
func TestRecordedPreflight(t *testing.T) {
	seen := map[string]bool{}
	for _, role := range both {
		i := simulatedInstance(1, role)
		sim := simulate(t, func(w *store.World) {
			w.Instances = []store.Instance{i}
			w.RouteTables[0].Tags["kubernetes.io/cluster/prod"] = "shared"
			w.Encryption = store.Encryption{ByDefault: true, DefaultKey: testStorageKey}
			w.KMSKeys = []store.KMSKey{{ARN: testStorageKey}}
			leaveBehind(w)
			generated(t, w)
		})
		sim.run(t, i, role, func(_ *aws.Provider, c *awstest.Config) {
			c.ConfigureCloudRoutes, c.Thorough, c.Storage = true, true, true
			c.NodeKubeconfig = ownerstest.Serve(t)
		})
		for _, c := range sim.Calls("") {
			for _, p := range c.Permissions {
				seen[p] = true
			}
		}
	}
	got := slices.Sorted(maps.Keys(seen))
	recorded := map[string][]string{}
	content, err := os.ReadFile(recordedActions)
	if err == nil {
		err = json.Unmarshal(content, &recorded)
	}
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv("UPDATE_RECORDED") != "" {
		recorded["cloud-preflight"] = got
		content, _ := json.MarshalIndent(recorded, "", "  ")
		if err := os.WriteFile(recordedActions, append(content, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want := recorded["cloud-preflight"]; !slices.Equal(got, want) {
		t.Errorf(
			"the preflight called\n%v, the record has\n%v; to update it: UPDATE_RECORDED=1 go test -run Recorded "+
				"./preflight",
			got, want,
		)
	}
}
