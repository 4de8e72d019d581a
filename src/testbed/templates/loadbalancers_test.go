package templates

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	cloudaws "kubernetes-release/cloud/aws"
	"kubernetes-release/control/addons"
	"kubernetes-release/control/addons/addonstest"
	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
	"kubernetes-release/preflight"
	"kubernetes-release/testbed/awssim"
	"kubernetes-release/testbed/awssim/store"
	"kubernetes-release/testbed/selfsigned"
)

const balancerNode = "i-0000000000000c001"

// balancers is the AWS Load Balancer Controller as the job runs it, beside the cloud controller manager, against a real
// API server and the simulator, which enforces the generated policy.
type balancers struct {
	*testing.T
	*kubetest.Cluster
	sim     *awssim.Simulator
	client  kubernetes.Interface
	ports   map[string]string
	dir     string
	environ []string
	trusted *x509.CertPool // the certificates that ACM has
}

// balancerPorts are those of the controller on a VM.
var balancerPorts = regexp.MustCompile(`\b331[012]\b`)

// startBalancers starts what the controller requires, with its files as the ops-files elsewhere make them.
func startBalancers(t *testing.T, opsFiles ...string) *balancers {
	t.Helper()
	components := os.Getenv("COMPONENTS_DIR")
	if components == "" {
		t.Skip("COMPONENTS_DIR is not set: no real AWS Load Balancer Controller")
	}
	b := &balancers{T: t, dir: t.TempDir(), ports: map[string]string{}, trusted: x509.NewCertPool()}
	for _, port := range []string{"3310", "3311", "3312"} {
		b.ports[port] = fmt.Sprint(freePort(t))
	}

	world := awssim.NewLabWorld(awssim.LabOptions{Network: netip.MustParsePrefix("127.0.0.0/16"), Cluster: "prod"})
	world.Subnets[0].CIDR = netip.MustParsePrefix("127.0.0.0/20")
	world.Settings.HealthCheckInterval = store.Duration(100 * time.Millisecond)
	world.Instances = []store.Instance{{
		ID: balancerNode, Subnet: awssim.LabNodeSubnet(1), Address: netip.MustParseAddr("127.0.0.1"),
		InstanceProfile: "kubernetes-control", SecurityGroups: []string{awssim.LabSecurityGroup},
		Tags: store.Tags{"kubernetes.io/cluster/prod": "owned"},
	}}
	policy, err := cloudaws.NewPolicy(cloudaws.PolicyOptions{
		Role: preflight.Control, Cluster: "prod", VPC: awssim.LabVPC, LoadBalancerController: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	document, err := policy.JSON()
	if err != nil {
		t.Fatal(err)
	}
	if err := world.SetPolicy("kubernetes-control", document); err != nil {
		t.Fatal(err)
	}
	if b.sim, err = awssim.New(world, awssim.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.sim.Close() })
	b.certificates("shop.example", "api.example")
	serve := func(server *http.Server) string {
		listener, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = server.Serve(listener) }()
		t.Cleanup(func() { _ = server.Close() })
		return "http://" + listener.Addr().String()
	}
	b.environ = []string{
		"AWS_ENDPOINT_URL=" + serve(b.sim.APIServer()), "HOME=" + b.dir,
		"AWS_EC2_METADATA_SERVICE_ENDPOINT=" + serve(b.sim.MetadataServer()),
	}

	b.Cluster = kubetest.Start(t, kubetest.Options{})
	b.client = b.Admin()
	files := map[string][]byte{}
	planned := plan(t, deployment{
		ops: []string{"aws.yml", "enable-aws-load-balancer-controller.yml"}, files: opsFiles,
	})
	control := group(t, planned, "control")
	for _, job := range control.Instances[0].Rendered {
		if job.Name == "aws-load-balancer-controller" {
			maps.Copy(files, job.Files)
		}
	}
	for name, content := range files {
		// Once, because a free port can have the digits of another one of these.
		content = balancerPorts.ReplaceAllFunc(content, func(port []byte) []byte {
			return []byte(b.ports[string(port)])
		})
		content = bytes.ReplaceAll(
			content, []byte("/var/vcap/jobs/aws-load-balancer-controller/config/kubeconfig.json"),
			[]byte(b.Kubeconfig("system:aws-load-balancer-controller", "system:authenticated")),
		)
		files[name] = bytes.ReplaceAll(
			content, []byte("/var/vcap/jobs/aws-load-balancer-controller"), []byte(b.dir),
		)
	}
	writeAll(t, b.dir, files)
	objects, err := addons.Load(b.manifests(planned), addons.Images{})
	if err != nil {
		t.Fatal(err)
	}
	addonstest.Apply(t, b.Cluster, addons.Options{Objects: objects})

	kubeconfig := b.Kubeconfig("ccm", "system:masters")
	b.run(
		filepath.Join(components, "cloud-provider-aws/bin/aws-cloud-controller-manager"), "--cloud-provider=aws",
		"--kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig,
		"--authorization-kubeconfig="+kubeconfig, "--leader-elect=false", "--cluster-name=prod", "--secure-port=0",
		"--configure-cloud-routes=false", "--v=2",
	)
	b.node()
	return b
}

