// Package nodeobject waits for the Node object of this VM and deletes it.
//
// It authenticates to the API as the kubelet, with the kubelet's own kubeconfig: NodeRestriction lets a kubelet read
// and delete its own Node, and no other.
package nodeobject

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"kubernetes-release/kubeconfig"
)

// UninitializedTaint is on a Node until the cloud-controller-manager has set its addresses, zone and provider ID.
const UninitializedTaint = "node.cloudprovider.kubernetes.io/uninitialized"

// ErrUninitialized is the reason that a Node with UninitializedTaint is waited for.
var ErrUninitialized = errors.New("no cloud-controller-manager has initialized it yet")

// AddressesLabel is on a Node when kubelet-csr-approver has set the labels and taints of its instance. Before that, an
// admission policy lets the Node neither be Ready nor announce a network.
const AddressesLabel = "bosh.io/addresses"

// maxRequestTimeout limits one request.
const maxRequestTimeout = 10 * time.Second

// Options names a Node and how long to try.
type Options struct {
	// Kubeconfig is the path of the kubelet's kubeconfig, which the kubelet writes once it has a certificate.
	Kubeconfig string
	// Name is the name of the Node.
	Name string
	// EtcdMembers are addresses, HOST:PORT. Wait ends with a *readywait.NoQuorumError while too few of them accept
	// connections.
	EtcdMembers []string
	// Full reports whether etcd refuses writes for lack of space; nil if this VM does not know.
	Full func(context.Context) bool
	// Timeout is the total time and must be positive.
	Timeout time.Duration
	// Untainted makes Wait also wait until the Node does not have UninitializedTaint.
	Untainted bool
	// Interval is the time between two tries; defaults to 500 ms.
	Interval time.Duration
}

func (o Options) interval() time.Duration {
	if o.Interval == 0 {
		return 500 * time.Millisecond
	}
	return o.Interval
}

// Client returns a client that authenticates as the kubelet. Each of its requests is limited, to leave time for others
// if an API server accepts it and never answers.
func (o Options) Client() (kubernetes.Interface, error) {
	return kubeconfig.ClientWithin(o.Kubeconfig, min(maxRequestTimeout, o.Timeout/2))
}

// CheckReady returns why a Node cannot run pods yet, in the words of its Ready condition, or nil if it can. With
// untainted it also requires that a cloud-controller-manager has initialized the Node.
func CheckReady(node *corev1.Node, untainted bool) error {
	condition := readyCondition(node)
	switch {
	case condition == nil:
		return fmt.Errorf("Node %s has no Ready condition yet", node.Name)
	case condition.Status != corev1.ConditionTrue:
		return fmt.Errorf("Node %s is not Ready (%s): %s", node.Name, condition.Reason, condition.Message)
	}
	if !untainted {
		return nil
	}
	return checkInitialized(node)
}

func checkInitialized(node *corev1.Node) error {
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
			"Node %s does not have the label %s: kubelet-csr-approver has not found its instance yet (see its log on "+
				"the control VMs)",
			node.Name, AddressesLabel,
		)
	}
	return nil
}

// checkNetwork returns what flannel would end for.
func checkNetwork(node *corev1.Node) error {
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
	condition := readyCondition(node)
	if condition == nil || condition.Status == corev1.ConditionTrue {
		return since, false
	}
	return condition.LastTransitionTime.Time, true
}

func readyCondition(node *corev1.Node) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == corev1.NodeReady {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}
