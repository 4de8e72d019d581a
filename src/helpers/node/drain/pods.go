package drain

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"kubernetes-release/internal/nospace"
)

// waitingError says what is left, while the API answers.
type waitingError struct{ reasons []string }

func (e *waitingError) Error() string { return strings.Join(e.reasons, "; ") }

// remover starts the end of a pod: evict or delete.
type remover func(context.Context, *corev1.Pod) error

// empty is a check that removes pods, and returns nil when none is left and their volumes are detached.
func (d *drain) empty(remove remover) func(context.Context) error {
	return func(ctx context.Context) error {
		leaving, staying, err := d.pods(ctx)
		if err != nil {
			return err
		}
		var reasons []string
		for i := range leaving {
			reason, err := d.leave(ctx, &leaving[i], remove)
			if err != nil {
				return err
			}
			reasons = append(reasons, reason)
		}
		if len(reasons) > 0 {
			return &waitingError{reasons}
		}
		return d.detached(ctx, staying)
	}
}

// leave removes a pod, unless that was accepted before, and returns why it is still there.
func (d *drain) leave(ctx context.Context, pod *corev1.Pod, remove remover) (reason string, err error) {
	name := "pod " + pod.Namespace + "/" + pod.Name
	if d.evicted[string(pod.UID)] || pod.DeletionTimestamp != nil {
		return name + " is ending", nil
	}
	err = remove(ctx, pod)
	switch {
	case err == nil:
		d.evicted[string(pod.UID)] = true
		return name + " is ending", nil
	case apierrors.IsNotFound(err), apierrors.IsConflict(err): // it has ended, or another one has its name
		return name + " has just ended", nil
	case apierrors.IsForbidden(err) && apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return name + " is deleted with its namespace", nil
	case concernsPod(err):
		return fmt.Sprintf("%s: %v", name, err), nil
	default:
		return "", fmt.Errorf("remove %s: %w", name, err)
	}
}

// evict removes a pod as its budgets permit.
func (d *drain) evict(ctx context.Context, pod *corev1.Pod) error {
	return d.client.CoreV1().Pods(pod.Namespace).EvictV1(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: metav1.NewPreconditionDeleteOptions(string(pod.UID)),
	})
}

// delete removes a pod in spite of budgets, with its grace period.
func (d *drain) delete(ctx context.Context, pod *corev1.Pod) error {
	return d.client.CoreV1().
		Pods(pod.Namespace).
		Delete(ctx, pod.Name, *metav1.NewPreconditionDeleteOptions(string(pod.UID)))
}

// concernsPod reports whether the API refuses one pod, and may accept others: for its budgets (429, 403 if too many
// evictions are unconfirmed, 500 if there are several; pkg/registry/core/pod/storage/eviction.go), because another node
// has a pod of this name by now (403; plugin/pkg/admission/noderestriction/admission.go), or as a policy or webhook of
// an operator decides, with any status.
func concernsPod(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && !apierrors.IsUnauthorized(err) && !apierrors.IsServiceUnavailable(err)
}

// pods lists the node's pods: those that have to leave, and those that stay until the VM is gone. Pods that have ended
// are neither: kubelet unmounts their volumes, also where it has yet to delete the pod.
func (d *drain) pods(ctx context.Context) (leaving, staying []corev1.Pod, err error) {
	list, err := d.client.CoreV1().
		Pods(metav1.NamespaceAll).
		List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + d.Node})
	if err != nil {
		return nil, nil, err
	}
	d.remember(list.Items)
	for _, pod := range list.Items {
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		if d.leaves(&pod) {
			leaving = append(leaving, pod)
			if seconds := pod.Spec.TerminationGracePeriodSeconds; seconds != nil {
				d.grace = max(d.grace, time.Duration(*seconds)*time.Second)
			}
		} else {
			staying = append(staying, pod)
		}
	}
	return leaving, staying, nil
}