// certificates imports certificates for hosts into ACM.
func (b *balancers) certificates(hosts ...string) {
	b.Helper()
	for _, host := range hosts {
		chain, key, err := selfsigned.New("test", host)
		if err != nil || !b.trusted.AppendCertsFromPEM(chain) {
			b.Fatal(err)
		}
		if err := b.sim.Update(func(w *store.World) error {
			w.Certificates = append(w.Certificates, store.Certificate{
				ARN: "arn:aws:acm:us-east-1:123456789012:certificate/" + host, Domains: []string{host},
				Chain: string(chain), Key: string(key),
			})
			return nil
		}); err != nil {
			b.Fatal(err)
		}
	}
}

// startController starts the controller; stop stops it before the test ends.
func (b *balancers) startController() (stop func()) {
	b.Helper()
	content, err := os.ReadFile(filepath.Join(b.dir, "config/flags.json"))
	if err != nil {
		b.Fatal(err)
	}
	components := os.Getenv("COMPONENTS_DIR")
	flags := decode[flagsFile](b.T, content)
	flags.Flags["targetgroupbinding-requeue-duration"] = "1s"
	stop = b.run(
		filepath.Join(components, "aws-load-balancer-controller/bin/aws-load-balancer-controller"),
		flags.commandLine()...,
	)
	eventually.Succeeds(b.T, time.Minute, "the controller's webhooks", func() error {
		response, err := http.Get("http://127.0.0.1:" + b.ports["3311"] + "/readyz")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("readyz: %s", response.Status)
		}
		return nil
	})
	return stop
}

func (b *balancers) run(program string, arguments ...string) (stop func()) {
	b.Helper()
	command := exec.Command(program, arguments...)
	command.Env = b.environ
	log, stop := kubetest.StartProgram(b.T, command)
	b.Cleanup(func() {
		stop()
		text, err := os.ReadFile(log)
		if err != nil {
			b.Error(err)
		}
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "forbidden") && !strings.Contains(line, finalizerPolicy) {
				b.Errorf("%s lacks a permission: %s", filepath.Base(program), line)
			}
		}
	})
	return stop
}

// node creates the Node of the instance, as a kubelet does.
func (b *balancers) node() {
	b.Helper()
	nodes := b.client.CoreV1().Nodes()
	kubetest.CreateUninitializedNode(b.T, b.client, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-a"},
		Spec:       corev1.NodeSpec{ProviderID: "aws:///us-east-1a/" + balancerNode},
	})
	eventually.Succeeds(b.T, time.Minute, "node is initialized", func() error {
		n, err := nodes.Get(b.Context(), "node-a", metav1.GetOptions{})
		if err == nil && slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
			return strings.HasPrefix(t.Key, "node.cloudprovider")
		}) {
			err = fmt.Errorf("taints %v", n.Spec.Taints)
		}
		return err
	})
}

