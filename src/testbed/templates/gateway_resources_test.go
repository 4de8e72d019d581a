package templates

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"kubernetes-release/internal/eventually"
)

// gatewayAttacks are specs with which a tenant's Gateway or route has what belongs to others, by resource and name.
var gatewayAttacks = map[string]string{
	"loadbalancerconfigurations/subnets":         `{"loadBalancerSubnets": [{"identifier": "subnet-other"}]}`,
	"loadbalancerconfigurations/selected":        `{"loadBalancerSubnetsSelector": {"team": ["other"]}}`,
	"loadbalancerconfigurations/security-groups": `{"securityGroups": ["sg-other"]}`,
	"loadbalancerconfigurations/tags":            `{"tags": {"kubernetes.io/cluster/other": "owned"}}`,
	"loadbalancerconfigurations/pool":            `{"ipv4IPAMPoolId": "ipam-pool-other"}`,
	"loadbalancerconfigurations/outpost":         `{"customerOwnedIpv4Pool": "ipv4pool-coip-other"}`,
	"loadbalancerconfigurations/firewall":        `{"wafV2": {"webACL": "arn:aws:wafv2:other"}}`,
	"loadbalancerconfigurations/logs": `{"loadBalancerAttributes": [{"key": "access_logs.s3.bucket",
		"value": "others-logs"}]}`,
	"loadbalancerconfigurations/certificate": `{"listenerConfigurations": [{"protocolPort": "HTTPS:443",
		"defaultCertificate": "arn:aws:acm:other"}]}`,
	"loadbalancerconfigurations/certificates": `{"listenerConfigurations": [{"protocolPort": "HTTP:80"},
		{"protocolPort": "HTTPS:443", "certificates": ["arn:aws:acm:other"]}]}`,
	"loadbalancerconfigurations/trust-store": `{"listenerConfigurations": [{"protocolPort": "HTTPS:443",
		"mutualAuthentication": {"mode": "verify", "trustStore": "other"}}]}`,
	"loadbalancerconfigurations/name":            `{"loadBalancerName": "k8s-other-shop-0123456789"}`,
	"loadbalancerconfigurations/name-of-another": `{"loadBalancerName": "tenant-a-shop"}`,
	"targetgroupconfigurations/name": `{"targetReference": {"name": "web"}, "routeConfigurations":
		[{"routeIdentifier": {"kind": "HTTPRoute"}, "targetGroupProps": {"targetGroupName": "others"}}]}`,
	"targetgroupconfigurations/health-checks": `{"targetReference": {"name": "web"}, "defaultConfiguration":
		{"healthCheckConfig": {"healthCheckPort": "10250"}}}`,
	"targetgroupconfigurations/health-checks-of-nodes-on-a-route": `{"targetReference": {"name": "web"},
		"defaultConfiguration": {"targetType": "ip", "healthCheckConfig": {"healthCheckPort": "10250"}},
		"routeConfigurations": [{"routeIdentifier": {"kind": "HTTPRoute"},
		"targetGroupProps": {"targetType": "instance"}}]}`,
	"targetgroupconfigurations/health-checks-of-a-route": `{"targetReference": {"name": "web"},
		"routeConfigurations": [{"routeIdentifier": {"kind": "HTTPRoute"}, "targetGroupProps":
		{"healthCheckConfig": {"healthCheckPort": "10250"}}}]}`,
	"targetgroupconfigurations/health-checks-by-default": `{"targetReference": null, "defaultConfiguration":
		{"targetType": "ip", "healthCheckConfig": {"healthCheckPort": "10250"}}}`,
	"targetgroupconfigurations/control-port": `{"targetReference": {"name": "web"}, "routeConfigurations":
		[{"routeIdentifier": {"kind": "HTTPRoute"}, "targetGroupProps": {"targetControlPort": 2379}}]}`,
	"targetgroupconfigurations/tags": `{"targetReference": {"name": "web"}, "defaultConfiguration":
		{"tags": {"kubernetes.io/cluster/other": "owned"}}}`,
	"targetgroupconfigurations/tags-of-a-route": `{"targetReference": {"name": "web"}, "routeConfigurations":
		[{"routeIdentifier": {"kind": "HTTPRoute"}, "targetGroupProps": {"tags": {"a": "b"}}}]}`,
	"listenerruleconfigurations/users": `{"actions": [{"type": "authenticate-cognito", "authenticateCognitoConfig":
		{"userPoolArn": "a", "userPoolClientId": "a", "userPoolDomain": "a"}}]}`,
	"httproutes/target-group": `{"rules": [{"backendRefs": [{"name": "web", "port": 80},
		{"name": "others", "kind": "TargetGroupName"}]}]}`,
	"grpcroutes/target-group": `{"rules": [{"backendRefs": [{"name": "others", "kind": "TargetGroupName"}]}]}`,
	"tcproutes/target-group":  `{"rules": [{"backendRefs": [{"name": "others", "kind": "TargetGroupName"}]}]}`,
	"udproutes/target-group":  `{"rules": [{"backendRefs": [{"name": "others", "kind": "TargetGroupName"}]}]}`,
	"tlsroutes/target-group": `{"hostnames": ["a.example"], "rules": [{"backendRefs":
		[{"name": "others", "kind": "TargetGroupName"}]}]}`,
}

