package termination

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clocktesting "k8s.io/utils/clock/testing"

	"kubernetes-release/cloud"
	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
)

// TestNodeAgainstRealAPIServer changes a Node with the permissions of its kubelet.
func TestNodeAgainstRealAPIServer(t *testing.T) {
	cluster := kubetest.Start(t, kubetest.Options{})
	admin := cluster.Admin()
	grantNodeLists(t, admin)
	for _, name := range []string{"a", "b"} {
		node, err := admin.CoreV1().Nodes().Create(
			t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{},
		)
		if err != nil {
			t.Fatal(err)
		}
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		if _, err := admin.CoreV1().Nodes().UpdateStatus(t.Context(), node, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually.Succeeds(t, 30*time.Second, "a node without taints", func() error { return untaint(t, admin, name) })
	}
	var log bytes.Buffer
	kubelet := cluster.ClientFor("system:node:a", "system:nodes")
	node := KubernetesNode{
		Connect: func() (kubernetes.Interface, string, error) { return kubelet, "a", nil },
		Clock:   clocktesting.NewFakePassiveClock(now),
		Log:     slog.New(slog.NewTextHandler(&log, nil)),
	}
	unschedulable := func() bool {
		t.Helper()
		found, err := admin.CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return found.Spec.Unschedulable
	}

	retired := func() bool {
		t.Helper()
		out, err := node.Retired(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return out
	}

	if err := node.Drain(t.Context(), spot(2*time.Minute), time.Minute); err != nil || !unschedulable() || !retired() {
		t.Errorf("after the drain: unschedulable %t, %v\n%s", unschedulable(), err, &log)
	}
	if err := node.Restore(t.Context()); err != nil || unschedulable() || retired() {
		t.Errorf("after the interruption: unschedulable %t, %v\n%s", unschedulable(), err, &log)
	}

	for kind, want := range map[cloud.InterruptionKind][]string{
		cloud.Termination: {"TerminationAnnounced", "why, at 2026-11-24T12:02:00Z"},
		cloud.Maintenance: {"MaintenanceScheduled", "why, at 2026-11-24T12:02:00Z; to avert it, recreate the VM"},
		cloud.Disruption:  {"DisruptionScheduled", "why, at 2026-11-24T12:02:00Z"},
	} {
		i := cloud.Interruption{ID: "1", Kind: kind, At: now.Add(2 * time.Minute), Text: "why"}
		if err := node.Report(t.Context(), i); err != nil {
			t.Fatal(err)
		}
		events, err := admin.CoreV1().Events("default").List(
			t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=a,reason=" + want[0]},
		)
		if err != nil || len(events.Items) != 1 || !strings.HasPrefix(events.Items[0].Message, want[1]) {
			t.Errorf("%s: the Events are %v (%v), want one with %q", kind, events, err, want)
		}
	}
}

// untaint removes the taint of a new node, as the controller manager does.
func untaint(t *testing.T, admin kubernetes.Interface, name string) error {
	node, err := admin.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	node.Spec.Taints = nil
	_, err = admin.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{})
	return err
}

// grantNodeLists gives kubelets what the job kubernetes-addons does.
func grantNodeLists(t *testing.T, admin kubernetes.Interface) {
	t.Helper()
	if _, err := admin.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "drain"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"list", "watch"}},
			{APIGroups: []string{"storage.k8s.io"}, Resources: []string{"volumeattachments"}, Verbs: []string{"list"}},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "drain"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "drain"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:nodes"}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