// service creates a Service whose node port answers with its name.
func (b *balancers) service(name string, change func(*corev1.Service)) {
	b.Helper()
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, name)
	}))
	b.Cleanup(backend.Close)
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, Selector: map[string]string{"app": name},
			Ports: []corev1.ServicePort{{Port: 8080, TargetPort: intstr.FromInt32(80)}},
		},
	}
	if change != nil {
		change(service)
	}
	service, err := b.client.CoreV1().Services("default").Create(b.Context(), service, metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	port := fmt.Sprint(service.Spec.Ports[0].NodePort)
	listener, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		b.Fatal(err)
	}
	server := &http.Server{Handler: backend.Config.Handler, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	b.Cleanup(func() { _ = server.Close() })
}

// get sends a request through a load balancer.
func (b *balancers) get(address netip.Addr, port int, host, path string) (int, string, error) {
	ctx, cancel := context.WithTimeout(b.Context(), 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(
		ctx, http.MethodGet, fmt.Sprintf("http://%s:%d%s", address, port, path), nil,
	)
	if err != nil {
		return 0, "", err
	}
	request.Host, request.Close = host, true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

// securely sends a request through a listener for HTTPS, and verifies its certificate.
func (b *balancers) securely(address netip.Addr, host, path string) (string, error) {
	ctx, cancel := context.WithTimeout(b.Context(), 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+host+path, nil)
	if err != nil {
		return "", err
	}
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: b.trusted},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort(address.String(), "443"))
		},
	}}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

// wants waits until a request through a load balancer is answered so.
func (b *balancers) wants(address netip.Addr, port int, host, path string, status int, body string) {
	b.Helper()
	eventually.Succeeds(b.T, 30*time.Second, "answer to http://"+host+path, func() error {
		gotStatus, gotBody, err := b.get(address, port, host, path)
		if err == nil && (gotStatus != status || body != "" && gotBody != body) {
			err = fmt.Errorf("%d %q, want %d %q", gotStatus, gotBody, status, body)
		}
		return err
	})
}

// empty waits until nothing of load balancers is left in the account.
func (b *balancers) empty() {
	b.Helper()
	eventually.Succeeds(b.T, 2*time.Minute, "nothing left in the account", func() error {
		w := b.sim.World()
		left := len(w.ClassicLoadBalancers) + len(w.LoadBalancers) + len(w.TargetGroups) + len(w.Listeners) +
			len(w.ListenerRules)
		group := store.Find(w.SecurityGroups, awssim.LabSecurityGroup)
		if left > 0 || len(w.SecurityGroups) > 1 || len(group.Ingress) > 1 {
			return fmt.Errorf(
				"%d parts of load balancers, %d security groups, and %d rules of the nodes' group", left,
				len(w.SecurityGroups), len(group.Ingress),
			)
		}
		return nil
	})
}

// hostOf waits for the host name in the status of an object.
func (b *balancers) hostOf(what string, read func() (string, error)) []netip.Addr {
	b.Helper()
	var host string
	eventually.Succeeds(b.T, time.Minute, "host name of "+what, func() (err error) {
		if host, err = read(); err == nil && host == "" {
			err = errors.New("none yet")
		}
		return err
	})
	addresses := b.sim.Lookup(host)
	if len(addresses) != 3 {
		b.Fatalf("%s resolves to %v, want an address in each zone", host, addresses)
	}
	return addresses
}

func (b *balancers) serviceHost(name string) func() (string, error) {
	return func() (string, error) {
		s, err := b.client.CoreV1().Services("default").Get(b.Context(), name, metav1.GetOptions{})
		if err == nil && len(s.Status.LoadBalancer.Ingress) == 0 {
			err = fmt.Errorf("none yet, finalizers %q, %s", s.Finalizers, b.events(name))
		}
		if err != nil {
			return "", err
		}
		return s.Status.LoadBalancer.Ingress[0].Hostname, nil
	}
}

