package acceptance

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"kubernetes-release/internal/tail"
	"kubernetes-release/node"
)

// checkRecreatedVMs recreates and kills VMs. A recreated VM has its old address, and so the node name of the previous
// VM, but is another instance in the cloud. It must rejoin by itself, whether it is a worker or runs the API.
func (l *lab) checkRecreatedVMs(t *testing.T) {
	instances := []string{"control/0", "worker/0", "worker/1"}
	// waited says whether a new VM found the Node of the previous VM, whose provider id is then in its log, when it
	// wanted to join.
	waited := func(instance string, previous machine) bool {
		return strings.Contains(
			l.ssh(t, instance, "cat", "/var/vcap/sys/log/kubelet/kubelet.stderr.log"), previous.providerID,
		)
	}
	before := l.machines(t, instances)
	for _, instance := range []string{"worker/0", "control/0"} {
		l.mustRun(t, deployTimeout, "recreate", instance)
		if waited(instance, before[instance]) {
			t.Errorf("%s left its Node behind when it was recreated", instance)
		}
	}
	recreated := l.machines(t, instances)
	l.checkReplaced(t, before, recreated, "worker/0", "control/0")

	lost := []string{"worker/1", "control/0"}
	for _, instance := range lost {
		l.mustRun(t, time.Minute, "kill", instance)
	}
	if out, err := l.up(); err == nil || !strings.Contains(out, "Timed out sending 'get_state'") {
		t.Errorf("a deploy with VMs that are lost: %v\n%s", err, tail.Lines(out, 20))
	}
	l.mustFix(t)
	l.checkReplaced(t, recreated, l.machines(t, instances), lost...)
	if !waited("control/0", recreated["control/0"]) {
		t.Error("control/0 did not wait until the lost VM's Node was deleted, so this test proves nothing")
	}
	l.checkPodsOfEveryNode(t, l.nodes(t, len(instances)))
}

// machine is a VM as its Node describes it.
type machine struct{ node, uid, providerID string }

// machines returns the Node of each instance, once it is Ready and the cloud has initialized it.
func (l *lab) machines(t *testing.T, instances []string) map[string]machine {
	t.Helper()
	machines := map[string]machine{}
	for _, instance := range instances {
		identity := l.identity(t, instance)
		waitFor(t, time.Minute, instance+" is a node", func() error {
			out, err := l.kubectl(
				t,
				"",
				"get",
				"node",
				identity.Name,
				"-o",
				`jsonpath={.metadata.uid} {.spec.providerID} {.status.conditions[?(@.type=="Ready")].status} `+
					`{.spec.taints[*].key}`,
			)
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			fields := strings.Fields(out)
			if len(fields) != 3 || fields[1] != identity.ProviderID || fields[2] != "True" {
				return fmt.Errorf(
					"got %q, want it Ready, untainted and with the provider id %s", out, identity.ProviderID,
				)
			}
			machines[instance] = machine{identity.Name, fields[0], fields[1]}
			return nil
		})
	}
	return machines
}

// checkReplaced expects these instances, and no others, to have new Nodes with the same names.
func (l *lab) checkReplaced(t *testing.T, before, after map[string]machine, replaced ...string) {
	t.Helper()
	for instance, was := range before {
		is := after[instance]
		if slices.Contains(replaced, instance) {
			if is.node != was.node || is.uid == was.uid || is.providerID == was.providerID {
				t.Errorf("%s was %+v, and is %+v after its VM was recreated", instance, was, is)
			}
		} else if is != was {
			t.Errorf("%s was %+v, and is %+v though it was not recreated", instance, was, is)
		}
	}
}

