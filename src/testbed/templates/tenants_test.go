package templates

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
)

// tenants is a cluster with a control VM and a worker, the namespaces tenant and agents, of which the latter is exempt
// from the rules for tenants, and a user who may edit both.
type tenants struct {
	*kubetest.Cluster

	t             *testing.T
	admin, tenant kubernetes.Interface
}

const (
	controlTaint = "node-role.kubernetes.io/control-plane"
	unrestricted = "kubernetes.bosh.io/unrestricted"
)

// restrict applies the policies of the job restrict-tenants with these links.
func (s *tenants) restrict(links ...map[string]values) {
	s.t.Helper()
	in := inputFor(s.t, "restrict-tenants")
	for _, link := range links {
		in = in.linked(link)
	}
	applyRendered(s.t, s.Cluster, mustRender(s.t, "restrict-tenants", in), "10-namespaces.yml", "20-policies.yml")
}

// mustRefuseTenant fails unless the error is a refusal with these words and the remedy.
func mustRefuseTenant(t *testing.T, what string, err error, word string) {
	t.Helper()
	kubetest.MustForbid(t, what, err, word, "kubectl label namespace tenant "+unrestricted+"=true")
}

func startTenants(t *testing.T, apiserverFlags ...string) *tenants {
	t.Helper()
	cluster := kubetest.Start(t, kubetest.Options{ControllerManager: true, APIServerFlags: apiserverFlags})
	s := &tenants{Cluster: cluster, t: t, admin: cluster.Admin(), tenant: cluster.ClientFor("tenant")}
	taint := corev1.Taint{Key: controlTaint, Effect: corev1.TaintEffectNoSchedule}
	for name, taints := range map[string][]corev1.Taint{"control": {taint}, "worker": nil} {
		object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{Taints: taints}}
		object.Labels = map[string]string{"pool": name}
		if taints != nil {
			object.Labels[controlTaint] = ""
		}
		_, err := s.admin.CoreV1().Nodes().Create(t.Context(), object, metav1.CreateOptions{})
		s.must(err)
	}
	for _, name := range []string{"tenant", "agents"} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if name == "agents" {
			namespace.Labels = map[string]string{unrestricted: "true"}
		}
		_, err := s.admin.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{})
		s.must(err)
		binding := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "tenant"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "tenant"}},
		}
		_, err = s.admin.RbacV1().RoleBindings(name).Create(t.Context(), binding, metav1.CreateOptions{})
		s.must(err)
	}
	eventually.Succeeds(t, time.Minute, "the tenant can create pods", func() error {
		for _, namespace := range []string{"tenant", "agents", metav1.NamespaceSystem} {
			if err := create(t.Context(), s.admin, namespace, "ready", corev1.PodSpec{}); err != nil {
				return err
			}
		}
		return create(t.Context(), s.tenant, "tenant", "ready", corev1.PodSpec{})
	})
	return s
}

func (s *tenants) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// create creates a pod without storing it.
func create(ctx context.Context, client kubernetes.Interface, namespace, name string, spec corev1.PodSpec) error {
	options := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	_, err := client.CoreV1().Pods(namespace).Create(ctx, podOf(name, spec), options)
	return err
}

func podOf(name string, spec corev1.PodSpec) *corev1.Pod {
	spec.Containers = []corev1.Container{{Name: "main", Image: "example"}}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
}

// daemonSet creates one whose pods have these tolerations, and returns a function that lists the nodes that its pods
// were created for.
func (s *tenants) daemonSet(namespace, name string, tolerations []corev1.Toleration) func() ([]string, error) {
	s.t.Helper()
	labels := map[string]string{"app": name}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}}
	template.Spec = podOf(name, corev1.PodSpec{Tolerations: tolerations}).Spec
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template,
	}}
	_, err := s.tenant.AppsV1().DaemonSets(namespace).Create(s.t.Context(), set, metav1.CreateOptions{})
	s.must(err)
	return func() (nodes []string, err error) {
		selector := metav1.ListOptions{LabelSelector: "app=" + name}
		pods, err := s.admin.CoreV1().Pods(namespace).List(s.t.Context(), selector)
		if err != nil {
			return nil, err
		}
		for _, pod := range pods.Items {
			terms := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
			nodes = append(nodes, terms[0].MatchFields[0].Values...)
		}
		return nodes, nil
	}
}