// events describes the Events of the objects of that name.
func (b *balancers) events(name string) string {
	list, err := b.client.CoreV1().Events("default").List(
		b.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + name},
	)
	if err != nil {
		return fmt.Sprintf("Events: %v", err)
	}
	text := "Events:"
	for _, e := range list.Items {
		text += fmt.Sprintf("\n%s %dx %s: %s", e.LastTimestamp.Format(time.TimeOnly), e.Count, e.Reason, e.Message)
	}
	return text
}

// released waits until no controller has anything to do for a Service any more, as docs/load-balancers.md describes it.
func (b *balancers) released(name string) {
	b.Helper()
	eventually.Succeeds(b, time.Minute, "release of Service "+name, func() error {
		s, err := b.client.CoreV1().Services("default").Get(b.Context(), name, metav1.GetOptions{})
		if err == nil && len(s.Finalizers)+len(s.Status.LoadBalancer.Ingress) > 0 {
			err = fmt.Errorf("finalizers %q, addresses %v", s.Finalizers, s.Status.LoadBalancer.Ingress)
		}
		return err
	})
}

func (b *balancers) ingressHost(name string) func() (string, error) {
	return func() (string, error) {
		i, err := b.client.NetworkingV1().Ingresses("default").Get(b.Context(), name, metav1.GetOptions{})
		if err == nil && len(i.Status.LoadBalancer.Ingress) == 0 {
			err = fmt.Errorf("none yet, %s", b.events(name))
		}
		if err != nil {
			return "", err
		}
		return i.Status.LoadBalancer.Ingress[0].Hostname, nil
	}
}

func (b *balancers) ingress(name, host string, paths map[string]string) *networkingv1.Ingress {
	class, prefix := "alb", networkingv1.PathTypePrefix
	rule := networkingv1.IngressRule{Host: host}
	rule.HTTP = &networkingv1.HTTPIngressRuleValue{}
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		rule.HTTP.Paths = append(rule.HTTP.Paths, networkingv1.HTTPIngressPath{
			Path: path, PathType: &prefix,
			Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
				Name: paths[path], Port: networkingv1.ServiceBackendPort{Number: 8080},
			}},
		})
	}
	return &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}},
		Spec:       networkingv1.IngressSpec{IngressClassName: &class, Rules: []networkingv1.IngressRule{rule}},
	}
}

// checkCalls fails if the policy denied a call, or the simulator does not have it.
func (b *balancers) checkCalls() {
	b.Helper()
	for _, c := range b.sim.Calls("") {
		switch c.Code {
		case "UnauthorizedOperation", "AccessDenied", "AccessDeniedException":
			b.Errorf("the generated policy denies %s %s %v", c.Service, c.Action, c.Params)
		case "InvalidAction", "UnknownParameter", "ValidationError":
			b.Errorf("the simulator does not have %s %s %v: %s", c.Service, c.Action, c.Params, c.Code)
		}
	}
}