// gatewayFriends are what a tenant may set.
var gatewayFriends = map[string]string{
	"loadbalancerconfigurations/plain": `{"scheme": "internet-facing", "sourceRanges": ["192.0.2.0/24"],
		"loadBalancerAttributes": [{"key": "idle_timeout.timeout_seconds", "value": "600"}],
		"listenerConfigurations": [{"protocolPort": "HTTPS:443", "sslPolicy": "ELBSecurityPolicy-TLS13-1-2-2021-06"}]}`,
	"loadbalancerconfigurations/empty": `{}`,
	"loadbalancerconfigurations/name":  `{"loadBalancerName": "tenant-shop"}`,
	"targetgroupconfigurations/ports": `{"targetReference": {"name": "web"}, "defaultConfiguration":
		{"targetControlPort": 30080, "healthCheckConfig": {"healthCheckPort": "traffic-port"}}}`,
	"targetgroupconfigurations/pods": `{"targetReference": {"name": "web"}, "defaultConfiguration":
		{"targetType": "ip", "healthCheckConfig": {"healthCheckPort": "8080"}}, "routeConfigurations":
		[{"routeIdentifier": {"kind": "HTTPRoute"}, "targetGroupProps": {"targetType": "ip"}},
		{"routeIdentifier": {"kind": "GRPCRoute"}, "targetGroupProps":
		{"healthCheckConfig": {"healthCheckPort": "8081"}}}]}`,
	"targetgroupconfigurations/plain": `{"targetReference": {"name": "web"}, "defaultConfiguration":
		{"healthCheckConfig": {"healthCheckPath": "/ready"}}}`,
	"listenerruleconfigurations/plain": `{"actions": [{"type": "fixed-response", "fixedResponseConfig":
		{"statusCode": 404}}]}`,
	"httproutes/plain":  `{"rules": [{"backendRefs": [{"name": "web", "kind": "Service", "port": 80}]}]}`,
	"httproutes/answer": `{"rules": [{"filters": [{"type": "RequestRedirect", "requestRedirect": {"port": 443}}]}]}`,
	"tcproutes/plain":   `{"rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}`,
}

var gatewayKinds = map[string][2]string{
	"loadbalancerconfigurations": {"gateway.k8s.aws/v1beta1", "LoadBalancerConfiguration"},
	"targetgroupconfigurations":  {"gateway.k8s.aws/v1beta1", "TargetGroupConfiguration"},
	"listenerruleconfigurations": {"gateway.k8s.aws/v1beta1", "ListenerRuleConfiguration"},
	"httproutes":                 {"gateway.networking.k8s.io/v1", "HTTPRoute"},
	"grpcroutes":                 {"gateway.networking.k8s.io/v1", "GRPCRoute"},
	"tlsroutes":                  {"gateway.networking.k8s.io/v1", "TLSRoute"},
	"tcproutes":                  {"gateway.networking.k8s.io/v1alpha2", "TCPRoute"},
	"udproutes":                  {"gateway.networking.k8s.io/v1alpha2", "UDPRoute"},
}

