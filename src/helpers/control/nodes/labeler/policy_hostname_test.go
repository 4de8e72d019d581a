package labeler

import (
	"testing"

	"kubernetes-release/internal/kubetest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestNodesCannotTakeTheHostnameOfAnother is root on a worker that labels its Node with another node's name: pods that
// are pinned to that one, and those with its local volumes, would come with their Secrets.
func TestNodesCannotTakeTheHostnameOfAnother(t *testing.T) {
	cluster := withPolicies(t)
	const name, other = "worker-3c5e8f1a", "worker-0d9b2c4e"
	worker := cluster.ClientFor("system:node:"+name, "system:nodes")
	register := func(labels map[string]string) error {
		object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
		_, err := worker.CoreV1().Nodes().Create(t.Context(), object, metav1.CreateOptions{})
		return err
	}
	kubetest.MustForbid(
		t, "at the registration", register(map[string]string{corev1.LabelHostname: other}), "only its own name, "+name,
	)
	if err := register(map[string]string{corev1.LabelHostname: name, "disk": "fast"}); err != nil {
		t.Fatalf("as kubelet registers: %v", err)
	}
	for _, subresource := range []string{"", "status"} {
		for what, value := range map[string]any{"another's": other, "none": nil} {
			err := patchLabels(t, worker, name, subresource, map[string]any{corev1.LabelHostname: value})
			kubetest.MustForbid(t, what+" "+subresource, err, "only its own name, "+name)
		}
	}

	// One that was changed before there was a policy: another label can be set, and kubelet corrects it when it starts.
	changed := map[string]any{corev1.LabelHostname: other}
	if err := patchLabels(t, cluster.Admin(), name, "", changed); err != nil {
		t.Fatal(err)
	}
	for _, labels := range []map[string]any{{"disk": "slow"}, {corev1.LabelHostname: name}} {
		if err := patchLabels(t, worker, name, "", labels); err != nil {
			t.Errorf("%v: %v", labels, err)
		}
	}
}
