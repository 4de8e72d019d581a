package labeler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"

	"kubernetes-release/control/addons"
	"kubernetes-release/control/addons/addonstest"
	"kubernetes-release/internal/boshdns"
	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
	"kubernetes-release/internal/nodestatus"
	"kubernetes-release/node"
)

const records = `{"record_keys": ["id", "instance_group", "az", "network", "deployment", "ip", "domain"],
"record_infos": [
["3c5e8f1a-0000-4000-8000-000000000001", "worker", "z1", "private", "kube", "10.0.0.4", "bosh"],
["7d2b9c4e-0000-4000-8000-000000000002", "worker", null, "private", "kube", "10.0.0.5", "bosh"],
["3c5e8f1a-0000-4000-8000-000000000001", "worker", "z1", "private", "other", "10.0.0.6", "bosh"]]}`

// deployment is one whose instances a file has.
func deployment(name, records string) boshdns.Deployment {
	return boshdns.Deployment{Name: name, Domain: "bosh", Records: records}
}

func writeRecords(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "records.json")
	if err := os.WriteFile(path, []byte(records), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// cloudOf is a cloud with one VM.
type cloudOf struct{ machine node.Machine }

func (c cloudOf) Find(_ context.Context, name string, _ map[string]string) (node.Machine, error) {
	if name != c.machine.Node {
		return node.Machine{}, errors.New("no such VM")
	}
	return c.machine, nil
}

// located is a cloud in which Nodes have BOSH's names, and which has one VM.
type located struct{ instance string }

func (l located) Locate(_ context.Context, i node.Instance) (node.Location, error) {
	if i.ID != l.instance || i.Deployment != "Kube" || len(i.Addresses) != 1 {
		return node.Location{}, fmt.Errorf("asked for %+v", i)
	}
	return node.Location{ProviderID: "openstack:///" + i.Addresses[0].String()}, nil
}

// TestProviderIDIsOfTheInstance: by BOSH's name, and what BOSH says of the instance.
func TestProviderIDIsOfTheInstance(t *testing.T) {
	instances := &Instances{
		Deployment: deployment("Kube", writeRecords(t)),
		Locator:    located{"3c5e8f1a-0000-4000-8000-000000000001"},
	}
	found, err := instances.Find(t.Context(), "worker-3c5e8f1a")
	if err != nil || found.ProviderID != "openstack:///10.0.0.4" || found.Labels["bosh.io/az"] != "z1" ||
		found.Zone != "" {
		t.Errorf("%+v, %v", found, err)
	}
	// Without an answer of the cloud the Node gets no labels either, so it cannot report an address.
	found, err = instances.Find(t.Context(), "worker-7d2b9c4e")
	if err == nil || !strings.Contains(err.Error(), "find the VM of Node worker-7d2b9c4e: asked for") ||
		found.Labels != nil {
		t.Errorf("%+v, %v", found, err)
	}
}

// naming is a cloud with the names of VMs, by what Owner and Locate say of them.
type naming struct {
	owners map[string]node.Instance
	names  map[string]string // by instance
}

func (c naming) Owner(_ context.Context, name string) (node.Instance, error) {
	if owner, ok := c.owners[name]; ok {
		return owner, nil
	}
	return node.Instance{}, &node.Refusal{Reason: "no VM " + name}
}

func (c naming) Locate(_ context.Context, i node.Instance) (node.Location, error) {
	if len(i.Addresses) != 1 {
		return node.Location{}, fmt.Errorf("asked for %+v", i)
	}
	return node.Location{Node: c.names[i.ID], ProviderID: "gce://p/z/" + c.names[i.ID]}, nil
}

// TestNamesOfTheCloud: the instance is the one whose VM has the Node's name, by its ID or its agent. What seems to be
// its VM, such as one with a copied label, is not.
func TestNamesOfTheCloud(t *testing.T) {
	const one, two = "3c5e8f1a-0000-4000-8000-000000000001", "7d2b9c4e-0000-4000-8000-000000000002"
	path := filepath.Join(t.TempDir(), "records.json")
	write := func(agent string) {
		t.Helper()
		if err := os.WriteFile(path, fmt.Appendf(nil, `{"record_keys":
			["id", "instance_group", "az", "network", "deployment", "ip", "domain", "agent_id"], "record_infos": [
			[%q, "worker", "z1", "private", "kube", "10.0.0.4", "bosh", "agent-1"],
			[%q, "worker", "z1", "private", "kube", "10.0.0.5", "bosh", %q]]}`, one, two, agent), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("agent-2")
	instances := &Instances{Deployment: deployment("kube", path), Locator: naming{
		map[string]node.Instance{
			"vm-1": {ID: one}, "vm-2": {Agent: "agent-2"}, "vm-copy": {ID: one}, "vm-gone": {ID: "gone"},
			"vm-empty": {},
		},
		map[string]string{one: "vm-1", two: "vm-2"},
	}}
	for name, want := range map[string]string{"vm-1": "10.0.0.4", "vm-2": "10.0.0.5"} {
		found, err := instances.Find(t.Context(), name)
		if err != nil || found.Labels["bosh.io/addresses"] != want || found.ProviderID != "gce://p/z/"+name ||
			found.Zone != "" {
			t.Errorf("%s: %+v, %v", name, found, err)
		}
	}
	for name, want := range map[string]string{
		"vm-copy": "that instance has the VM vm-1", "vm-gone": `the ID "gone"`, "vm-empty": "no instance",
		"vm-other": "no VM vm-other", "worker-3c5e8f1a": "no VM worker-3c5e8f1a",
	} {
		if found, err := instances.Find(t.Context(), name); err == nil || !strings.Contains(err.Error(), want) ||
			found.Labels != nil {
			t.Errorf("%s: %+v, %v", name, found, err)
		}
	}

	// The VM is replaced by one with another name and the same addresses, whose labels its Node does not get.
	known, err := instances.Find(t.Context(), "vm-2")
	if err != nil {
		t.Fatal(err)
	}
	write("agent-3")
	records, err := instances.Deployment.Load()
	if err != nil {
		t.Fatal(err)
	}
	if found, err := instances.among(records, "vm-2", known); err == nil {
		t.Errorf("the Node of the previous VM has the labels %v", found.Labels)
	}
}

// TestNodesOfBeforeTheRegion: with OS_CCM_REGIONAL provider IDs have a region, which Nodes that are there cannot get.
func TestNodesOfBeforeTheRegion(t *testing.T) {
	object := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "worker-3c5e8f1a"}, Spec: corev1.NodeSpec{ProviderID: "openstack:///id"},
	}
	client := fake.NewClientset(object)
	keeper := NewKeeper(client, &Instances{
		Deployment: deployment("Kube", writeRecords(t)), Cloud: cloudOf{node.Machine{
			ID: "id", Node: object.Name, ProviderID: "openstack://RegionOne/id",
			Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.4")},
		}},
	}, slog.New(slog.DiscardHandler))
	if err := keeper.informer().GetIndexer().Add(object); err != nil {
		t.Fatal(err)
	}
	if err := keeper.label(t.Context(), object.Name); err != nil {
		t.Fatal(err)
	}
	labeled, err := client.CoreV1().Nodes().Get(t.Context(), object.Name, metav1.GetOptions{})
	if err != nil || labeled.Labels["bosh.io/addresses"] != "10.0.0.4" || labeled.Spec.ProviderID != "openstack:///id" {
		t.Errorf("%+v, %v", labeled, err)
	}
}

func TestLabelsAreOfTheInstance(t *testing.T) {
	path := writeRecords(t)
	named := &Instances{Deployment: deployment("Kube", path)}
	machine := node.Machine{
		ID:         "i-1",
		Node:       "ip-10-0-0-5.ec2.internal",
		ProviderID: "aws:///us-east-1a/i-1",
		Addresses:  []netip.Addr{netip.MustParseAddr("10.0.0.5")},
	}
	inCloud := &Instances{Deployment: deployment("Kube", path), Cloud: cloudOf{machine}}
	first := map[string]string{
		"bosh.io/deployment":     "Kube",
		"bosh.io/instance-group": "worker",
		"bosh.io/instance-id":    "3c5e8f1a-0000-4000-8000-000000000001",
		"bosh.io/az":             "z1",
		"bosh.io/network":        "private",
		"bosh.io/addresses":      "10.0.0.4",
	}
	second := map[string]string{
		"bosh.io/deployment":     "Kube",
		"bosh.io/instance-group": "worker",
		"bosh.io/instance-id":    "7d2b9c4e-0000-4000-8000-000000000002",
		"bosh.io/network":        "private",
		"bosh.io/addresses":      "10.0.0.5",
	}
	control := maps.Clone(first)
	control["node-role.kubernetes.io/control-plane"] = ""
	for name, test := range map[string]struct {
		instances *Instances
		node      string
		want      map[string]string
		problem   string
	}{
		"control VM": { // the Director writes the names of groups in lower case
			&Instances{Deployment: deployment("Kube", path), ControlGroup: "Worker"}, "worker-3c5e8f1a", control, "",
		},
		"by name":    {named, "worker-3c5e8f1a", first, ""},
		"by address": {inCloud, machine.Node, second, ""},
		"unknown name": {named, "worker-00000000", nil, "no instance of deployment Kube has this name; 2 are " +
			"known"},
		"unknown VM": {inCloud, "ip-10-0-0-4.ec2.internal", nil, "no such VM"},
		"other deployment": {
			&Instances{Deployment: deployment("new", path)}, "worker-3c5e8f1a", nil, "0 are known",
		},
		"no records": {&Instances{Deployment: deployment("new", path+"x")}, "worker-3c5e8f1a", nil, path + "x"},
	} {
		instance, err := test.instances.Find(t.Context(), test.node)
		got := instance.Labels
		if !maps.Equal(got, test.want) || (err == nil) != (test.problem == "") ||
			err != nil && !strings.Contains(err.Error(), test.problem) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		if zone := instance.Zone; test.instances != inCloud && zone != test.want["bosh.io/az"] ||
			test.instances == inCloud && zone != "" {
			t.Errorf("%s: zone %q", name, zone)
		}
		if id := instance.ProviderID; err == nil && (id == machine.ProviderID) != (test.instances == inCloud) {
			t.Errorf("%s: provider ID %q", name, id)
		}
	}
}

// withPolicies starts an API server with the release's policies for nodes.
func withPolicies(t *testing.T) *kubetest.Cluster {
	t.Helper()
	cluster := kubetest.Start(t, kubetest.Options{})
	applyManifest(t, cluster, "kubernetes-addons", "10-nodes.yml")
	return cluster
}

// applyManifest applies one of a job, and returns when the API server enforces its policies.
func applyManifest(t *testing.T, cluster *kubetest.Cluster, job, name string) {
	t.Helper()
	manifest, err := os.ReadFile(filepath.Join("../../../../../jobs", job, "templates/manifests", name))
	if err != nil {
		t.Fatal(err)
	}
	addonstest.Apply(t, cluster, addons.Options{
		Dirs: []string{addonstest.Dir(t, map[string][]byte{name: manifest})},
	})
}

// startKeeper runs the keeper of these instances until the test ends.
func startKeeper(t *testing.T, cluster *kubetest.Cluster, instances *Instances) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	keeper := NewKeeper(
		cluster.ClientFor("system:node-controller"), instances, slog.New(slog.NewTextHandler(t.Output(), nil)),
	)
	go func() { ended <- keeper.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("after the end of its context: %v", err)
		}
	})
}

