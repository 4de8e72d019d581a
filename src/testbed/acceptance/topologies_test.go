package acceptance

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/random"

	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/awssim/store"
	"kubernetes-release/testbed/registry"
)

// Variables of use-separate-etcd.yml, for one VM and for three.
var (
	oneEtcd   = []string{"etcd_instances=1", "etcd_azs=[kubernetes-z1]", "etcd_vm_type=kubernetes-control"}
	threeEtcd = []string{
		"etcd_instances=3", "etcd_azs=[kubernetes-z1, kubernetes-z2, kubernetes-z3]", "etcd_vm_type=kubernetes-control",
	}
)

// The ops-file of a worker pool on AWS, and its variables.
var (
	poolOps  = []string{"ops-files/add-worker-pool.yml"}
	poolVars = []string{
		"pool_name=batch", "pool_instances=1", "pool_azs=[kubernetes-z2]", "pool_vm_type=kubernetes-worker",
		"pool_vm_extensions=[kubernetes-worker]",
		"pool_labels={example.com/kind: batch}", "pool_taints=[{key: dedicated, value: batch, effect: NoSchedule}]",
	}
)

// forPool returns a copy of an ops-file for the pool, by the command of docs/proxy-and-registries.md.
func forPool(t *testing.T, name string) string {
	t.Helper()
	text, err := exec.CommandContext(
		t.Context(), "sed", "-E", "s/groups.name=(control|worker)/groups\\/name=((pool_name))/",
		filepath.Join(repo, "ops-files", name),
	).Output()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestSoakTopologies deploys the topologies of docs/topologies.md that no other test deploys, a worker pool, a proxy
// and a registry mirror, cloud routes, and no cloud.
func TestSoakTopologies(t *testing.T) {
	for _, topology := range []struct {
		name      string
		base      []string // onAWS, unless nil
		ops, vars []string
		control   string   // number of control VMs, unless empty
		nodes     []string // instances that are nodes
		pods      int      // number of nodes that run any pod
		smoke     string   // what else the smoke tests say
		check     func(*lab, *testing.T)
	}{
		{
			name: "combined", ops: []string{"ops-files/combined.yml"},
			nodes: []string{"control/0", "control/1", "control/2"}, pods: 3, check: (*lab).checkCombined,
		},
		{
			name: "separate etcd VMs and a worker pool, behind a proxy", ops: slices.Concat(
				[]string{"ops-files/use-separate-etcd.yml"}, workerOps, poolOps, []string{forPool(t, "lab.yml")},
			), vars: slices.Concat([]string{"worker_instances=1"}, threeEtcd, poolVars), control: "2",
			nodes: []string{"control/0", "control/1", "worker/0", "batch/0"}, pods: 1,
			check: func(l *lab, t *testing.T) {
				t.Run("worker pool", func(t *testing.T) { l.checkPool(t) })
				t.Run("separate etcd VMs", func(t *testing.T) { l.checkSeparateEtcd(t, 3, l.unnoticed) })
				t.Run("lost etcd VM", func(t *testing.T) { l.checkLostEtcdVM(t, 3) })
				t.Run("update", func(t *testing.T) { l.checkUpdateWithSeparateEtcd(t, 3) })
				t.Run("proxy and mirror", func(t *testing.T) { l.checkProxyAndMirror(t) })
			},
		},
		{
			name: "combined, separate etcd VMs", ops: []string{
				"ops-files/combined.yml", "ops-files/use-separate-etcd.yml",
			}, vars: oneEtcd, control: "1",
			nodes: []string{"control/0"}, pods: 1, check: func(l *lab, t *testing.T) {
				l.checkCombined(t)
				l.checkSeparateEtcd(t, 1, noticed)
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
		{
			name: "OpenStack", base: onOpenStack, ops: workerOps, vars: []string{"worker_instances=2"}, control: "1",
			nodes: []string{"control/0", "worker/0", "worker/1"}, pods: 2,
			smoke: "storage cinder", check: (*lab).checkOpenStack,
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
			l.mustUp(t)
			nodes := l.nodes(t, len(topology.nodes))
			t.Run("smoke tests", func(t *testing.T) {
				l.checkSmokeTests(
					t, fmt.Sprintf("%d of %[1]d are Ready", len(nodes)),
					fmt.Sprintf("answers on %d node(s)", len(nodes)), "names resolve", topology.smoke,
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

// checkSeparateEtcd expects etcd on so many VMs of its own only, and nothing else there, and that a control VM has no
// state: it is recreated by the function while.
func (l *lab) checkSeparateEtcd(t *testing.T, members int, while func(t *testing.T, do func())) {
	for i := range members {
		instance := fmt.Sprintf("etcd/%d", i)
		if jobs := strings.Fields(
			l.ssh(t, instance, "ls", "/var/vcap/jobs"),
		); !slices.Equal(jobs, []string{"bpm", "etcd", "etcd-defragment", "etcd-snapshot"}) {
			t.Errorf("%s has the jobs %q", instance, jobs)
		}
	}
	l.checkMembersOf(t, "etcd", members)
	if found := l.ssh(
		t, "control/0", "sh", "-c", "ls -d /var/vcap/jobs/etcd /var/vcap/store/etcd 2>/dev/null || true",
	); found != "" {
		t.Errorf("the control VM has %s", found)
	}
	l.mustKubectl(t, "", "-n", "default", "create", "configmap", "kept")
	while(t, func() { l.mustRun(t, deployTimeout, "recreate", "control/0") })
	l.mustKubectl(t, "", "-n", "default", "get", "configmap", "kept")
}

// checkLostEtcdVM loses one of several VMs with etcd, which comes back as the same member. A write that an API server
// sends on its connection to the lost member takes until the API server gives the connection up (keepaliveTimeout in
// storage/storagebackend/factory/etcd3.go), and no request fails.
func (l *lab) checkLostEtcdVM(t *testing.T, members int) {
	before := l.checkMembersOf(t, "etcd", members)
	checkNothingFailed(t, l.probe(t, func() {
		l.mustRun(t, time.Minute, "kill", "etcd/1")
		l.awaitWrite(t, "etcd/1", "with-a-member-less")
		l.mustFix(t)
	}))
	if after := l.checkMembersOf(t, "etcd", members); after != before {
		t.Errorf("members of etcd before:\n%s\nand after:\n%s", before, after)
	}
	l.mustKubectl(t, "", "-n", "default", "get", "configmap", "with-a-member-less")
}

// checkUpdateWithSeparateEtcd updates all VMs with etcd and then all control VMs in one deploy.
func (l *lab) checkUpdateWithSeparateEtcd(t *testing.T, members int) {
	changed := l.with(t, badInput{
		ops: replaceInGroup("etcd", "jobs/name=etcd/properties/log_level?", "warn") +
			jobProperty("kube-apiserver", "log_level?", "3"),
	})
	l.unnoticed(t, func() { changed.deploy(t) })
	l.checkMembersOf(t, "etcd", members)
	l.unnoticed(t, func() { l.deploy(t) })
}

// checkPool expects the pool's node in its zone, with its labels and taint, and that a pod runs there only if it
// tolerates that.
func (l *lab) checkPool(t *testing.T) {
	if got, want := l.mustKubectl(
		t, "", "get", "nodes", "-l", "bosh.io/instance-group=batch", "-o",
		`jsonpath={range .items[*]}{.metadata.labels.example\.com/kind} `+
			`{.metadata.labels.topology\.kubernetes\.io/zone} {.spec.taints[*].key}{"\n"}{end}`,
	), "batch "+l.identity(t, "batch/0").Zone+" dedicated"; got != want {
		t.Errorf("kind, zone and taints of the pool's nodes are %q, want %q", got, want)
	}
	l.checkConfined(t, "batch/0")
	for pod, overrides := range map[string]string{
		"tolerates": `{"spec": {"nodeSelector": {"bosh.io/instance-group": "batch"}, ` +
			`"tolerations": [{"key": "dedicated", "operator": "Exists"}]}}`,
		"does-not-tolerate": `{"spec": {"nodeSelector": {"bosh.io/instance-group": "batch"}}}`,
	} {
		l.mustKubectl(
			t, "", "run", pod, "--image="+l.smokeImage(t), "--image-pull-policy=Never", "--overrides="+overrides,
		)
		t.Cleanup(func() { l.mustKubectl(t, "", "delete", "pod", pod, "--timeout=60s") })
	}
	l.mustKubectl(t, "", "wait", "pod/tolerates", "--for=condition=Ready", "--timeout=60s")
	l.mustKubectl(
		t, "", "wait", "pod/does-not-tolerate", "--timeout=60s",
		"--for=jsonpath={.status.conditions[?(@.type==\"PodScheduled\")].reason}=Unschedulable",
	)
}

// checkProxyAndMirror lets nodes pull through a proxy and from a mirror, those of the pool too: an image whose registry
// does not exist is pulled from the mirror, through the proxy unless the mirror is in no_proxy.
func (l *lab) checkProxyAndMirror(t *testing.T) {
	image, err := random.Image(1024, 1)
	if err != nil {
		t.Fatal(err)
	}
	images := registry.New()
	if err := images.Add("team/image", "1", image); err != nil {
		t.Fatal(err)
	}
	mirror, ca := l.serve(t, images)
	proxy := l.newProxy(t)
	ops := []string{"ops-files/add-proxy.yml", "ops-files/set-registry-mirror.yml"}
	for _, name := range []string{"add-proxy.yml", "set-registry-mirror.yml"} {
		ops = append(ops, forPool(t, name))
	}
	before := l.ops
	l.ops = slices.Concat(before, ops)
	vars := slices.Concat(l.vars, []string{
		"http_proxy=" + proxy.url, "https_proxy=" + proxy.url, "registry_host=registry.example",
		"registry_mirror=" + mirror, "registry_ca=" + ca,
	})
	host := strings.TrimPrefix(mirror, "https://")
	address, _, _ := strings.Cut(host, ":")

	const name, pulled = "registry.example/team/image:1", "Pulled Successfully pulled image"
	l.vars = append(slices.Clone(vars), "no_proxy=[.corp.example]")
	l.deploy(t)
	for _, group := range []string{"worker", "batch"} {
		proxy.forget()
		l.pullEventsIn(t, group, "proxied-"+group, name, pulled)
		if got := proxy.connected(); !slices.Contains(got, host) {
			t.Errorf("%s: the proxy connected to %q, want the mirror %s", group, got, host)
		}
	}
	l.vars = append(slices.Clone(vars), "no_proxy=["+address+"]")
	l.deploy(t)
	proxy.forget()
	l.pullEventsIn(t, "batch", "direct", name, pulled)
	if got := proxy.connected(); len(got) > 0 {
		t.Errorf("the proxy connected to %q, though the mirror is in no_proxy", got)
	}
	l.checkSmokeTests(t, "4 of 4 are Ready") // nothing within the cluster uses the proxy
	if got := proxy.connected(); len(got) > 0 {
		t.Errorf("the proxy connected to %q for the smoke tests", got)
	}
}

// proxy is an HTTP proxy that keeps what it was asked to connect to.
type proxy struct {
	url string

	lock  sync.Mutex
	hosts []string
}

// newProxy starts a proxy at an address that VMs reach, which runs until the test ends.
func (l *lab) newProxy(t *testing.T) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp4", net.JoinHostPort(l.addressInNetwork(t, 255, 254), "0"))
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{url: "http://" + listener.Addr().String()}
	server := &http.Server{Handler: p, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return p
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.lock.Lock()
	p.hosts = append(p.hosts, r.Host)
	p.lock.Unlock()
	if r.Method != http.MethodConnect {
		http.Error(w, "only CONNECT", http.StatusMethodNotAllowed)
		return
	}
	var dialer net.Dialer
	upstream, err := dialer.DialContext(r.Context(), "tcp", r.Host)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer func() { _ = upstream.Close() }()
	w.WriteHeader(http.StatusOK)
	client, read, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = client.Close() }()
	go func() { _, _ = io.Copy(upstream, read) }() // its buffer can have the first bytes
	_, _ = io.Copy(client, upstream)
}

func (p *proxy) connected() []string {
	p.lock.Lock()
	defer p.lock.Unlock()
	return slices.Clone(p.hosts)
}

func (p *proxy) forget() {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.hosts = nil
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
	l.mustRun(t, deployTimeout, "recreate", "worker/1")
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
