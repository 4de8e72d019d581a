package main

import (
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestPoliciesHaveNoLimitsOfTheirOwn is a tenant who annotates a policy with a limit that iptables refuses, which stops
// the policies of all namespaces.
func TestPoliciesHaveNoLimitsOfTheirOwn(t *testing.T) {
	policy := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "tenant", Annotations: map[string]string{
			"kube-router.io/netpol-nflog-limit": "0/minute", "kube-router.io/netpol-nflog-limit-burst": "999999999",
		}},
		Spec: networkingv1.NetworkPolicySpec{PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}},
	}
	object, err := withoutUnused(policy)
	if err != nil {
		t.Fatal(err)
	}
	kept, ok := object.(*networkingv1.NetworkPolicy)
	if !ok || kept.Name != "a" || len(kept.Spec.PolicyTypes) != 1 {
		t.Fatalf("the controller gets %v, want the policy", object)
	}
	if len(kept.Annotations) > 0 {
		t.Errorf("the controller gets the annotations %v", kept.Annotations)
	}
}
