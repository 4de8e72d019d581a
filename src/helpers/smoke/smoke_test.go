package smoke

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"kubernetes-release/control/addons"
	"kubernetes-release/control/addons/addonstest"
	"kubernetes-release/internal/duration"
	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
)

// world simulates everything that a cluster has in addition to its control plane: it marks pods as running, creates and
// deletes load balancers, and answers for the pods. Scheduling, the admission of pods, Services' addresses, finalizers
// and the deletion of namespaces are those of a real control plane.
type world struct {
	client kubernetes.Interface
	// dynamic is the client for snapshots; without it the cluster has no storage.
	dynamic dynamic.Interface
	// gateways is the client for Gateways; without it the cluster has none.
	gateways dynamic.Interface
	// broken makes one thing fail: "pull", "dns", "load balancer", "exec", "proxy", "provisioning", "slow", "data",
	// "restore", "ingress", "gateway", "token".
	broken string
	// prefix begins the names of the namespaces that this world simulates.
	prefix string

	mu sync.Mutex
	// balancers are the Services that have a load balancer.
	balancers map[string]bool
	// disks has the content of each volume and snapshot of the cloud.
	disks map[string]*string
	// creating are the volumes whose creation has started, by the uid of their claims.
	creating map[types.UID]*pending
}

func newWorld(client kubernetes.Interface, broken, prefix string) *world {
	return &world{
		client:    client,
		broken:    broken,
		prefix:    prefix,
		balancers: map[string]bool{},
		disks:     map[string]*string{},
		creating:  map[types.UID]*pending{},
	}
}

const lbFinalizer = "service.kubernetes.io/load-balancer-cleanup"

func (w *world) run(ctx context.Context) {
	for ctx.Err() == nil {
		w.kubelet(ctx)
		w.cloud(ctx)
		w.ingresses(ctx)
		if w.gateways != nil {
			w.serveGateways(ctx)
		}
		if w.dynamic != nil {
			w.storage(ctx)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (w *world) kubelet(ctx context.Context) {
	pods, err := w.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	for n, pod := range pods.Items {
		switch {
		case !strings.HasPrefix(pod.Namespace, w.prefix):
		case pod.DeletionTimestamp != nil:
			zero := int64(0)
			_ = w.client.CoreV1().
				Pods(pod.Namespace).
				Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &zero})
		case pod.Spec.NodeName == "":
			if node := w.schedule(ctx, &pod); node != "" {
				_ = w.client.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
					ObjectMeta: metav1.ObjectMeta{
						Name: pod.Name,
					},
					Target: corev1.ObjectReference{Kind: "Node", Name: node},
				}, metav1.CreateOptions{})
			}
		case pod.Status.PodIP == "" && w.broken == "pull":
			pod.Status.Phase = corev1.PodPending
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: appName, State: corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such host"}}}}
			_, _ = w.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, &pod, metav1.UpdateOptions{})
		case pod.Status.PodIP == "":
			pod.Status.Phase = corev1.PodRunning
			pod.Status.PodIP = fmt.Sprintf("10.244.0.%d", n+1)
			pod.Status.PodIPs = []corev1.PodIP{{IP: pod.Status.PodIP}}
			pod.Status.Conditions = append(
				pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue},
			)
			_, _ = w.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, &pod, metav1.UpdateOptions{})
		}
	}
}

func (w *world) cloud(ctx context.Context) {
	services, err := w.client.CoreV1().Services("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	for _, service := range services.Items {
		if !strings.HasPrefix(service.Namespace, w.prefix) || service.Spec.Type != corev1.ServiceTypeLoadBalancer ||
			w.broken == "load balancer" && service.DeletionTimestamp == nil {
			continue
		}
		api, key := w.client.CoreV1().Services(service.Namespace), service.Name
		switch {
		case service.DeletionTimestamp != nil:
			_, _ = api.Patch(
				ctx,
				service.Name,
				types.MergePatchType,
				[]byte(`{"metadata": {"finalizers": null}}`),
				metav1.PatchOptions{},
			)
			w.set(key, false)
		case len(service.Finalizers) == 0:
			_, _ = api.Patch(
				ctx,
				service.Name,
				types.MergePatchType,
				[]byte(`{"metadata": {"finalizers": ["`+lbFinalizer+`"]}}`),
				metav1.PatchOptions{},
			)
			w.set(key, true)
		case len(service.Status.LoadBalancer.Ingress) == 0:
			service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{
				{Hostname: service.Name + ".elb.example"},
			}
			_, _ = api.UpdateStatus(ctx, &service, metav1.UpdateOptions{})
		}
	}
}