// TestLoadBalancerController: an Ingress gets an application load balancer that routes by host and path, a Service of
// the controller's class a network load balancer, one without class a classic one of the cloud controller, and moves to
// the other and back; all are deleted again, and nothing remains.
func TestLoadBalancerController(t *testing.T) {
	b := startBalancers(t)
	stop := b.startController()
	services, ingresses := b.client.CoreV1().Services("default"), b.client.NetworkingV1().Ingresses("default")

	b.service("web", nil)
	b.service("api", nil)
	if _, err := ingresses.Create(
		t.Context(), b.ingress("shop", "shop.example", map[string]string{"/": "web", "/api": "api"}),
		metav1.CreateOptions{},
	); err != nil {
		t.Fatal(err)
	}
	shop := b.hostOf("the Ingress", b.ingressHost("shop"))
	b.wants(shop[0], 80, "shop.example", "/", http.StatusOK, "web")
	b.wants(shop[1], 80, "shop.example", "/api/orders", http.StatusOK, "api")
	b.wants(shop[2], 80, "other.example", "/", http.StatusNotFound, "")
	w := b.sim.World()
	if n := len(w.LoadBalancers); n != 1 || !w.LoadBalancers[0].Application() {
		t.Errorf("%d load balancers, want one for applications", n)
	}
	for _, g := range w.TargetGroups {
		if g.TargetType != "instance" || len(g.Targets) != 1 || g.Targets[0].ID != balancerNode {
			t.Errorf("targets of %s: %s %v", g.Name, g.TargetType, g.Targets)
		}
	}

	class := "service.k8s.aws/nlb"
	b.service("tcp", func(s *corev1.Service) {
		s.Spec.Type, s.Spec.LoadBalancerClass = corev1.ServiceTypeLoadBalancer, &class
	})
	tcp := b.hostOf("the Service with a class", b.serviceHost("tcp"))
	b.wants(tcp[0], 8080, "tcp.example", "/", http.StatusOK, "tcp")
	b.service("classic", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeLoadBalancer })
	classic := b.hostOf("the Service without a class", b.serviceHost("classic"))
	b.wants(classic[0], 8080, "classic.example", "/", http.StatusOK, "classic")
	w = b.sim.World()
	if len(w.LoadBalancers) != 2 || len(w.ClassicLoadBalancers) != 1 {
		t.Errorf(
			"%d load balancers and %d classic ones, want one of each controller and the Ingress's",
			len(w.LoadBalancers), len(w.ClassicLoadBalancers),
		)
	}
	for _, l := range w.LoadBalancers {
		if l.Tags["elbv2.k8s.aws/cluster"] != "prod" || l.Tags["kubernetes.io/cluster/prod"] != "owned" {
			t.Errorf("tags of %s: %v", l.Name, l.Tags)
		}
	}

	// The webhook: a mistake is refused, and another controller's Ingress is not this one's business.
	wrong := b.ingress("wrong", "wrong.example", map[string]string{"/": "web"})
	missing := "missing"
	wrong.Spec.IngressClassName = &missing
	if _, err := ingresses.Create(t.Context(), wrong, metav1.CreateOptions{}); err == nil ||
		!strings.Contains(err.Error(), "vingress.elbv2.k8s.aws") {
		t.Errorf("an Ingress of a class that does not exist: %v, want the webhook's refusal", err)
	}

	// A Service moves from the cloud controller to this one.
	change := func(set func(*corev1.ServiceSpec)) {
		t.Helper()
		eventually.Succeeds(t, time.Minute, "change of the Service", func() error {
			s, err := services.Get(t.Context(), "classic", metav1.GetOptions{})
			if err == nil {
				set(&s.Spec)
				_, err = services.Update(t.Context(), s, metav1.UpdateOptions{})
			}
			return err
		})
	}
	moving, err := services.Get(t.Context(), "classic", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	moving.Spec.LoadBalancerClass = &class
	if _, err := services.Update(t.Context(), moving, metav1.UpdateOptions{}); err == nil {
		t.Error("the class of a Service can be changed at once: docs/load-balancers.md describes a longer way")
	}
	change(func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeNodePort })
	b.released("classic")
	if n := len(b.sim.World().ClassicLoadBalancers); n > 0 {
		t.Errorf("%d classic load balancers are left", n)
	}
	change(func(s *corev1.ServiceSpec) { s.Type, s.LoadBalancerClass = corev1.ServiceTypeLoadBalancer, &class })
	moved := b.hostOf("the moved Service", b.serviceHost("classic"))
	b.wants(moved[0], 8080, "classic.example", "/", http.StatusOK, "classic")
	w = b.sim.World()
	if n, classic := len(w.LoadBalancers), len(w.ClassicLoadBalancers); n != 3 || classic != 0 {
		t.Errorf("%d load balancers and %d classic ones, want 3 and 0", n, classic)
	}

	// And back.
	change(func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeNodePort })
	b.released("classic")
	if n := len(b.sim.World().LoadBalancers); n != 2 {
		t.Errorf("%d load balancers, want 2", n)
	}
	change(func(s *corev1.ServiceSpec) { s.Type, s.LoadBalancerClass = corev1.ServiceTypeLoadBalancer, nil })
	back := b.hostOf("the Service that moved back", b.serviceHost("classic"))
	b.wants(back[0], 8080, "classic.example", "/", http.StatusOK, "classic")
	if n := len(b.sim.World().ClassicLoadBalancers); n != 1 {
		t.Errorf("%d classic load balancers, want 1", n)
	}
	b.checkFinalizers("classic")
	b.checkAnnotated()

	if err := ingresses.Delete(t.Context(), "shop", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"tcp", "classic", "annotated", "web", "api"} {
		if err := services.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	b.empty()
	b.checkCalls()

	// Without the controller, objects that it shares with others can be written.
	stop()
	if _, err := ingresses.Create(t.Context(), wrong, metav1.CreateOptions{}); err != nil {
		t.Errorf("without the controller an Ingress cannot be created: %v", err)
	}
}

