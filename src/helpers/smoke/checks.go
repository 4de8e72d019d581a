package smoke

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

	"kubernetes-release/internal/nodestatus"
)

// steadyResponses is how many consecutive requests to a load balancer must succeed.
const steadyResponses = 3

func (s *suite) checkAPI(ctx context.Context) (string, error) {
	err := s.eventually(ctx, func() error {
		body, err := s.client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		if err != nil {
			return fmt.Errorf("%w %s", err, body)
		}
		return nil
	})
	return "ready", err
}

func (s *suite) checkNodes(ctx context.Context) (string, error) {
	err := s.eventually(ctx, func() error {
		list, err := s.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(list.Items) == 0 {
			return errors.New("the cluster has no Node")
		}
		var problems []error
		for n := range list.Items {
			problems = append(problems, nodestatus.CheckReady(&list.Items[n], true))
		}
		s.nodes = list.Items
		return errors.Join(problems...)
	})
	return fmt.Sprintf("%d of %d are Ready and initialized", len(s.nodes), len(s.nodes)), err
}

// nodeMetrics are the nodes whose use metrics-server knows.
var nodeMetrics = schema.GroupVersionResource{Group: "metrics.k8s.io", Version: "v1beta1", Resource: "nodes"}

// checkMetrics waits for the metrics of every node. A kubelet that has just started is asked twice before its node has
// any.
func (s *suite) checkMetrics(ctx context.Context) (string, error) {
	err := s.eventually(ctx, func() error {
		list, err := s.dynamic.Resource(nodeMetrics).List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf(
				"%w; the condition Available of the APIService v1beta1.metrics.k8s.io has the reason, and the logs "+
					"of job metrics-server on the control VMs",
				err,
			)
		}
		known := map[string]bool{}
		for _, item := range list.Items {
			known[item.GetName()] = true
		}
		var missing []string
		for _, node := range s.nodes {
			if !known[node.Name] {
				missing = append(missing, node.Name)
			}
		}
		if len(missing) > 0 {
			return fmt.Errorf(
				"nodes without metrics: %s; the logs of job metrics-server on the control VMs have the reason",
				strings.Join(missing, ", "),
			)
		}
		return nil
	})
	return fmt.Sprintf("of all %d nodes", len(s.nodes)), err
}

