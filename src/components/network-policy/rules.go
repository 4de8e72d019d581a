package main

import (
	"cmp"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// maxRules is how many rules, each with a set of the kernel's at most, the policies of one namespace can have. The
// controller writes those of all namespaces at once, on every node, and the kernel has fewer than 65,536 sets
// (ip_set_create in net/netfilter/ipset/ip_set_core.c): if there are to be more, nothing changes any more. Ten thousand
// of each took 18 seconds on a busy machine with two processors.
const maxRules = 5000

// boundedPolicies has the controller see the policies of a namespace with no more rules than maxRules. A port with a
// name is a rule and a set for each number that a pod has by it (processNetworkPolicyPorts in
// pkg/controllers/netpol/policy.go of kube-router), so that one pod with many containers, and one policy that names a
// port of theirs again and again, would be millions.
type boundedPolicies struct {
	cache.SharedIndexInformer
	pods       corelisters.PodLister
	namespaces corelisters.NamespaceLister
}

// GetIndexer implements cache.SharedIndexInformer.
func (b boundedPolicies) GetIndexer() cache.Indexer {
	return boundedIndexer{b.SharedIndexInformer.GetIndexer(), b}
}

// boundedIndexer changes what List returns, which is where the controller takes policies from.
type boundedIndexer struct {
	cache.Indexer
	boundedPolicies
}

// List implements cache.Indexer. Of a namespace with too many rules, the oldest policies keep theirs; the others have
// none, so that their pods are isolated.
func (b boundedIndexer) List() []any {
	var policies []*networkingv1.NetworkPolicy
	for _, object := range b.Indexer.List() {
		if policy, ok := object.(*networkingv1.NetworkPolicy); ok {
			policies = append(policies, policy)
		}
	}
	slices.SortFunc(policies, func(a, b *networkingv1.NetworkPolicy) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	spent, without := map[string]int{}, map[string]int{}
	objects := make([]any, 0, len(policies))
	for _, policy := range policies {
		resolved, count := b.resolve(policy)
		if spent[policy.Namespace]+count > maxRules {
			without[policy.Namespace]++
			resolved.Spec.Ingress, resolved.Spec.Egress, count = nil, nil, 1
		}
		spent[policy.Namespace] += count
		objects = append(objects, resolved)
	}
	for namespace, count := range without {
		klog.Errorf("The policies of namespace %s have more than %d rules: the pods that the %d youngest select have "+
			"no connections until there are fewer; a port with a name is a rule for each number that it has in pods",
			namespace, maxRules, count)
	}
	return objects
}

// resolve returns a copy of the policy and the number of its rules. The copy lacks the rules whose ports all have names
// that no pod has: the controller would allow all ports instead (processIngressRules, processEgressRules).
func (b boundedPolicies) resolve(policy *networkingv1.NetworkPolicy) (*networkingv1.NetworkPolicy, int) {
	resolved, total := *policy, 1
	resolved.Spec.Ingress, resolved.Spec.Egress = nil, nil
	own := sync.OnceValue(func() []*corev1.Pod { return b.matching(policy.Namespace, &policy.Spec.PodSelector) })
	for _, rule := range policy.Spec.Ingress {
		if count := rules(rule.From, rule.Ports, own); count > 0 {
			total += count
			resolved.Spec.Ingress = append(resolved.Spec.Ingress, rule)
		}
	}
	for _, rule := range policy.Spec.Egress {
		peers := func() []*corev1.Pod { return b.peers(policy.Namespace, rule.To) }
		if count := rules(rule.To, rule.Ports, peers); count > 0 {
			total += count
			resolved.Spec.Egress = append(resolved.Spec.Egress, rule)
		}
	}
	return &resolved, total
}

// rules counts those that the controller makes of one rule: for each kind of peer, one for each number of a port. pods
// returns those in which names are looked up.
func rules(
	peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort, pods func() []*corev1.Pod,
) int {
	count, named := 0, map[networkPort]int(nil)
	for _, port := range ports {
		if port.Port == nil || port.Port.Type == intstr.Int {
			count++
			continue
		}
		if named == nil {
			named = numbers(pods())
		}
		protocol := corev1.ProtocolTCP
		if port.Protocol != nil {
			protocol = *port.Protocol
		}
		count += named[networkPort{port.Port.StrVal, protocol}]
	}
	if len(ports) == 0 {
		count = 1
	}
	isBlock := func(peer networkingv1.NetworkPolicyPeer) bool { return peer.IPBlock != nil }
	isPods := func(peer networkingv1.NetworkPolicyPeer) bool { return peer.IPBlock == nil }
	if slices.ContainsFunc(peers, isBlock) && slices.ContainsFunc(peers, isPods) {
		count *= 2
	}
	return count
}

type networkPort struct {
	name     string
	protocol corev1.Protocol
}

// numbers counts the numbers that the pods have by the name of a port.
func numbers(pods []*corev1.Pod) map[networkPort]int {
	type numbered struct {
		networkPort
		number int32
	}
	seen, counts := map[numbered]bool{}, map[networkPort]int{}
	for _, pod := range pods {
		for _, container := range pod.Spec.Containers {
			for _, port := range container.Ports {
				one := numbered{networkPort{port.Name, port.Protocol}, port.ContainerPort}
				if !seen[one] {
					seen[one] = true
					counts[one.networkPort]++
				}
			}
		}
	}
	return counts
}

// peers returns the pods that the rule of a policy selects for egress, in whose ports its names are looked up.
func (b boundedPolicies) peers(namespace string, peers []networkingv1.NetworkPolicyPeer) []*corev1.Pod {
	if len(peers) == 0 {
		return b.matching(namespace, &metav1.LabelSelector{})
	}
	var pods []*corev1.Pod
	for _, peer := range peers {
		switch {
		case peer.NamespaceSelector != nil:
			selector := peer.PodSelector
			if selector == nil {
				selector = &metav1.LabelSelector{}
			}
			for _, name := range b.selected(peer.NamespaceSelector) {
				pods = append(pods, b.matching(name, selector)...)
			}
		case peer.PodSelector != nil:
			pods = append(pods, b.matching(namespace, peer.PodSelector)...)
		}
	}
	return pods
}

// selected returns the names of namespaces.
func (b boundedPolicies) selected(selector *metav1.LabelSelector) []string {
	namespaces, err := b.namespaces.List(parsed(selector))
	if err != nil {
		klog.Errorf("Namespaces: %v", err)
	}
	names := make([]string, 0, len(namespaces))
	for _, namespace := range namespaces {
		names = append(names, namespace.Name)
	}
	return names
}

// matching returns the pods to which policies apply.
func (b boundedPolicies) matching(namespace string, selector *metav1.LabelSelector) []*corev1.Pod {
	pods, err := b.pods.Pods(namespace).List(parsed(selector))
	if err != nil {
		klog.Errorf("Pods of namespace %s: %v", namespace, err)
	}
	return slices.DeleteFunc(pods, func(pod *corev1.Pod) bool {
		return finished(pod) || pod.Status.PodIP == "" || pod.Spec.HostNetwork
	})
}

// parsed is a selector that the API server has accepted.
func parsed(selector *metav1.LabelSelector) labels.Selector {
	result, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		klog.Errorf("Selector %v: %v", selector, err)
		return labels.Nothing()
	}
	return result
}
