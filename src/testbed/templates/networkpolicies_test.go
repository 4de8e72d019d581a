package templates

import (
	"fmt"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"kubernetes-release/internal/kubetest"
)

// TestTenantsCannotStopNetworkPolicies is a tenant with a policy from which network-policy would make hundreds of
// thousands of rules on every node, together with those of all other namespaces.
func TestTenantsCannotStopNetworkPolicies(t *testing.T) {
	t.Parallel()
	s := startTenants(t)
	create := func(rules, ports, peers int) error {
		rule := networkingv1.NetworkPolicyEgressRule{Ports: make([]networkingv1.NetworkPolicyPort, ports)}
		for i := range rule.Ports {
			port := intstr.FromInt(i + 1)
			rule.Ports[i].Port = &port
		}
		rule.To = make([]networkingv1.NetworkPolicyPeer, peers)
		for i := range rule.To {
			rule.To[i].IPBlock = &networkingv1.IPBlock{CIDR: "192.0.2.0/24"}
		}
		policy := &networkingv1.NetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: "large"},
			Spec: networkingv1.NetworkPolicySpec{
				Egress:  []networkingv1.NetworkPolicyEgressRule{rule},
				Ingress: make([]networkingv1.NetworkPolicyIngressRule, rules-1),
			},
		}
		_, err := s.tenant.NetworkingV1().NetworkPolicies("tenant").Create(
			t.Context(), policy, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}},
		)
		return err
	}
	selecting := func(expressions, values int) error {
		selector := metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
		for i := range expressions {
			expression := metav1.LabelSelectorRequirement{
				Key: fmt.Sprint("a", i), Operator: metav1.LabelSelectorOpNotIn, Values: make([]string, values),
			}
			for j := range values {
				expression.Values[j] = fmt.Sprint("a", j)
			}
			selector.MatchExpressions = append(selector.MatchExpressions, expression)
		}
		_, err := s.tenant.NetworkingV1().NetworkPolicies("tenant").Create(t.Context(), &networkingv1.NetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: "selecting"},
			Spec:       networkingv1.NetworkPolicySpec{PodSelector: selector},
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	selectors := [][2]int{{20000, 1}, {1, 50000}, {10, 100}}
	for _, a := range selectors {
		if err := selecting(a[0], a[1]); err != nil {
			t.Fatalf("without the policy, %v: %v", a, err)
		}
	}
	attacks := [][3]int{{1, 30000, 1}, {1, 1, 30000}, {30000, 1, 1}}
	for _, a := range attacks {
		if err := create(a[0], a[1], a[2]); err != nil {
			t.Fatalf("without the policy, the attack is not possible either: %v: %v", a, err)
		}
	}
	applyManifests(t, s.Cluster, nil, "50-pods.yml")
	for _, a := range attacks {
		kubetest.MustForbid(t, "large", create(a[0], a[1], a[2]), "500 rules, 1000 ports and 10000 peers")
	}
	for _, a := range selectors {
		kubetest.MustForbid(t, "a selector", selecting(a[0], a[1]), "1000 labels, expressions and values")
	}
	if err := selecting(9, 110); err != nil {
		t.Errorf("9 expressions with 110 values each: %v", err)
	}
	for _, friend := range [][3]int{{1, 0, 1}, {2, 2, 0}, {100, 100, 5000}} {
		if err := create(friend[0], friend[1], friend[2]); err != nil {
			t.Errorf("%d rules, %d ports and %d peers: %v", friend[0], friend[1], friend[2], err)
		}
	}
}
