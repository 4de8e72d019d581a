// Package nodestatus reads from a Node object how far the node is: whether it can run pods, has been initialized by a
// cloud-controller-manager, and is known as a VM of the deployment.
package nodestatus

import (
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// UninitializedTaint is on a Node until the cloud-controller-manager has set its addresses, zone and provider ID.
const UninitializedTaint = "node.cloudprovider.kubernetes.io/uninitialized"

// ErrUninitialized is the reason that a Node with UninitializedTaint is waited for.
var ErrUninitialized = errors.New("no cloud-controller-manager has initialized it yet")

// AddressesLabel is on a Node when node-controller has set the labels and taints of its instance. Before that, an
// admission policy lets the Node neither be Ready nor announce a network.
const AddressesLabel = "bosh.io/addresses"

// CheckReady returns why a Node cannot run pods yet, in the words of its Ready condition, or nil if it can. With
// untainted it also requires that a cloud-controller-manager has initialized the Node.
func CheckReady(node *corev1.Node, untainted bool) error {
	condition := ReadyCondition(node)
	switch {
	case condition == nil:
		return fmt.Errorf("Node %s has no Ready condition yet", node.Name)
	case condition.Status != corev1.ConditionTrue:
		return fmt.Errorf("Node %s is not Ready (%s): %s", node.Name, condition.Reason, condition.Message)
	}
	if !untainted {
		return nil
	}
	return CheckInitialized(node)
}

// CheckInitialized returns ErrUninitialized, with where to look, until a cloud-controller-manager has initialized the
// Node.
func CheckInitialized(node *corev1.Node) error {
	if Uninitialized(node) {
		return fmt.Errorf(
			"Node %s has the taint %s: %w (the log of its job on the control VMs, or of its pods in kube-system, says "+
				"why)",
			node.Name, UninitializedTaint, ErrUninitialized,
		)
	}
	return nil
}

func checkKnown(node *corev1.Node) error {
	if node.Labels[AddressesLabel] == "" {
		return fmt.Errorf(
			"Node %s does not have the label %s: the job node-controller has not found its instance yet (see its log "+
				"on the control VMs)",
			node.Name, AddressesLabel,
		)
	}
	return nil
}

// CheckNetwork returns what flannel would end for: it is not known yet which VM the Node belongs to, or it has no pod
// subnet.
func CheckNetwork(node *corev1.Node) error {
	if node.Spec.PodCIDR == "" {
		return fmt.Errorf(
			"Node %s has no pod subnet: kube-controller-manager has not assigned one yet (see its log on the control "+
				"VMs), or none is left in cluster.pod_cidr (the Node has the event CIDRNotAvailable then): deploy "+
				"fewer nodes",
			node.Name,
		)
	}
	return checkKnown(node)
}

// Uninitialized reports whether the Node waits for a cloud-controller-manager.
func Uninitialized(node *corev1.Node) bool {
	return slices.ContainsFunc(
		node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == UninitializedTaint },
	)
}

// NotReadySince returns since when the Node has not been Ready, if it is not.
func NotReadySince(node *corev1.Node) (since time.Time, notReady bool) {
	condition := ReadyCondition(node)
	if condition == nil || condition.Status == corev1.ConditionTrue {
		return since, false
	}
	return condition.LastTransitionTime.Time, true
}

// ReadyCondition returns the Ready condition of the Node, nil if it has none.
func ReadyCondition(node *corev1.Node) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == corev1.NodeReady {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}
