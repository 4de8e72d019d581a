package templates

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestTenantsCannotNameResourcesOfOpenStack is a tenant whose Service adds its ports to the load balancer of another,
// has another's certificate, or takes another's floating IP, all of which the cloud controller can.
func TestTenantsCannotNameResourcesOfOpenStack(t *testing.T) {
	t.Parallel()
	s := startTenants(t)
	const prefix, word = "loadbalancer.openstack.org/", "names or keeps a resource of the cloud"
	expose := func(namespace, name, address string, annotations map[string]string) error {
		service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}}
		service.Spec.Type, service.Spec.Ports = corev1.ServiceTypeLoadBalancer, []corev1.ServicePort{{Port: 443}}
		service.Spec.LoadBalancerIP = address
		_, err := s.tenant.CoreV1().Services(namespace).Create(t.Context(), service, metav1.CreateOptions{})
		return err
	}
	const address = "203.0.113.9"
	theirs := map[string]string{prefix + "load-balancer-id": "8f6b6f6e"}
	s.restrict() // without the cloud's controller
	s.must(expose("tenant", "old", address, theirs))
	s.restrict(openstackLink)
	for _, name := range []string{
		"default-tls-container-ref", "load-balancer-id", "member-subnet-id", "network-id", "port-id", "subnet-id",
		"floating-network-id", "floating-subnet", "floating-subnet-id", "floating-subnet-tags", "keep-floatingip",
	} {
		foreign := map[string]string{prefix + name: "8f6b6f6e"}
		mustRefuseTenant(t, name, expose("tenant", name, "", foreign), word)
		if err := expose("agents", name, address, foreign); err != nil {
			t.Errorf("%s in an exempt namespace: %v", name, err)
		}
	}
	mustRefuseTenant(t, "an address", expose("tenant", "address", address, nil), "floating IP")

	// The friends: Services without these, those that are older, and the controller, which notes the load balancer that
	// it has created (updateServiceAnnotation in pkg/openstack/loadbalancer.go of cloud-provider-openstack).
	s.must(expose("tenant", "plain", "", map[string]string{prefix + "proxy-protocol": "true"}))
	patch := func(user, group, name, text string) error {
		_, err := s.ClientFor(user, group).CoreV1().Services("tenant").
			Patch(t.Context(), name, types.MergePatchType, []byte(text), metav1.PatchOptions{})
		return err
	}
	const controller = "system:serviceaccount:kube-system:cloud-controller-manager"
	const id, note = `{"metadata": {"annotations": {"loadbalancer.openstack.org/load-balancer-id": %q}}}`,
		`{"metadata": {"annotations": {"example.com/note": "a"}}}`
	s.must(patch(controller, "system:masters", "plain", fmt.Sprintf(id, "1a2b3c4d")))
	s.must(patch("tenant", "", "old", note))
	s.must(patch("tenant", "", "plain", note))
	mustRefuseTenant(t, "another's, later", patch("tenant", "", "plain", fmt.Sprintf(id, "8f6b6f6e")), word)
	mustRefuseTenant(
		t, "an address, later", patch("tenant", "", "plain", `{"spec": {"loadBalancerIP": "203.0.113.9"}}`),
		"floating IP",
	)
}

// TestTenantsCannotNameResourcesOfOtherClouds is a tenant whose Service takes the public address that another has
// reserved, and more that the controllers of Azure and Google Cloud, which run in pods, know by its name.
func TestTenantsCannotNameResourcesOfOtherClouds(t *testing.T) {
	t.Parallel()
	const azure = "service.beta.kubernetes.io/azure-"
	for cloud, test := range map[string]struct {
		address string
		names   []string
		free    map[string]string // what concerns the load balancer itself
	}{
		"azure": {
			"public IP",
			[]string{
				azure + "additional-public-ips", azure + "load-balancer-internal-subnet", azure + "load-balancer-ipv4",
				azure + "load-balancer-ipv6", azure + "load-balancer-resource-group", azure + "pip-name",
				azure + "pip-name-ipv6", azure + "pip-prefix-id", azure + "pip-prefix-id-ipv6", azure + "pip-tags",
				azure + "pls-ip-configuration-ip-address", azure + "pls-ip-configuration-subnet", azure + "pls-name",
				azure + "pls-resource-group",
			},
			map[string]string{azure + "load-balancer-internal": "true", azure + "load-balancer-tcp-idle-timeout": "5"},
		},
		"gce": {
			"reserved IP", []string{"networking.gke.io/internal-load-balancer-subnet"},
			map[string]string{"networking.gke.io/load-balancer-type": "Internal"},
		},
	} {
		t.Run(cloud, func(t *testing.T) {
			s := startTenants(t)
			expose := func(name, address string, annotations map[string]string) error {
				service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}}
				service.Spec.Type, service.Spec.LoadBalancerIP = corev1.ServiceTypeLoadBalancer, address
				service.Spec.Ports = []corev1.ServicePort{{Port: 443}}
				_, err := s.tenant.CoreV1().Services("tenant").Create(t.Context(), service, metav1.CreateOptions{})
				return err
			}
			s.restrict(map[string]values{"cloud-provider": {"type": cloud}})
			for n, name := range test.names {
				err := expose(fmt.Sprintf("a%d", n), "", map[string]string{name: "others"})
				mustRefuseTenant(t, name, err, "a resource of the cloud")
			}
			mustRefuseTenant(t, "an address", expose("address", "203.0.113.9", nil), test.address)
			s.must(expose("plain", "", test.free))
		})
	}
}
