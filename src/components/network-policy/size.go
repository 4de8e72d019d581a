package main

import (
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/klog/v2"
)

// maxNetworks is how many networks fit into a set of the kernel's, which the controller fills with those of one rule
// (the default of maxelem in net/netfilter/ipset/ip_set_hash_gen.h of Linux).
const maxNetworks = 65536

// fitting returns the rules of a policy that the kernel can have: those of one that is too large are none, so that its
// pods are isolated. The controller writes the sets of all namespaces at once (Restore in pkg/utils/ipset.go of
// kube-router), and would change none of them any more.
func fitting(policy *networkingv1.NetworkPolicy) (
	[]networkingv1.NetworkPolicyIngressRule, []networkingv1.NetworkPolicyEgressRule,
) {
	most := 0
	for _, rule := range policy.Spec.Ingress {
		most = max(most, networks(rule.From))
	}
	for _, rule := range policy.Spec.Egress {
		most = max(most, networks(rule.To))
	}
	if most <= maxNetworks {
		return policy.Spec.Ingress, policy.Spec.Egress
	}
	klog.Errorf(
		"NetworkPolicy %s/%s has a rule with %d networks in ipBlock, of which the kernel takes %d: its pods have no "+
			"connections until it has fewer; split the rule", policy.Namespace, policy.Name, most, maxNetworks,
	)
	return nil, nil
}

// networks counts what the controller adds to the set of a rule, at most: of 0.0.0.0/0 it makes two networks
// (evalIPBlockPeer in pkg/controllers/netpol/policy.go).
func networks(peers []networkingv1.NetworkPolicyPeer) int {
	count := 0
	for _, peer := range peers {
		if peer.IPBlock != nil {
			count += 2 + len(peer.IPBlock.Except)
		}
	}
	return count
}
