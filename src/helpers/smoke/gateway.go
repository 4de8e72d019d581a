package smoke

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// gatewayClass is that of the AWS Load Balancer Controller for HTTP.
const gatewayClass = "alb"

var (
	gatewayAPI = schema.GroupVersion{Group: "gateway.networking.k8s.io", Version: "v1"}
	gateways   = gatewayAPI.WithResource("gateways")
	routes     = gatewayAPI.WithResource("httproutes")
)

// gatewayObjects are a Gateway, and the route that sends all its requests to the Service with a node port.
func gatewayObjects() map[schema.GroupVersionResource]*unstructured.Unstructured {
	object := func(kind string, spec map[string]any) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
		o.SetGroupVersionKind(gatewayAPI.WithKind(kind))
		o.SetName(appName)
		o.SetLabels(appLabels)
		return o
	}
	return map[schema.GroupVersionResource]*unstructured.Unstructured{
		gateways: object("Gateway", map[string]any{
			"gatewayClassName": gatewayClass,
			"listeners":        []any{map[string]any{"name": "http", "protocol": "HTTP", "port": int64(servicePort)}},
		}),
		routes: object("HTTPRoute", map[string]any{
			"parentRefs": []any{map[string]any{"name": appName}},
			"rules": []any{map[string]any{
				"backendRefs": []any{map[string]any{"name": nodePortName, "port": int64(servicePort)}},
			}},
		}),
	}
}

// checkGateway waits until the run's Gateway has a load balancer, and that answers.
func (s *suite) checkGateway(ctx context.Context) (string, error) {
	var host string
	err := s.eventually(ctx, func() error {
		object, err := s.dynamic.Resource(gateways).Namespace(s.namespace).Get(ctx, appName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		addresses, _, _ := unstructured.NestedSlice(object.Object, "status", "addresses")
		for _, address := range addresses {
			host, _, _ = unstructured.NestedString(address.(map[string]any), "value")
		}
		if host == "" {
			const hint = "; see the log of aws-load-balancer-controller on the control VMs"
			return errors.New("Gateway " + appName + " has no load balancer yet" + s.lastWarning(
				ctx, s.namespace, hint, func(o corev1.ObjectReference) bool { return o.Kind == "Gateway" },
			))
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	return s.answersSteadily(ctx, host)
}

// gatewaysGone deletes the run's Gateway, and returns an error while it exists.
func (s *suite) gatewaysGone(ctx context.Context) error {
	if !s.config.Gateway {
		return nil
	}
	api := s.dynamic.Resource(gateways).Namespace(s.namespace)
	list, err := api.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	remove := func(ctx context.Context, name string, options metav1.DeleteOptions) error {
		return api.Delete(ctx, name, options)
	}
	return allGone(ctx, "Gateways", "AWS Load Balancer Controller", list.Items, remove)
}