// ingresses does what the AWS Load Balancer Controller does.
func (w *world) ingresses(ctx context.Context) {
	list, err := w.client.NetworkingV1().Ingresses("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	for _, item := range list.Items {
		api, key := w.client.NetworkingV1().Ingresses(item.Namespace), "ingress "+item.Name
		finalizers := func(value string) {
			_, _ = api.Patch(ctx, item.Name, types.MergePatchType, []byte(
				`{"metadata": {"finalizers": `+value+`}}`,
			), metav1.PatchOptions{})
		}
		switch {
		case !strings.HasPrefix(item.Namespace, w.prefix), *item.Spec.IngressClassName != "alb",
			w.broken == "ingress" && item.DeletionTimestamp == nil:
		case item.DeletionTimestamp != nil:
			finalizers("null")
			w.set(key, false)
		case len(item.Finalizers) == 0:
			finalizers(`["ingress.k8s.aws/resources"]`)
			w.set(key, true)
		case len(item.Status.LoadBalancer.Ingress) == 0:
			item.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{Hostname: "alb.example"}}
			_, _ = api.UpdateStatus(ctx, &item, metav1.UpdateOptions{})
		}
	}
}

// serveGateways does what the controller does with Gateways that have a route.
func (w *world) serveGateways(ctx context.Context) {
	list, err := w.gateways.Resource(gateways).List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	for _, item := range list.Items {
		api, key := w.gateways.Resource(gateways).Namespace(item.GetNamespace()), "gateway "+item.GetName()
		class, _, _ := unstructured.NestedString(item.Object, "spec", "gatewayClassName")
		patch := func(content string, subresources ...string) {
			_, _ = api.Patch(
				ctx, item.GetName(), types.MergePatchType, []byte(content), metav1.PatchOptions{}, subresources...,
			)
		}
		switch {
		case !strings.HasPrefix(item.GetNamespace(), w.prefix), class != "alb",
			w.broken == "gateway" && item.GetDeletionTimestamp() == nil:
		case item.GetDeletionTimestamp() != nil:
			patch(`{"metadata": {"finalizers": null}}`)
			w.set(key, false)
		case len(item.GetFinalizers()) == 0:
			patch(`{"metadata": {"finalizers": ["gateway.k8s.aws/alb"]}}`)
			w.set(key, true)
		case w.routed(ctx, item.GetNamespace(), item.GetName()):
			patch(`{"status": {"addresses": [{"type": "Hostname", "value": "gateway.example"}]}}`, "status")
		}
	}
}

// routed reports whether a route of the Gateway forwards to a Service of type NodePort.
func (w *world) routed(ctx context.Context, namespace, gateway string) bool {
	list, err := w.gateways.Resource(routes).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return false
	}
	for _, item := range list.Items {
		text, err := item.MarshalJSON()
		if err == nil && strings.Contains(string(text), `"parentRefs":[{"name":"`+gateway+`"}]`) &&
			strings.Contains(string(text), `"backendRefs":[{"name":"`+nodePortName+`","port":80}]`) {
			return true
		}
	}
	return false
}

// roleToken is what a pod of a ServiceAccount with a role finds.
func (w *world) roleToken(namespace string) string {
	issuer := worldIssuer
	if w.broken == "token" {
		issuer = "https://kubernetes.default.svc"
	}
	payload := fmt.Sprintf(
		`{"iss": %q, "sub": "system:serviceaccount:%s:roled", "aud": ["sts.amazonaws.com"]}`, issuer, namespace,
	)
	return "header." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + ".signature\n"
}

