package nodelabels

import (
	"fmt"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubernetes-release/internal/kubetest"
)

// TestNodesAreSmall is root on a worker that fills the memory of whatever watches Nodes, and keeps the API server busy
// with policies that look at each label, annotation or address of a Node, of which one is evaluated with all Nodes for
// each new pod of others: with 46,656 annotations of one Node, each new address of a pod on another took 20 s of a
// busy processor.
func TestNodesAreSmall(t *testing.T) {
	cluster, worker := withNodes(t)
	admin := cluster.Admin()
	if err := patchLabels(t, admin, stolen, "", map[string]any{"bosh.io/addresses": "10.0.0.4"}); err != nil {
		t.Fatal(err)
	}
	many := func(n int) map[string]any {
		all := map[string]any{}
		for i := range n {
			all[fmt.Sprintf("a%d", i)] = ""
		}
		return all
	}
	nodes := worker.CoreV1().Nodes()
	status := func(change func(*corev1.NodeStatus)) error {
		node, err := nodes.Get(t.Context(), stolen, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		change(&node.Status)
		_, err = nodes.UpdateStatus(t.Context(), node, metav1.UpdateOptions{})
		return err
	}
	images := func(n int) func(*corev1.NodeStatus) {
		return func(s *corev1.NodeStatus) {
			s.Images = nil
			for i := range n {
				var names []string
				for j := range 5 {
					name := fmt.Sprintf("registry.example.com/%s/%d-%d@sha256:", strings.Repeat("a", 60), i, j)
					names = append(names, name+strings.Repeat("b", 64))
				}
				s.Images = append(s.Images, corev1.ContainerImage{Names: names, SizeBytes: 1 << 30})
			}
		}
	}
	const lists = "1000 labels, annotations, taints and resources"
	for _, subresources := range [][]string{nil, {"status"}} {
		for _, field := range []string{"annotations", "labels"} {
			err := patchMetadata(t, worker, stolen, map[string]any{field: many(1100)}, subresources...)
			kubetest.MustForbid(t, fmt.Sprint(field, subresources), err, lists)
		}
	}
	addresses := func(s *corev1.NodeStatus) {
		for i := range 101 {
			address := fmt.Sprintf("10.0.0.%d", i)
			s.Addresses = append(s.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address})
		}
	}
	kubetest.MustForbid(t, "addresses", status(addresses), "100 addresses")
	conditions := func(s *corev1.NodeStatus) {
		for i := range 101 {
			condition := corev1.NodeCondition{Type: corev1.NodeConditionType(fmt.Sprintf("A%d", i))}
			s.Conditions = append(s.Conditions, condition)
		}
	}
	kubetest.MustForbid(t, "conditions", status(conditions), "100 addresses and conditions")
	resources := func(s *corev1.NodeStatus) {
		s.Capacity = corev1.ResourceList{}
		for i := range 1001 {
			s.Capacity[corev1.ResourceName(fmt.Sprintf("example.com/a%d", i))] = resource.MustParse("1")
		}
	}
	kubetest.MustForbid(t, "resources", status(resources), lists)
	kubetest.MustForbid(t, "images", status(images(1000)), "262144 characters")
	taints := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: stolen}}
	for i := range 1001 {
		taint := corev1.Taint{Key: fmt.Sprintf("a%d", i), Effect: corev1.TaintEffectNoSchedule}
		taints.Spec.Taints = append(taints.Spec.Taints, taint)
	}
	_, err := nodes.Create(t.Context(), taints, metav1.CreateOptions{})
	kubetest.MustForbid(t, "taints", err, lists)

	// The friend: a kubelet with as many images as it reports, and labels of its own.
	if err := status(images(50)); err != nil {
		t.Errorf("50 images with five names each: %v", err)
	}
	own := map[string]any{"annotations": many(100), "labels": many(100)}
	if err := patchMetadata(t, worker, stolen, own); err != nil {
		t.Errorf("100 labels and annotations: %v", err)
	}
}

