package drain

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubernetes-release/internal/nodestatus"
	"kubernetes-release/node/object"
)

func TestReturnNamesWhyTheNodeIsNotReady(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "kubelet.stderr.log")
	if err := os.WriteFile(log, []byte("1\n2\n3\n4\n5\nno such sandbox\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	node := object.Options{
		Kubeconfig: filepath.Join(dir, "kubeconfig"), Name: "n",
		Timeout: 50 * time.Millisecond, Interval: time.Millisecond,
	}
	pending := filepath.Join(dir, "pending")
	err := Return(t.Context(), node, Files{KubeletLog: log, Pending: pending}, slog.New(slog.DiscardHandler))
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, fs.ErrNotExist) ||
		!strings.HasSuffix(err.Error(), "The end of "+log+":\n2\n3\n4\n5\nno such sandbox") {
		t.Errorf("got %v, want the missing kubeconfig and five lines of kubelet's log", err)
	}
	none := Files{KubeletLog: filepath.Join(dir, "none"), Pending: pending}
	err = Return(t.Context(), node, none, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), node.Kubeconfig) ||
		!strings.Contains(err.Error(), "cannot be read") {
		t.Errorf("got %v, want both problems", err)
	}
}

// TestReturnNamesWhyTheNodeIsNotInitialized shows what the controller says, in the log that it wrote last, or why it
// has not started.
func TestReturnNamesWhyTheNodeIsNotInitialized(t *testing.T) {
	node := corev1.Node{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: "n"},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: nodestatus.UninitializedTaint}}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue,
			LastHeartbeatTime: metav1.NewTime(time.Now().Add(time.Hour)),
		}}},
	}
	pod := func(namespace, name string, state corev1.ContainerState) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
				Image: "registry.example/controler:v1", State: state,
			}}},
		}
	}
	waits := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
		Reason: "ErrImagePull", Message: "failed to pull: not found",
	}}
	pods := corev1.PodList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"},
		Items: []corev1.Pod{
			pod("kube-system", "cloud-node-manager-1", corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}),
			pod("kube-system", "coredns-1", waits), pod("other", "cloud-controller-manager-2", waits),
		},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/api/v1/pods" && r.URL.Query().Get("fieldSelector") == "spec.nodeName=n" {
			_ = json.NewEncoder(w).Encode(pods)
			return
		}
		_ = json.NewEncoder(w).Encode(node)
	}))
	defer server.Close()
	dir := t.TempDir()
	config := filepath.Join(dir, "kubeconfig")
	for path, text := range map[string]string{
		config: "{clusters: [{name: c, cluster: {server: '" + server.URL + "'}}], contexts: [{name: c, context: " +
			"{cluster: c}}], current-context: c}",
		filepath.Join(dir, "old.log"): "an earlier pod\n",
		filepath.Join(dir, "new.log"): "cannot reach the vCenter\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	hourAgo := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "old.log"), hourAgo, hourAgo); err != nil {
		t.Fatal(err)
	}
	options := object.Options{
		Kubeconfig: config, Name: "n", Timeout: 2 * time.Second, Interval: 10 * time.Millisecond, Untainted: true,
	}
	files := Files{
		ControllerLogs: []string{filepath.Join(dir, "none*"), filepath.Join(dir, "*.log")},
		Pending:        filepath.Join(dir, "pending"),
	}
	err := Return(t.Context(), options, files, slog.New(slog.DiscardHandler))
	if !errors.Is(err, nodestatus.ErrUninitialized) ||
		!strings.HasSuffix(err.Error(), "new.log:\ncannot reach the vCenter") {
		t.Errorf("got %v, want the taint, and what the controller says", err)
	}
	files.ControllerLogs = nil
	err = Return(t.Context(), options, files, slog.New(slog.DiscardHandler))
	if !errors.Is(err, nodestatus.ErrUninitialized) || strings.Contains(err.Error(), "The end of") ||
		strings.Contains(err.Error(), "; pod ") {
		t.Errorf("got %v, want the taint alone", err)
	}
	pods.Items = append(pods.Items, pod("kube-system", "cloud-controller-manager-1", waits))
	err = Return(t.Context(), options, files, slog.New(slog.DiscardHandler))
	if err == nil || !strings.HasSuffix(err.Error(), "; pod cloud-controller-manager-1 waits with the image "+
		"registry.example/controler:v1: ErrImagePull: failed to pull: not found") {
		t.Errorf("got %v, want the image that cannot be pulled", err)
	}
}

// A VM that has never joined has no kubeconfig: with a timeout of 0, and on the first VMs of a new cluster, that must
// not fail the deploy.
func TestReturnDoesNotWait(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	for name, node := range map[string]object.Options{
		"no timeout": {},
		"no quorum": {
			Timeout: time.Minute, EtcdMembers: []string{listener.Addr().String(), "127.0.0.1:1", "127.0.0.1:1"},
		},
	} {
		node.Kubeconfig, node.Name = filepath.Join(t.TempDir(), "kubeconfig"), "n"
		pending := filepath.Join(t.TempDir(), "pending")
		if err := Return(t.Context(), node, Files{Pending: pending}, slog.New(slog.DiscardHandler)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !exists(pending) {
			t.Errorf("%s: post-deploy does not try again", name)
		}
	}
}
