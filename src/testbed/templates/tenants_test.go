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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
)

// tenants is a cluster with a control VM and a worker, the namespaces tenant and agents, and a user who may edit both.
type tenants struct {
	*kubetest.Cluster

	t             *testing.T
	admin, tenant kubernetes.Interface
}

const controlTaint = "node-role.kubernetes.io/control-plane"

func startTenants(t *testing.T, apiserverFlags ...string) *tenants {
	t.Helper()
	cluster := kubetest.Start(t, kubetest.Options{ControllerManager: true, APIServerFlags: apiserverFlags})
	s := &tenants{Cluster: cluster, t: t, admin: cluster.Admin(), tenant: cluster.ClientFor("tenant")}
	taint := corev1.Taint{Key: controlTaint, Effect: corev1.TaintEffectNoSchedule}
	for name, taints := range map[string][]corev1.Taint{"control": {taint}, "worker": nil} {
		object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{Taints: taints}}
		_, err := s.admin.CoreV1().Nodes().Create(t.Context(), object, metav1.CreateOptions{})
		s.must(err)
	}
	for _, name := range []string{"tenant", "agents"} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
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

// intruders are pods that must not get to control VMs, or before other pods, by what their messages must contain.
func intruders() map[string]corev1.PodSpec {
	equal := corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: controlTaint, Effect: corev1.TaintEffectNoSchedule}}}
	second := tolerating("example.com/gpu", "")
	second.Tolerations = append(second.Tolerations, tolerating("", corev1.TaintEffectNoSchedule).Tolerations...)
	return map[string]corev1.PodSpec{
		"nodeName is control, a control VM: let the scheduler":           {NodeName: "control"},
		"the toleration of " + controlTaint + " would let":               tolerating(controlTaint, ""),
		"toleration of " + controlTaint + " would let the pod":           equal,
		"the toleration of every taint would let":                        tolerating("", ""),
		"toleration of every taint would let the pod run on control VMs": second,
		"priorityClassName is system-node-critical":                      {PriorityClassName: "system-node-critical"},
		"priorityClassName is system-cluster-critical": {
			PriorityClassName: "system-cluster-critical",
		},
	}
}

