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

// checkTypes fails if the annotation that decides on the controller can change while a Service without a class has a
// load balancer: docs/load-balancers.md describes the way over the type NodePort.
func (b *balancers) checkTypes(classic string) {
	b.Helper()
	const (
		kind   = "service.beta.kubernetes.io/aws-load-balancer-type"
		target = "service.beta.kubernetes.io/aws-load-balancer-nlb-target-type"
	)
	b.service("annotated", func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
		s.Annotations = map[string]string{kind: "external", target: "instance"}
	})
	b.hostOf("the Service with an annotation", b.serviceHost("annotated"))
	services := b.client.CoreV1().Services("default")
	for _, test := range []struct{ name, patch, want string }{
		{classic, `{"metadata": {"annotations": {"` + kind + `": "external"}}}`, `is "external", so that the AWS Load`},
		{classic, `{"metadata": {"annotations": {"` + kind + `": "nlb-ip"}}}`, "has one of the cloud controller: set"},
		{"annotated", `{"metadata": {"annotations": {"` + kind + `": null}}}`, "is missing, so that the cloud"},
		{"annotated", `{"metadata": {"annotations": {"` + kind + `": "nlb"}}}`, "has one of the AWS Load Balancer"},
		{classic, `{"metadata": {"annotations": {"` + kind + `": "nlb"}}}`, ""},
		{classic, `{"metadata": {"annotations": {"` + kind + `": "external"}}, "spec": {"type": "NodePort"}}`, ""},
		{"annotated", `{"metadata": {"annotations": {"` + kind + `": "nlb-ip", "a": "b"}}}`, ""},
		{"web", `{"metadata": {"annotations": {"` + kind + `": "external"}}, "spec": {"type": "LoadBalancer"}}`, ""},
	} {
		_, err := services.Patch(
			b.Context(), test.name, types.MergePatchType, []byte(test.patch),
			metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}},
		)
		switch {
		case test.want == "" && err != nil:
			b.Errorf("%s of Service %s: %v", test.patch, test.name, err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			b.Errorf("%s of Service %s: %v, want %q", test.patch, test.name, err, test.want)
		}
	}
}
