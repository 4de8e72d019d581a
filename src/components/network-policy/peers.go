package main

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"
)

const (
	// maxRules is how many rules, each with a set of the kernel's at most, the policies of one namespace can have. The
	// controller writes those of all namespaces at once, on every node, and the kernel has fewer than 65,536 sets
	// (ip_set_create in net/netfilter/ipset/ip_set_core.c): if there are to be more, nothing changes any more. Ten
	// thousand of each took 18 seconds on a busy machine with two processors.
	maxRules = 5000
	// maxNamed is how often the policies of one namespace can name pods as peers. The controller has all of them in
	// memory at the same time, several hundred bytes each (buildNetworkPoliciesInfo, processIngressRules in
	// pkg/controllers/netpol/policy.go of kube-router), on every node, and gives them to ipset.
	maxNamed = 100_000
	// maxEach is how often they can name each pod of a cluster, however many it has: other namespaces cannot use up
	// what one has by creating pods.
	maxEach = 50
	// maxTargets is how often they can select pods of the namespace itself: each is a rule on the node of the pod
	// (setupPodNetpolRules in pod.go), and in memory on every node.
	maxTargets = 50_000
	// maxLooked is how many labels and values of pods and namespaces can be compared with those of peers.
	maxLooked = 5_000_000
)

// cost is what policies have the controller do.
type cost struct{ rules, named, looked, targets int }

func (c cost) less(o cost) cost {
	return cost{c.rules - o.rules, c.named - o.named, c.looked - o.looked, c.targets - o.targets}
}

func (c cost) plus(o cost) cost {
	return cost{c.rules + o.rules, c.named + o.named, c.looked + o.looked, c.targets + o.targets}
}

// cluster is what peers are looked up in.
type cluster struct {
	namespaces []*corev1.Namespace
	// pods are those to which policies apply, by namespace; listed counts all.
	pods   map[string][]*corev1.Pod
	listed map[string]int
	total  int
	// ports are those of the pods that were looked at.
	ports map[*corev1.Pod][]endpoint
}

func (b boundedPolicies) cluster() *cluster {
	c := cluster{
		pods: map[string][]*corev1.Pod{}, listed: map[string]int{}, ports: map[*corev1.Pod][]endpoint{},
	}
	var err error
	if c.namespaces, err = b.namespaces.List(labels.Everything()); err != nil {
		klog.Errorf("Namespaces: %v", err)
	}
	pods, err := b.pods.List(labels.Everything())
	if err != nil {
		klog.Errorf("Pods: %v", err)
	}
	for _, pod := range pods {
		c.listed[pod.Namespace]++
		if finished(pod) || pod.Status.PodIP == "" || pod.Spec.HostNetwork {
			continue
		}
		c.pods[pod.Namespace] = append(c.pods[pod.Namespace], pod)
		c.total++
	}
	return &c
}

// limit is what the policies of one namespace can cost.
func (c *cluster) limit() cost {
	return cost{maxRules, max(maxNamed, maxEach*c.total), maxLooked, maxTargets}
}

// evaluation finds out what a policy costs, and stops looking when that is more than what is left.
type evaluation struct {
	*cluster
	namespace   string
	left, spent cost
	// targets is how many pods the policy selects.
	targets int
}

// exceeded says what of the limits is exceeded, if any is.
func (e *evaluation) exceeded() string {
	switch {
	case e.spent.rules > e.left.rules:
		return fmt.Sprintf("%d rules (a port with a name is one for each number that it has in pods)", maxRules)
	case e.spent.targets > e.left.targets:
		return fmt.Sprintf("%d pods that they select (a pod is one for each policy)", maxTargets)
	case e.spent.named > e.left.named:
		return fmt.Sprintf("%d pods as peers (a pod is one for each peer that selects it)", e.limit().named)
	case e.spent.looked > e.left.looked:
		return fmt.Sprintf(
			"%d labels and named ports of pods and namespaces that are looked at for peers and names", maxLooked,
		)
	}
	return ""
}

// selected returns the pods of the peers, each as often as a peer selects it, as the controller lists them, and what
// that costs.
func (e *evaluation) selected(peers []networkingv1.NetworkPolicyPeer) (pods []*corev1.Pod, costs cost) {
	before := e.spent
	defer func() { costs = e.spent.less(before) }()
	for _, peer := range peers {
		namespaces, selector := []string{e.namespace}, peer.PodSelector
		switch {
		case peer.NamespaceSelector != nil:
			namespaces = e.selectedNamespaces(peer.NamespaceSelector)
			if selector == nil {
				selector = &metav1.LabelSelector{}
			}
		case selector == nil: // ipBlock
			continue
		}
		matching := e.matching(namespaces, selector)
		e.spent.named += len(matching)
		if e.exceeded() != "" {
			return nil, cost{}
		}
		pods = append(pods, matching...)
	}
	return pods, cost{}
}

// selectedNamespaces returns their names.
func (e *evaluation) selectedNamespaces(selector *metav1.LabelSelector) []string {
	e.spent.looked += len(e.namespaces) * weight(selector)
	if e.exceeded() != "" {
		return nil
	}
	var names []string
	matches := parsed(selector)
	for _, namespace := range e.namespaces {
		if matches.Matches(labels.Set(namespace.Labels)) {
			names = append(names, namespace.Name)
		}
	}
	return names
}

// matching returns the pods of namespaces to which policies apply, if looking for them is not too much.
func (e *evaluation) matching(namespaces []string, selector *metav1.LabelSelector) []*corev1.Pod {
	listed := 0
	for _, namespace := range namespaces {
		listed += e.listed[namespace]
	}
	e.spent.looked += listed * weight(selector)
	if e.exceeded() != "" {
		return nil
	}
	return e.cluster.matching(namespaces, selector)
}

// matching returns the pods of namespaces to which policies apply.
func (c *cluster) matching(namespaces []string, selector *metav1.LabelSelector) []*corev1.Pod {
	var pods []*corev1.Pod
	matches := parsed(selector)
	for _, namespace := range namespaces {
		for _, pod := range c.pods[namespace] {
			if matches.Matches(labels.Set(pod.Labels)) {
				pods = append(pods, pod)
			}
		}
	}
	return pods
}

// weight is how many labels and values may be compared with those of an object (Matches in pkg/labels/selector.go of
// k8s.io/apimachinery).
func weight(selector *metav1.LabelSelector) int {
	count := 1 + len(selector.MatchLabels)
	for _, expression := range selector.MatchExpressions {
		count += 1 + len(expression.Values)
	}
	return count
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

// unique leaves out peers that are in the list already, whose pods the controller would list again.
func unique(peers []networkingv1.NetworkPolicyPeer) []networkingv1.NetworkPolicyPeer {
	seen := make(map[string]bool, len(peers))
	kept := peers[:0:0]
	for _, peer := range peers {
		text, err := json.Marshal(peer)
		if err == nil && seen[string(text)] {
			continue
		}
		seen[string(text)] = true
		kept = append(kept, peer)
	}
	return kept
}