// tolerating returns a pod that tolerates a key with an effect; both can be empty.
func tolerating(key string, effect corev1.TaintEffect) corev1.PodSpec {
	return corev1.PodSpec{Tolerations: []corev1.Toleration{
		{Key: key, Operator: corev1.TolerationOpExists, Effect: effect},
	}}
}

// intruders are pods that must not get to control VMs.
func intruders() map[string]corev1.PodSpec {
	equal := corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: controlTaint, Effect: corev1.TaintEffectNoSchedule}}}
	second := tolerating("example.com/gpu", "")
	second.Tolerations = append(second.Tolerations, tolerating("", corev1.TaintEffectNoSchedule).Tolerations...)
	selecting := tolerating("", "")
	selecting.NodeSelector = map[string]string{"pool": "control"}
	return map[string]corev1.PodSpec{
		"a node": {NodeName: "control"}, "the taint": tolerating(controlTaint, ""), "the taint and its effect": equal,
		"every taint": tolerating("", ""), "every taint too": second, "a label of control VMs": selecting,
		"the name": requiring(tolerating("", ""), corev1.NodeSelectorTerm{
			MatchFields: []corev1.NodeSelectorRequirement{
				{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"control"}},
			},
		}),
		"an expression": requiring(tolerating("", ""), expression("pool", corev1.NodeSelectorOpNotIn, "worker")),
		"one of two": requiring(
			tolerating("", ""), expression("pool", corev1.NodeSelectorOpIn, "worker"),
			expression(controlTaint, corev1.NodeSelectorOpExists),
		),
		"a number": requiring(tolerating("", ""), expression("age", corev1.NodeSelectorOpGt, "1")),
	}
}

// workersOnly are pods that tolerate all taints, and select other nodes than control VMs.
func workersOnly() map[string]corev1.PodSpec {
	selecting := tolerating("", "")
	selecting.NodeSelector = map[string]string{"pool": "worker"}
	return map[string]corev1.PodSpec{
		"label": selecting,
		"name": requiring(tolerating("", ""), corev1.NodeSelectorTerm{
			MatchFields: []corev1.NodeSelectorRequirement{
				{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"worker"}},
			},
		}),
		"other-name": requiring(tolerating("", ""), corev1.NodeSelectorTerm{
			MatchFields: []corev1.NodeSelectorRequirement{
				{Key: "metadata.name", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"control"}},
			},
		}),
		"role":  requiring(tolerating("", ""), expression(controlTaint, corev1.NodeSelectorOpDoesNotExist)),
		"in":    requiring(tolerating("", ""), expression("pool", corev1.NodeSelectorOpIn, "worker", "gpu")),
		"named": {NodeName: "worker", Tolerations: tolerating("", "").Tolerations},
	}
}

func expression(key string, operator corev1.NodeSelectorOperator, of ...string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: operator, Values: of}},
	}
}

// requiring returns a pod that is on nodes of one of these terms only.
func requiring(spec corev1.PodSpec, terms ...corev1.NodeSelectorTerm) corev1.PodSpec {
	spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
	}}
	return spec
}

// TestTenantsStayOffControlVMs tries what brings a pod to a control VM.
func TestTenantsStayOffControlVMs(t *testing.T) {
	t.Parallel()
	s := startTenants(t)
	for what, spec := range intruders() {
		if err := create(t.Context(), s.tenant, "tenant", "before", spec); err != nil {
			t.Fatalf("without the policies, the attack is not possible either: %s: %v", what, err)
		}
	}
	pods := s.tenant.CoreV1().Pods("tenant")
	_, err := pods.Create(t.Context(), podOf("old", tolerating("", "")), metav1.CreateOptions{})
	s.must(err)
	_, err = pods.Create(t.Context(), podOf("plain", corev1.PodSpec{}), metav1.CreateOptions{})
	s.must(err)
	s.restrict()
	for what, spec := range intruders() {
		err := create(t.Context(), s.tenant, "tenant", "attack", spec)
		mustRefuseTenant(t, what, err, "control VM")
	}
	s.checkUpdates()
	s.checkDaemonSets()
	s.checkFriends()
}

