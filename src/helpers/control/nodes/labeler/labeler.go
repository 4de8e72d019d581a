// Package labeler keeps labels on a Node that its kubelet is not allowed to set.
//
// The admission plugin NodeRestriction refuses labels such as node-role.kubernetes.io/control-plane from kubelets, so
// that a compromised node cannot attract the pods of others. Control VMs are trusted with them: each has a certificate
// of its own for this, and labels the Node that has its name. A watch does so again when the Node was deleted and
// kubelet has registered a new one.
package labeler

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"kubernetes-release/internal/poll"
)

const (
	// resync is how often the Node is looked at without a change.
	resync = 10 * time.Minute
	// retryInterval is the pause before a failed request is sent again, and requestTimeout limits one.
	retryInterval  = 2 * time.Second
	requestTimeout = 10 * time.Second
)

// Keep sets the labels on the Node, now and whenever they are missing, until ctx ends. Other labels are left alone.
func Keep(
	ctx context.Context, client kubernetes.Interface, name string, labels map[string]string, log *slog.Logger,
) error {
	factory := informers.NewSharedInformerFactoryWithOptions(
		client, resync,
		informers.WithTweakListOptions(func(options *metav1.ListOptions) {
			options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
		}),
	)
	nodes := factory.Core().V1().Nodes()
	k := &keeper{client: client, nodes: nodes.Lister(), name: name, labels: labels, log: log}
	changed := make(chan struct{}, 1)
	notify := func() {
		select {
		case changed <- struct{}{}:
		default: // one is pending
		}
	}
	if _, err := nodes.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { notify() },
		UpdateFunc: func(any, any) { notify() },
	}); err != nil {
		return fmt.Errorf("watch Node %s: %w", name, err)
	}
	factory.StartWithContext(ctx)
	defer factory.Shutdown()
	log.Info("keeping labels", "node", name, "labels", labels)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			_ = poll.Until(ctx, retryInterval, k.label) // it ends with success or with ctx
		}
	}
}

type keeper struct {
	client kubernetes.Interface
	nodes  corelisters.NodeLister
	name   string
	labels map[string]string
	log    *slog.Logger
}

// label sets the labels that the Node does not have.
func (k *keeper) label(ctx context.Context) error {
	node, err := k.nodes.Get(k.name)
	if apierrors.IsNotFound(err) {
		return nil // an event follows when kubelet registers it
	}
	if err != nil {
		return err
	}
	missing := k.missing(node)
	if len(missing) == 0 {
		return nil
	}
	// With its UID, the patch does not label another Node of the same name, which may be registered meanwhile.
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": node.UID, "labels": missing}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err = k.client.CoreV1().Nodes().Patch(ctx, k.name, types.MergePatchType, patch, metav1.PatchOptions{})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return nil // an event about the Node that is there now follows
	case err != nil:
		k.log.Warn("cannot label the Node yet, retrying", "node", k.name, "labels", missing, "error", err)
		return err
	}
	k.log.Info("labeled the Node", "node", k.name, "uid", node.UID, "labels", missing)
	return nil
}

func (k *keeper) missing(node *corev1.Node) map[string]string {
	missing := map[string]string{}
	for name, value := range k.labels {
		if current, ok := node.Labels[name]; !ok || current != value {
			missing[name] = value
		}
	}
	return missing
}