// TestNodesCannotRelabelThemselves is root on a worker, with the policies of the release: it tries to become part of
// another instance group, from registration on.
func TestNodesCannotRelabelThemselves(t *testing.T) {
	cluster := withPolicies(t)
	admin := cluster.Admin()
	const name = "worker-3c5e8f1a"
	worker := cluster.ClientFor("system:node:"+name, "system:nodes")
	forged := map[string]string{
		"bosh.io/instance-group": "control", "bosh.io/other": "x", corev1.LabelTopologyZone: "z2",
		corev1.LabelFailureDomainBetaZone: "z2", "disk": "fast",
	}
	register := func() map[string]string {
		t.Helper()
		object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: forged}}
		created, err := worker.CoreV1().Nodes().Create(t.Context(), object, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return created.Labels
	}
	if labels := register(); len(labels) != 1 || labels["disk"] != "fast" {
		t.Errorf("after registration: %v", labels)
	}

	instances := &Instances{Deployment: deployment("kube", writeRecords(t))}
	startKeeper(t, cluster, instances)
	expectLabeled := func(when string) {
		t.Helper()
		eventually.Succeeds(t, 30*time.Second, when, func() error {
			object, err := admin.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			instance, err := instances.Find(t.Context(), name)
			if err != nil {
				return err
			}
			wanted := instance.Labels
			wanted["disk"], wanted[corev1.LabelTopologyZone] = "fast", "z1"
			if !maps.Equal(object.Labels, wanted) {
				return fmt.Errorf("labels are %v", object.Labels)
			}
			return nil
		})
	}
	expectLabeled("labeled by the authority")
	attackLabels(t, worker, name)
	expectLabeled("after the attacks")
	if err := worker.CoreV1().Nodes().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	register()
	expectLabeled("registered again")
	moved := map[string]any{"bosh.io/az": "z9", "bosh.io/more": "x", corev1.LabelTopologyZone: "z9"}
	if err := patchLabels(t, admin, name, "", moved); err != nil {
		t.Fatal(err)
	}
	expectLabeled("changed by an administrator")
}

