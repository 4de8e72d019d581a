package smoke

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
)

// TestMetricsOfEveryNode: one node without metrics is a failure that names it, and the check waits for a kubelet that
// was asked once.
func TestMetricsOfEveryNode(t *testing.T) {
	client := fake.NewSimpleDynamicClientWithCustomListKinds(
		runtime.NewScheme(), map[schema.GroupVersionResource]string{nodeMetrics: "NodeMetricsList"},
	)
	measured := func(node string) {
		t.Helper()
		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "metrics.k8s.io/v1beta1", "kind": "NodeMetrics", "metadata": map[string]any{"name": node},
		}}
		if _, err := client.Resource(nodeMetrics).Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	s := &suite{
		dynamic: client,
		nodes: []corev1.Node{
			{ObjectMeta: metav1.ObjectMeta{Name: "control"}},
			{ObjectMeta: metav1.ObjectMeta{Name: "worker"}},
		},
	}
	measured("control")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := s.checkMetrics(ctx); err == nil || !strings.Contains(err.Error(), "nodes without metrics: worker;") {
		t.Errorf("got %v, want an error about worker", err)
	}
	time.AfterFunc(10*time.Millisecond, func() { measured("worker") })
	if detail, err := s.checkMetrics(t.Context()); err != nil || detail != "of all 2 nodes" {
		t.Errorf("got %q, %v", detail, err)
	}
}
