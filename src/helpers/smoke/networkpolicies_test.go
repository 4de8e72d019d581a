package smoke

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/util/exec"
)

// TestFailedCommandIsNoPolicy: a command that did not run tells nothing about a policy.
func TestFailedCommandIsNoPolicy(t *testing.T) {
	s := &suite{
		client: fake.NewClientset(), namespace: "smoke-tests-1", pods: make([]corev1.Pod, replicas),
		limits: limits{policy: 20 * time.Millisecond},
		exec: func(context.Context, string, string, ...string) (string, error) {
			return "", errors.New("error dialing backend: No agent available")
		},
	}
	if _, err := s.checkNetworkPolicy(t.Context()); err == nil || !strings.Contains(err.Error(), "dialing backend") {
		t.Errorf("got %v, want the error of the command", err)
	}
}

func TestUnenforcedNetworkPoliciesAreReported(t *testing.T) {
	policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "only-web"}}
	for _, test := range []struct {
		name     string
		objects  []runtime.Object
		enforced bool
		slow     bool // an attempt to connect takes longer than the check
		want     string
	}{
		{"no policies", nil, false, false, ""},
		{"policies that nothing enforces", []runtime.Object{policy}, false, false, "1 exist, such as team/only-web, " +
			"and the pod network enforces none of them"},
		{"slow pods", []runtime.Object{policy}, false, true, "1 exist, such as team/only-web, and the pod network " +
			"enforces none of them"},
		{"enforced policies", []runtime.Object{policy}, true, false, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			var output bytes.Buffer
			s := &suite{
				client: fake.NewClientset(
					test.objects...),
				namespace: "smoke-tests-1",
				pods:      make([]corev1.Pod, replicas),
				report:    &report{output: &output},
				limits:    limits{policy: 20 * time.Millisecond},
			}
			if test.enforced {
				s.limits.policy = time.Minute
			}
			s.exec = func(ctx context.Context, namespace, _ string, _ ...string) (string, error) {
				own, err := s.client.NetworkingV1().NetworkPolicies(namespace).List(ctx, metav1.ListOptions{})
				if err != nil {
					return "", err
				}
				if test.enforced && len(own.Items) > 0 {
					return "", exec.CodeExitError{Err: errors.New("connection timed out"), Code: 1}
				}
				if test.slow {
					<-ctx.Done()
					return "", ctx.Err()
				}
				return "web\n", nil
			}
			_, err := s.checkNetworkPolicy(t.Context())
			if (err == nil) != test.enforced {
				t.Errorf("the check for a cluster that enforces policies: %v", err)
			}
			if err := s.client.NetworkingV1().
				NetworkPolicies(s.namespace).
				Delete(t.Context(), "deny-all", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			s.noteNetworkPolicies(t.Context())
			if got := output.String(); !strings.Contains(got, test.want) || (got == "") != (test.want == "") {
				t.Errorf("the report is %q, want %q", got, test.want)
			}
		})
	}
}