// remember keeps which pods were there at first, after the node was cordoned.
func (d *drain) remember(pods []corev1.Pod) {
	if d.present != nil {
		return
	}
	d.present = map[string]bool{}
	for i := range pods {
		d.present[string(pods[i].UID)] = true
	}
}

// leaves reports whether a pod is evicted: not one that the kubelet runs from a file, or that a DaemonSet would create
// again, or that has come in spite of the cordon, as the next one would. A pod that nobody creates again leaves only if
// it would be lost with the VM anyway.
func (d *drain) leaves(pod *corev1.Pod) bool {
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return false
	}
	if !d.present[string(pod.UID)] && toleratesCordon(pod) {
		return false
	}
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return d.VMDeleted
	}
	return owner.Kind != "DaemonSet"
}

// toleratesCordon reports whether the scheduler may choose a cordoned node for a pod
// (pkg/scheduler/framework/plugins/nodeunschedulable/node_unschedulable.go).
func toleratesCordon(pod *corev1.Pod) bool {
	cordon := &corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	return slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
		return t.ToleratesTaint(klog.Background(), cordon, false)
	})
}

// detached returns nil when no volumes are attached but those of the pods that stay.
func (d *drain) detached(ctx context.Context, staying []corev1.Pod) error {
	attachments, err := d.client.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	attached := map[string]string{} // volumes by attachment
	for i := range attachments.Items {
		if attachment := &attachments.Items[i]; attachment.Spec.NodeName == d.Node {
			attached[attachment.Name] = ptr.Deref(attachment.Spec.Source.PersistentVolumeName, "")
		}
	}
	if len(attached) == 0 {
		return nil
	}
	used, err := d.volumes(ctx, staying)
	if err != nil {
		return err
	}
	maps.DeleteFunc(attached, func(_, volume string) bool { return used[volume] })
	if len(attached) == 0 {
		return nil
	}
	return &waitingError{[]string{"volumes are attached: " + strings.Join(slices.Sorted(maps.Keys(attached)), ", ")}}
}

// volumes returns the names of the PersistentVolumes of pods. Not each of them has to be attached.
func (d *drain) volumes(ctx context.Context, pods []corev1.Pod) (map[string]bool, error) {
	names := map[string]bool{}
	for i := range pods {
		for _, volume := range pods[i].Spec.Volumes {
			name := claim(&pods[i], &volume)
			if name == "" {
				continue
			}
			claims := d.client.CoreV1().PersistentVolumeClaims(pods[i].Namespace)
			claim, err := claims.Get(ctx, name, metav1.GetOptions{})
			switch {
			case err == nil && claim.Spec.VolumeName != "":
				names[claim.Spec.VolumeName] = true
			case err == nil, apierrors.IsNotFound(err): // the pod waits for it
			case apierrors.IsForbidden(err): // the Node authorizer does not know that a new pod is here yet
				return nil, &waitingError{[]string{err.Error()}}
			default:
				return nil, err
			}
		}
	}
	return names, nil
}

// claim is the name of the PersistentVolumeClaim of a pod's volume, empty if it has none.
func claim(pod *corev1.Pod, volume *corev1.Volume) string {
	switch {
	case volume.PersistentVolumeClaim != nil:
		return volume.PersistentVolumeClaim.ClaimName
	case volume.Ephemeral != nil: // k8s.io/component-helpers/storage/ephemeral/ephemeral.go, VolumeClaimName
		return pod.Name + "-" + volume.Name
	default:
		return ""
	}
}

// force deletes the pods that are left, and waits for a limited time until they have ended. Like an eviction, a
// deletion that the API refuses is tried again.
func (d *drain) force(ctx context.Context) error {
	if err := d.retry(ctx, func(ctx context.Context) error { // for their grace periods
		_, _, err := d.pods(ctx)
		return err
	}); err != nil {
		return err
	}
	err := d.until(ctx, min(d.grace+forceTimeout, maxForceTimeout), d.empty(d.delete))
	if nospace.Is(err) {
		return err
	}
	if err != nil {
		d.log.Error("pods or volumes are left behind", "left", err)
	}
	return nil
}
