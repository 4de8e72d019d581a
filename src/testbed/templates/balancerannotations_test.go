package templates

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"kubernetes-release/internal/kubetest"
)

const serviceAnnotations, ingressAnnotations = "service.beta.kubernetes.io/", "alb.ingress.kubernetes.io/"

// TestUnreadAnnotations creates Services and Ingresses with annotations that their controller reads, and that it does
// not.
func TestUnreadAnnotations(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t, kubetest.Options{})
	const addons, controller = "kubernetes-addons", "aws-load-balancer-controller"
	const policy = "config/manifests/27-annotations.yml"
	rendered := mustRender(t, addons, inputFor(t, addons).linked(awsLink))
	rendered[policy] = mustRender(t, controller, inputFor(t, controller))[policy]
	applyRendered(
		t, cluster, rendered, "07-service-accounts.yml", "37-load-balancer-annotations.yml", filepath.Base(policy),
	)
	warnings := &heard{}
	config := rest.CopyConfig(cluster.AdminConfig())
	config.WarningHandler = warnings
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	own, foreign := "service.k8s.aws/nlb", "example.com/own"
	const balancer = serviceAnnotations + "aws-load-balancer-"
	for _, test := range []struct {
		what    string
		class   *string
		kind    corev1.ServiceType
		read    []string
		unread  []string
		ingress bool
	}{
		{what: "cloud controller", kind: corev1.ServiceTypeLoadBalancer,
			read:   []string{balancer + "internal", "example.com/a"},
			unread: []string{balancer + "scheme", balancer + "intenral", ingressAnnotations + "scheme"}},
		{what: "another cloud", kind: corev1.ServiceTypeLoadBalancer,
			unread: []string{serviceAnnotations + "azure-load-balancer-internal"}},
		{what: "no load balancer", kind: corev1.ServiceTypeNodePort, read: []string{balancer + "scheme"}},
		{what: "class of another", kind: corev1.ServiceTypeLoadBalancer, class: &foreign,
			read: []string{balancer + "x"}},
		{what: "AWS Load Balancer Controller", kind: corev1.ServiceTypeLoadBalancer, class: &own,
			read:   []string{balancer + "scheme", balancer + "listener-attributes.TCP-80"},
			unread: []string{balancer + "extra-security-groups", ingressAnnotations + "scheme"}},
		{what: "Ingress", ingress: true,
			read:   []string{ingressAnnotations + "scheme", ingressAnnotations + "actions.ssl-redirect"},
			unread: []string{ingressAnnotations + "schema", balancer + "internal"}},
		{what: "Ingress with a firewall", ingress: true, read: []string{ingressAnnotations + "scheme"},
			unread: []string{ingressAnnotations + "wafv2-acl-arn", ingressAnnotations + "shield-advanced-protection"}},
	} {
		meta := metav1.ObjectMeta{GenerateName: "web-", Annotations: map[string]string{}}
		for _, name := range slices.Concat(test.read, test.unread) {
			meta.Annotations[name] = "x"
		}
		var err error
		if test.ingress {
			_, err = client.NetworkingV1().Ingresses("default").Create(t.Context(), &networkingv1.Ingress{
				ObjectMeta: meta, Spec: networkingv1.IngressSpec{DefaultBackend: &networkingv1.IngressBackend{
					Service: &networkingv1.IngressServiceBackend{
						Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80},
					},
				}},
			}, metav1.CreateOptions{})
		} else {
			_, err = client.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
				ObjectMeta: meta, Spec: corev1.ServiceSpec{
					Type: test.kind, LoadBalancerClass: test.class, Ports: []corev1.ServicePort{{Port: 80}},
				},
			}, metav1.CreateOptions{})
		}
		if err != nil {
			t.Errorf("%s: %v", test.what, err)
			continue
		}
		said := warnings.take()
		for _, name := range test.read {
			if strings.Contains(said, name) {
				t.Errorf("%s: a warning of %s, which is read:\n%s", test.what, name, said)
			}
		}
		for _, name := range test.unread {
			if !strings.Contains(said, name) {
				t.Errorf("%s: no warning of %s:\n%s", test.what, name, said)
			}
		}
	}
}

// TestReadAnnotations compares the annotations in the policies with those in the source of the controllers.
func TestReadAnnotations(t *testing.T) {
	t.Parallel()
	const addons, controller = "kubernetes-addons", "aws-load-balancer-controller"
	rendered := mustRender(t, addons, inputFor(t, addons).linked(awsLink))
	quoted := regexp.MustCompile(`"([a-z0-9.-]+)"`)
	for _, c := range []struct {
		component, module, sources string
		declared                   *regexp.Regexp
		policy                     []byte
	}{
		{
			"cloud-provider-aws", "k8s.io/cloud-provider-aws", "pkg/providers/v1/*.go",
			regexp.MustCompile(`"service\.beta\.kubernetes\.io/(aws-load-balancer-[a-z0-9-]+)"`),
			rendered["config/manifests/37-load-balancer-annotations.yml"],
		},
		{
			controller, "sigs.k8s.io/" + controller, "pkg/annotations/constants.go",
			regexp.MustCompile(`(?:Ingress(?:LB)?Suffix|SvcLBSuffix)\w+ += "([^"]+)"`),
			mustRender(t, controller, inputFor(t, controller))["config/manifests/27-annotations.yml"],
		},
	} {
		files, err := filepath.Glob(filepath.Join(moduleDir(t, c.component, c.module), c.sources))
		if err != nil || len(files) == 0 {
			kubetest.WithoutSource(t, c.component)
		}
		want := map[string]bool{"load-balancer-source-ranges": true}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, match := range c.declared.FindAllStringSubmatch(string(content), -1) {
				want[match[1]] = true
			}
		}
		var policy admissionregistrationv1.ValidatingAdmissionPolicy
		if err := yaml.Unmarshal(c.policy, &policy); err != nil {
			t.Fatal(err)
		}
		read := map[string]bool{}
		for _, variable := range policy.Spec.Variables {
			if !strings.HasPrefix(variable.Expression, "[") {
				continue
			}
			for _, match := range quoted.FindAllStringSubmatch(variable.Expression, -1) {
				read[match[1]] = true
			}
		}
		if !maps.Equal(read, want) {
			t.Errorf("%s: the policy has\n%q\nand the source\n%q", c.component,
				slices.Sorted(maps.Keys(read)), slices.Sorted(maps.Keys(want)))
		}
	}
}

// moduleDir is where a component's module is in the module cache, or "".
func moduleDir(t *testing.T, component, module string) string {
	t.Helper()
	command := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module)
	command.Dir = filepath.Join("../../components", component)
	command.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off")
	out, err := command.Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
