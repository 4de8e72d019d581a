package main

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
// have none, so that their pods are isolated. If that is too much too, one policy isolates all its pods instead.
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
	closed := map[string]*networkingv1.NetworkPolicy{}
	objects := make([]any, 0, len(policies))
	for _, policy := range policies {
		namespace := policy.Namespace
		if _, ok := left[namespace]; !ok {
			left[namespace] = cluster.limit()
		}
		e := evaluation{cluster: cluster, namespace: namespace, left: left[namespace], spent: cost{rules: 1}}
		resolved := e.resolve(policy)
		if exceeded := e.exceeded(); exceeded != "" {
			without[namespace]++
			most[namespace] = cmp.Or(most[namespace], exceeded)
			resolved.Spec.Ingress, resolved.Spec.Egress = nil, nil
			// What was looked at is spent, so that thousands of such policies are not looked at each.
			e.spent = cost{rules: 1, looked: min(e.spent.looked, e.left.looked), targets: e.spent.targets}
			if e.exceeded() != "" {
				closed[namespace] = closing(closed[namespace], policy)
				continue
			}
		}
		left[namespace] = e.left.less(e.spent)
		objects = append(objects, resolved)
	}
	for namespace, count := range without {
		which := "the pods that these select"
		if policy := closed[namespace]; policy != nil {
			which, objects = "all its pods", append(objects, policy)
		}
		klog.Errorf("The policies of namespace %s have more than %s: the %d youngest with too much have no rules, and "+
			"%s only the connections that the others permit, until there are fewer", namespace, most[namespace], count,
			which)
	}
	return objects
}

// closing adds a policy to the one that a namespace has instead of those beyond the limits even without rules: for all
// pods, and with a name that the API permits to none.
func closing(closed, policy *networkingv1.NetworkPolicy) *networkingv1.NetworkPolicy {
	if closed == nil {
		closed = &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: policy.Namespace, Name: "/"}}
	}
	for _, kind := range policy.Spec.PolicyTypes {
		if !slices.Contains(closed.Spec.PolicyTypes, kind) {
			closed.Spec.PolicyTypes = append(closed.Spec.PolicyTypes, kind)
		}
	}
	return closed
}

// resolve returns a copy of the policy, and adds what it costs until that is more than what is left. The copy lacks the
// rules whose ports all have names that no pod has: the controller would allow all ports instead (processIngressRules,
// processEgressRules).
func (e *evaluation) resolve(policy *networkingv1.NetworkPolicy) *networkingv1.NetworkPolicy {
	resolved := *policy
	resolved.Spec.Ingress, resolved.Spec.Egress = nil, nil
	if e.exceeded() != "" { // by their number alone
		return &resolved
	}
	targets := e.cluster.matching([]string{e.namespace}, &policy.Spec.PodSelector)
	e.spent.targets += len(targets)
	for _, rule := range policy.Spec.Ingress {
		e.selected(rule.From)
		if e.count(rule.From, rule.Ports, func() []*corev1.Pod { return targets }) {
			resolved.Spec.Ingress = append(resolved.Spec.Ingress, rule)
		}
		if e.exceeded() != "" {
			return &resolved
		}
	}
	for _, rule := range policy.Spec.Egress {
		peers := e.selected(rule.To)
		if len(rule.To) == 0 {
			peers = e.pods[e.namespace]
		}
		if e.count(rule.To, rule.Ports, func() []*corev1.Pod { return peers }) {
			resolved.Spec.Egress = append(resolved.Spec.Egress, rule)
		}
		if e.exceeded() != "" {
			return &resolved
		}
	}
	return &resolved
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
