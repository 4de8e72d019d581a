package templates

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubernetes-release/internal/kubetest"
)

// TestTenantsCannotKeepPoliciesBusy is a tenant whose objects have lists of tens of thousands, at each element of which
// policies look: with 40,000 annotations a request took a processor of the API server for many seconds. The policies
// that change pods are asked before the one that refuses them.
func TestTenantsCannotKeepPoliciesBusy(t *testing.T) {
	s := startTenants(t)
	rendered := mustRender(t, "kubernetes-addons", inputFor(t, "kubernetes-addons").with(values{
		"admission": values{"always_pull_images": true},
	}))
	const roles = "config/manifests/10-pods.yml"
	rendered[roles] = mustRender(t, "pod-roles", inputFor(t, "pod-roles"))[roles]
	applyRendered(t, s.Cluster, rendered, "10-pods.yml", "50-pods.yml", "60-services.yml")
	role := map[string]string{"eks.amazonaws.com/role-arn": "arn:aws:iam::123456789012:role/reader"}
	_, err := s.tenant.CoreV1().ServiceAccounts("tenant").Create(t.Context(), &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Name: "reader", Annotations: role},
	}, metav1.CreateOptions{})
	s.must(err)
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
	variables := func(account string, n int) error {
		pod := podOf("a", corev1.PodSpec{ServiceAccountName: account})
		for i := range 8000 + 20*(n-most) - 10 { // the API and the policies of roles add a few
			pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env, corev1.EnvVar{Name: fmt.Sprintf("A%d", i)})
		}
		_, err := s.tenant.CoreV1().Pods("tenant").Create(t.Context(), pod, dry)
		return err
	}
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
		"annotations of a ServiceAccount": func(n int) error {
			_, err := s.tenant.CoreV1().ServiceAccounts("tenant").Create(
				t.Context(), &corev1.ServiceAccount{ObjectMeta: annotations(n)}, dry,
			)
			return err
		},
		"containers": func(n int) error {
			pod := podOf("a", corev1.PodSpec{ServiceAccountName: "reader"})
			for i := range n - 1 { // which has one
				pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
					Name: fmt.Sprintf("a%d", i), Image: "example",
				})
			}
			_, err := s.tenant.CoreV1().Pods("tenant").Create(t.Context(), pod, dry)
			return err
		},
		"variables of a container": func(n int) error { return variables("", n) },
		// Which the policy of roles looks at too, and refused by its cost what the limit permits.
		"variables of a container of a pod with a role": func(n int) error { return variables("reader", n) },
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
	} {
		if err := try(many); strings.HasPrefix(what, "annotations") {
			kubetest.MustForbid(t, what, err, "can have 1000 annotations")
		} else {
			mustRefuseLists(t, what, err)
		}
		if err := try(most); err != nil {
			t.Errorf("%d %s: %.300v", most, what, err)
		}
	}
}

// TestTenantsCannotKeepOthersBusy is a tenant whose objects have many elements each, all of which the scheduler looks
// at for the pods of others, CoreDNS has in memory, and kube-proxy writes on every node.
func TestTenantsCannotKeepOthersBusy(t *testing.T) {
	s := startTenants(t)
	const many, most = 101, 100
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	servicePorts := func(n int) (spec corev1.ServiceSpec) {
		for i := range n {
			spec.Ports = append(spec.Ports, corev1.ServicePort{Name: fmt.Sprintf("a%d", i), Port: int32(1 + i)})
		}
		return spec
	}
	old, err := s.tenant.CoreV1().Services("tenant").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "old", Finalizers: []string{"example.com/a"}}, Spec: servicePorts(1000),
	}, metav1.CreateOptions{})
	s.must(err)
	applyManifests(t, s.Cluster, nil, "50-pods.yml")
	for what, try := range map[string]func(n int) error{
		"ports of a Service": func(n int) error {
			_, err := s.tenant.CoreV1().Services("tenant").Create(t.Context(), &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: servicePorts(n),
			}, dry)
			return err
		},
		"terms that the scheduler prefers": func(n int) error {
			terms := make([]corev1.WeightedPodAffinityTerm, n)
			for i := range terms {
				terms[i] = corev1.WeightedPodAffinityTerm{Weight: 1, PodAffinityTerm: corev1.PodAffinityTerm{
					TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{},
					NamespaceSelector: &metav1.LabelSelector{},
				}}
			}
			return create(t.Context(), s.tenant, "tenant", "a", corev1.PodSpec{Affinity: &corev1.Affinity{
				PodAffinity: &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: terms},
			}})
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
		kubetest.MustForbid(t, what, try(many), "can have 100 terms", "and 100 ports")
		if err := try(most); err != nil {
			t.Errorf("%d %s: %.300v", most, what, err)
		}
	}
	// What is older than the policy.
	old.Spec.Ports = servicePorts(many).Ports
	_, err = s.tenant.CoreV1().Services("tenant").Update(t.Context(), old, metav1.UpdateOptions{})
	kubetest.MustForbid(t, "other ports of an older Service", err, "and 100 ports")
	old.Spec.Ports, old.Finalizers = servicePorts(1000).Ports, nil
	if _, err = s.tenant.CoreV1().Services("tenant").Update(t.Context(), old, metav1.UpdateOptions{}); err != nil {
		t.Errorf("a finalizer of an older Service: %v", err)
	}
}