// TestOnlyControlVMsHaveTheirRole: the label that the API refuses from kubelets is on the Node of a control VM again
// after each way to lose it, and on no other Node.
func TestOnlyControlVMsHaveTheirRole(t *testing.T) {
	cluster := withPolicies(t)
	admin := cluster.Admin()
	const control, worker = "control-3c5e8f1a", "worker-7d2b9c4e"
	register := func(name string) kubernetes.Interface {
		t.Helper()
		kubelet := cluster.ClientFor("system:node:"+name, "system:nodes")
		object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := kubelet.CoreV1().Nodes().Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		return kubelet
	}
	kubelet := register(worker)
	kubetest.MustForbid(t, "a worker that labels itself as control plane",
		patchLabels(t, kubelet, worker, "", map[string]any{roleLabel: ""}))

	path := filepath.Join(t.TempDir(), "records.json")
	if err := os.WriteFile(path, []byte(strings.Replace(records, `"worker"`, `"control"`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	startKeeper(t, cluster, &Instances{Deployment: deployment("kube", path), ControlGroup: "control"})
	expect := func(when string) {
		t.Helper()
		eventually.Succeeds(t, 30*time.Second, when, func() error {
			list, err := admin.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
			if err != nil {
				return err
			}
			for i := range list.Items {
				labels := list.Items[i].Labels
				value, labeled := labels[roleLabel]
				if labels["bosh.io/instance-group"] == "" || value != "" || labeled != (list.Items[i].Name == control) {
					return fmt.Errorf("Node %s has the labels %v", list.Items[i].Name, labels)
				}
			}
			return nil
		})
	}
	register(control)
	expect("registered Node")
	for what, value := range map[string]any{"label removed": nil, "label changed": "other"} {
		if err := patchLabels(t, admin, control, "", map[string]any{roleLabel: value}); err != nil {
			t.Fatal(err)
		}
		expect(what)
	}
	if err := admin.CoreV1().Nodes().Delete(t.Context(), control, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	register(control)
	expect("Node deleted and registered again")
}

// attackLabels tries each way in which a node can change labels.
func attackLabels(t *testing.T, worker kubernetes.Interface, name string) {
	t.Helper()
	for what, labels := range map[string]map[string]any{
		"change": {"bosh.io/instance-group": "control"},
		"remove": {"bosh.io/instance-group": nil},
		"add":    {"bosh.io/team": "a", "team": "a"},
		"move":   {corev1.LabelTopologyZone: "z2"},
		"leave":  {corev1.LabelTopologyZone: nil},
		// The cloud controller would copy it to the label of today.
		"move by an old label": {corev1.LabelFailureDomainBetaZone: "z2"},
		"grow":                 {corev1.LabelInstanceTypeStable: "x1e.32xlarge"},
	} {
		for _, subresource := range []string{"", "status"} {
			named := "such as " + slices.Min(slices.Collect(maps.Keys(labels))) + ": the control VMs"
			err := patchLabels(t, worker, name, subresource, labels)
			kubetest.MustForbid(t, what+" a label through "+strconv.Quote(subresource), err, named)
		}
	}
	object, err := worker.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	object.Labels["bosh.io/az"] = "z2"
	_, err = worker.CoreV1().Nodes().Update(t.Context(), object, metav1.UpdateOptions{})
	kubetest.MustForbid(t, "update", err)
	if err := patchLabels(t, worker, name, "", map[string]any{"disk": "slow"}); err != nil {
		t.Errorf("a label of its own: %v", err)
	}
	if err := patchLabels(t, worker, name, "status", map[string]any{"disk": "fast"}); err != nil {
		t.Errorf("a label of its own, with the status: %v", err)
	}
}

func patchLabels(t *testing.T, client kubernetes.Interface, name, subresource string, labels map[string]any) error {
	t.Helper()
	subresources := []string{}
	if subresource != "" {
		subresources = append(subresources, subresource)
	}
	return patchMetadata(t, client, name, map[string]any{"labels": labels}, subresources...)
}

// TestNodesAreForgotten is a node that registers again and again while its instance is looked for.
func TestNodesAreForgotten(t *testing.T) {
	instances := &Instances{Deployment: deployment("Kube", writeRecords(t))}
	keeper := NewKeeper(fake.NewClientset(), instances, slog.New(slog.DiscardHandler))
	node := func(uid types.UID) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-3c5e8f1a", UID: uid}}
	}
	for _, uid := range []types.UID{"deleted", "replaced"} {
		if uid == "replaced" {
			if err := keeper.informer().GetIndexer().Add(node("new")); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := keeper.instance(t.Context(), node(uid)); err != nil {
			t.Fatal(err)
		}
	}
	if len(keeper.known) > 0 {
		t.Errorf("Nodes that are gone are kept: %v", keeper.known)
	}
	if _, err := keeper.instance(t.Context(), node("new")); err != nil || len(keeper.known) != 1 {
		t.Errorf("the Node that is there: %v, %v", keeper.known, err)
	}
}

// TestReplacedVMWithAnotherAddress: the new VM takes over the Node of the lost one, as without a cloud controller.
func TestReplacedVMWithAnotherAddress(t *testing.T) {
	path := writeRecords(t)
	instances := &Instances{Deployment: deployment("Kube", path)}
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-3c5e8f1a", UID: "1"}}
	client := fake.NewClientset(object)
	keeper := NewKeeper(client, instances, slog.New(slog.DiscardHandler))
	if err := keeper.informer().GetIndexer().Add(object); err != nil {
		t.Fatal(err)
	}
	expect := func(when, want string) {
		t.Helper()
		for keeper.queue.Len() > 0 {
			keeper.next(t.Context())
		}
		labeled, err := client.CoreV1().Nodes().Get(t.Context(), object.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := labeled.Labels["bosh.io/addresses"]; got != want {
			t.Errorf("%s: address %q, want %q", when, got, want)
		}
	}
	write := func(content string, written time.Time) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, written, written); err != nil {
			t.Fatal(err)
		}
		keeper.refresh(t.Context())
	}
	keeper.queue.Add(object.Name)
	expect("first", "10.0.0.4")
	now := time.Now()
	write(records, now)
	if n := keeper.queue.Len(); n > 0 {
		t.Errorf("%d Nodes are labeled again without a change", n)
	}
	write(strings.ReplaceAll(records, "3c5e8f1a", "00000000"), now.Add(time.Second))
	expect("without a VM", "10.0.0.4")
	write(strings.ReplaceAll(records, "10.0.0.4", "10.0.0.9"), now.Add(2*time.Second))
	expect("with a new VM", "10.0.0.9")
}

// counted is a cloud that counts what it is asked for.
type counted struct {
	Machines
	node.Locator
	asked *int
}

func (c counted) Find(ctx context.Context, name string, labels map[string]string) (node.Machine, error) {
	*c.asked++
	return c.Machines.Find(ctx, name, labels)
}

func (c counted) Locate(ctx context.Context, i node.Instance) (node.Location, error) {
	*c.asked++
	return c.Locator.Locate(ctx, i)
}

// TestInstanceOfAnotherGroup: migrated_from of a manifest moves an instance into another group, whose taints its Node
// gets. The cloud is not asked while nothing changes.
func TestInstanceOfAnotherGroup(t *testing.T) {
	asked := 0
	taint := corev1.Taint{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}
	machine := node.Machine{
		ID: "i-1", Node: "worker-3c5e8f1a", ProviderID: "aws:///z/i-1",
		Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.4")},
	}
	inCloud := &Instances{Cloud: counted{Machines: cloudOf{machine}, asked: &asked}}
	byName := &Instances{Locator: counted{Locator: located{"3c5e8f1a-0000-4000-8000-000000000001"}, asked: &asked}}
	for name, instances := range map[string]*Instances{"in a cloud": inCloud, "by name": byName} {
		asked = 0
		path := writeRecords(t)
		instances.Deployment = deployment("Kube", path)
		instances.Taints = map[string][]corev1.Taint{"pool": {taint}}
		object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-3c5e8f1a", UID: "1"}}
		client := fake.NewClientset(object)
		keeper := NewKeeper(client, instances, slog.New(slog.DiscardHandler))
		if err := keeper.informer().GetIndexer().Add(object); err != nil {
			t.Fatal(err)
		}
		keeper.queue.Add(object.Name)
		keeper.next(t.Context())
		keeper.refresh(t.Context())
		// With BOSH's names the Node would have another one: only its network changes.
		changes, key, want := []string{`"worker"`, `"pool"`}, "bosh.io/instance-group", "pool"
		if instances == byName {
			changes, key, want = []string{`"private"`, `"other"`}, "bosh.io/network", "other"
		}
		changed := strings.NewReplacer(changes...).Replace(records)
		if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Time{}, time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if n := keeper.queue.Len(); n > 0 || asked != 1 {
			t.Errorf("%s: without a change %d Nodes are labeled again, and the cloud is asked %d times", name, n, asked)
		}
		keeper.refresh(t.Context())
		for keeper.queue.Len() > 0 {
			keeper.next(t.Context())
		}
		labeled, err := client.CoreV1().Nodes().Get(t.Context(), object.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := labeled.Labels[key]; got != want || asked != 2 ||
			(instances == inCloud) != slices.Contains(labeled.Spec.Taints, taint) {
			t.Errorf("%s: %s=%q, taints %v, asked %d times", name, key, got, labeled.Spec.Taints, asked)
		}
	}
}

// slow is a cloud that answers when it may.
type slow struct {
	asked chan string
	may   chan struct{}
}

func (s slow) Find(_ context.Context, name string, _ map[string]string) (node.Machine, error) {
	s.asked <- name
	<-s.may
	return node.Machine{}, errors.New("no such VM")
}

// TestNewNodesAreLabeledFirst: a Keeper that starts asks the cloud for all Nodes, and new ones wait to be Ready.
func TestNewNodesAreLabeledFirst(t *testing.T) {
	const known = 20
	cloud := slow{make(chan string, known+2), make(chan struct{})}
	keeper := NewKeeper(
		fake.NewClientset(), &Instances{Deployment: deployment("Kube", writeRecords(t)), Cloud: cloud},
		slog.New(slog.DiscardHandler),
	)
	add := func(name, address string) {
		t.Helper()
		object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{nodestatus.AddressesLabel: address},
		}}
		if err := keeper.informer().GetIndexer().Add(object); err != nil {
			t.Fatal(err)
		}
		keeper.queue.Add(name)
	}
	for i := range known {
		add(fmt.Sprintf("known-%d", i), "10.0.0.4")
	}
	add("new", "")
	add("known-1", "") // replaced meanwhile
	close(cloud.may)
	var asked []string
	for range known + 1 {
		keeper.next(t.Context())
		asked = append(asked, <-cloud.asked)
	}
	if !slices.Equal(asked[:3], []string{"new", "known-1", "known-0"}) {
		t.Errorf("asked for %v", asked)
	}
}

// TestSeveralNodesAreLookedForAtOnce: one answer of the cloud does not hold up all others.
func TestSeveralNodesAreLookedForAtOnce(t *testing.T) {
	cloud := slow{make(chan string, workers+1), make(chan struct{})}
	client := fake.NewClientset()
	for i := range workers + 1 {
		object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("worker-%d", i)}}
		if err := client.Tracker().Add(object); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	keeper := NewKeeper(
		client, &Instances{Deployment: deployment("Kube", writeRecords(t)), Cloud: cloud},
		slog.New(slog.DiscardHandler),
	)
	go func() { ended <- keeper.Run(ctx) }()
	eventually.Succeeds(t, 30*time.Second, "several Nodes are looked for", func() error {
		if n := len(cloud.asked); n != workers {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
	stop()
	close(cloud.may)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestNodesAreNotPatchedWithoutEnd is a Node that another control VM changes back each time.
func TestNodesAreNotPatchedWithoutEnd(t *testing.T) {
	instances := &Instances{Deployment: deployment("Kube", writeRecords(t))}
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-3c5e8f1a", UID: "1"}}
	client := fake.NewClientset(object)
	keeper := NewKeeper(client, instances, slog.New(slog.DiscardHandler))
	if err := keeper.informer().GetIndexer().Add(object); err != nil { // as before the patch
		t.Fatal(err)
	}
	for range 5 * patchBurst {
		if err := keeper.label(t.Context(), object.Name); err != nil {
			t.Fatal(err)
		}
	}
	if patches := len(client.Actions()); patches != patchBurst {
		t.Errorf("%d patches at once, want %d", patches, patchBurst)
	}
}