// TestNodesCannotKeepTheirCSINodes is root on a worker that keeps its CSINode, or by it what it names as its owner,
// where no job has a policy for CSINodes.
func TestNodesCannotKeepTheirCSINodes(t *testing.T) {
	cluster, worker := withNodes(t)
	node, err := cluster.Admin().CoreV1().Nodes().Get(t.Context(), stolen, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	create := func(change func(*metav1.ObjectMeta)) error {
		object := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{
			// As kubelet does (CreateCSINode in pkg/volume/csi/nodeinfomanager/nodeinfomanager.go).
			Name:            stolen,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: stolen, UID: node.UID}},
		}}
		change(&object.ObjectMeta)
		_, err := worker.StorageV1().CSINodes().Create(t.Context(), object, metav1.CreateOptions{})
		return err
	}
	kubetest.MustForbid(t, "a finalizer", create(func(m *metav1.ObjectMeta) {
		m.Finalizers = []string{"example.com/a"}
	}), "neither add finalizers to csinodes")
	kubetest.MustForbid(t, "a namespace", create(func(m *metav1.ObjectMeta) {
		m.OwnerReferences[0].Kind, m.OwnerReferences[0].Name = "Namespace", "default"
	}), "only its own Node as the owner of csinodes")
	kubetest.MustForbid(t, "many owners", create(func(m *metav1.ObjectMeta) {
		for i := range 11 { // the API drops duplicates
			owner := m.OwnerReferences[0]
			owner.UID += types.UID(fmt.Sprint(i))
			m.OwnerReferences = append(m.OwnerReferences, owner)
		}
	}), "more than 10 owners")
	if err := create(func(*metav1.ObjectMeta) {}); err != nil {
		t.Errorf("kubelet's own: %v", err)
	}
}

// TestNodesWriteSmallRecords is root on a worker that fills etcd by its Lease, whose renewals the audit log leaves out,
// or by its CSINode, or keeps what watches CSINodes busy with thousands of drivers.
func TestNodesWriteSmallRecords(t *testing.T) {
	cluster, worker := withNodes(t)
	node, err := cluster.Admin().CoreV1().Nodes().Get(t.Context(), stolen, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	owners := []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: stolen, UID: node.UID}}
	text := strings.Repeat("x", 200<<10)
	leases := worker.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	// As kubelet does (NewController in k8s.io/component-helpers/apimachinery/lease).
	seconds, holder, now := int32(40), stolen, metav1.NowMicro()
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: stolen, OwnerReferences: owners},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &now,
		},
	}
	large := lease.DeepCopy()
	large.Annotations = map[string]string{"example.com/a": text}
	_, err = leases.Create(t.Context(), large, metav1.CreateOptions{})
	kubetest.MustForbid(t, "a Lease with an annotation", err, "of leases a node can write 4096 characters")
	lease, err = leases.Create(t.Context(), lease, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("kubelet's own: %v", err)
	}
	lease.Spec.RenewTime = &metav1.MicroTime{Time: now.Add(1)}
	if lease, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
		t.Fatalf("kubelet renews it: %v", err)
	}
	lease.Spec.HolderIdentity = &text
	_, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{})
	kubetest.MustForbid(t, "a Lease with a long holder", err, "of leases a node can write 4096 characters")

	csiNodes := worker.StorageV1().CSINodes()
	record := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: stolen, OwnerReferences: owners}}
	drivers := func(n int) *storagev1.CSINode {
		changed := record.DeepCopy()
		for i := range n {
			changed.Spec.Drivers = append(changed.Spec.Drivers, storagev1.CSINodeDriver{
				Name: fmt.Sprintf("a%d.example.com", i), NodeID: strings.Repeat("i", 100),
				TopologyKeys: []string{"topology.example.com/zone", "kubernetes.io/os"},
			})
		}
		return changed
	}
	_, err = csiNodes.Create(t.Context(), drivers(10000), metav1.CreateOptions{})
	kubetest.MustForbid(t, "a CSINode with thousands of drivers", err, "100 drivers in its CSINode, not 10000")
	annotated := record.DeepCopy()
	annotated.Annotations = map[string]string{"example.com/a": text}
	_, err = csiNodes.Create(t.Context(), annotated, metav1.CreateOptions{})
	kubetest.MustForbid(t, "a CSINode with an annotation", err, "of csinodes a node can write 65536 characters")
	if record, err = csiNodes.Create(t.Context(), record, metav1.CreateOptions{}); err != nil {
		t.Fatalf("kubelet's own, without drivers: %v", err)
	}
	if _, err := csiNodes.Update(t.Context(), drivers(20), metav1.UpdateOptions{}); err != nil {
		t.Errorf("with 20 drivers: %v", err)
	}
}
