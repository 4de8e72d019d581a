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

// checkOpenStack expects each Node to be the server of its instance, also after its VM was recreated, that the load
// balancer and the volumes of the smoke tests are gone, and that a volume of Cinder moves from node to node, also to
// the recreated one.
func (l *lab) checkOpenStack(t *testing.T) {
	before := l.checkServers(t, "control/0", "worker/0")
	l.checkProjectIsEmpty(t)
	l.mustRun(t, 5*time.Minute, "errand", "cloud-preflight")

	v := &volumes{lab: l, image: l.smokeImage(t)}
	l.mustKubectl(t, "", "create", "namespace", "volumes")
	v.apply(t, "claim.yml", map[string]string{"CLAIM": "kept", "CLASS": "cinder"})
	v.pod(t, "first", "kept", l.identity(t, "worker/0").Name)
	v.store(t, "first", "of the first VM")
	v.pod(t, "second", "kept", l.identity(t, "worker/1").Name)
	v.expect(t, "second", "of the first VM")

	l.mustRun(t, deployTimeout, "recreate", "worker/0")
	after := l.checkServers(t, "control/0", "worker/0")
	if after[0] != before[0] || after[1] == before[1] {
		t.Errorf("provider IDs %q became %q, want another one of the worker only", before, after)
	}
	v.pod(t, "third", "kept", l.identity(t, "worker/0").Name)
	v.expect(t, "third", "of the first VM")
	if list := l.project(t).Volumes; len(list) != 1 || len(list[0].Attachments) != 1 ||
		"openstack:///"+list[0].Attachments[0].ServerID != after[1] {
		t.Errorf("volumes are %+v, want one of the server %s", list, after[1])
	}
	l.mustKubectl(t, "", "delete", "namespace", "volumes", "--timeout=100s")
	l.checkProjectIsEmpty(t)
}

// checkProjectIsEmpty expects that what the cluster has created in the project is gone.
func (l *lab) checkProjectIsEmpty(t *testing.T) {
	t.Helper()
	waitFor(t, 2*time.Minute, "deletion of what the cluster created", func() error {
		world := l.project(t)
		if len(world.LoadBalancers)+len(world.FloatingIPs)+len(world.Volumes)+len(world.Snapshots) > 0 {
			return fmt.Errorf(
				"left: %+v, %+v, %+v, %+v", world.LoadBalancers, world.FloatingIPs, world.Volumes, world.Snapshots,
			)
		}
		return nil
	})
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
