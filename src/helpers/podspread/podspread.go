// Package podspread moves pods of a Deployment to other availability zones.
//
// The scheduler spreads pods over zones when it chooses their nodes, and nothing moves them later. BOSH updates the
// instances of one zone after those of another, so that pods which are created by the first deploy find nodes in one
// zone only, and all of them are lost with it.
package podspread

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"kubernetes-release/internal/poll"
	"kubernetes-release/nodeobject"
)

const interval = time.Second

// Pods are those of one Deployment, which tolerate no taints.
type Pods struct {
	Client              kubernetes.Interface
	Namespace, Selector string
	// Timeout limits the time until a pod that was moved is Ready.
	Timeout time.Duration
}

// Spread evicts pods, one after the other, until they are in as many zones as they can be, each time when the pod in
// place of the one before is Ready. PodDisruptionBudgets are respected. It gives up if the scheduler chooses a zone
// again that has a pod already, as it may for other reasons.
func (p Pods) Spread(ctx context.Context, log *slog.Logger) error {
	for {
		before, err := p.look(ctx)
		if err != nil {
			return err
		}
		if before.spread() {
			log.Info("pods are spread over zones", "selector", p.Selector, "zones", before.zones())
			return nil
		}
		pod := before.surplus()
		log.Info(
			"pods share a zone, while other zones have nodes: moving one", "pod", pod.Name, "node", pod.Spec.NodeName,
			"zones", before.zones(),
		)
		after, err := p.move(ctx, pod, len(before.pods))
		if err != nil {
			return fmt.Errorf("move pod %s/%s: %w", p.Namespace, pod.Name, err)
		}
		if len(after.zones()) <= len(before.zones()) {
			log.Warn("the scheduler has chosen a zone with a pod again", "zones", after.zones())
			return nil
		}
	}
}

// placement is where pods are.
type placement struct {
	pods []corev1.Pod
	// zone is that of each node, usable are the zones with a node for pods.
	zone   map[string]string
	usable []string
}

// look returns the pods that have nodes, and the zones.
func (p Pods) look(ctx context.Context) (placement, error) {
	nodes, err := p.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return placement{}, err
	}
	found := placement{zone: map[string]string{}}
	for i := range nodes.Items {
		node := &nodes.Items[i]
		zone := node.Labels[corev1.LabelTopologyZone]
		found.zone[node.Name] = zone
		if zone != "" && takesPods(node) && !slices.Contains(found.usable, zone) {
			found.usable = append(found.usable, zone)
		}
	}
	pods, err := p.Client.CoreV1().Pods(p.Namespace).List(ctx, metav1.ListOptions{LabelSelector: p.Selector})
	if err != nil {
		return placement{}, err
	}
	found.pods = slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool {
		return pod.DeletionTimestamp != nil || found.zone[pod.Spec.NodeName] == "" ||
			pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	})
	return found, nil
}

func takesPods(node *corev1.Node) bool {
	return nodeobject.CheckReady(node, true) == nil && !node.Spec.Unschedulable &&
		!slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool {
			return taint.Effect != corev1.TaintEffectPreferNoSchedule
		})
}

func notReady(pod corev1.Pod) bool {
	return !slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
	})
}

// zones are those with pods.
func (p placement) zones() []string {
	var zones []string
	for _, pod := range p.pods {
		if zone := p.zone[pod.Spec.NodeName]; !slices.Contains(zones, zone) {
			zones = append(zones, zone)
		}
	}
	slices.Sort(zones)
	return zones
}

// spread says whether no pod shares a zone while a usable zone has none.
func (p placement) spread() bool {
	zones := p.zones()
	return len(zones) == len(p.pods) ||
		!slices.ContainsFunc(p.usable, func(zone string) bool { return !slices.Contains(zones, zone) })
}

// surplus returns the youngest pod of the zone with the most.
func (p placement) surplus() corev1.Pod {
	count := map[string]int{}
	for _, pod := range p.pods {
		count[p.zone[pod.Spec.NodeName]]++
	}
	return slices.MaxFunc(p.pods, func(a, b corev1.Pod) int {
		if n := count[p.zone[a.Spec.NodeName]] - count[p.zone[b.Spec.NodeName]]; n != 0 {
			return n
		}
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
}

// move evicts a pod, and waits until so many are Ready without it.
func (p Pods) move(ctx context.Context, pod corev1.Pod, count int) (after placement, err error) {
	eviction := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))},
	}
	evicted := false
	err = poll.Within(ctx, p.Timeout, interval, func(ctx context.Context) error {
		if !evicted {
			err := p.Client.CoreV1().Pods(pod.Namespace).EvictV1(ctx, eviction)
			if apierrors.IsForbidden(err) {
				return poll.Permanent(err)
			}
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				return err // with 429, the PodDisruptionBudget does not allow it yet
			}
			evicted = true
		}
		after, err = p.look(ctx)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(after.pods, func(other corev1.Pod) bool { return other.UID == pod.UID }) {
			return errors.New("it is still there")
		}
		if len(after.pods) < count || slices.ContainsFunc(after.pods, notReady) {
			return errors.New("the pod in its place is not Ready")
		}
		return nil
	})
	return after, err
}
