package labeler

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"kubernetes-release/internal/kubetest"
)

const (
	stolen = "worker-3c5e8f1a"
	victim = "worker-0d9b2c4e"
)

// withNodes returns a cluster with two Nodes, and a client for the first.
func withNodes(t *testing.T) (*kubetest.Cluster, kubernetes.Interface) {
	t.Helper()
	cluster := withPolicies(t)
	for _, name := range []string{stolen, victim} {
		object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := cluster.Admin().CoreV1().Nodes().Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return cluster, cluster.ClientFor("system:node:"+stolen, "system:nodes")
}

// TestNodesCannotTakeTheZoneOfAnother is root on a worker that labels its Node with the zone of volumes that pods of
// others have: these pods would come with their Secrets.
func TestNodesCannotTakeTheZoneOfAnother(t *testing.T) {
	cluster, worker := withNodes(t)
	const ebs, cinder = "topology.ebs.csi.aws.com/zone", "topology.cinder.csi.openstack.org/zone"
	admin := cluster.Admin()
	set := func(client kubernetes.Interface, label string, value any) error {
		return patchLabels(t, client, stolen, "", map[string]any{label: value})
	}
	kubetest.MustForbid(t, "before the zone is known", set(worker, ebs, "us-east-1a"), "which is not known yet", ebs)
	if err := set(admin, corev1.LabelTopologyZone, "us-east-1a"); err != nil {
		t.Fatal(err)
	}
	kubetest.MustForbid(t, "another zone", set(worker, ebs, "us-east-1b"), "us-east-1a, as the label", "not us-east-1b")
	kubetest.MustForbid(t, "another zone of OpenStack", set(worker, cinder, "az2"), "us-east-1a, as the label "+cinder)
	kubetest.MustForbid(t, "another zone of either", patchLabels(t, worker, stolen, "status", map[string]any{
		ebs: "us-east-1a", cinder: "az2",
	}), "az2")
	kubetest.MustForbid(t, "both", patchLabels(t, worker, stolen, "status", map[string]any{
		ebs: "us-east-1b", corev1.LabelTopologyZone: "us-east-1b",
	}), "labels of its instance")
	kubetest.MustForbid(
		t, "what only AWS knows", set(worker, "topology.k8s.aws/zone-id", "use1-az2"), "labels of its instance",
	)
	// The friend: kubelet, by the subresource (PatchNodeStatus), and after its driver has gone.
	for _, label := range []string{ebs, cinder} {
		if err := patchLabels(t, worker, stolen, "status", map[string]any{label: "us-east-1a"}); err != nil {
			t.Errorf("kubelet's label %s: %v", label, err)
		}
	}
	kubetest.MustForbid(t, "another zone, later", set(worker, ebs, "us-east-1b"), "not us-east-1b")
	if err := set(worker, ebs, nil); err != nil {
		t.Errorf("no label: %v", err)
	}

	// One that registers with it.
	if err := admin.CoreV1().Nodes().Delete(t.Context(), stolen, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: stolen, Labels: map[string]string{ebs: "us-east-1b"}}}
	_, err := worker.CoreV1().Nodes().Create(t.Context(), object, metav1.CreateOptions{})
	kubetest.MustForbid(t, "at the registration", err, "which is not known yet")
	object.Labels = map[string]string{"topology.k8s.aws/zone-id": "use1-az2", "disk": "fast"}
	created, err := worker.CoreV1().Nodes().Create(t.Context(), object, metav1.CreateOptions{})
	if err != nil || len(created.Labels) != 1 {
		t.Errorf("registered with labels %v: %v, want the own one alone", created.Labels, err)
	}
}
