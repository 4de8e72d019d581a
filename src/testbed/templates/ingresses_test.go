package templates

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// TestTenantsCannotShareIngressesOfOthers is a tenant whose Ingress has the AWS Load Balancer Controller use what
// belongs to others: the load balancer of a group, a target group, a certificate.
func TestTenantsCannotShareIngressesOfOthers(t *testing.T) {
	t.Parallel()
	s := startTenants(t)
	const prefix, word = "alb.ingress.kubernetes.io/", "names a resource of AWS or a group"
	const certificate = "arn:aws:acm:us-east-1:123456789012:certificate/a"
	const arn = "arn:aws:elasticloadbalancing:us-east-1:123456789012:targetgroup/other/a"
	attacks := map[string]string{
		"group.name":               "shop",
		"certificate-arn":          certificate,
		"security-groups":          "sg-other",
		"subnets":                  "subnet-other",
		"tags":                     "kubernetes.io/cluster/other=owned",
		"load-balancer-attributes": "access_logs.s3.enabled=true,access_logs.s3.bucket=others-logs",
		"frontend-nlb-tags":        "kubernetes.io/cluster/other=owned",
		"actions.steal":            fmt.Sprintf(`{"type": "forward", "targetGroupARN": %q}`, arn),
		"actions.case":             fmt.Sprintf(`{"type": "forward", "TARGETGROUPARN": %q}`, arn),
		"actions.number":           fmt.Sprintf(`{"type": "forward", "target\u0047roupARN": %q}`, arn),
		"actions.weighted": `{"type": "forward", "forwardConfig": {"targetGroups":
			[{"targetGroupName": "other", "weight": 1}]}}`,
		"mutual-authentication": `[{"port": 443, "mode": "verify", "truſtStore": "others"}]`,
		"auth-idp-cognito":      `{"userPoolARN": "a", "userPoolClientID": "a", "userPoolDomain": "a"}`,
	}
	expose := func(namespace, name string, annotations map[string]string) error {
		backend := &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
			Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80},
		}}
		_, err := s.tenant.NetworkingV1().Ingresses(namespace).Create(t.Context(), &networkingv1.Ingress{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
			Spec:       networkingv1.IngressSpec{DefaultBackend: backend},
		}, metav1.CreateOptions{})
		return err
	}
	annotate := func(client kubernetes.Interface, name, annotation, value string) error {
		patch := fmt.Appendf(nil, `{"metadata": {"annotations": {%q: %q}}}`, annotation, value)
		_, err := client.NetworkingV1().Ingresses("tenant").
			Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	}
	names := slices.Sorted(maps.Keys(attacks))
	s.restrict() // without the controller, its annotations are nobody's concern
	for _, name := range names {
		s.must(expose("tenant", "old-"+name, map[string]string{prefix + name: attacks[name]}))
	}
	s.restrict(balancersLink)
	s.must(expose("tenant", "plain", map[string]string{
		prefix + "scheme": "internet-facing", prefix + "target-type": "instance",
		prefix + "inbound-cidrs":            "192.0.2.0/24",
		prefix + "load-balancer-attributes": "idle_timeout.timeout_seconds=600",
		prefix + "healthcheck-port":         "traffic-port",
		prefix + "load-balancer-name":       "tenant-shop",
		prefix + "mutual-authentication":    `[{"port": 443, "mode": "passthrough"}]`,
		prefix + "actions.redirect": `{"type": "redirect", "redirectConfig":
			{"protocol": "HTTPS", "statusCode": "HTTP_301"}}`,
		prefix + "actions.canary": `{"type": "forward", "forwardConfig": {"targetGroups":
			[{"serviceName": "web", "servicePort": "80", "weight": 1}]}}`,
	}))
	for name, value := range map[string]string{
		"healthcheck-port": "10250", "target-control-port.web.80": "22",
		"load-balancer-name": "k8s-other-shop-0123456789",
	} {
		word := "would open a port of the nodes"
		if name == "load-balancer-name" {
			word = nameWord
		}
		mustRefuseTenant(t, name, expose("tenant", "new", map[string]string{prefix + name: value}), word)
		mustRefuseTenant(t, name+" afterwards", annotate(s.tenant, "plain", prefix+name, value), word)
		s.must(expose("agents", "exempt-"+name, map[string]string{prefix + name: value}))
	}
	for i, port := range []string{"+22", "0443", "29999", "-1"} {
		err := expose("tenant", fmt.Sprint("new-", i), map[string]string{prefix + "healthcheck-port": port})
		mustRefuseTenant(t, "health checks of port "+port, err, "would open a port of the nodes")
	}
	for i, port := range []string{"http", "10256", "30080"} {
		s.must(expose("tenant", fmt.Sprint("port-", i), map[string]string{prefix + "healthcheck-port": port}))
	}
	// Names of load balancers of namespace tenant-a.
	for i, name := range []string{"tenant-a-shop", "tenant-A-shop", "tenant--shop", "tenant-", "tenant"} {
		err := expose("tenant", fmt.Sprint("name-", i), map[string]string{prefix + "load-balancer-name": name})
		mustRefuseTenant(t, "the name "+name, err, nameWord)
	}
	s.healthChecks(expose)
	for _, name := range names {
		annotation, value := prefix+name, attacks[name]
		mustRefuseTenant(t, name, expose("tenant", "new-"+name, map[string]string{annotation: value}), word)
		mustRefuseTenant(t, name+" afterwards", annotate(s.tenant, "plain", annotation, value), word)
		mustRefuseTenant(t, name+" changed", annotate(s.tenant, "old-"+name, annotation, value+" "), word)
		// The friends: the controller, with an older one, and a namespace that may.
		if err := annotate(s.admin, "old-"+name, "example.com/note", "a"); err != nil {
			t.Errorf("another annotation of an older Ingress with %s: %v", name, err)
		}
		if err := expose("agents", strings.ToLower(name), map[string]string{annotation: value}); err != nil {
			t.Errorf("%s in an exempt namespace: %v", name, err)
		}
	}
	s.restrict(balancersLink, otherPortsLink)
	s.must(expose("tenant", "other-range", map[string]string{prefix + "healthcheck-port": "29999"}))
	err := expose("tenant", "default-range", map[string]string{prefix + "healthcheck-port": "30080"})
	mustRefuseTenant(t, "a port of another range", err, "would open a port of the nodes")
}