// checkUpdates: tolerations can be added to a pod that waits for a node.
func (s *tenants) checkUpdates() {
	s.t.Helper()
	add := func(pod, path, value string) error {
		patch := fmt.Appendf(nil, `[{"op":"add","path":%q,"value":%s}]`, path, value)
		_, err := s.tenant.CoreV1().Pods("tenant").
			Patch(s.t.Context(), pod, types.JSONPatchType, patch, metav1.PatchOptions{})
		return err
	}
	kubetest.MustForbid(
		s.t, "a toleration added to a pod", add("plain", "/spec/tolerations/-", `{"operator":"Exists"}`),
	)
	if err := add("plain", "/spec/tolerations/-", `{"key":"gpu","operator":"Exists"}`); err != nil {
		s.t.Errorf("the toleration of a worker's taint added to a pod: %v", err)
	}
	if err := add("old", "/metadata/labels", `{"changed":"true"}`); err != nil {
		s.t.Errorf("the label of a pod that is older than the policy: %v", err)
	}
}

// checkDaemonSets: their controller creates the pods, and adds tolerations of its own.
func (s *tenants) checkDaemonSets() {
	s.t.Helper()
	for name, c := range map[string]struct {
		namespace   string
		tolerations []corev1.Toleration
		want        int
	}{
		"usual":    {"tenant", nil, 1},
		"workers":  {"tenant", tolerating("", "").Tolerations, 1},
		"no-evict": {"tenant", tolerating("", corev1.TaintEffectNoExecute).Tolerations, 1},
		"everyone": {"agents", tolerating("", "").Tolerations, 2},
		"tolerant": {"agents", tolerating(controlTaint, "").Tolerations, 2},
	} {
		nodes := s.daemonSet(c.namespace, name, c.tolerations)
		eventually.Succeeds(s.t, 3*time.Minute, "pods of DaemonSet "+name, func() error {
			if found, err := nodes(); err != nil || len(found) != c.want {
				return fmt.Errorf("its pods are for %v, want %d: %w", found, c.want, err)
			}
			return nil
		})
	}
	eventually.Succeeds(s.t, time.Minute, "the user of a DaemonSet learns why it has no pod there", func() error {
		events, err := s.tenant.CoreV1().Events("tenant").List(s.t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, event := range events.Items {
			if event.InvolvedObject.Name == "workers" && strings.Contains(event.Message, "run on control VMs") {
				return nil
			}
		}
		return fmt.Errorf("the Events do not say it: %v", events.Items)
	})
}

// checkFriends: who must be able to do it all the same.
func (s *tenants) checkFriends() {
	s.t.Helper()
	ctx := s.t.Context()
	for name, spec := range workersOnly() {
		if err := create(ctx, s.tenant, "tenant", name, spec); err != nil {
			s.t.Errorf("a pod for workers (%s): %v", name, err)
		}
	}
	if err := create(ctx, s.tenant, "tenant", "gpu", tolerating("example.com/gpu", "")); err != nil {
		s.t.Errorf("a pod that tolerates a worker's taint: %v", err)
	}
	for what, spec := range intruders() {
		for _, namespace := range []string{metav1.NamespaceSystem, "agents"} {
			if err := create(ctx, s.admin, namespace, "exempt", spec); err != nil {
				s.t.Errorf("a pod of namespace %s (%s): %v", namespace, what, err)
			}
		}
	}
	kubelet := s.ClientFor("system:node:control", "system:nodes")
	mirror := podOf("static-control", corev1.PodSpec{
		NodeName: "control", PriorityClassName: "system-node-critical", Tolerations: tolerating("", "").Tolerations,
	})
	mirror.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "1"}
	node, err := s.admin.CoreV1().Nodes().Get(ctx, "control", metav1.GetOptions{})
	s.must(err)
	yes := true
	mirror.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "Node", Name: "control", UID: node.UID, Controller: &yes},
	}
	for _, namespace := range []string{metav1.NamespaceSystem, "agents", "tenant"} {
		if _, err := kubelet.CoreV1().Pods(namespace).Create(ctx, mirror, metav1.CreateOptions{}); err != nil {
			s.t.Errorf("the mirror of a static pod in namespace %s: %v", namespace, err)
		}
	}
}
