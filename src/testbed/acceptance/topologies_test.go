package acceptance

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"kubernetes-release/internal/tail"
	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/awssim/store"
)

// oneEtcd are the variables of use-separate-etcd.yml for one VM.
var oneEtcd = []string{"etcd_instances=1", "etcd_azs=[kubernetes-z1]", "etcd_vm_type=kubernetes-control"}

// TestSoakTopologies deploys the topologies of docs/topologies.md that no other test deploys, cloud routes, and no
// cloud.
func TestSoakTopologies(t *testing.T) {
	for _, topology := range []struct {
		name      string
		base      []string // onAWS, unless nil
		ops, vars []string
		control   string   // number of control VMs, unless empty
		nodes     []string // instances that are nodes
		pods      int      // number of nodes that run any pod
		check     func(*lab, *testing.T)
	}{
		{
			name: "combined", ops: []string{"ops-files/combined.yml"},
			nodes: []string{"control/0", "control/1", "control/2"}, pods: 3, check: (*lab).checkCombined,
		},
		{
			name: "separate etcd VMs", ops: append(
				[]string{"ops-files/use-separate-etcd.yml"}, workerOps...,
			), vars: append([]string{"worker_instances=1"}, oneEtcd...), control: "1",
			nodes: []string{"control/0", "worker/0"}, pods: 1, check: (*lab).checkSeparateEtcd,
		},
		{
			name: "combined, separate etcd VMs", ops: []string{
				"ops-files/combined.yml", "ops-files/use-separate-etcd.yml",
			}, vars: oneEtcd, control: "1",
			nodes: []string{"control/0"}, pods: 1, check: func(l *lab, t *testing.T) {
				l.checkCombined(t)
				l.checkSeparateEtcd(t)
			},
		},
		{
			name: "cloud routes", ops: append(
				[]string{"ops-files/use-cloud-routes.yml"}, workerOps...,
			), vars: []string{"worker_instances=2"}, control: "1",
			nodes: []string{"control/0", "worker/0", "worker/1"}, pods: 2, check: (*lab).checkCloudRoutes,
		},
		{
			name: "no cloud", base: onNoCloud, ops: workerOps, vars: []string{"worker_instances=2"}, control: "1",
			nodes: []string{"control/0", "worker/0", "worker/1"}, pods: 2, check: (*lab).checkZonesOfBOSH,
		},
	} {
		t.Run(topology.name, func(t *testing.T) {
			l := soak(t)
			l.base, l.ops, l.vars = topology.base, topology.ops, topology.vars
			if l.base == nil {
				l.base = onAWS
			}
			if topology.control != "" {
				l = l.with(t, badInput{ops: inGroup("instances", topology.control)})
			}
			if out, err := l.up(); err != nil {
				t.Fatalf("up: %v\n%s", err, tail.Lines(out, 60))
			}
			nodes := l.nodes(t, len(topology.nodes))
			t.Run("smoke tests", func(t *testing.T) {
				l.checkSmokeTests(
					t, fmt.Sprintf("%d of %[1]d are Ready", len(nodes)),
					fmt.Sprintf("answers on %d node(s)", len(nodes)), "names resolve",
				)
			})
			t.Run("pods of every node", func(t *testing.T) { l.checkPods(t, topology.pods, topology.nodes) })
			t.Run("CoreDNS", func(t *testing.T) { l.checkDNSSpread(t, topology.pods) })
			topology.check(l, t)
		})
	}
}

// checkCombined expects control VMs to run any pod: no taint.
func (l *lab) checkCombined(t *testing.T) {
	if taints := l.mustKubectl(t, "", "get", "nodes", "-o", "jsonpath={.items[*].spec.taints[*].key}"); taints != "" {
		t.Errorf("nodes have the taints %q", taints)
	}
}

// checkDNSSpread expects CoreDNS on as many of these nodes as it has pods. Deploys start nodes one after another, and
// nothing moves pods later.
func (l *lab) checkDNSSpread(t *testing.T, nodes int) {
	t.Helper()
	want := min(nodes, 2)
	waitFor(t, time.Minute, fmt.Sprintf("CoreDNS on %d nodes", want), func() error {
		out := l.mustKubectl(
			t, "", "-n", "kube-system", "get", "pods", "-l", "k8s-app=kube-dns",
			"--field-selector=status.phase=Running", "-o", "jsonpath={.items[*].spec.nodeName}",
		)
		on := strings.Fields(out)
		slices.Sort(on)
		if distinct := len(slices.Compact(slices.Clone(on))); distinct != want || len(on) != want {
			return fmt.Errorf("its pods are on %q", on)
		}
		return nil
	})
}

