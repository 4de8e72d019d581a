package main

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
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

// TestTenantsDoNotShareChains is a tenant of namespace team1 whose policy and pod have names with which the controller
// would write their rules into the chains of those of namespace team10.
func TestTenantsDoNotShareChains(t *testing.T) {
	names := []metav1.ObjectMeta{{Namespace: "team1", Name: "0web"}, {Namespace: "team10", Name: "web"}}
	factory := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	policies := factory.Networking().V1().NetworkPolicies().Informer()
	pods := factory.Core().V1().Pods().Informer()
	for _, meta := range names {
		for informer, object := range map[cache.SharedIndexInformer]any{
			policies: &networkingv1.NetworkPolicy{ObjectMeta: meta}, pods: &corev1.Pod{ObjectMeta: meta},
		} {
			if err := informer.GetIndexer().Add(object); err != nil {
				t.Fatal(err)
			}
		}
	}
	for what, informer := range map[string]cache.SharedIndexInformer{"policies": policies, "pods": pods} {
		chains := map[string]bool{} // of what the controller makes the hash
		for _, object := range (distinctNames{informer}).GetIndexer().List() {
			meta, ok := object.(metav1.Object)
			if !ok {
				t.Fatalf("%s: %T", what, object)
			}
			chains[meta.GetNamespace()+meta.GetName()] = true
		}
		if len(chains) != len(names) {
			t.Errorf("%d %s have the chains %v", len(names), what, chains)
		}
		for _, meta := range names { // by their own names, with which the informer changes them
			if _, exists, err := informer.GetIndexer().GetByKey(meta.Namespace + "/" + meta.Name); !exists {
				t.Errorf("%s: %s/%s is gone: %v", what, meta.Namespace, meta.Name, err)
			}
		}
	}
}

// TestPoliciesFitIntoSets is a tenant whose policy has more networks than a set of the kernel's takes, which stops the
// policies of all namespaces.
func TestPoliciesFitIntoSets(t *testing.T) {
	policy := func(blocks, except int) *networkingv1.NetworkPolicy {
		block := networkingv1.IPBlock{CIDR: "10.0.0.0/8", Except: make([]string, except)}
		peers := make([]networkingv1.NetworkPolicyPeer, blocks)
		for i := range peers {
			peers[i].IPBlock = &block
		}
		return &networkingv1.NetworkPolicy{Spec: networkingv1.NetworkPolicySpec{
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
			Ingress:     []networkingv1.NetworkPolicyIngressRule{{From: peers}},
			Egress:      []networkingv1.NetworkPolicyEgressRule{{}, {To: peers}},
		}}
	}
	for _, test := range []struct {
		blocks, except int
		kept           bool
	}{{1, 0, true}, {20000, 1, true}, {32769, 0, false}, {1, 65536, false}, {700, 100, false}} {
		object, err := withoutUnused(policy(test.blocks, test.except))
		if err != nil {
			t.Fatal(err)
		}
		got, ok := object.(*networkingv1.NetworkPolicy)
		if !ok || len(got.Spec.PolicyTypes) != 2 {
			t.Fatalf("the controller gets %v, want a policy that isolates its pods", object)
		}
		if kept := len(got.Spec.Ingress) == 1 && len(got.Spec.Egress) == 2; kept != test.kept ||
			!kept && len(got.Spec.Ingress)+len(got.Spec.Egress) > 0 {
			t.Errorf("%d blocks with %d exceptions: %d and %d rules", test.blocks, test.except, len(got.Spec.Ingress),
				len(got.Spec.Egress))
		}
	}
}
