package templates

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const finalizerPolicy = "load-balancer-finalizer.kubernetes.bosh.io"

// checkFinalizers fails if the controller can put its finalizer on Services that it does not serve, which it tries
// after it has released one (25-services.yml), or cannot on those that it serves.
func (b *balancers) checkFinalizers(released string) {
	b.Helper()
	const (
		kind   = "service.beta.kubernetes.io/aws-load-balancer-type"
		target = "service.beta.kubernetes.io/aws-load-balancer-nlb-target-type"
	)
	own, other := "service.k8s.aws/nlb", "example.com/other"
	services := b.ClientFor("system:aws-load-balancer-controller", "system:masters").CoreV1().Services("default")
	dryRun := []string{metav1.DryRunAll}
	refused := func(err error) bool {
		return err != nil && strings.Contains(err.Error(), finalizerPolicy)
	}
	for what, test := range map[string]struct {
		class       *string
		annotations map[string]string
		served      bool
	}{
		"of its class": {class: &own, served: true},
		"with nodes as targets": {
			annotations: map[string]string{kind: "external", target: "instance"}, served: true,
		},
		"with pods as targets": {
			annotations: map[string]string{kind: "external", target: "ip"}, served: true,
		},
		"with the annotation of old":        {annotations: map[string]string{kind: "nlb-ip"}, served: true},
		"without a class":                   {},
		"of another class":                  {class: &other},
		"of another class with annotations": {class: &other, annotations: map[string]string{kind: "nlb-ip"}},
		"of the cloud controller":           {annotations: map[string]string{kind: "nlb"}},
		"with targets of nobody":            {annotations: map[string]string{kind: "external"}},
	} {
		_, err := services.Create(b.Context(), &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{
				Name: "finalizer", Annotations: test.annotations, Finalizers: []string{"service.k8s.aws/resources"},
			},
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: test.class,
				Ports: []corev1.ServicePort{{Port: 80}},
			},
		}, metav1.CreateOptions{DryRun: dryRun})
		if refused(err) == test.served || err != nil && !refused(err) {
			b.Errorf("finalizer on a Service %s: %v, but it is served: %v", what, err, test.served)
		}
	}
	patch := []byte(`{"metadata": {"finalizers": ["service.k8s.aws/resources"]}}`)
	if _, err := services.Patch(
		b.Context(), released, types.MergePatchType, patch, metav1.PatchOptions{DryRun: dryRun},
	); !refused(err) {
		b.Errorf("the controller can put its finalizer on Service %s again, which it has released: %v", released, err)
	}
}

// checkAnnotated expects that the annotation of a Service without a class has the controller serve it.
func (b *balancers) checkAnnotated() {
	b.Helper()
	b.service("annotated", func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
		s.Annotations = map[string]string{
			"service.beta.kubernetes.io/aws-load-balancer-type":            "external",
			"service.beta.kubernetes.io/aws-load-balancer-nlb-target-type": "instance",
		}
	})
	b.hostOf("the Service with an annotation", b.serviceHost("annotated"))
}