func (w *world) set(key string, exists bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if exists {
		w.balancers[key] = true
	} else {
		delete(w.balancers, key)
	}
}

// exec returns what the test server would print in a pod.
func (w *world) exec(ctx context.Context, namespace, pod string, command ...string) (string, error) {
	if w.broken == "exec" {
		return "", errors.New("remote error: tls: internal error")
	}
	switch command[1] {
	case "hostname":
		return pod + "\n", nil
	case "resolve":
		return w.resolve(ctx, namespace, command[2])
	case "show":
		if pod == roledName {
			return w.roleToken(namespace), nil
		}
		return w.file(ctx, namespace, pod, command)
	case "store":
		return w.file(ctx, namespace, pod, command)
	}
	host, _, err := net.SplitHostPort(strings.TrimSuffix(strings.TrimPrefix(command[2], "http://"), "/"))
	if err != nil {
		return "", err
	}
	pods, err := w.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	for _, candidate := range pods.Items {
		if candidate.Status.PodIP == host {
			return candidate.Name + "\n", nil
		}
	}
	for _, candidate := range pods.Items {
		if candidate.Labels["app.kubernetes.io/name"] == appName {
			return candidate.Name + "\n", nil
		}
	}
	return "", errors.New("connection refused")
}

func (w *world) resolve(ctx context.Context, namespace, name string) (string, error) {
	if w.broken == "dns" {
		return "", errors.New("lookup " + name + ": no such host")
	}
	in := namespace
	if strings.HasPrefix(name, "kubernetes.default") {
		name, in = "kubernetes", "default"
	}
	service, err := w.client.CoreV1().Services(in).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return service.Spec.ClusterIP + "\n", nil
}

const (
	worldIssuer = "https://issuer.example/prod"
	// rolePolicy stands in for those of the job pod-roles, which are tested in src/testbed/templates.
	rolePolicy = `apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: roles}
spec:
  failurePolicy: Fail
  reinvocationPolicy: IfNeeded
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  matchConditions: [{name: roled, expression: 'object.spec.?serviceAccountName.orValue("") == "roled"'}]
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: >-
        [JSONPatch{op: "add", path: "/spec/volumes", value: [Object.spec.volumes{name: "aws-iam-token",
        emptyDir: Object.spec.volumes.emptyDir{}}]}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: roles}
spec: {policyName: roles}
`
)

// suiteFor returns a run against the world.
func (w *world) suiteFor(output *bytes.Buffer) *suite {
	config := Config{
		Kubeconfig:   "unused",
		Domain:       "cluster.local",
		Timeout:      duration.Duration(10 * time.Minute),
		image:        "example/smoke-test:1",
		LoadBalancer: LoadBalancer{Enabled: true, Types: []string{"classic", "nlb"}},
		Ingress:      true,
		Gateway:      w.gateways != nil,
		PodRoles:     PodRoles{Issuer: worldIssuer},
	}
	s := &suite{
		config:  config,
		client:  w.client,
		dynamic: w.dynamic,
		exec:    w.exec,
		report:  &report{output: output},
		clock:   clock.RealClock{},
		prefix:  w.prefix,
		limits: limits{
			check:        10 * time.Second,
			loadBalancer: 5 * time.Second,
			policy:       time.Second,
			provisioning: 10 * time.Second,
			cleanup:      5 * time.Minute,
		},
	}
	s.logs = func(_ context.Context, _, pod string) (string, error) {
		if w.broken == "exec" {
			return "", errors.New("remote error: tls: internal error")
		}
		return "msg=listening hostname=" + pod, nil
	}
	s.proxy = func(ctx context.Context, _, _ string, _ int) (string, error) {
		if w.broken == "proxy" {
			return "", errors.New("context deadline exceeded")
		}
		return s.fetch(ctx, "")
	}
	s.fetch = func(ctx context.Context, _ string) (string, error) {
		pods, err := s.listPods(ctx)
		if err != nil || len(pods) == 0 {
			return "", errors.Join(err, errors.New("no pod"))
		}
		return pods[0].Name, nil
	}
	return s
}