// checkObjects creates the namespace, the run's permissions in it, the Deployment and all Services.
func (s *suite) checkObjects(ctx context.Context) (string, error) {
	created, err := s.client.CoreV1().Namespaces().Create(ctx, s.newNamespace(s.clock.Now()), metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("create namespace: %w", err)
	}
	s.namespace = created.Name
	if err := s.bindRoles(ctx); err != nil {
		return "", err
	}
	err = s.create(ctx, "Deployment "+appName, func() error {
		_, err := s.client.AppsV1().
			Deployments(s.namespace).
			Create(ctx, deployment(s.config.image), metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return "", err
	}
	for _, service := range services(s.config) {
		err := s.create(ctx, "Service "+service.Name, func() error {
			_, err := s.client.CoreV1().Services(s.namespace).Create(ctx, service, metav1.CreateOptions{})
			return err
		})
		if err != nil {
			return "", err
		}
	}
	if err := s.createOptional(ctx); err != nil {
		return "", err
	}
	return fmt.Sprintf("namespace %s with a Deployment and %d Services", s.namespace, len(services(s.config))), nil
}

// createOptional creates what takes a while until it can be checked, if the cluster has jobs for it.
func (s *suite) createOptional(ctx context.Context) error {
	if s.config.Ingress {
		if err := s.create(ctx, "Ingress "+appName, func() error {
			_, err := s.client.NetworkingV1().Ingresses(s.namespace).Create(ctx, ingress(), metav1.CreateOptions{})
			return err
		}); err != nil {
			return err
		}
	}
	if s.config.Gateway {
		for resource, object := range gatewayObjects() {
			api := s.dynamic.Resource(resource).Namespace(s.namespace)
			if err := s.create(ctx, object.GetKind()+" "+appName, func() error {
				_, err := api.Create(ctx, object, metav1.CreateOptions{})
				return err
			}); err != nil {
				return err
			}
		}
	}
	if s.config.PodRoles.Issuer != "" {
		return s.create(ctx, "ServiceAccount "+roledName, func() error {
			_, err := s.client.CoreV1().ServiceAccounts(s.namespace).Create(ctx, roledAccount(), metav1.CreateOptions{})
			return err
		})
	}
	return nil
}

// bindRoles gives the run its permissions in its namespace.
func (s *suite) bindRoles(ctx context.Context) error {
	for _, role := range s.config.roles() {
		err := s.create(ctx, "RoleBinding for "+role, func() error {
			_, err := s.client.RbacV1().RoleBindings(s.namespace).Create(ctx, roleBinding(role), metav1.CreateOptions{})
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// create repeats the creation of an object until it exists.
func (s *suite) create(ctx context.Context, what string, object func() error) error {
	err := s.eventually(ctx, func() error {
		if err := object(); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("create %s: %w", what, err)
	}
	return nil
}

func (s *suite) checkPods(ctx context.Context) (string, error) {
	err := s.eventually(ctx, func() error {
		pods, err := s.listPods(ctx)
		if err != nil {
			return err
		}
		s.pods = slices.DeleteFunc(slices.Clone(pods), func(p corev1.Pod) bool { return !podReady(p) })
		if len(s.pods) == replicas {
			return nil
		}
		var states []string
		for _, pod := range pods {
			states = append(states, describePod(pod))
		}
		if len(states) == 0 {
			states = []string{"no pod was created; see the log of kube-controller-manager"}
		}
		return fmt.Errorf("%d of %d pods are ready: %s", len(s.pods), replicas, strings.Join(states, "; "))
	})
	return fmt.Sprintf("%d run on %d node(s)", len(s.pods), len(nodesOf(s.pods))), err
}

func (s *suite) listPods(ctx context.Context) ([]corev1.Pod, error) {
	selector := metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: appLabels})
	list, err := s.client.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

func (s *suite) checkLogs(ctx context.Context) (string, error) {
	const expected = "listening" // the test server logs this when it starts
	err := s.forEachPod(ctx, func(pod corev1.Pod) error {
		text, err := s.logs(ctx, s.namespace, pod.Name)
		if err != nil {
			return fmt.Errorf("logs of %s on %s: %w", pod.Name, pod.Spec.NodeName, hintAtCertificate(err))
		}
		if !strings.Contains(text, expected) {
			return fmt.Errorf("logs of %s do not contain %q: %q", pod.Name, expected, text)
		}
		return nil
	})
	return fmt.Sprintf("can be read from %d pods through the API server", len(s.pods)), err
}

func (s *suite) checkExec(ctx context.Context) (string, error) {
	err := s.forEachPod(ctx, func(pod corev1.Pod) error {
		got, err := s.inPod(ctx, pod, "hostname")
		if err != nil {
			return hintAtCertificate(err)
		}
		if got != pod.Name {
			return fmt.Errorf("exec of hostname in %s returned %q", pod.Name, got)
		}
		return nil
	})
	return fmt.Sprintf("works in %d pods through the API server", len(s.pods)), err
}

// hintAtCertificate explains errors of a kubelet without an approved serving certificate.
func hintAtCertificate(err error) error {
	if strings.Contains(err.Error(), "tls: ") || strings.Contains(err.Error(), "x509: ") {
		return fmt.Errorf(
			"%w; the API server does not accept the kubelet's serving certificate: see kubectl get csr, and the log "+
				"of the job node-controller on the control VMs",
			err,
		)
	}
	return err
}

func (s *suite) checkDNS(ctx context.Context) (string, error) {
	api, err := s.client.CoreV1().Services(metav1.NamespaceDefault).Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	own, err := s.client.CoreV1().Services(s.namespace).Get(ctx, appName, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	names := []struct{ name, address string }{
		{"kubernetes.default.svc." + s.config.Domain, api.Spec.ClusterIP},
		{"kubernetes.default", api.Spec.ClusterIP},
		{appName, own.Spec.ClusterIP},
	}
	err = s.forEachPod(ctx, func(pod corev1.Pod) error {
		for _, n := range names {
			got, err := s.inPod(ctx, pod, "resolve", n.name)
			if err != nil {
				return err
			}
			if !slices.Contains(strings.Fields(got), n.address) {
				return fmt.Errorf(
					"in %s the name %s resolves to %q; expected %s", pod.Name, n.name, strings.Fields(got), n.address,
				)
			}
		}
		return nil
	})
	return fmt.Sprintf("%d names resolve in %d pods", len(names), len(s.pods)), err
}

func (s *suite) checkPodToPod(ctx context.Context) (string, error) {
	err := s.forEachPod(ctx, func(from corev1.Pod) error {
		for _, to := range s.pods {
			got, err := s.inPod(
				ctx,
				from,
				"fetch",
				"http://"+net.JoinHostPort(to.Status.PodIP, strconv.Itoa(serverPort))+"/",
			)
			if err != nil {
				return fmt.Errorf("from %s to %s: %w", from.Spec.NodeName, to.Spec.NodeName, err)
			}
			if got != to.Name {
				return fmt.Errorf("%s, the address of pod %s, was answered by %q", to.Status.PodIP, to.Name, got)
			}
		}
		return nil
	})
	return fmt.Sprintf("%d pods on %d node(s) can connect to each other", len(s.pods), len(nodesOf(s.pods))), err
}

func (s *suite) checkService(ctx context.Context) (string, error) {
	service, err := s.client.CoreV1().Services(s.namespace).Get(ctx, appName, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	err = s.forEachPod(ctx, func(pod corev1.Pod) error {
		return s.answeredByPod(
			s.inPod(
				ctx,
				pod,
				"fetch",
				"http://"+net.JoinHostPort(service.Spec.ClusterIP, strconv.Itoa(servicePort))+"/",
			),
		)
	})
	return "answers on " + service.Spec.ClusterIP + " in every pod", err
}

// checkServiceProxy fetches the Service through the API server, which connects to the pod as it does to webhooks.
func (s *suite) checkServiceProxy(ctx context.Context) (string, error) {
	err := s.eventually(ctx, func() error {
		answer, err := s.proxy(ctx, s.namespace, appName, servicePort)
		if err != nil {
			return fmt.Errorf(
				"%w; the API server does not reach pods, so webhooks and aggregated APIs fail as well: see "+
					"kube-proxy and flannel on the control VMs, and whether the network admits the pods' packets "+
					"between control VMs and workers: UDP port 8472, or without VXLAN all from cluster.pod_cidr",
				err,
			)
		}
		return s.answeredByPod(answer, nil)
	})
	return "the API server reaches Service " + appName, err
}

func (s *suite) checkNodePort(ctx context.Context) (string, error) {
	service, err := s.client.CoreV1().Services(s.namespace).Get(ctx, nodePortName, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	port := strconv.Itoa(int(service.Spec.Ports[0].NodePort))
	for _, node := range s.nodes {
		address := internalAddress(node)
		if address == "" {
			return "", fmt.Errorf("Node %s has no InternalIP", node.Name)
		}
		err := s.eventually(ctx, func() error {
			err := s.answeredByPod(s.inPod(ctx, s.pods[0], "fetch", "http://"+net.JoinHostPort(address, port)+"/"))
			if err != nil {
				return fmt.Errorf("port %s of Node %s: %w", port, node.Name, err)
			}
			return nil
		})
		if err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("port %s answers on %d node(s)", port, len(s.nodes)), nil
}

func (s *suite) checkLoadBalancer(ctx context.Context, kind string) (string, error) {
	var host string
	err := s.eventually(ctx, func() error {
		service, err := s.client.CoreV1().Services(s.namespace).Get(ctx, loadBalancerName(kind), metav1.GetOptions{})
		if err != nil {
			return err
		}
		if host = ingressHost(service); host == "" {
			const hint = "; see the log of cloud-controller-manager on the control VMs"
			return errors.New(
				"Service " + service.Name + " has no load balancer yet" + s.lastWarning(ctx, s.namespace, hint,
					func(object corev1.ObjectReference) bool {
						return object.Kind == "Service" && object.Name == service.Name
					}),
			)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	return s.answersSteadily(ctx, host)
}

// answersSteadily waits until several requests in a row to a load balancer are answered by pods.
func (s *suite) answersSteadily(ctx context.Context, host string) (string, error) {
	url := "http://" + net.JoinHostPort(host, strconv.Itoa(servicePort)) + "/"
	err := s.eventually(ctx, func() error {
		for range steadyResponses {
			if err := s.answeredByPod(s.fetch(ctx, url)); err != nil {
				return fmt.Errorf("load balancer %s: %w", host, err)
			}
		}
		return nil
	})
	return url + " answers", err
}

func ingressHost(service *corev1.Service) string {
	for _, ingress := range service.Status.LoadBalancer.Ingress {
		if ingress.Hostname != "" {
			return ingress.Hostname
		}
		if ingress.IP != "" {
			return ingress.IP
		}
	}
	return ""
}

// answeredByPod takes the results of a fetch, and returns an error unless the answer is the name of a pod.
func (s *suite) answeredByPod(answer string, err error) error {
	if err != nil {
		return err
	}
	answer = strings.TrimSpace(answer)
	var names []string
	for _, pod := range s.pods {
		names = append(names, pod.Name)
	}
	if !slices.Contains(names, answer) {
		return fmt.Errorf(
			"the answer is %q; expected the name of one of the pods %s", answer, strings.Join(names, ", "),
		)
	}
	return nil
}

// forEachPod repeats a check of each pod until it succeeds.
func (s *suite) forEachPod(ctx context.Context, check func(corev1.Pod) error) error {
	for _, pod := range s.pods {
		if err := s.eventually(ctx, func() error { return check(pod) }); err != nil {
			return err
		}
	}
	return nil
}

// inPod runs a command of the test server in a pod.
func (s *suite) inPod(ctx context.Context, pod corev1.Pod, arguments ...string) (string, error) {
	output, err := s.exec(ctx, s.namespace, pod.Name, append([]string{serverPath}, arguments...)...)
	if err != nil {
		return "", fmt.Errorf("%s in %s on %s: %w", strings.Join(arguments, " "), pod.Name, pod.Spec.NodeName, err)
	}
	return strings.TrimSpace(output), nil
}

// executor reads logs and runs commands in pods through the API server. What it reads is what the pod's node sends, and
// ends at maxAnswer: a node could send without end, and fill the memory of the control VM.
type executor struct {
	config *rest.Config
	client kubernetes.Interface
}

// newExecutor returns an executor with a client of its own: answers of the API server itself have no such limit.
func newExecutor(config *rest.Config) (executor, error) {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return limitedTransport{next} })
	client, err := kubernetes.NewForConfig(config)
	return executor{config, client}, err
}

func (e executor) run(ctx context.Context, namespace, pod string, command ...string) (string, error) {
	options := &corev1.PodExecOptions{Container: appName, Command: command, Stdout: true, Stderr: true}
	url := e.client.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod).SubResource("exec").
		VersionedParams(options, scheme.ParameterCodec).
		URL()
	stream, err := remotecommand.NewWebSocketExecutor(e.config, "GET", url.String())
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stdout, stderr := &limitedBuffer{full: cancel}, &limitedBuffer{full: cancel}
	err = stream.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: stdout, Stderr: stderr})
	if err = cmp.Or(context.Cause(ctx), err); err != nil {
		return "", fmt.Errorf("%w %s", err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

func (e executor) logs(ctx context.Context, namespace, pod string) (string, error) {
	text, err := e.client.CoreV1().Pods(namespace).GetLogs(pod, &corev1.PodLogOptions{}).DoRaw(ctx)
	return string(text), err
}

func (e executor) proxy(ctx context.Context, namespace, service string, port int) (string, error) {
	answer, err := e.client.CoreV1().
		Services(namespace).
		ProxyGet("http", service, strconv.Itoa(port), "/", nil).
		DoRaw(ctx)
	var status metav1.Status
	if err != nil && json.Unmarshal(answer, &status) == nil && status.Message != "" {
		return "", errors.New(status.Message) // the reason, which the error does not have
	}
	return string(answer), err
}
