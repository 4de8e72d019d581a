package faults

import (
	"context"
	"errors"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubernetes-release/internal/poll"
)

const (
	// monitorGracePeriod is the time after which the controller manager marks an unresponsive node as lost: its
	// default.
	monitorGracePeriod = 50 * time.Second
	// toleration is how long the pods stay on a node that is lost.
	toleration = 5 * time.Second
)

// tolerations let a pod leave a lost node after the time of toleration.
func tolerations() []corev1.Toleration {
	seconds := int64(toleration / time.Second)
	var list []corev1.Toleration
	for _, taint := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		list = append(list, corev1.Toleration{
			Key:               taint,
			Operator:          corev1.TolerationOpExists,
			Effect:            corev1.TaintEffectNoExecute,
			TolerationSeconds: &seconds,
		})
	}
	return list
}

func deployment(image string) *appsv1.Deployment {
	count, labels := int32(replicas), map[string]string{"app": namespace}
	grace := int64(1)
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Spec: appsv1.DeploymentSpec{
			Replicas: &count, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				Containers: []corev1.Container{
					{Name: "web", Image: image, ImagePullPolicy: corev1.PullNever},
				},
				Tolerations:                   tolerations(),
				TerminationGracePeriodSeconds: &grace,
				Affinity: &corev1.Affinity{
					NodeAffinity: &corev1.NodeAffinity{
						PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
							Weight: 100,
							Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
								{
									Key:      "bosh.io/instance-group",
									Operator: corev1.NodeSelectorOpIn,
									Values:   []string{"worker"},
								},
							}},
						}},
					},
				},
			}},
		},
	}
}

// movePods replaces the pods, and waits until they are on a worker.
func (c *Cluster) movePods(ctx context.Context, worker *machine) error {
	if err := c.client.CoreV1().
		Pods(namespace).
		DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		return err
	}
	return poll.Within(ctx, recoverTimeout, time.Second, func(ctx context.Context) error {
		if err := c.podsReady(ctx); err != nil {
			return err
		}
		if c.podsReady(ctx, worker) == nil {
			return errors.New("the pods are not on " + worker.name)
		}
		return nil
	})
}
