package main

import (
	"cmp"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// boundedPolicies has the controller see the policies of a namespace with what they may cost together. A port with a
// name is a rule and a set for each number that a pod has by it (processNetworkPolicyPorts in
// pkg/controllers/netpol/policy.go of kube-router), so that one pod with many containers, and one policy that names a
// port of theirs again and again, would be millions. So would be the pods of peers.
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

// List implements cache.Indexer. Of a namespace whose policies cost too much, the oldest keep their rules; the others
// have none, so that their pods are isolated.
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
	cluster := b.cluster()
	left, without, most := map[string]cost{}, map[string]int{}, map[string]string{}
	objects := make([]any, 0, len(policies))
	for _, policy := range policies {
		namespace := policy.Namespace
		if _, ok := left[namespace]; !ok {
			left[namespace] = cluster.limit()
		}
		resolved, spent, exceeded := cluster.resolve(policy, left[namespace])
		if exceeded != "" {
			without[namespace]++
			most[namespace] = cmp.Or(most[namespace], exceeded)
			resolved.Spec.Ingress, resolved.Spec.Egress = nil, nil
			// What was looked at is spent, so that thousands of such policies are not looked at each.
			spent = cost{rules: 1, looked: min(spent.looked, left[namespace].looked)}
		}
		left[namespace] = left[namespace].less(spent)
		objects = append(objects, resolved)
	}
	for namespace, count := range without {
		klog.Errorf("The policies of namespace %s have more than %s: the pods that the %d youngest with too much "+
			"select have no connections until there are fewer", namespace, most[namespace], count)
	}
	return objects
}

// resolve returns a copy of the policy, what it costs, and what of that is more than left. The copy lacks the rules
// whose ports all have names that no pod has: the controller would allow all ports instead (processIngressRules,
// processEgressRules).
func (c *cluster) resolve(policy *networkingv1.NetworkPolicy, left cost) (*networkingv1.NetworkPolicy, cost, string) {
	resolved := *policy
	resolved.Spec.Ingress, resolved.Spec.Egress = nil, nil
	e := evaluation{cluster: c, namespace: policy.Namespace, left: left, spent: cost{rules: 1}}
	own := sync.OnceValue(func() []*corev1.Pod {
		return e.matching([]string{policy.Namespace}, &policy.Spec.PodSelector)
	})
	for _, rule := range policy.Spec.Ingress {
		e.selected(rule.From)
		if e.count(rule.From, rule.Ports, own) {
			resolved.Spec.Ingress = append(resolved.Spec.Ingress, rule)
		}
		if e.exceeded() != "" {
			return &resolved, e.spent, e.exceeded()
		}
	}
	for _, rule := range policy.Spec.Egress {
		peers := e.selected(rule.To)
		if e.count(rule.To, rule.Ports, func() []*corev1.Pod {
			if len(rule.To) == 0 {
				return c.pods[policy.Namespace]
			}
			return peers
		}) {
			resolved.Spec.Egress = append(resolved.Spec.Egress, rule)
		}
		if e.exceeded() != "" {
			return &resolved, e.spent, e.exceeded()
		}
	}
	return &resolved, e.spent, e.exceeded()
}

// count adds what the controller makes of one rule: for each kind of peer, one for each number of a port. pods returns
// those in which names are looked up. It reports whether there are any rules.
func (e *evaluation) count(
	peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort, pods func() []*corev1.Pod,
) bool {
	count, entries, named := 0, 0, map[networkPort]endpoints(nil)
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
		of := named[networkPort{port.Port.StrVal, protocol}]
		count, entries = count+of.numbers, entries+of.addresses
	}
	if len(ports) == 0 {
		count = 1
	}
	isBlock := func(peer networkingv1.NetworkPolicyPeer) bool { return peer.IPBlock != nil }
	isPods := func(peer networkingv1.NetworkPolicyPeer) bool { return peer.IPBlock == nil }
	if slices.ContainsFunc(peers, isBlock) && slices.ContainsFunc(peers, isPods) {
		count, entries = count*2, entries*2
	}
	e.spent.rules += count
	e.spent.named += entries
	return count > 0
}

type networkPort struct {
	name     string
	protocol corev1.Protocol
}

// endpoints are the numbers that pods have by the name of a port, and the addresses in the sets of these.
type endpoints struct{ numbers, addresses int }

// numbers counts the endpoints that the controller finds by the name of a port. It adds the address of a pod to those
// of the first pod that has a port of this name and number, for all ports of that pod (grabNamedPortFromPod in
// pkg/controllers/netpol/policy.go).
func numbers(pods []*corev1.Pod) map[networkPort]endpoints {
	type numbered struct {
		networkPort
		number int32
	}
	addresses := map[numbered]*int{}
	for _, pod := range pods {
		own := 1
		for _, container := range pod.Spec.Containers {
			for _, port := range container.Ports {
				one := numbered{networkPort{port.Name, port.Protocol}, port.ContainerPort}
				if first := addresses[one]; first != nil {
					*first++
				} else {
					addresses[one] = &own
				}
			}
		}
	}
	counts := map[networkPort]endpoints{}
	for one, count := range addresses {
		of := counts[one.networkPort]
		counts[one.networkPort] = endpoints{of.numbers + 1, of.addresses + *count}
	}
	return counts
}