// nameWord is in the refusal of a name of a load balancer.
const nameWord = "must be tenant- and then letters and digits only"

// healthChecks is a tenant whose Ingress has pods as targets, with health checks on any port of theirs, and whose
// Service has nodes, or has them later: the controller takes the annotations of both, those of the Service first, and
// would open that port of the nodes.
func (s *tenants) healthChecks(ingress func(namespace, name string, annotations map[string]string) error) {
	s.t.Helper()
	const prefix, word = "alb.ingress.kubernetes.io/", "would open a port of the nodes"
	checks := func(targets, port string) map[string]string {
		return map[string]string{prefix + "target-type": targets, prefix + "healthcheck-port": port}
	}
	service := func(name string, annotations map[string]string) error {
		_, err := s.tenant.CoreV1().Services("tenant").Create(s.t.Context(), &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 80}}},
		}, metav1.CreateOptions{})
		return err
	}
	patch := func(name, change string) error {
		_, err := s.tenant.CoreV1().Services("tenant").Patch(
			s.t.Context(), name, types.MergePatchType,
			[]byte(`{"metadata": {"annotations": {`+change+`}}}`), metav1.PatchOptions{},
		)
		return err
	}
	err := ingress("tenant", "checks", checks("ip", "10250"))
	mustRefuseTenant(s.t, "an Ingress whose Service has nodes", err, word)
	mustRefuseTenant(s.t, "a Service", service("nodes", checks("instance", "10250")), word)
	// The friends: pods as targets, by the Service.
	s.must(service("pods", checks("ip", "8080")))
	s.must(patch("pods", `"example.com/note": "a"`))
	s.must(ingress("tenant", "pods", map[string]string{prefix + "target-type": "ip"}))
	for _, targets := range []string{`"instance"`, "null", `""`} {
		mustRefuseTenant(s.t, "a Service with targets "+targets+" later", patch(
			"pods", fmt.Sprintf(`"%starget-type": %s`, prefix, targets),
		), word)
	}
	s.must(patch("pods", fmt.Sprintf(`"%[1]starget-type": "instance", "%[1]shealthcheck-port": "30080"`, prefix)))
}
