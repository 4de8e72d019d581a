package object

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
)

const nodeName = "ip-10-0-16-4.ec2.internal"

// server answers one status after the other and repeats the last; for 0 it never answers.
func server(t *testing.T, statuses ...int) (kubeconfig string, calls *atomic.Int32) {
	t.Helper()
	calls = new(atomic.Int32)
	end := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodDelete || r.URL.Path != "/api/v1/nodes/"+nodeName {
			t.Errorf("%s %s", r.Method, r.URL.Path)
		}
		status := statuses[min(int(calls.Add(1)), len(statuses))-1]
		if status == 0 {
			select {
			case <-end:
			case <-r.Context().Done():
			}
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(
			w,
			`{"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "because of %[1]d",
				"reason": %[2]q, "code": %[1]d}`,
			status,
			map[int]metav1.StatusReason{
				http.StatusNotFound: metav1.StatusReasonNotFound, http.StatusForbidden: metav1.StatusReasonForbidden,
			}[status],
		)
	}))
	t.Cleanup(s.Close)
	t.Cleanup(func() { close(end) })
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	content := fmt.Sprintf(
		"apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c}}]\nclusters: "+
			"[{name: c, cluster: {server: %q}}]\n",
		s.URL,
	)
	if err := os.WriteFile(kubeconfig, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return kubeconfig, calls
}

func TestDelete(t *testing.T) {
	for name, test := range map[string]struct {
		statuses []int
		timeout  time.Duration
		calls    int32 // 0: any number
		want     string
	}{
		"deleted":           {[]int{200}, time.Minute, 1, ""},
		"does not exist":    {[]int{404}, time.Minute, 1, ""},
		"API restarts":      {[]int{500, 500, 200}, time.Minute, 3, ""},
		"no permission":     {[]int{403}, time.Minute, 1, "because of 403; the job kubernetes-addons"},
		"API stays down":    {[]int{500}, 200 * time.Millisecond, 0, "because of 500"},
		"API never answers": {[]int{0}, 200 * time.Millisecond, 0, "timed out"},
		"one request hangs": {[]int{0, 200}, 4 * time.Second, 2, ""},
	} {
		t.Run(name, func(t *testing.T) {
			kubeconfig, calls := server(t, test.statuses...)
			err := Delete(
				t.Context(),
				Options{Kubeconfig: kubeconfig, Name: nodeName, Timeout: test.timeout, Interval: 10 * time.Millisecond},
				slog.New(slog.DiscardHandler),
			)
			if (err == nil) != (test.want == "") ||
				err != nil &&
					(!strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "Node "+nodeName)) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			if got := calls.Load(); got == 0 || test.calls != 0 && got != test.calls {
				t.Errorf("%d requests, want %d", got, test.calls)
			}
		})
	}
}

func TestDeleteBeforeTheVMHasJoined(t *testing.T) {
	options := Options{Kubeconfig: filepath.Join(t.TempDir(), "kubeconfig"), Name: nodeName, Timeout: time.Minute}
	if err := Delete(t.Context(), options, slog.New(slog.DiscardHandler)); err != nil {
		t.Errorf("got %v, want nothing to do", err)
	}
	if err := os.WriteFile(options.Kubeconfig, []byte("]"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Delete(t.Context(), options, slog.New(slog.DiscardHandler)); err == nil ||
		!strings.Contains(err.Error(), options.Kubeconfig) {
		t.Errorf("got %v, want the file that is broken", err)
	}
}

// TestDeleteAgainstRealAPIServer: with RBAC's permission to delete Nodes a kubelet can delete its own, and no other.
func TestDeleteAgainstRealAPIServer(t *testing.T) {
	cluster := kubetest.Start(t, kubetest.Options{})
	admin := cluster.Admin()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, name := range []string{"node-a", "node-b"} {
		if _, err := admin.CoreV1().
			Nodes().
			Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	options := Options{
		Kubeconfig: cluster.Kubeconfig("system:node:node-a", "system:nodes"),
		Name:       "node-a",
		Timeout:    20 * time.Second,
	}
	log := slog.New(slog.DiscardHandler)
	if err := Delete(ctx, options, log); err == nil || !strings.Contains(err.Error(), "kubernetes-addons") {
		t.Errorf("without the permission: %v", err)
	}
	metadata := metav1.ObjectMeta{Name: "node-deleter"}
	if _, err := admin.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metadata,
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"delete"}},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metadata,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "node-deleter"},
		Subjects: []rbacv1.Subject{
			{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "system:nodes"},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually.Succeeds(t, 30*time.Second, "delete with the new permission", func() error {
		err := Delete(ctx, options, log)
		if err != nil && !strings.Contains(err.Error(), "kubernetes-addons") {
			t.Fatal(err)
		}
		return err
	})
	if _, err := admin.CoreV1().Nodes().Get(ctx, "node-a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("node-a: %v", err)
	}
	options.Name = "node-b"
	if err := Delete(ctx, options, log); err == nil || !strings.Contains(err.Error(), "not allowed to modify") {
		t.Errorf("another VM's Node: %v, want NodeRestriction to refuse it", err)
	}
}