// TestCertificatesOfIngresses: the controller finds the certificates of an Ingress by its hosts, the listener serves
// each host's own, and redirects from HTTP. A host without a certificate is named in an Event of its Ingress.
func TestCertificatesOfIngresses(t *testing.T) {
	b := startBalancers(t)
	b.startController()
	services, ingresses := b.client.CoreV1().Services("default"), b.client.NetworkingV1().Ingresses("default")
	secure := func(i *networkingv1.Ingress) *networkingv1.Ingress {
		i.Annotations["alb.ingress.kubernetes.io/listen-ports"] = `[{"HTTP": 80}, {"HTTPS": 443}]`
		i.Annotations["alb.ingress.kubernetes.io/ssl-redirect"] = "443"
		return i
	}
	b.service("web", nil)
	b.service("api", nil)
	shop := secure(b.ingress("shop", "shop.example", map[string]string{"/": "web"}))
	shop.Spec.Rules = append(shop.Spec.Rules, b.ingress("", "api.example", map[string]string{"/": "api"}).Spec.Rules...)
	without := secure(b.ingress("without", "other.example", map[string]string{"/": "web"}))
	for _, i := range []*networkingv1.Ingress{shop, without} {
		if _, err := ingresses.Create(t.Context(), i, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	addresses := b.hostOf("the Ingress", b.ingressHost("shop"))
	for host, want := range map[string]string{"shop.example": "web", "api.example": "api"} {
		eventually.Succeeds(t, 30*time.Second, "https://"+host, func() error {
			got, err := b.securely(addresses[0], host, "/")
			if err == nil && got != want {
				err = fmt.Errorf("the answer is %q, want %q", got, want)
			}
			return err
		})
	}
	request, err := http.NewRequestWithContext(
		t.Context(), http.MethodGet, "http://"+addresses[1].String()+"/a?b=c", nil,
	)
	if err != nil {
		t.Fatal(err)
	}
	request.Host = "shop.example"
	response, err := http.DefaultTransport.RoundTrip(request) // follows no redirect
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if got := response.Header.Get("Location"); response.StatusCode != http.StatusMovedPermanently ||
		got != "https://shop.example:443/a?b=c" {
		t.Errorf("HTTP is answered with %s to %q", response.Status, got)
	}

	eventually.Succeeds(t, time.Minute, "Event of the Ingress without a certificate", func() error {
		events, err := b.client.CoreV1().Events("default").List(
			t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=without"},
		)
		if err != nil {
			return err
		}
		for _, event := range events.Items {
			if strings.Contains(event.Message, "no certificate found for host: other.example") {
				return nil
			}
		}
		return fmt.Errorf("%d others", len(events.Items))
	})

	for _, name := range []string{"shop", "without"} {
		if err := ingresses.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"web", "api"} {
		if err := services.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	b.empty()
	b.checkCalls()
}
