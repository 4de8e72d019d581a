package smoke

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// explainedEvents is how many of the latest Events a failure shows.
const explainedEvents = 15

// explain reports the state of the pods and the warnings of the namespace, after the first failure.
func (s *suite) explain(ctx context.Context) {
	if s.namespace == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), explainTimeout)
	defer cancel()
	pods, err := s.listPods(ctx)
	if err != nil {
		s.report.line("", "", "listing pods failed: "+err.Error())
	}
	for _, pod := range pods {
		s.report.line("", "", "pod "+describePod(pod))
	}
	for _, event := range s.warnings(ctx, s.namespace) {
		s.report.line(
			"",
			"",
			fmt.Sprintf(
				"event %s %s: %s: %s", strings.ToLower(event.InvolvedObject.Kind), event.InvolvedObject.Name,
				event.Reason, event.Message,
			),
		)
	}
}

// warnings returns a namespace's latest Events of type Warning in the order of time.
func (s *suite) warnings(ctx context.Context, namespace string) []corev1.Event {
	list, err := s.client.CoreV1().
		Events(namespace).
		List(ctx, metav1.ListOptions{FieldSelector: "type=" + corev1.EventTypeWarning})
	if err != nil {
		s.report.line("", "", "listing Events failed: "+err.Error())
		return nil
	}
	slices.SortFunc(list.Items, func(a, b corev1.Event) int { return eventTime(a).Compare(eventTime(b)) })
	return list.Items[max(0, len(list.Items)-explainedEvents):]
}

// eventTime returns when an Event happened last, from the field that its source has set.
func eventTime(event corev1.Event) time.Time {
	switch {
	case event.Series != nil:
		return event.Series.LastObservedTime.Time
	case !event.LastTimestamp.IsZero():
		return event.LastTimestamp.Time
	case !event.EventTime.IsZero():
		return event.EventTime.Time
	}
	return event.CreationTimestamp.Time
}

// lastWarning returns the latest warning about the objects of a namespace that match, or else the hint, as the end of a
// sentence.
func (s *suite) lastWarning(
	ctx context.Context, namespace, hint string, match func(corev1.ObjectReference) bool,
) string {
	for _, event := range slices.Backward(s.warnings(ctx, namespace)) {
		if match(event.InvolvedObject) {
			return "; last warning: " + event.Reason + ": " + event.Message
		}
	}
	return hint
}

func podReady(pod corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// describePod returns a pod's node and state in one line.
func describePod(pod corev1.Pod) string {
	parts := []string{pod.Name, string(pod.Status.Phase)}
	if pod.Spec.NodeName != "" {
		parts = append(parts, "on "+pod.Spec.NodeName)
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			parts = append(parts, condition.Reason+": "+condition.Message)
		}
	}
	for _, container := range pod.Status.ContainerStatuses {
		switch state := container.State; {
		case state.Waiting != nil:
			parts = append(parts, state.Waiting.Reason, state.Waiting.Message)
		case state.Terminated != nil:
			parts = append(
				parts, fmt.Sprintf("%s with exit code %d", state.Terminated.Reason, state.Terminated.ExitCode),
				state.Terminated.Message,
			)
		case !container.Ready:
			parts = append(parts, "running, not ready")
		}
	}
	return strings.TrimSpace(strings.Join(parts, " "))
}

// nodesOf returns the names of the nodes that the pods are on.
func nodesOf(pods []corev1.Pod) []string {
	var names []string
	for _, pod := range pods {
		if !slices.Contains(names, pod.Spec.NodeName) {
			names = append(names, pod.Spec.NodeName)
		}
	}
	return names
}

func internalAddress(node corev1.Node) string {
	for _, address := range node.Status.Addresses {
		if address.Type == corev1.NodeInternalIP {
			return address.Address
		}
	}
	return ""
}
