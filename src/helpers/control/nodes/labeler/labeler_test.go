package labeler

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
)

const (
	role   = "node-role.kubernetes.io/control-plane"
	user   = "system:node-labeler"
	wanted = "control-0"
)

// TestKeepAgainstRealAPIServer: the label that the API refuses from a kubelet is on the Node again after each way to
// lose it, and on no other Node.
func TestKeepAgainstRealAPIServer(t *testing.T) {
	cluster := kubetest.Start(t, kubetest.Options{})
	admin := cluster.Admin()
	create := func(name string) {
		t.Helper()
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"disk": "fast"}}}
		if _, err := admin.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	patch := func(client kubernetes.Interface, name string, value any) error {
		text, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{role: value}}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.CoreV1().Nodes().Patch(t.Context(), name, types.MergePatchType, text, metav1.PatchOptions{})
		return err
	}
	expectLabeled := func(when string) {
		t.Helper()
		eventually.Succeeds(t, 30*time.Second, when, func() error {
			node, err := admin.CoreV1().Nodes().Get(t.Context(), wanted, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if value, ok := node.Labels[role]; !ok || value != "" || node.Labels["disk"] != "fast" {
				return fmt.Errorf("labels are %v", node.Labels)
			}
			return nil
		})
	}

	create("worker-0")
	kubelet := cluster.ClientFor("system:node:worker-0", "system:nodes")
	kubetest.MustForbid(t, "a worker that labels itself as control plane", patch(kubelet, "worker-0", ""))

	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Keep(ctx, cluster.ClientFor(user), wanted, map[string]string{role: ""}, slog.New(slog.DiscardHandler))
	}()
	create(wanted) // before the permission, as in a new cluster
	grant(t, admin)
	expectLabeled("registered Node")
	if err := patch(admin, wanted, nil); err != nil {
		t.Fatal(err)
	}
	expectLabeled("label removed")
	if err := patch(admin, wanted, "other"); err != nil {
		t.Fatal(err)
	}
	expectLabeled("label changed")
	if err := admin.CoreV1().Nodes().Delete(t.Context(), wanted, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	create(wanted)
	expectLabeled("Node deleted and registered again")

	stop()
	if err := <-ended; err != nil {
		t.Errorf("after the end of its context: %v", err)
	}
	other, err := admin.CoreV1().Nodes().Get(t.Context(), "worker-0", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := other.Labels[role]; ok {
		t.Error("the other Node is labeled too")
	}
}

// grant gives the permissions of jobs/kubernetes-addons/templates/manifests/10-nodes.yml.
func grant(t *testing.T, admin kubernetes.Interface) {
	t.Helper()
	metadata := metav1.ObjectMeta{Name: "node-labeler"}
	if _, err := admin.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metadata,
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list", "patch", "watch"}},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.RbacV1().
		ClusterRoleBindings().
		Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metadata,
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "node-labeler"},
			Subjects: []rbacv1.Subject{
				{APIGroup: rbacv1.GroupName, Kind: "User", Name: user},
			},
		}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
