package drain

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
)

// drainedBy is the annotation with what a drain has changed on the Node, so that only that is undone afterwards, and
// not what an operator has set.
const drainedBy = "kubernetes.bosh.io/drained"

// Changes that a drain makes, in the annotation.
const (
	cordoned = "unschedulable"
	excluded = "exclude-from-external-load-balancers"
)

// retire keeps new pods and requests from load balancers away from the node. The cloud controller removes a node with
// the label from the targets of load balancers, whichever health checks they have, while kube-proxy on it continues to
// forward.
func retire(ctx context.Context, client kubernetes.Interface, name string, log *slog.Logger) error {
	var done []string
	err := update(ctx, client, name, func(node *corev1.Node) {
		done = changes(node)
		if !node.Spec.Unschedulable {
			node.Spec.Unschedulable = true
			done = append(done, cordoned)
		}
		if _, set := node.Labels[corev1.LabelNodeExcludeBalancers]; !set {
			node.Labels[corev1.LabelNodeExcludeBalancers] = ""
			done = append(done, excluded)
		}
		if len(done) > 0 {
			node.Annotations[drainedBy] = strings.Join(done, ",")
		}
	})
	if err == nil {
		log.Info("node is out of service", "node", name, "changed", done)
	}
	return err
}

// IsRetired reports whether a drain has taken the node out of service. A Node that does not exist is out of service.
func IsRetired(ctx context.Context, client kubernetes.Interface, name string) (bool, error) {
	node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return node.Spec.Unschedulable, nil
}

// Restore undoes what a drain has changed on the Node. A Node that does not exist, or was not drained, is no error.
func Restore(ctx context.Context, client kubernetes.Interface, name string, log *slog.Logger) error {
	var done []string
	err := update(ctx, client, name, func(node *corev1.Node) {
		done = changes(node)
		if slices.Contains(done, cordoned) {
			node.Spec.Unschedulable = false
		}
		if slices.Contains(done, excluded) {
			delete(node.Labels, corev1.LabelNodeExcludeBalancers)
		}
		delete(node.Annotations, drainedBy)
	})
	if err == nil && len(done) > 0 {
		log.Info("node is in service", "node", name, "changed", done)
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// changes is what earlier drains have changed.
func changes(node *corev1.Node) []string {
	if text := node.Annotations[drainedBy]; text != "" {
		return strings.Split(text, ",")
	}
	return nil
}

// update changes the Node, if there is something to change. If the Node has been changed in the meantime, it tries
// again. If its taints have, NodeRestriction takes that for a change by the kubelet before anything notices the
// conflict (plugin/pkg/admission/noderestriction/admission.go).
func update(ctx context.Context, client kubernetes.Interface, name string, change func(*corev1.Node)) error {
	changed := func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsForbidden(err) }
	err := retry.OnError(retry.DefaultRetry, changed, func() error {
		node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		before := node.DeepCopy()
		if node.Labels == nil {
			node.Labels = map[string]string{}
		}
		if node.Annotations == nil {
			node.Annotations = map[string]string{}
		}
		change(node)
		if before.Spec.Unschedulable == node.Spec.Unschedulable &&
			before.Annotations[drainedBy] == node.Annotations[drainedBy] {
			return nil
		}
		_, err = client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("update Node %s: %w", name, err)
	}
	return nil
}