// TestTenantsStayOffControlVMs tries what brings a pod to a control VM, or before the pods of the cluster itself.
func TestTenantsStayOffControlVMs(t *testing.T) {
	t.Parallel()
	s := startTenants(t)
	for want, spec := range intruders() {
		if err := create(t.Context(), s.tenant, "tenant", "before", spec); err != nil {
			t.Fatalf("without the policies, the attack is not possible either: %s: %v", want, err)
		}
	}
	before := s.daemonSet("tenant", "before", tolerating("", "").Tolerations)
	eventually.Succeeds(t, time.Minute, "without the policies, a DaemonSet gets to both VMs", func() error {
		if nodes, err := before(); err != nil || len(nodes) != 2 {
			return fmt.Errorf("its pods are for %v: %w", nodes, err)
		}
		return nil
	})
	pods := s.tenant.CoreV1().Pods("tenant")
	_, err := pods.Create(t.Context(), podOf("old", tolerating("", "")), metav1.CreateOptions{})
	s.must(err)
	_, err = pods.Create(t.Context(), podOf("plain", corev1.PodSpec{}), metav1.CreateOptions{})
	s.must(err)

	exempt := values{"exempt_namespaces": []any{"kube-system", "agents"}, "static_pods": []any{"static"}}
	applyPodPolicies(t, s.Cluster, values{"admission": exempt})
	for want, spec := range intruders() {
		err := create(t.Context(), s.tenant, "tenant", "attack", spec)
		kubetest.MustForbid(t, want, err, want, "add namespace tenant to")
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
	refused := s.daemonSet("tenant", "refused", tolerating("", "").Tolerations)
	for name, c := range map[string]struct {
		namespace   string
		tolerations []corev1.Toleration
		want        int
	}{
		"usual":    {"tenant", nil, 1},
		"no-evict": {"tenant", tolerating("", corev1.TaintEffectNoExecute).Tolerations, 1},
		"everyone": {"agents", tolerating("", "").Tolerations, 2},
		"tolerant": {"agents", tolerating(controlTaint, "").Tolerations, 2},
	} {
		nodes := s.daemonSet(c.namespace, name, c.tolerations)
		eventually.Succeeds(s.t, time.Minute, "pods of DaemonSet "+name, func() error {
			if found, err := nodes(); err != nil || len(found) != c.want {
				return fmt.Errorf("its pods are for %v, want %d: %w", found, c.want, err)
			}
			return nil
		})
	}
	eventually.Succeeds(s.t, time.Minute, "the user of a DaemonSet learns why it has no pods", func() error {
		events, err := s.tenant.CoreV1().Events("tenant").List(s.t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, event := range events.Items {
			if event.InvolvedObject.Name == "refused" && strings.Contains(event.Message, "of every taint") {
				return nil
			}
		}
		return fmt.Errorf("the Events do not say it: %v", events.Items)
	})
	if nodes, err := refused(); err != nil || len(nodes) != 0 {
		s.t.Errorf("a DaemonSet that tolerates all taints has pods for %v: %v", nodes, err)
	}
}

// checkFriends: who must be able to do it all the same.
func (s *tenants) checkFriends() {
	s.t.Helper()
	ctx := s.t.Context()
	if err := create(ctx, s.tenant, "tenant", "named", corev1.PodSpec{NodeName: "worker"}); err != nil {
		s.t.Errorf("a pod that names a worker: %v", err)
	}
	if err := create(ctx, s.tenant, "tenant", "gpu", tolerating("example.com/gpu", "")); err != nil {
		s.t.Errorf("a pod that tolerates a worker's taint: %v", err)
	}
	for want, spec := range intruders() {
		for _, namespace := range []string{metav1.NamespaceSystem, "agents"} {
			if err := create(ctx, s.admin, namespace, "exempt", spec); err != nil {
				s.t.Errorf("a pod of namespace %s (%s): %v", namespace, want, err)
			}
		}
		err := create(ctx, s.admin, "tenant", "admin", spec)
		if critical := spec.PriorityClassName != ""; apierrors.IsForbidden(err) != critical {
			s.t.Errorf("an administrator's pod of another namespace (%s): %v", want, err)
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
	for _, namespace := range []string{metav1.NamespaceSystem, "agents"} {
		if _, err := kubelet.CoreV1().Pods(namespace).Create(ctx, mirror, metav1.CreateOptions{}); err != nil {
			s.t.Errorf("the mirror of a static pod in namespace %s: %v", namespace, err)
		}
	}
	s.checkStaticPods(kubelet, mirror)
	scheduler := s.ClientFor("system:kube-scheduler")
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: "plain"}, Target: corev1.ObjectReference{Kind: "Node", Name: "worker"},
	}
	err = s.tenant.CoreV1().Pods("tenant").Bind(ctx, binding, metav1.CreateOptions{})
	kubetest.MustForbid(s.t, "a tenant binds a pod", err)
	if err := scheduler.CoreV1().Pods("tenant").Bind(ctx, binding, metav1.CreateOptions{}); err != nil {
		s.t.Errorf("the scheduler binds a pod: %v", err)
	}
}

// checkStaticPods: objects of static pods count in the quota of their namespace.
func (s *tenants) checkStaticPods(kubelet kubernetes.Interface, mirror *corev1.Pod) {
	s.t.Helper()
	_, err := kubelet.CoreV1().Pods("tenant").Create(s.t.Context(), mirror, metav1.CreateOptions{})
	kubetest.MustForbid(
		s.t, "the mirror of a static pod in a tenant's namespace", err,
		"cannot create pods in namespace tenant", "admission.exempt_namespaces",
	)
}
