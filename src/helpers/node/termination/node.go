package termination

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"kubernetes-release/cloud"
	"kubernetes-release/node/drain"
)

// Component is the source of the Events.
const Component = "node-termination-handler"

// KubernetesNode is the Node of this VM, which it changes as its kubelet.
type KubernetesNode struct {
	// Connect returns a client with the kubelet's identity, and the name of its Node. It is called for each change,
	// since the VM may join later.
	Connect func() (kubernetes.Interface, string, error)
	Clock   clock.PassiveClock
	Log     *slog.Logger
}

// Drain implements Node with the rules of a drain by BOSH. Pods whose budgets have not permitted their eviction within
// the timeout are deleted: the VM goes away whatever the budgets say.
func (n KubernetesNode) Drain(ctx context.Context, i cloud.Interruption, timeout time.Duration) error {
	client, name, err := n.Connect()
	if err != nil {
		return err
	}
	if err := drain.Drain(ctx, client, drain.Options{
		Node: name, VMDeleted: i.Kind == cloud.Termination, Timeout: timeout, Force: true,
	}, n.Log); err != nil {
		return err
	}
	retired, err := drain.IsRetired(ctx, client, name)
	if err == nil && !retired {
		err = errors.New("the Node is still schedulable; the log says why")
	}
	return err
}

// Retired implements Node.
func (n KubernetesNode) Retired(ctx context.Context) (bool, error) {
	client, name, err := n.Connect()
	if err != nil {
		return false, err
	}
	return drain.IsRetired(ctx, client, name)
}

// Restore implements Node.
func (n KubernetesNode) Restore(ctx context.Context) error {
	client, name, err := n.Connect()
	if err != nil {
		return err
	}
	return drain.Restore(ctx, client, name, n.Log)
}

// Report implements Node with an Event.
func (n KubernetesNode) Report(ctx context.Context, i cloud.Interruption) error {
	client, name, err := n.Connect()
	if err != nil {
		return err
	}
	message := i.Text
	if !i.At.IsZero() {
		message = fmt.Sprintf("%s, at %s", i.Text, i.At.UTC().Format(time.RFC3339))
	}
	if i.Kind == cloud.Maintenance {
		message += "; to avert it, recreate the VM before with bosh recreate"
	}
	now := metav1.NewTime(n.Clock.Now())
	// kubelet's own Events of its Node have its name as UID too (pkg/kubelet/kubelet.go, nodeRef), and kubectl describe
	// looks for both.
	_, err = client.CoreV1().Events(metav1.NamespaceDefault).Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: name + ".", Namespace: metav1.NamespaceDefault},
		InvolvedObject: corev1.ObjectReference{Kind: "Node", Name: name, UID: types.UID(name)},
		Reason:         reasons[i.Kind],
		Message:        message,
		Type:           corev1.EventTypeWarning,
		Source:         corev1.EventSource{Component: Component, Host: name},
		FirstTimestamp: now,
		LastTimestamp:  now,
		Count:          1,
	}, metav1.CreateOptions{})
	return err
}

var reasons = map[cloud.InterruptionKind]string{
	cloud.Termination: "TerminationAnnounced",
	cloud.Maintenance: "MaintenanceScheduled",
	cloud.Disruption:  "DisruptionScheduled",
	cloud.Risk:        "ReplacementRecommended",
}
