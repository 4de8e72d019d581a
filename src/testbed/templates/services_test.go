package templates

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
)

// TestTenantsCannotNameSecurityGroups is a tenant whose load balancer names the security group of others: the cloud
// controller would open all ports of the nodes to the members of the group, or delete the group with the Service.
func TestTenantsCannotNameSecurityGroups(t *testing.T) {
	t.Parallel()
	s := startTenants(t)
	const groups = "service.beta.kubernetes.io/aws-load-balancer-security-groups"
	const extra = "service.beta.kubernetes.io/aws-load-balancer-extra-security-groups"
	expose := func(client kubernetes.Interface, namespace, name string, annotations map[string]string) error {
		_, err := client.CoreV1().Services(namespace).Create(t.Context(), &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}},
			},
		}, metav1.CreateOptions{})
		return err
	}
	annotate := func(client kubernetes.Interface, name, annotation, value string) error {
		patch := fmt.Appendf(nil, `{"metadata": {"annotations": {%q: %s}}}`, annotation, value)
		_, err := client.CoreV1().Services("tenant").
			Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	}
	foreign := map[string]string{groups: "sg-other"}
	eventually.Succeeds(t, time.Minute, "without the policy, a tenant names a group", func() error {
		return expose(s.tenant, "tenant", "old", foreign)
	})
	s.restrict(awsLink)
	refused := func(what string, err error) {
		t.Helper()
		kubetest.MustForbid(t, what, err, "would open the nodes to a security group", unrestricted+"=true")
	}
	refused("at the creation", expose(s.tenant, "tenant", "groups", foreign))
	refused("in addition", expose(s.tenant, "tenant", "extra", map[string]string{extra: "sg-other"}))
	s.must(expose(s.tenant, "tenant", "plain", nil))
	refused("afterwards", annotate(s.tenant, "plain", extra, `"sg-other"`))
	refused("another group", annotate(s.tenant, "old", groups, `"sg-third"`))
	refused("no group, so that it is deleted", annotate(s.tenant, "old", groups, "null"))
	const port = "service.beta.kubernetes.io/aws-load-balancer-healthcheck-port"
	for _, closed := range []string{"22", "2379", "10250", "29999", "030000", "kubelet"} {
		err := expose(s.tenant, "tenant", "port-"+closed, map[string]string{port: closed})
		kubetest.MustForbid(
			t, "health checks of port "+closed, err, "would open port "+closed, unrestricted+"=true",
		)
	}

	// The friends.
	for _, open := range []string{"traffic-port", "10256", "30000", "32767"} {
		if err := expose(s.tenant, "tenant", "port-"+open, map[string]string{port: open}); err != nil {
			t.Errorf("health checks of port %s: %v", open, err)
		}
	}
	s.restrict(awsLink, otherPortsLink)
	eventually.Succeeds(t, time.Minute, "ports of Services of another range", func() error {
		return expose(s.tenant, "tenant", "port-29999", map[string]string{port: "29999"})
	})
	err := expose(s.tenant, "tenant", "port-30001", map[string]string{port: "30001"})
	kubetest.MustForbid(t, "a port of another range", err, "would open port 30001", "a port of 20000-29999")
	internal := "service.beta.kubernetes.io/aws-load-balancer-internal"
	for name, client := range map[string]kubernetes.Interface{
		"plain": s.tenant, "old": s.ClientFor("system:serviceaccount:kube-system:service-controller", "system:masters"),
	} {
		if err := annotate(client, name, internal, `"true"`); err != nil {
			t.Errorf("another annotation of Service %s: %v", name, err)
		}
	}
	if err := expose(s.tenant, "agents", "exempt", foreign); err != nil {
		t.Errorf("a Service of an exempt namespace: %v", err)
	}
	if err := s.tenant.CoreV1().Services("tenant").Delete(t.Context(), "old", metav1.DeleteOptions{}); err != nil {
		t.Errorf("a Service that is older than the policy is deleted: %v", err)
	}
}