// TestTenantsCannotNameResourcesInGateways is a tenant whose Gateway or route has the AWS Load Balancer Controller use
// what belongs to others.
func TestTenantsCannotNameResourcesInGateways(t *testing.T) {
	t.Parallel()
	components := os.Getenv("COMPONENTS_DIR")
	if components == "" {
		t.Skip("COMPONENTS_DIR is not set: no definitions of Gateway API")
	}
	s := startTenants(t)
	for _, folder := range []string{"gateway", "gateway-api"} {
		if _, err := runKubectl(
			t.Context(), s.Kubeconfig("admin", "system:masters"), "", "apply", "--server-side", "--filename",
			filepath.Join(components, "aws-load-balancer-controller/manifests", folder),
		); err != nil {
			t.Fatal(err)
		}
	}
	_, err := s.admin.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{
			Name: "gateways", Labels: map[string]string{"rbac.authorization.k8s.io/aggregate-to-admin": "true"},
		},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"gateway.k8s.aws", "gateway.networking.k8s.io"}, Resources: []string{"*"},
			Verbs: []string{"*"},
		}},
	}, metav1.CreateOptions{})
	s.must(err)

	write := func(namespace, object, name, spec string) error {
		resource, _, _ := strings.Cut(object, "/")
		kind := gatewayKinds[resource]
		body := fmt.Sprintf(
			`{"apiVersion": %q, "kind": %q, "metadata": {"name": %q}, "spec": %s}`, kind[0], kind[1], name, spec,
		)
		return s.tenant.CoreV1().RESTClient().Post().AbsPath("/apis", kind[0]).Namespace(namespace).Resource(resource).
			Body([]byte(body)).Do(t.Context()).Error()
	}
	patch := func(client kubernetes.Interface, object, name, change string) error {
		resource, _, _ := strings.Cut(object, "/")
		return client.CoreV1().RESTClient().Patch(types.MergePatchType).AbsPath("/apis", gatewayKinds[resource][0]).
			Namespace("tenant").Resource(resource).Name(name).Body([]byte(change)).Do(t.Context()).Error()
	}
	attacks := slices.Sorted(maps.Keys(gatewayAttacks))
	for _, object := range attacks {
		_, name, _ := strings.Cut(object, "/")
		eventually.Succeeds(t, time.Minute, "without the policy, a tenant writes "+object, func() error {
			return write("tenant", object, "old-"+name, gatewayAttacks[object])
		})
	}
	s.restrict(balancersLink)
	for object, spec := range gatewayFriends {
		_, name, _ := strings.Cut(object, "/")
		if err := write("tenant", object, name, spec); err != nil {
			t.Errorf("%s: %v", object, err)
		}
	}
	for _, object := range attacks {
		resource, name, _ := strings.Cut(object, "/")
		const word = "of AWS, which may be another's"
		spec := gatewayAttacks[object]
		mustRefuseTenant(t, object, write("tenant", object, "new-"+name, spec), word)
		if friend := resource + "/plain"; gatewayFriends[friend] != "" {
			mustRefuseTenant(t, object+" afterwards", patch(s.tenant, object, "plain", `{"spec": `+spec+`}`), word)
		}
		// The friends: the controller, with an older one, and a namespace that may.
		if err := patch(s.admin, object, "old-"+name, `{"metadata": {"finalizers": ["example.com/a"]}}`); err != nil {
			t.Errorf("a finalizer of an older %s: %v", object, err)
		}
		if err := write("agents", object, name, spec); err != nil {
			t.Errorf("%s in an exempt namespace: %v", object, err)
		}
	}
	s.restrict(balancersLink, otherPortsLink)
	const checks = `{"targetReference": {"name": "web"}, "defaultConfiguration":
		{"healthCheckConfig": {"healthCheckPort": %q}}}`
	s.must(write("tenant", "targetgroupconfigurations/", "other-range", fmt.Sprintf(checks, "29999")))
	err = write("tenant", "targetgroupconfigurations/", "default-range", fmt.Sprintf(checks, "30080"))
	mustRefuseTenant(t, "a port of another range", err, "of AWS, which may be another's")
}
