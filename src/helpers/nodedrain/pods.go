package nodedrain

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
)

// waitingError says what is left, while the API answers.
type waitingError struct{ reasons []string }

func (e *waitingError) Error() string { return strings.Join(e.reasons, "; ") }

// empty evicts pods and returns nil when none is left and their volumes are detached.
func (d *drain) empty(ctx context.Context) error {
	leaving, staying, err := d.pods(ctx)
	if err != nil {
		return err
	}
	var reasons []string
	for i := range leaving {
		pod := &leaving[i]
		name := pod.Namespace + "/" + pod.Name
		if d.evicted[string(pod.UID)] || pod.DeletionTimestamp != nil {
			reasons = append(reasons, "pod "+name+" is ending")
			continue
		}
		err := d.client.CoreV1().Pods(pod.Namespace).EvictV1(ctx, &policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
			DeleteOptions: metav1.NewPreconditionDeleteOptions(string(pod.UID)),
		})
		switch {
		case err == nil:
			d.evicted[string(pod.UID)] = true
			reasons = append(reasons, "pod "+name+" is ending")
		case apierrors.IsNotFound(err), apierrors.IsConflict(err): // it has ended, or another one has its name
			reasons = append(reasons, "pod "+name+" has just ended")
		case apierrors.IsForbidden(err) && apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
			reasons = append(reasons, "pod "+name+" is deleted with its namespace")
		case concernsPod(err):
			reasons = append(reasons, fmt.Sprintf("pod %s: %v", name, err))
		default:
			return fmt.Errorf("evict pod %s: %w", name, err)
		}
	}
	if len(reasons) > 0 {
		return &waitingError{reasons}
	}
	return d.detached(ctx, staying)
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

// leaves reports whether a pod is evicted: not one that the kubelet runs from a file, or that a DaemonSet would create
// again. A pod that nobody creates again leaves only if it would be lost with the VM anyway.
func (d *drain) leaves(pod *corev1.Pod) bool {
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return false
	}
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return d.VMDeleted
	}
	return owner.Kind != "DaemonSet"
}

// detached returns nil when no more volumes are attached than those of the pods that stay.
func (d *drain) detached(ctx context.Context, staying []corev1.Pod) error {
	attachments, err := d.client.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	attached := map[string]bool{}
	for i := range attachments.Items {
		if attachments.Items[i].Spec.NodeName == d.Node {
			attached[attachments.Items[i].Name] = true
		}
	}
	used := map[string]bool{}
	for i := range staying {
		for _, volume := range staying[i].Spec.Volumes {
			if name := claim(&staying[i], &volume); name != "" {
				used[staying[i].Namespace+"/"+name] = true
			}
		}
	}
	if len(attached) <= len(used) {
		return nil
	}
	return &waitingError{[]string{"volumes are attached: " + strings.Join(slices.Sorted(maps.Keys(attached)), ", ")}}
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

// force deletes the pods that are left, with their grace periods, and waits for a limited time until they have ended.
func (d *drain) force(ctx context.Context) error {
	leaving, _, err := d.pods(ctx)
	if err != nil {
		return err
	}
	for i := range leaving {
		pod := &leaving[i]
		err := d.client.CoreV1().
			Pods(pod.Namespace).
			Delete(ctx, pod.Name, *metav1.NewPreconditionDeleteOptions(string(pod.UID)))
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			d.log.Error("cannot delete a pod", "pod", pod.Namespace+"/"+pod.Name, "error", err)
		}
		d.evicted[string(pod.UID)] = true
	}
	if err := d.until(ctx, min(d.grace+forceTimeout, maxForceTimeout), d.empty); err != nil {
		d.log.Error("pods or volumes are left behind", "left", err)
	}
	return nil
}