// checkDeletedNode deletes the Node of a VM that runs. After a restart the VM has a new Node with another pod subnet,
// which flannel and containerd must take over; pods have run on the VM before.
func (l *lab) checkDeletedNode(t *testing.T, nodes []string) {
	const instance = "worker/1"
	name := l.identity(t, instance).Name
	subnet := func() string { return l.mustKubectl(t, "", "get", "node", name, "-o", "jsonpath={.spec.podCIDR}") }
	before := subnet()
	// A controller manager that has just started gives the lowest free subnet, which is that of the deleted Node, and
	// then others.
	for range 2 {
		l.mustKubectl(t, "", "delete", "node", name)
		l.mustRun(t, deployTimeout, "restart", instance)
		l.machines(t, []string{instance})
		if subnet() != before {
			break
		}
	}
	if after := subnet(); after == before {
		t.Fatalf("the new Node has the subnet of the deleted one, %s, so this test proves nothing", after)
	}
	l.mustKubectl(t, "", "delete", "pods", "--all-namespaces", "--field-selector=spec.nodeName="+name, "--timeout=90s")
	l.checkPodsOfEveryNode(t, nodes)
}

// identity is what the preflight has found out about an instance.
func (l *lab) identity(t *testing.T, instance string) node.Identity {
	t.Helper()
	var identity node.Identity
	if err := json.Unmarshal(
		[]byte(l.ssh(t, instance, "cat", "/var/vcap/data/cloud-provider/node.json")), &identity,
	); err != nil {
		t.Fatal(err)
	}
	return identity
}

// checkRestartAndReboot expects pods to live on when the jobs of their node are restarted, which reloads monit, and the
// cluster to come back by itself after all VMs have lost power at the same time.
func (l *lab) checkRestartAndReboot(t *testing.T, instances []string) {
	const namespace = "every-node"
	l.mustKubectl(t, fmt.Sprintf(daemonManifest, namespace, l.smokeImage(t)), "apply", "-f", "-")
	l.mustKubectl(t, "", "-n", namespace, "rollout", "status", "daemonset/web", "--timeout=90s")
	machines, pods := l.machines(t, instances), l.containersOf(t, namespace)
	l.mustRun(t, deployTimeout, "restart", "worker/0")
	if log := l.ssh(
		t, "worker/0", "cat", "/var/vcap/sys/log/kubelet/drain.stderr.log",
	); !strings.Contains(log, "node is drained") {
		t.Errorf("worker/0 was not drained:\n%s", log)
	}
	l.checkReplaced(t, machines, l.machines(t, instances)) // back in service, too: without the taint of a cordoned node
	if after := l.containersOf(t, namespace); after != pods {
		t.Errorf("restarting worker/0 restarted containers; before:\n%s\nafter:\n%s", pods, after)
	}

	started := time.Now()
	l.mustRun(t, 2*time.Minute, "reboot")
	waitFor(t, 3*time.Minute, "every pod runs again", func() error {
		out, err := l.kubectl(
			t,
			"",
			"--request-timeout=5s",
			"get",
			"pods",
			"--all-namespaces",
			"-o",
			`jsonpath={range .items[*]}{.metadata.name} {.status.conditions[?(@.type=="Ready")].status} `+
				`{.status.containerStatuses[*].state.running.startedAt}{"\n"}{end}`,
		)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		for line := range strings.Lines(strings.TrimSpace(out)) {
			fields := strings.Fields(line)
			if len(fields) != 3 || fields[1] != "True" {
				return errors.New(line)
			}
			// The API has the old states until kubelet reports.
			if running, err := time.Parse(time.RFC3339, fields[2]); err != nil ||
				running.Before(started.Truncate(time.Second)) {
				return errors.Join(err, fmt.Errorf("%s has not been restarted", line))
			}
		}
		return nil
	})
	t.Logf("all pods run %s after the reboot", time.Since(started).Round(100*time.Millisecond))
	l.checkReplaced(t, machines, l.machines(t, instances))
	l.mustKubectl(t, "", "delete", "namespace", namespace, "--timeout=90s")
	// DNS and Services, from every node to every node.
	if out, err := l.run(5*time.Minute, "errand", "smoke-tests"); err != nil {
		t.Errorf("errand after the reboot: %v\n%s", err, out)
	}
}
