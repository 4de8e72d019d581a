package kubetest

import (
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// May asks the API server whether a client has a permission.
func May(t testing.TB, client kubernetes.Interface, permission authorizationv1.ResourceAttributes) bool {
	t.Helper()
	review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(
		t.Context(), &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &permission},
		}, metav1.CreateOptions{},
	)
	if err != nil {
		t.Fatal(err)
	}
	return review.Status.Allowed
}
