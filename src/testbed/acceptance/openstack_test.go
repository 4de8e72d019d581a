package acceptance

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kubernetes-release/node"
	"kubernetes-release/testbed/openstacksim"
)

// checkOpenStack expects each Node to be the server of its instance, also after its VM was recreated, and that the load
// balancer of the smoke tests, which answered, is gone.
func (l *lab) checkOpenStack(t *testing.T) {
	before := l.checkServers(t, "control/0", "worker/0")
	if world := l.project(t); len(world.LoadBalancers)+len(world.FloatingIPs) > 0 {
		t.Errorf("left of the smoke tests: %+v, %+v", world.LoadBalancers, world.FloatingIPs)
	}
	l.mustRun(t, 5*time.Minute, "errand", "cloud-preflight")
	l.mustRun(t, deployTimeout, "recreate", "worker/0")
	after := l.checkServers(t, "control/0", "worker/0")
	if after[0] != before[0] || after[1] == before[1] {
		t.Errorf("provider IDs %q became %q, want another one of the worker only", before, after)
	}
}

// checkServers waits until the Nodes of instances are initialized with the provider IDs of their servers, and returns
// these.
func (l *lab) checkServers(t *testing.T, instances ...string) []string {
	t.Helper()
	ids := make([]string, len(instances))
	for i, instance := range instances {
		name := l.identity(t, instance).Name
		var server string
		for _, s := range l.project(t).Servers {
			if node.BOSHName(s.Metadata["job"], s.Metadata["id"]) == name {
				server = s.ID
			}
		}
		ids[i] = "openstack:///" + server
		want := fmt.Sprintf("%s %s %s []", ids[i], openstacksim.LabZone, "m1.large")
		waitFor(t, 2*time.Minute, "Node of "+instance+" is initialized", func() error {
			out, err := l.kubectl(
				t, "", "get", "node", name, "-o", `jsonpath={.spec.providerID} `+
					`{.metadata.labels.topology\.kubernetes\.io/zone} `+
					`{.metadata.labels.node\.kubernetes\.io/instance-type} `+
					`[{.spec.taints[?(@.key=="node.cloudprovider.kubernetes.io/uninitialized")].key}]`,
			)
			if err == nil && strings.TrimSpace(out) != want {
				err = fmt.Errorf("got %q, want %q", out, want)
			}
			return err
		})
	}
	return ids
}

// project returns the simulated project of OpenStack.
func (l *lab) project(t *testing.T) *openstacksim.World {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(l.state, "openstack.json"))
	if err != nil {
		t.Fatal(err)
	}
	var world openstacksim.World
	if err := json.Unmarshal(text, &world); err != nil {
		t.Fatal(err)
	}
	return &world
}
