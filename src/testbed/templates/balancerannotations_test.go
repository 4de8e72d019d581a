package templates

import (
	"cmp"
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
// not, and with protocols that it does not serve.
func TestUnreadAnnotations(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t, kubetest.Options{})
	warnings := &heard{}
	config := rest.CopyConfig(cluster.AdminConfig())
	config.WarningHandler = warnings
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	const addons, controller = "kubernetes-addons", "aws-load-balancer-controller"
	const policy = "config/manifests/27-annotations.yml"
	ofController := mustRender(t, controller, inputFor(t, controller))[policy]
	own, foreign := "service.k8s.aws/nlb", "example.com/own"
	const balancer = serviceAnnotations + "aws-load-balancer-"
	both := []corev1.ServicePort{{Name: "tcp", Port: 53}, {Name: "udp", Port: 53, Protocol: corev1.ProtocolUDP}}
	apart := []corev1.ServicePort{{Name: "tcp", Port: 53}, {Name: "udp", Port: 54, Protocol: corev1.ProtocolUDP}}
	type annotated struct {
		what    string
		class   *string
		kind    corev1.ServiceType // defaults to LoadBalancer
		ports   []corev1.ServicePort
		read    []string // NAME or NAME=VALUE
		unread  []string
		other   string // of another warning
		ingress bool
	}
	for _, deployed := range []struct {
		links []map[string]values
		names []string
		cases []annotated
	}{
		{[]map[string]values{awsLink}, nil, []annotated{
			{what: "cloud controller", read: []string{balancer + "internal", "example.com/a"},
				unread: []string{balancer + "scheme", balancer + "intenral", ingressAnnotations + "scheme"}},
			{what: "another cloud", unread: []string{serviceAnnotations + "azure-load-balancer-internal"}},
			{what: "no load balancer", kind: corev1.ServiceTypeNodePort, read: []string{balancer + "scheme"}},
			{what: "class of another", class: &foreign, ports: both, read: []string{balancer + "x"}},
			{what: "two protocols", ports: both, other: "more than one protocol"},
			{what: "two protocols at two ports", ports: apart, other: "more than one protocol"},
			{what: "one protocol", ports: apart[1:]},
			{what: "for a controller that is not deployed",
				read:  []string{balancer + "type=external", balancer + "scheme"},
				other: "job aws-load-balancer-controller, which is not deployed"},
		}},
		{[]map[string]values{awsLink, balancersLink}, []string{filepath.Base(policy)}, []annotated{
			{what: "no target type", read: []string{balancer + "type=external"},
				other: "which requires the annotation aws-load-balancer-nlb-target-type"},
			{what: "target type", read: []string{balancer + "type=external", balancer + "nlb-target-type=instance"}},
			{what: "target type by itself", read: []string{balancer + "type=nlb-ip"}},
			{what: "AWS Load Balancer Controller", class: &own,
				read:   []string{balancer + "scheme", balancer + "listener-attributes.TCP-80"},
				unread: []string{balancer + "extra-security-groups", ingressAnnotations + "scheme"}},
			{what: "two protocols of a port", class: &own, ports: both, other: "drops one protocol"},
			{what: "two protocols of a port, by annotation", ports: both, other: "drops one protocol",
				read: []string{balancer + "type=nlb-ip"}},
			{what: "two protocols in one listener", class: &own, ports: both,
				read: []string{balancer + "enable-tcp-udp-listener=true"}},
			{what: "two protocols of two ports", class: &own, ports: apart},
			{what: "Ingress", ingress: true,
				read:   []string{ingressAnnotations + "scheme", ingressAnnotations + "actions.ssl-redirect"},
				unread: []string{ingressAnnotations + "schema", balancer + "internal"}},
			{what: "Ingress with a firewall", ingress: true, read: []string{ingressAnnotations + "scheme"},
				unread: []string{
					ingressAnnotations + "wafv2-acl-arn", ingressAnnotations + "shield-advanced-protection",
				}},
			{what: "Ingress without annotations", ingress: true},
		}},
		{[]map[string]values{openstackLink}, nil, []annotated{
			{what: "OpenStack", ports: both,
				read: []string{
					serviceAnnotations + "openstack-internal-load-balancer", "loadbalancer.openstack.org/class",
				},
				unread: []string{
					serviceAnnotations + "openstack-internal", balancer + "type=external", balancer + "internal",
					ingressAnnotations + "scheme",
				}},
			{what: "OpenStack without annotations", ports: both},
		}},
	} {
		in := inputFor(t, addons)
		for _, link := range deployed.links {
			in = in.linked(link)
		}
		rendered := mustRender(t, addons, in)
		rendered[policy] = ofController
		applyRendered(t, cluster, rendered, append(
			deployed.names, "07-service-accounts.yml", "37-load-balancer-annotations.yml",
		)...)
		for _, test := range deployed.cases {
			meta := metav1.ObjectMeta{GenerateName: "web-", Annotations: map[string]string{}}
			for _, annotation := range slices.Concat(test.read, test.unread) {
				name, value, _ := strings.Cut(annotation, "=")
				meta.Annotations[name] = cmp.Or(value, "x")
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
				spec := corev1.ServiceSpec{
					Type: cmp.Or(test.kind, corev1.ServiceTypeLoadBalancer), LoadBalancerClass: test.class,
					Ports: test.ports,
				}
				if test.ports == nil {
					spec.Ports = []corev1.ServicePort{{Port: 80}}
				}
				_, err = client.CoreV1().Services("default").Create(
					t.Context(), &corev1.Service{ObjectMeta: meta, Spec: spec}, metav1.CreateOptions{},
				)
			}
			if err != nil {
				t.Errorf("%s: %v", test.what, err)
				continue
			}
			said := warnings.take()
			if (said != "") != (test.unread != nil || test.other != "") || !strings.Contains(said, test.other) {
				t.Errorf("%s: the warnings are %q, want %q", test.what, said, test.other)
			}
			for _, annotation := range test.read {
				if name, _, _ := strings.Cut(annotation, "="); strings.Contains(said, name) {
					t.Errorf("%s: a warning of %s, which is read:\n%s", test.what, name, said)
				}
			}
			for _, annotation := range test.unread {
				if name, _, _ := strings.Cut(annotation, "="); !strings.Contains(said, name) {
					t.Errorf("%s: no warning of %s:\n%s", test.what, name, said)
				}
			}
		}
	}
}

