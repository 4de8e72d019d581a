package kubetest

import (
	"context"
	"testing"

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