// checkSeparateEtcd expects etcd on its own VM only, and nothing else there.
func (l *lab) checkSeparateEtcd(t *testing.T) {
	if jobs := strings.Fields(
		l.ssh(t, "etcd/0", "ls", "/var/vcap/jobs"),
	); !slices.Equal(jobs, []string{"bpm", "etcd", "etcd-defragment", "etcd-snapshot"}) {
		t.Errorf("the etcd VM has the jobs %q", jobs)
	}
	if found := l.ssh(
		t, "control/0", "sh", "-c", "ls -d /var/vcap/jobs/etcd /var/vcap/store/etcd 2>/dev/null || true",
	); found != "" {
		t.Errorf("the control VM has %s", found)
	}
	l.mustKubectl(t, "", "-n", "default", "create", "configmap", "kept")
	if out, err := l.run(deployTimeout, "recreate", "control/0"); err != nil {
		t.Fatalf("recreate: %v\n%s", err, tail.Lines(out, 60))
	}
	l.mustKubectl(t, "", "-n", "default", "get", "configmap", "kept") // so control VMs have no state
}

// checkZonesOfBOSH expects each Node in the zone of its instance, which no cloud controller sets.
func (l *lab) checkZonesOfBOSH(t *testing.T) {
	out := l.mustKubectl(
		t, "", "get", "nodes", "-o", `jsonpath={range .items[*]}{.metadata.name} {.spec.providerID} `+
			`{.metadata.labels.topology\.kubernetes\.io/zone} {.metadata.labels.bosh\.io/az}{"\n"}{end}`,
	)
	for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
		if fields := strings.Fields(line); len(fields) != 3 || fields[1] != fields[2] {
			t.Errorf("name, provider ID, zone and AZ of a Node are %q, want no provider ID, and the AZ as zone", fields)
		}
	}
}

// checkCloudRoutes expects a route to the pods of each node, and no encapsulation. A recreated VM gets a route in place
// of the one of the previous VM.
func (l *lab) checkCloudRoutes(t *testing.T) {
	workers := []string{"worker/0", "worker/1"}
	instances := append([]string{"control/0"}, workers...)
	for _, instance := range instances {
		if links := l.ssh(t, instance, "ip", "-brief", "link", "show", "type", "vxlan"); links != "" {
			t.Errorf("%s encapsulates packets: %s", instance, links)
		}
	}
	l.checkRoutes(t, len(instances))
	if out, err := l.run(deployTimeout, "recreate", "worker/1"); err != nil {
		t.Fatalf("recreate: %v\n%s", err, tail.Lines(out, 60))
	}
	l.machines(t, workers)
	l.checkRoutes(t, len(instances))
	t.Run("pods after a VM was recreated", func(t *testing.T) { l.checkPods(t, len(workers), instances) })
}

// checkRoutes waits until the node subnets' route table has exactly the route to the pods of each node, as the cloud
// controller reconciles routes every ten seconds, and expects the other tables to have none.
func (l *lab) checkRoutes(t *testing.T, nodes int) {
	t.Helper()
	waitFor(t, time.Minute, "routes to pods", func() error {
		out, err := l.kubectl(
			t,
			"",
			"get",
			"nodes",
			"-o",
			`jsonpath={range .items[*]}{.spec.podCIDR} {.spec.providerID}{"\n"}{end}`,
		)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		want := map[string]string{} // pod subnets and instances
		for line := range strings.Lines(out) {
			subnet, provider, _ := strings.Cut(strings.TrimSpace(line), " ")
			want[subnet] = provider[strings.LastIndex(provider, "/")+1:]
		}
		if len(want) != nodes {
			return fmt.Errorf("pod subnets %v, want %d", want, nodes)
		}
		var world store.World
		if err := json.Unmarshal(l.cloud(t, http.MethodGet, "world", nil), &world); err != nil {
			return err
		}
		got := map[string]string{}
		for _, table := range world.RouteTables {
			for _, route := range table.Routes {
				if route.Instance == "" {
					continue
				}
				if table.ID != awssim.LabRouteTable {
					return fmt.Errorf("table %s has the route %+v", table.ID, route)
				}
				got[route.Destination] = route.Instance
			}
		}
		if !maps.Equal(got, want) {
			return fmt.Errorf("routes %v, want %v", got, want)
		}
		return nil
	})
}