// sourceOfAnnotations is where a controller declares the annotations that it reads.
type sourceOfAnnotations struct {
	component, module, files string
	declared                 *regexp.Regexp
}

var (
	sourceOnAWS = sourceOfAnnotations{
		"cloud-provider-aws", "k8s.io/cloud-provider-aws", "pkg/providers/v1/*.go",
		regexp.MustCompile(`"(service\.beta\.kubernetes\.io/aws-load-balancer-[a-z0-9-]+)"`),
	}
	sourceOnOpenStack = sourceOfAnnotations{
		"cloud-provider-openstack", "k8s.io/cloud-provider-openstack", "pkg/openstack/loadbalancer.go",
		regexp.MustCompile(`"((?:service\.beta\.kubernetes\.io|loadbalancer\.openstack\.org)/[a-z-]+)"`),
	}
)

// annotations are those that the source declares, and the one that a library reads.
func (s sourceOfAnnotations) annotations(t *testing.T) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(moduleDir(t, s.component, s.module), s.files))
	if err != nil || len(files) == 0 {
		kubetest.WithoutSource(t, s.component)
	}
	names := map[string]bool{serviceAnnotations + "load-balancer-source-ranges": true}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range s.declared.FindAllStringSubmatch(string(content), -1) {
			names[match[1]] = true
		}
	}
	return names
}

// TestReadAnnotations compares the annotations in the policies with those in the source of the controllers.
func TestReadAnnotations(t *testing.T) {
	t.Parallel()
	const addons, controller = "kubernetes-addons", "aws-load-balancer-controller"
	const policyOfCloud = "config/manifests/37-load-balancer-annotations.yml"
	quoted := regexp.MustCompile(`"([a-z0-9.-]+)"`)
	for _, c := range []struct {
		source sourceOfAnnotations
		policy []byte
	}{
		{sourceOnAWS, mustRender(t, addons, inputFor(t, addons).linked(awsLink))[policyOfCloud]},
		{sourceOnOpenStack, mustRender(t, addons, inputFor(t, addons).linked(openstackLink))[policyOfCloud]},
		{
			sourceOfAnnotations{
				controller, "sigs.k8s.io/" + controller, "pkg/annotations/constants.go",
				regexp.MustCompile(`(?:Ingress(?:LB)?Suffix|SvcLBSuffix)\w+ += "([^"]+)"`),
			},
			mustRender(t, controller, inputFor(t, controller))["config/manifests/27-annotations.yml"],
		},
	} {
		want := map[string]bool{}
		for name := range c.source.annotations(t) {
			if !strings.HasPrefix(name, "loadbalancer.openstack.org/") {
				want[strings.TrimPrefix(name, serviceAnnotations)] = true
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
			t.Errorf("%s: the policy has\n%q\nand the source\n%q", c.source.component,
				slices.Sorted(maps.Keys(read)), slices.Sorted(maps.Keys(want)))
		}
	}
}

// TestChangedAnnotations: the tables of what can be changed afterwards have each annotation of the source, once.
func TestChangedAnnotations(t *testing.T) {
	t.Parallel()
	quoted := regexp.MustCompile("`([^`]+)`")
	for _, page := range []struct {
		name, prefix string
		source       sourceOfAnnotations
	}{
		{"load-balancers.md", serviceAnnotations + "aws-load-balancer-", sourceOnAWS},
		{"openstack.md", "loadbalancer.openstack.org/", sourceOnOpenStack},
	} {
		content, err := os.ReadFile(filepath.Join(root, "docs", page.name))
		if err != nil {
			t.Fatal(err)
		}
		_, section, _ := strings.Cut(string(content), "can be changed afterwards\n")
		section, _, _ = strings.Cut(section, "\n## ")
		rows := map[string]bool{}
		for line := range strings.Lines(section) {
			if !strings.HasPrefix(line, "| `") {
				continue
			}
			for _, match := range quoted.FindAllStringSubmatch(strings.Split(line, "|")[1], -1) {
				name := match[1]
				if !strings.Contains(name, "/") {
					name = page.prefix + name
				}
				if rows[name] {
					t.Errorf("docs/%s: %s has two rows", page.name, name)
				}
				rows[name] = true
			}
		}
		if want := page.source.annotations(t); !maps.Equal(rows, want) {
			t.Errorf("docs/%s has rows for\n%q\nand the source\n%q", page.name, slices.Sorted(maps.Keys(rows)),
				slices.Sorted(maps.Keys(want)))
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
