package main

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// boundedPolicies has the controller see the policies of a namespace with what they may cost together, and with the
// numbers of ports for their names: a rule for each number that a pod has by it, so that one pod with many containers,
// and policies that name a port of theirs again and again, would be millions. So would be the pods of peers.
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
		resolved, parts := e.resolve(policy)
		if exceeded := e.exceeded(); exceeded != "" {
			without[namespace]++
			most[namespace] = cmp.Or(most[namespace], exceeded)
			resolved.Spec.Ingress, resolved.Spec.Egress, parts = nil, nil, nil
			// What was looked at is spent, so that thousands of such policies are not looked at each.
			e.spent = cost{rules: 1, looked: min(e.spent.looked, e.left.looked), targets: e.targets}
			if e.exceeded() != "" {
				closed[namespace] = closing(closed[namespace], policy)
				continue
			}
		}
		left[namespace] = e.left.less(e.spent)
		objects = append(objects, resolved)
		for _, part := range parts {
			objects = append(objects, part)
		}
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

// resolve returns a copy of the policy without names of ports, and adds what it costs until that is more than what is
// left. Ports that only some of its pods have by a name are in parts, policies for these pods. The copy lacks the rules
// whose ports all have names that not all pods have: the controller would allow all ports instead (processIngressRules,
// processEgressRules).
func (e *evaluation) resolve(policy *networkingv1.NetworkPolicy) (
	resolved *networkingv1.NetworkPolicy, parts []*networkingv1.NetworkPolicy,
) {
	copied := *policy
	resolved = &copied
	resolved.Spec.Ingress, resolved.Spec.Egress = nil, nil
	if e.exceeded() != "" { // by their number alone
		return resolved, nil
	}
	targets := e.cluster.matching([]string{e.namespace}, &policy.Spec.PodSelector)
	e.targets = len(targets)
	e.spent.targets += e.targets
	ports := sync.OnceValue(func() namedPorts { return e.named(targets) })
	of := map[endpoint]*networkingv1.NetworkPolicy{}
	for _, rule := range policy.Spec.Ingress {
		if e.exceeded() != "" {
			return resolved, nil
		}
		_, looking := e.selected(rule.From)
		all, some := split(rule.Ports, ports)
		if len(rule.Ports) == 0 || len(all) > 0 {
			e.count(rule.From, len(all))
			resolved.Spec.Ingress = append(resolved.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{
				From: rule.From, Ports: all,
			})
		}
		for _, port := range ordered(some) {
			if of[port] == nil {
				of[port] = part(policy, port)
				parts = append(parts, of[port])
				e.spent.rules++
				e.spent.targets += some[port]
			}
			e.spent = e.spent.plus(looking)
			e.count(rule.From, 1)
			of[port].Spec.Ingress = append(of[port].Spec.Ingress, networkingv1.NetworkPolicyIngressRule{
				From: rule.From, Ports: []networkingv1.NetworkPolicyPort{port.port()},
			})
			if e.exceeded() != "" {
				return resolved, nil
			}
		}
	}
	for _, rule := range policy.Spec.Egress {
		if e.exceeded() != "" {
			return resolved, nil
		}
		resolved.Spec.Egress = append(resolved.Spec.Egress, e.resolveEgress(rule)...)
	}
	return resolved, parts
}

// part is a policy for those pods of another that have a port. No policy has a slash in its name.
func part(policy *networkingv1.NetworkPolicy, port endpoint) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: policy.Namespace, Name: policy.Name + "/" + strings.TrimPrefix(port.label(), portLabel),
		},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: *having(&policy.Spec.PodSelector, port),
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		},
	}
}

// resolveEgress returns the rule without names of ports, and a rule for the pods that have each of them.
func (e *evaluation) resolveEgress(rule networkingv1.NetworkPolicyEgressRule) []networkingv1.NetworkPolicyEgressRule {
	to := slices.DeleteFunc(slices.Clone(rule.To), isBlock)
	if len(rule.To) == 0 && slices.ContainsFunc(rule.Ports, hasName) { // a port has a name in a pod only
		to = []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{}}}
	}
	peers, looking := e.selected(to)
	all, some := split(rule.Ports, sync.OnceValue(func() namedPorts {
		ports := e.named(peers)
		if len(to) != len(rule.To) {
			ports.pods = -1 // what goes elsewhere too has a rule of its own
		}
		return ports
	}))
	var rules []networkingv1.NetworkPolicyEgressRule
	if len(rule.Ports) == 0 || len(all) > 0 {
		e.count(rule.To, len(all))
		rules = append(rules, networkingv1.NetworkPolicyEgressRule{To: rule.To, Ports: all})
	}
	for _, port := range ordered(some) {
		if e.exceeded() != "" {
			return nil
		}
		e.spent = e.spent.plus(looking)
		e.count(to, 1)
		one := networkingv1.NetworkPolicyEgressRule{Ports: []networkingv1.NetworkPolicyPort{port.port()}}
		for _, peer := range to {
			one.To = append(one.To, networkingv1.NetworkPolicyPeer{
				NamespaceSelector: peer.NamespaceSelector, PodSelector: having(peer.PodSelector, port),
			})
		}
		rules = append(rules, one)
	}
	return rules
}

func isBlock(peer networkingv1.NetworkPolicyPeer) bool { return peer.IPBlock != nil }

func hasName(port networkingv1.NetworkPolicyPort) bool {
	return port.Port != nil && port.Port.Type == intstr.String
}

// count adds what the controller makes of one rule: for each kind of peer, one for each port.
func (e *evaluation) count(peers []networkingv1.NetworkPolicyPeer, ports int) {
	count := max(ports, 1)
	if pods := len(slices.DeleteFunc(slices.Clone(peers), isBlock)); pods > 0 && pods < len(peers) {
		count *= 2
	}
	e.spent.rules += count
}
