package templates

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"kubernetes-release/internal/kubetest"
)

// TestLoadBalancersAreNotLeftBehind changes the annotations by which a cloud controller finds the load balancer that a
// Service has.
func TestLoadBalancersAreNotLeftBehind(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t, kubetest.Options{})
	const addons, prefix = "kubernetes-addons", "service.beta.kubernetes.io/aws-load-balancer-"
	applyRendered(
		t, cluster, mustRender(t, addons, inputFor(t, addons).linked(awsLink)), "35-load-balancers.yml",
		"07-service-accounts.yml",
	)
	services := cluster.Admin().CoreV1().Services("default")
	const cloud, other = "service.kubernetes.io/load-balancer-cleanup", "service.k8s.aws/resources"
	class := "example.com/own"
	const refused, allowed = true, false
	for i, test := range []struct {
		what, finalizer string
		class           *string
		before          map[string]string
		patch           string
		refused         bool
	}{
		{"classic to network", cloud, nil, nil, `{"metadata": {"annotations": {"%stype": "nlb"}}}`, refused},
		{"network to classic", cloud, nil, map[string]string{"type": "nlb"},
			`{"metadata": {"annotations": null}, "spec": {"type": "ClusterIP"}, "x": "%s"}`, refused},
		{"to the other controller", cloud, nil, nil, `{"metadata": {"annotations": {"%stype": "external"}}}`, refused},
		{"from the other controller", other, nil, map[string]string{"type": "nlb-ip"},
			`{"metadata": {"annotations": {"%stype": "nlb"}}}`, refused},
		{"public to internal", cloud, nil, map[string]string{"internal": "false"},
			`{"metadata": {"annotations": {"%sinternal": "true"}}}`, refused},
		{"internal to public", cloud, nil, map[string]string{"type": "nlb", "internal": "0.0.0.0/0"},
			`{"metadata": {"annotations": {"%sinternal": null}}}`, refused},
		{"subnets", cloud, nil, map[string]string{"type": "nlb", "subnets": "subnet-a"},
			`{"metadata": {"annotations": {"%ssubnets": "subnet-b"}}}`, refused},
		{"an address of an internal one", cloud, nil,
			map[string]string{"type": "nlb", "internal": "true", "private-ipv4-addresses": "10.0.0.9"},
			`{"metadata": {"annotations": {"%sprivate-ipv4-addresses": null}}}`, refused},
		{"addresses, later", cloud, nil, map[string]string{"type": "nlb"},
			`{"metadata": {"annotations": {"%seip-allocations": "eipalloc-1,eipalloc-2"}}}`, refused},
		{"subnets of a classic one, which change", cloud, nil, map[string]string{"subnets": "subnet-a"},
			`{"metadata": {"annotations": {"%ssubnets": "subnet-b"}}}`, allowed},
		{"subnets at the other controller", other, nil, map[string]string{"type": "external"},
			`{"metadata": {"annotations": {"%ssubnets": "subnet-b"}}}`, allowed},
		{"subnets without a load balancer", "", nil, map[string]string{"type": "nlb"},
			`{"metadata": {"annotations": {"%ssubnets": "subnet-b"}}}`, allowed},
		{"another word for the same", cloud, nil, map[string]string{"internal": "true", "type": "elb"},
			`{"metadata": {"annotations": {"%[1]sinternal": "yes", "%[1]stype": null}}}`, allowed},
		{"the scheme at the other controller", other, nil, map[string]string{"type": "external"},
			`{"metadata": {"annotations": {"%sinternal": "true"}}}`, allowed},
		{"type of the Service", cloud, nil, map[string]string{"type": "nlb"},
			`{"spec": {"type": "NodePort"}, "x": "%s"}`, allowed},
		{"another annotation", cloud, nil, nil, `{"metadata": {"annotations": {"%sproxy-protocol": "*"}}}`, allowed},
		{"without a load balancer", "", nil, nil, `{"metadata": {"annotations": {"%stype": "nlb"}}}`, allowed},
		{"the finalizer", cloud, nil, map[string]string{"type": "nlb"},
			`{"metadata": {"finalizers": null}, "x": "%s"}`, allowed},
		{"of another class", cloud, &class, nil, `{"metadata": {"annotations": {"%stype": "nlb"}}}`, allowed},
	} {
		service := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("web-", i), Annotations: map[string]string{}},
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: test.class,
				Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}},
			},
		}
		for name, value := range test.before {
			service.Annotations[prefix+name] = value
		}
		if test.finalizer != "" {
			service.Finalizers = []string{test.finalizer}
		}
		if _, err := services.Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		patch := fmt.Appendf(nil, test.patch, prefix)
		_, err := services.Patch(
			t.Context(), service.Name, types.MergePatchType, patch, metav1.PatchOptions{},
		)
		switch {
		case test.refused:
			kubetest.MustForbid(t, test.what, err, prefix, "of the Service to NodePort")
		case err != nil:
			t.Errorf("%s: %v", test.what, err)
		}
	}
}
