package labeler

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"kubernetes-release/internal/exposition"
	"kubernetes-release/internal/nodestatus"
)

// WriteMetrics compares the Nodes with the instances of the deployment: which Nodes have no instance, and which
// instances have no Node. Only groups with a Node are compared, since others, such as separate etcd VMs, have no
// kubelet. It writes nothing as long as either is not known.
func (k *Keeper) WriteMetrics(text *exposition.Text) {
	if k.informer().HasSynced() {
		k.writeMetrics(text)
	}
}

func (k *Keeper) writeMetrics(text *exposition.Text) {
	nodes, err := k.nodes.List(labels.Everything())
	if err != nil { // a cache returns none
		return
	}
	records, err := k.instances.Deployment.Load()
	if err != nil {
		k.log.Warn("cannot compare Nodes with instances", "error", err)
		return
	}
	const idLabel, groupLabel = Prefix + "instance-id", Prefix + "instance-group"
	groups := map[string]string{} // by ID
	for _, r := range records {
		groups[r.ID] = r.InstanceGroup
	}
	withNode, groupsWithNode := map[string]bool{}, map[string]bool{}
	hasInstance := text.Gauge(
		"kubernetes_bosh_node_has_instance",
		"Whether the VM of a Node is an instance of the deployment that BOSH knows.",
	)
	slices.SortFunc(nodes, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	for _, n := range nodes {
		id := n.Labels[idLabel]
		_, known := groups[id]
		withNode[id] = true
		groupsWithNode[n.Labels[groupLabel]] = true
		hasInstance.Add(exposition.Bool(known), "node", n.Name)
	}
	initialized := text.Gauge(
		"kubernetes_bosh_node_initialized",
		"Whether a cloud controller manager has initialized a Node; without a cloud, all are.",
	)
	for _, n := range nodes {
		initialized.Add(exposition.Bool(!nodestatus.Uninitialized(n)), "node", n.Name)
	}
	hasNode := text.Gauge(
		"kubernetes_bosh_instance_has_node",
		"Whether an instance has a Node, of the groups in which one has.",
	)
	for _, id := range slices.Sorted(maps.Keys(groups)) {
		if group := groups[id]; groupsWithNode[group] {
			hasNode.Add(exposition.Bool(withNode[id]), "instance_group", group, "instance_id", id)
		}
	}
}
