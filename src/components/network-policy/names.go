package main

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/client-go/tools/cache"
)

// distinctNames has the controller see each policy and pod with a slash before its name. The names of its chains and
// sets are hashes of the namespace and the name without anything between them (networkPolicyChainName in
// pkg/controllers/netpol/policy.go and podFirewallChainName in pod.go of kube-router), so that policy 0web of namespace
// team1 would have the chain of policy web of namespace team10, and add its rules to those of the other tenant. No
// namespace and no name has a slash.
type distinctNames struct{ cache.SharedIndexInformer }

// GetIndexer implements cache.SharedIndexInformer.
func (d distinctNames) GetIndexer() cache.Indexer {
	return distinctIndexer{d.SharedIndexInformer.GetIndexer()}
}

// distinctIndexer changes what List returns, which is where the controller takes these names from
// (buildNetworkPoliciesInfo, getLocalPods). It finds peers by an index, and reads their labels and addresses only.
type distinctIndexer struct{ cache.Indexer }

// List implements cache.Indexer.
func (d distinctIndexer) List() []any {
	stored := d.Indexer.List()
	objects := make([]any, 0, len(stored))
	for _, object := range stored {
		switch object := object.(type) {
		case *networkingv1.NetworkPolicy:
			renamed := *object
			renamed.Name = "/" + object.Name
			objects = append(objects, &renamed)
		case *corev1.Pod:
			renamed := *object
			renamed.Name = "/" + object.Name
			objects = append(objects, &renamed)
		default:
			objects = append(objects, object)
		}
	}
	return objects
}
