package smoke

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ingressClass is that of the AWS Load Balancer Controller.
const ingressClass = "alb"

// ingress sends all requests to the Service with a node port, which is what the controller's load balancers reach.
func ingress() *networkingv1.Ingress {
	class, prefix := ingressClass, networkingv1.PathTypePrefix
	backend := networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
		Name: nodePortName, Port: networkingv1.ServiceBackendPort{Number: servicePort},
	}}
	return &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Name: appName, Labels: appLabels},
		Spec: networkingv1.IngressSpec{
			IngressClassName: &class,
			Rules: []networkingv1.IngressRule{{IngressRuleValue: networkingv1.IngressRuleValue{
				HTTP: &networkingv1.HTTPIngressRuleValue{
					Paths: []networkingv1.HTTPIngressPath{{Path: "/", PathType: &prefix, Backend: backend}},
				},
			}}},
		},
	}
}

// checkIngress waits until the run's Ingress has a load balancer, and that answers.
func (s *suite) checkIngress(ctx context.Context) (string, error) {
	var host string
	err := s.eventually(ctx, func() error {
		object, err := s.client.NetworkingV1().Ingresses(s.namespace).Get(ctx, appName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, balancer := range object.Status.LoadBalancer.Ingress {
			host = balancer.Hostname
		}
		if host == "" {
			const hint = "; see the log of aws-load-balancer-controller on the control VMs"
			return errors.New("Ingress " + appName + " has no load balancer yet" + s.lastWarning(
				ctx, s.namespace, hint, func(o corev1.ObjectReference) bool { return o.Kind == "Ingress" },
			))
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	return s.answersSteadily(ctx, host)
}

// ingressesGone deletes the run's Ingress, and returns an error while it exists: its controller needs its Service and
// its IngressClass to delete the load balancer.
func (s *suite) ingressesGone(ctx context.Context) error {
	if !s.config.Ingress {
		return nil
	}
	ingresses := s.client.NetworkingV1().Ingresses(s.namespace)
	list, err := ingresses.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	return allGone(ctx, "Ingresses", "AWS Load Balancer Controller", list.Items, ingresses.Delete)
}

// allGone deletes objects, and returns an error while there are any: their controller has to delete load balancers.
func allGone[T any, P interface {
	*T
	metav1.Object
}](
	ctx context.Context, kind, controller string, items []T,
	remove func(context.Context, string, metav1.DeleteOptions) error,
) error {
	var left []string
	for i := range items {
		item := P(&items[i])
		left = append(left, item.GetName())
		if item.GetDeletionTimestamp() != nil {
			continue
		}
		err := remove(ctx, item.GetName(), metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	if len(left) == 0 {
		return nil
	}
	return fmt.Errorf(
		"%s %s still exist: the %s has not deleted their load balancers yet",
		kind, strings.Join(left, ", "), controller,
	)
}
