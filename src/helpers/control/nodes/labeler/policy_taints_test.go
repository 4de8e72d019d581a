package labeler

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
)

// TestNodesCannotShedTheirTaints is root on a worker of a group with a taint, which deletes its Node and registers
// without the taint, ready from the beginning: pods of others would come to it.
func TestNodesCannotShedTheirTaints(t *testing.T) {
	cluster := withPolicies(t)
	admin, worker := cluster.Admin().CoreV1().Nodes(), cluster.ClientFor("system:node:"+stolen, "system:nodes")
	gpu := corev1.Taint{Key: "example.com/gpu", Value: "present", Effect: corev1.TaintEffectNoSchedule}
	// That of the plugin TaintNodesByCondition, which kube-controller-manager removes from a Node that is Ready.
	notReady := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
	own := corev1.Taint{Key: "example.com/maintenance", Effect: corev1.TaintEffectNoExecute}
	register := func(taints ...corev1.Taint) {
		t.Helper()
		object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: stolen}, Spec: corev1.NodeSpec{Taints: taints}}
		object.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		created, err := worker.CoreV1().Nodes().Create(t.Context(), object, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(created.Status.Conditions) > 0 {
			t.Errorf("a Node registered with the conditions %v", created.Status.Conditions)
		}
		_, err = worker.CoreV1().Nodes().Patch(t.Context(), stolen, types.MergePatchType,
			[]byte(`{"spec": {"taints": null}}`), metav1.PatchOptions{})
		kubetest.MustForbid(t, "a node removes its taints", err)
	}
	expect := func(when string, want ...corev1.Taint) {
		t.Helper()
		eventually.Succeeds(t, 30*time.Second, when, func() error {
			object, err := admin.Get(t.Context(), stolen, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if !slices.Equal(object.Spec.Taints, want) {
				return fmt.Errorf("its taints are %v, want %v", object.Spec.Taints, want)
			}
			return nil
		})
	}
	remove := func() {
		t.Helper()
		if err := worker.CoreV1().Nodes().Delete(t.Context(), stolen, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}

	register() // nobody knows it yet
	expect("before node-controller runs", notReady)
	_, err := admin.Patch(t.Context(), stolen, types.JSONPatchType, // by the policy of an earlier release
		[]byte(`[{"op": "add", "path": "/spec/taints/-", "value":
			{"key": "bosh.io/instance-unknown", "effect": "NoSchedule"}}]`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	startKeeper(t, cluster, &Instances{
		Deployment: deployment("kube", writeRecords(t)),
		// The Director writes the names of groups in lower case.
		Taints: map[string][]corev1.Taint{"Worker": {gpu}, "control": {own}},
	})
	expect("registered without taints", notReady, gpu)
	remove()
	register(corev1.Taint{Key: gpu.Key, Value: "absent", Effect: gpu.Effect})
	expect("registered with another value", gpu, notReady)
	remove()

	// The friends: kubelet registers with the taints of its manifest; an administrator adds one, and removes it again.
	register(gpu, own)
	expect("registered as kubelet does", gpu, own, notReady)
	for _, patch := range []string{
		`{"spec": {"taints": [{"key": "example.com/by-hand", "effect": "NoSchedule"}, ` +
			`{"key": "example.com/gpu", "value": "present", "effect": "NoSchedule"}]}}`,
		`{"spec": {"taints": null}}`,
	} {
		_, err := admin.Patch(t.Context(), stolen, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if patch != `{"spec": {"taints": null}}` {
			expect("one by hand", corev1.Taint{Key: "example.com/by-hand", Effect: gpu.Effect}, gpu)
		}
	}
	expect("all removed by hand", gpu)
}