// nothingLeft fails the test if a namespace of a run or a load balancer exists.
func (w *world) nothingLeft(t *testing.T) {
	t.Helper()
	list, err := w.client.CoreV1().
		Namespaces().
		List(context.Background(), metav1.ListOptions{LabelSelector: runLabel + "=" + w.prefix})
	if err != nil {
		t.Fatal(err)
	}
	for _, namespace := range list.Items {
		t.Errorf("namespace %s was left behind", namespace.Name)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.balancers) > 0 {
		t.Errorf("load balancers were left behind: %v", w.balancers)
	}
	for name := range w.disks {
		t.Errorf("%s was left behind in the cloud", name)
	}
}

func readyNode(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	ctx := context.Background()
	node, err := client.CoreV1().
		Nodes().
		Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	status := []byte(
		`{"status": {"conditions": [{"type": "Ready", "status": "True"}],
			"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}}`,
	)
	if _, err := client.CoreV1().
		Nodes().
		Patch(ctx, node.Name, types.MergePatchType, status, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	// The Node reports its status while the test runs, otherwise kube-controller-manager marks it as not ready.
	go func() {
		for range 600 {
			beat := fmt.Sprintf(
				`{"status": {"conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": %q}]}}`,
				time.Now().UTC().Format(time.RFC3339),
			)
			if _, err := client.CoreV1().Nodes().Patch(
				ctx, node.Name, types.StrategicMergePatchType, []byte(beat), metav1.PatchOptions{}, "status",
			); err != nil {
				return
			}
			time.Sleep(5 * time.Second)
		}
	}()
}

// errandOf applies what jobs permit the errand, and returns its clients.
func errandOf(t *testing.T, cluster *kubetest.Cluster, jobs ...string) (kubernetes.Interface, dynamic.Interface) {
	t.Helper()
	manifests := map[string][]byte{"roles.yml": []byte(rolePolicy)}
	for _, job := range jobs {
		path := filepath.Join("..", "..", "..", "jobs", job, "templates", "manifests", "40-smoke-tests.yml")
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		manifests[job+".yml"] = content
	}
	definitions, err := os.ReadFile("testdata/gateways.yml")
	if err != nil {
		t.Fatal(err)
	}
	manifests["gateways.yml"] = definitions
	addonstest.Apply(t, cluster, addons.Options{Dirs: []string{addonstest.Dir(t, manifests)}})
	untyped, err := dynamic.NewForConfig(cluster.ConfigFor(userName))
	if err != nil {
		t.Fatal(err)
	}
	client := cluster.ClientFor(userName)
	eventually.Succeeds(t, time.Minute, "the errand has its permissions", func() error {
		_, err := client.NetworkingV1().NetworkPolicies("").List(t.Context(), metav1.ListOptions{})
		return err
	})
	return client, untyped
}

func TestAgainstRealControlPlane(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t, kubetest.Options{ControllerManager: true})
	admin := cluster.Admin()
	errand, untyped := errandOf(t, cluster, "kubernetes-addons", "aws-load-balancer-controller", "pod-roles")
	adminDynamic, err := dynamic.NewForConfig(cluster.AdminConfig())
	if err != nil {
		t.Fatal(err)
	}
	readyNode(t, admin, "node-a")
	awaitPods(t, admin)
	var worlds atomic.Int32
	start := func(t *testing.T, broken string) *world {
		t.Parallel() // the cases spend their time waiting for the deletion of namespaces
		w := newWorld(admin, broken, fmt.Sprintf("smoke-tests-%d", worlds.Add(1)))
		w.gateways = adminDynamic
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); w.run(ctx) }()
		t.Cleanup(func() { cancel(); <-done })
		return w
	}
	tests := map[string]struct {
		broken  string
		failed  []string
		message string
	}{
		"healthy": {"", nil, "http://web-lb-nlb.elb.example:80/ answers"},
		"image": {
			"pull",
			[]string{
				"pods", "logs", "exec", "DNS", "pod to pod", "service", "API to service", "node port",
				"load balancer classic", "load balancer nlb", "ingress", "gateway", "pod roles",
			},
			"ImagePullBackOff no such host",
		},
		"DNS": {"dns", []string{"DNS"}, "lookup kubernetes.default"},
		"no load balancer": {
			"load balancer",
			[]string{"load balancer classic", "load balancer nlb"},
			"has no load balancer yet",
		},
		"no application load balancer": {
			"ingress", []string{"ingress"},
			"Ingress web has no load balancer yet; see the log of aws-load-balancer-controller",
		},
		"no load balancer of a Gateway": {
			"gateway", []string{"gateway"},
			"Gateway web has no load balancer yet; see the log of aws-load-balancer-controller",
		},
		"token of another issuer": {
			"token", []string{"pod roles"}, `is of issuer "https://kubernetes.default.svc"`,
		},
		"pod network": {"proxy", []string{"API to service"}, "UDP port 8472"},
		"exec": {
			"exec",
			[]string{"logs", "exec", "DNS", "pod to pod", "service", "node port", "pod roles"},
			"does not accept the kubelet's serving certificate",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := start(t, test.broken)
			var output bytes.Buffer
			s := w.suiteFor(&output)
			s.client, s.dynamic = errand, untyped
			err := s.run(context.Background())
			t.Logf("%v\n%s", err, output.String())
			want := fmt.Sprintf(
				"%d of %d checks failed or were skipped: %s", len(test.failed), len(s.checks()),
				strings.Join(test.failed, ", "),
			)
			if len(test.failed) == 0 {
				want = "<nil>"
			}
			if fmt.Sprint(err) != want {
				t.Errorf("got  %v\nwant %s", err, want)
			}
			if !strings.Contains(output.String(), test.message) {
				t.Errorf("the report does not contain %q", test.message)
			}
			if !strings.Contains(output.String(), "ok      cleanup") {
				t.Error("the report does not contain the cleanup")
			}
			w.nothingLeft(t)
		})
	}

	t.Run("interrupted", func(t *testing.T) {
		w := start(t, "load balancer")
		var output bytes.Buffer
		ctx, cancel := context.WithCancel(context.Background())
		s := w.suiteFor(&output)
		s.fetch, s.dynamic = nil, untyped
		checked := s.exec
		s.exec = func(ctx context.Context, namespace, pod string, command ...string) (string, error) {
			cancel()
			return checked(ctx, namespace, pod, command...)
		}
		if err := s.run(ctx); err == nil || !strings.Contains(output.String(), "skipped DNS") {
			t.Errorf("got %v\n%s", err, output.String())
		}
		w.nothingLeft(t)
	})

	t.Run("leftovers", func(t *testing.T) {
		w := start(t, "pull")
		s := w.suiteFor(&bytes.Buffer{})
		old, err := admin.CoreV1().
			Namespaces().
			Create(context.Background(), s.newNamespace(time.Now().Add(-time.Hour)), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		running, err := admin.CoreV1().
			Namespaces().
			Create(context.Background(), s.newNamespace(time.Now()), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		s.removeLeftovers(context.Background())
		if got := phase(t, admin, old.Name); !slices.Contains([]string{"Terminating", "gone"}, got) {
			t.Errorf("the namespace of a killed run is %s", got)
		}
		if got := phase(t, admin, running.Name); got != "Active" {
			t.Errorf("the namespace of a run in progress is %s", got)
		}
	})
}

// awaitPods waits until the controllers create pods: on a busy machine they start later than the limit of a check.
func awaitPods(t *testing.T, admin kubernetes.Interface) {
	t.Helper()
	object := deployment("example/probe:1")
	object.Name = "probe"
	if _, err := admin.AppsV1().Deployments("default").Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually.Succeeds(t, 2*time.Minute, "pods of a Deployment", func() error {
		pods, err := admin.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
		if err == nil && len(pods.Items) == 0 {
			err = errors.New("none")
		}
		return err
	})
}

func phase(t *testing.T, client kubernetes.Interface, name string) string {
	t.Helper()
	namespace, err := client.CoreV1().Namespaces().Get(context.Background(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "gone"
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(namespace.Status.Phase)
}
