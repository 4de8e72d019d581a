package templates

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubernetes-release/internal/kubetest"
)

// TestTenantsCannotKeepPoliciesBusy is a tenant whose objects have lists of tens of thousands, at each element of which
// policies look: with 40,000 annotations a request took a processor of the API server for many seconds.
func TestTenantsCannotKeepPoliciesBusy(t *testing.T) {
	s := startTenants(t)
	applyManifests(t, s.Cluster, nil, "50-pods.yml", "60-services.yml")
	const many, most = 1001, 1000
	annotations := func(n int) metav1.ObjectMeta {
		all := map[string]string{}
		for i := range n {
			all[fmt.Sprintf("a%d", i)] = ""
		}
		return metav1.ObjectMeta{Name: fmt.Sprintf("a%d", n), Annotations: all}
	}
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	backend := &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
		Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80},
	}}
	for what, try := range map[string]func(n int) error{
		"annotations of a Service": func(n int) error {
			_, err := s.tenant.CoreV1().Services("tenant").Create(t.Context(), &corev1.Service{
				ObjectMeta: annotations(n), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
			}, dry)
			return err
		},
		"annotations of an Ingress": func(n int) error {
			_, err := s.tenant.NetworkingV1().Ingresses("tenant").Create(t.Context(), &networkingv1.Ingress{
				ObjectMeta: annotations(n), Spec: networkingv1.IngressSpec{DefaultBackend: backend},
			}, dry)
			return err
		},
		"annotations of a pod": func(n int) error {
			pod := podOf("a", corev1.PodSpec{})
			pod.Annotations = annotations(n).Annotations
			_, err := s.tenant.CoreV1().Pods("tenant").Create(t.Context(), pod, dry)
			return err
		},
		"volumes": func(n int) error {
			var spec corev1.PodSpec
			for i := range n - 1 { // the API adds one, for the token
				spec.Volumes = append(spec.Volumes, corev1.Volume{Name: fmt.Sprintf("a%d", i)})
			}
			return create(t.Context(), s.tenant, "tenant", "a", spec)
		},
		"tolerations": func(n int) error {
			var spec corev1.PodSpec
			for i := range n - 2 { // the API adds two
				spec.Tolerations = append(spec.Tolerations, corev1.Toleration{
					Key: fmt.Sprintf("a%d", i), Operator: corev1.TolerationOpExists,
				})
			}
			return create(t.Context(), s.tenant, "tenant", "a", spec)
		},
		"terms": func(n int) error {
			terms := make([]corev1.PodAffinityTerm, n)
			for i := range terms {
				terms[i] = corev1.PodAffinityTerm{
					TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{},
				}
			}
			return create(t.Context(), s.tenant, "tenant", "a", corev1.PodSpec{Affinity: &corev1.Affinity{
				PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms},
			}})
		},
	} {
		kubetest.MustForbid(t, what, try(many), "1000 annotations")
		if err := try(most); err != nil {
			t.Errorf("%d %s: %.300v", most, what, err)
		}
	}
}
