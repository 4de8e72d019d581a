package kubetest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"

	"kubernetes-release/internal/eventually"
)

// AwaitPolicies returns when the API server enforces every admission policy and binding that has been written before.
//
// The API server learns of policies and bindings from watches and takes them up once a second, those that mutate apart
// from those that validate (k8s.io/apiserver/pkg/admission/plugin/policy/generic/policy_source.go). A watch keeps the
// order of writes, so when a pair that is written last is enforced, the earlier ones are too. The pairs written here
// stay, and match one ConfigMap that is never stored.
func (c *Cluster) AwaitPolicies() {
	c.t.Helper()
	marker := "kubetest-" + rand.String(8)
	if err := errors.Join(c.writeMutatingMarker(marker), c.writeValidatingMarker(marker)); err != nil {
		c.t.Fatal(err)
	}
	eventually.Succeeds(c.t, time.Minute, "admission policies are enforced", func() error {
		_, err := c.Admin().CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(
			c.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: marker}},
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}},
		)
		// The message has the value that the mutation sets, so it shows that both are enforced.
		if apierrors.IsInvalid(err) && strings.Contains(err.Error(), marker+" was mutated") {
			return nil
		}
		return fmt.Errorf("a ConfigMap that a policy mutates and another refuses: %w", err)
	})
}

// MustForbid fails the test unless the API server has forbidden a request, in a message that contains the words.
func MustForbid(t testing.TB, what string, err error, words ...string) {
	t.Helper()
	if !apierrors.IsForbidden(err) {
		t.Errorf("%s: %v, want it forbidden", what, err)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v, want %q in it", what, err, word)
		}
	}
}

func (c *Cluster) writeMutatingMarker(marker string) error {
	policies := c.Admin().AdmissionregistrationV1()
	policy := &admissionv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: marker},
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			MatchConstraints:   matchConfigMap(marker),
			ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
			Mutations: []admissionv1.Mutation{{
				PatchType: admissionv1.PatchTypeApplyConfiguration,
				ApplyConfiguration: &admissionv1.ApplyConfiguration{
					Expression: `Object{data: {"marker": "was mutated"}}`,
				},
			}},
		},
	}
	binding := &admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: marker},
		Spec:       admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: marker},
	}
	if _, err := policies.MutatingAdmissionPolicies().Create(
		c.t.Context(), policy, metav1.CreateOptions{},
	); err != nil {
		return err
	}
	_, err := policies.MutatingAdmissionPolicyBindings().Create(c.t.Context(), binding, metav1.CreateOptions{})
	return err
}

func (c *Cluster) writeValidatingMarker(marker string) error {
	policies := c.Admin().AdmissionregistrationV1()
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: marker},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: matchConfigMap(marker),
			Validations: []admissionv1.Validation{{
				Expression:        "false",
				MessageExpression: `object.metadata.name + " " + object.?data.?marker.orValue("was not mutated")`,
			}},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: marker},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: marker, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}
	if _, err := policies.ValidatingAdmissionPolicies().Create(
		c.t.Context(), policy, metav1.CreateOptions{},
	); err != nil {
		return err
	}
	_, err := policies.ValidatingAdmissionPolicyBindings().Create(c.t.Context(), binding, metav1.CreateOptions{})
	return err
}

func matchConfigMap(name string) *admissionv1.MatchResources {
	rule := admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Create},
		Rule: admissionv1.Rule{
			APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"},
		},
	}
	return &admissionv1.MatchResources{
		ResourceRules: []admissionv1.NamedRuleWithOperations{
			{ResourceNames: []string{name}, RuleWithOperations: rule},
		},
	}
}
