package kubetest

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestClusterAuthenticatesUsers(t *testing.T) {
	cluster := Start(t, Options{})
	ctx := context.Background()
	if _, err := cluster.Admin().CoreV1().Namespaces().List(ctx, metav1.ListOptions{}); err != nil {
		t.Errorf("administrator: %v", err)
	}
	_, err := cluster.ClientFor("nobody").CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("user without roles: got %v, want Forbidden", err)
	}
}

// TestAwaitPolicies writes policies one after another and tries at once what it forbids.
func TestAwaitPolicies(t *testing.T) {
	cluster := Start(t, Options{})
	configMaps := cluster.Admin().CoreV1().ConfigMaps(metav1.NamespaceDefault)
	for i := range 5 {
		name := fmt.Sprintf("forbidden-%d", i)
		if err := cluster.writeValidatingMarker(name); err != nil {
			t.Fatal(err)
		}
		cluster.AwaitPolicies()
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := configMaps.Create(t.Context(), object, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
			t.Errorf("create %s: %v, want it refused", name, err)
		}
	}
}

// ended records how a test ended.
type ended struct {
	testing.TB
	how string
}

func (e *ended) Helper()               {}
func (e *ended) Skipf(string, ...any)  { e.how = "skipped" }
func (e *ended) Fatalf(string, ...any) { e.how = "failed" }

func TestWithoutSource(t *testing.T) {
	for components, want := range map[string]string{"": "skipped", "/components": "failed"} {
		t.Setenv("COMPONENTS_DIR", components)
		test := &ended{TB: t}
		if WithoutSource(test, "csi"); test.how != want {
			t.Errorf("with COMPONENTS_DIR=%q the test has %s, want %s", components, test.how, want)
		}
	}
}
