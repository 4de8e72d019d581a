package templates

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
)

// TestTenantsCannotExemptThemselves is a tenant with namespaces of its own that sets the label of exempt ones, and an
// administrator who misspells it.
func TestTenantsCannotExemptThemselves(t *testing.T) {
	t.Parallel()
	s := startTenants(t)
	_, err := s.admin.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "namespaces"},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"namespaces", "namespaces/finalize", "namespaces/status"},
			Verbs: []string{"*"},
		}},
	}, metav1.CreateOptions{})
	s.must(err)
	_, err = s.admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "namespaces"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "namespaces"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "tenant"}},
	}, metav1.CreateOptions{})
	s.must(err)
	set := func(client kubernetes.Interface, namespace, value string, subresources ...string) error {
		_, err := client.CoreV1().Namespaces().Patch(
			t.Context(), namespace, types.MergePatchType,
			fmt.Appendf(nil, `{"metadata": {"labels": {%q: %s}}}`, unrestricted, value), metav1.PatchOptions{},
			subresources...,
		)
		return err
	}
	eventually.Succeeds(t, time.Minute, "without the policy, the tenant sets the label", func() error {
		return set(s.tenant, "tenant", `"true"`)
	})
	s.must(set(s.admin, "tenant", "null"))
	s.must(set(s.admin, metav1.NamespacePublic, `"yes"`))
	s.restrict()
	const word = "only a cluster administrator can set the label " + unrestricted
	kubetest.MustForbid(t, "the label of a namespace", set(s.tenant, "tenant", `"true"`), word)
	kubetest.MustForbid(t, "by the status", set(s.tenant, "tenant", `"true"`, "status"), word)
	own := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "own", Labels: map[string]string{unrestricted: "true"},
	}}
	_, err = s.tenant.CoreV1().Namespaces().Create(t.Context(), own, metav1.CreateOptions{})
	kubetest.MustForbid(t, "a new namespace", err, word)
	for _, wrong := range []string{`"yes"`, `"false"`, `""`, `"True"`} {
		err := set(s.admin, "tenant", wrong)
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), `it must be "true", which exempts`) {
			t.Errorf("the value %s: %v", wrong, err)
		}
	}

	// The friends: an administrator, what concerns other labels, and a namespace that is restricted again.
	s.must(set(s.admin, "tenant", `"true"`))
	if err := create(t.Context(), s.tenant, "tenant", "exempt", corev1.PodSpec{NodeName: "control"}); err != nil {
		t.Errorf("a pod of a namespace that is exempt now: %v", err)
	}
	for _, namespace := range []string{"tenant", metav1.NamespacePublic} {
		_, err = s.tenant.CoreV1().Namespaces().Patch(
			t.Context(), namespace, types.MergePatchType, []byte(`{"metadata": {"labels": {"a": "b"}}}`),
			metav1.PatchOptions{},
		)
		if err != nil {
			t.Errorf("another label of namespace %s: %v", namespace, err)
		}
	}
	if err := set(s.tenant, "tenant", "null"); err != nil {
		t.Errorf("the label is removed: %v", err)
	}
	eventually.Succeeds(t, 30*time.Second, "the namespace is restricted again", func() error {
		err := create(t.Context(), s.tenant, "tenant", "again", corev1.PodSpec{NodeName: "control"})
		if !apierrors.IsForbidden(err) {
			return fmt.Errorf("it was not forbidden: %w", err)
		}
		return nil
	})
	if err := set(s.admin, metav1.NamespacePublic, "null"); err != nil {
		t.Errorf("a wrong value that is older than the policy is removed: %v", err)
	}
}

// heard collects warnings of the API server.
type heard struct {
	mu    sync.Mutex
	texts []string
}

func (h *heard) HandleWarningHeader(_ int, _, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.texts = append(h.texts, text)
}

func (h *heard) take() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	text := strings.Join(h.texts, "\n")
	h.texts = nil
	return text
}

// TestTenantsAreWarned: kubectl apply shows what will be refused, when it writes what creates the pods.
func TestTenantsAreWarned(t *testing.T) {
	t.Parallel()
	s := startTenants(t)
	s.restrict(balancersLink)
	warnings := &heard{}
	config := rest.CopyConfig(s.ConfigFor("tenant"))
	config.WarningHandler = warnings
	client, err := kubernetes.NewForConfig(config)
	s.must(err)
	labels := map[string]string{"app": "a"}
	meta, selector := metav1.ObjectMeta{Name: "a"}, &metav1.LabelSelector{MatchLabels: labels}
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	template := func(spec corev1.PodSpec) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{"example.com/note": "a"}},
			Spec:       podOf("a", spec).Spec,
		}
	}
	kinds := map[string]func(namespace string, pod corev1.PodTemplateSpec) error{
		"DaemonSet": func(namespace string, pod corev1.PodTemplateSpec) error {
			_, err := client.AppsV1().DaemonSets(namespace).Create(t.Context(), &appsv1.DaemonSet{
				ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: pod},
			}, dry)
			return err
		},
		"Deployment": func(namespace string, pod corev1.PodTemplateSpec) error {
			_, err := client.AppsV1().Deployments(namespace).Create(t.Context(), &appsv1.Deployment{
				ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Selector: selector, Template: pod},
			}, dry)
			return err
		},
		"ReplicaSet": func(namespace string, pod corev1.PodTemplateSpec) error {
			_, err := client.AppsV1().ReplicaSets(namespace).Create(t.Context(), &appsv1.ReplicaSet{
				ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Selector: selector, Template: pod},
			}, dry)
			return err
		},
		"StatefulSet": func(namespace string, pod corev1.PodTemplateSpec) error {
			_, err := client.AppsV1().StatefulSets(namespace).Create(t.Context(), &appsv1.StatefulSet{
				ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Selector: selector, Template: pod},
			}, dry)
			return err
		},
		"ReplicationController": func(namespace string, pod corev1.PodTemplateSpec) error {
			controller := &corev1.ReplicationController{
				ObjectMeta: meta, Spec: corev1.ReplicationControllerSpec{Selector: labels, Template: &pod},
			}
			_, err := client.CoreV1().ReplicationControllers(namespace).Create(t.Context(), controller, dry)
			return err
		},
		"Job": func(namespace string, pod corev1.PodTemplateSpec) error {
			pod.Spec.RestartPolicy = corev1.RestartPolicyNever
			_, err := client.BatchV1().Jobs(namespace).Create(t.Context(), &batchv1.Job{
				ObjectMeta: meta, Spec: batchv1.JobSpec{Template: pod},
			}, dry)
			return err
		},
		"CronJob": func(namespace string, pod corev1.PodTemplateSpec) error {
			pod.Spec.RestartPolicy = corev1.RestartPolicyNever
			_, err := client.BatchV1().CronJobs(namespace).Create(t.Context(), &batchv1.CronJob{
				ObjectMeta: meta, Spec: batchv1.CronJobSpec{
					Schedule: "@daily", JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: pod}},
				},
			}, dry)
			return err
		},
	}
	exemption := "kubectl label namespace tenant " + unrestricted + "=true"
	interfaces := template(corev1.PodSpec{})
	interfaces.Annotations["vpc.amazonaws.com/pod-eni"] = `[{"eniId": "eni-other"}]`
	for kind, write := range kinds {
		for word, pod := range map[string]corev1.PodTemplateSpec{
			"let the pod run on control VMs": template(tolerating("", "")),
			"nodeName is control":            template(corev1.PodSpec{NodeName: "control"}),
			"volume data: ":                  template(withVolume(namedVolumes()["nfs"])),
			"names a network interface":      interfaces,
		} {
			if err := write("tenant", pod); err != nil {
				t.Errorf("%s (%s): %v", kind, word, err)
			}
			if text := warnings.take(); !strings.Contains(text, word) || !strings.Contains(text, exemption) {
				t.Errorf("%s: the warnings are %q, want %q and %q", kind, text, word, exemption)
			}
			if err := write("agents", pod); err != nil {
				t.Errorf("%s (%s) of an exempt namespace: %v", kind, word, err)
			}
			if text := warnings.take(); strings.Contains(text, "kubernetes.bosh.io") {
				t.Errorf("%s of an exempt namespace: the warnings are %q", kind, text)
			}
		}
		s.must(write("tenant", template(corev1.PodSpec{PriorityClassName: "system-node-critical"})))
		const fix = "kubectl create quota system-priorities --namespace=tenant"
		if text := warnings.take(); !strings.Contains(text, fix) {
			t.Errorf("%s with a system priority: the warnings are %q", kind, text)
		}
		s.must(write("tenant", template(workersOnly()["role"])))
		if text := warnings.take(); strings.Contains(text, "kubernetes.bosh.io") {
			t.Errorf("%s for workers: the warnings are %q", kind, text)
		}
	}
}

// TestSystemPrioritiesRequireAQuota: Flux and Gatekeeper come with a ResourceQuota for the priorities that their pods
// have, which a tenant cannot create.
func TestSystemPrioritiesRequireAQuota(t *testing.T) {
	t.Parallel()
	rendered := map[string][]byte{}
	control := group(t, plan(t, deployment{ops: []string{"restrict-tenants.yml"}}), "control")
	for _, path := range []string{"config/flags.json", "config/admission.json"} {
		rendered[path] = file(t, control, "kube-apiserver", path)
	}
	s := startTenants(t, admissionFlagsOf(t, rendered)...)
	s.restrict()
	critical := corev1.PodSpec{PriorityClassName: "system-cluster-critical"}
	for _, namespace := range []string{"tenant", "agents"} {
		err := create(t.Context(), s.admin, namespace, "critical", critical)
		if err == nil || !strings.Contains(err.Error(), "insufficient quota to match these scopes") {
			t.Errorf("a system priority in namespace %s: %v, want a quota to be required", namespace, err)
		}
	}
	quota := &corev1.ResourceQuota{ // as Flux has it
		ObjectMeta: metav1.ObjectMeta{Name: "critical-pods"},
		Spec: corev1.ResourceQuotaSpec{
			Hard: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("1000")},
			ScopeSelector: &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{{
				ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: corev1.ScopeSelectorOpIn,
				Values: []string{"system-node-critical", "system-cluster-critical"},
			}}},
		},
	}
	_, err := s.tenant.CoreV1().ResourceQuotas("tenant").Create(t.Context(), quota, metav1.CreateOptions{})
	kubetest.MustForbid(t, "a tenant creates a quota", err)
	_, err = s.admin.CoreV1().ResourceQuotas("tenant").Create(t.Context(), quota, metav1.CreateOptions{})
	s.must(err)
	_, err = s.admin.CoreV1().ResourceQuotas("agents").Create(t.Context(), &corev1.ResourceQuota{ // as the warning says
		ObjectMeta: metav1.ObjectMeta{Name: "system-priorities"},
		Spec: corev1.ResourceQuotaSpec{
			Hard:   corev1.ResourceList{corev1.ResourcePods: resource.MustParse("100")},
			Scopes: []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopePriorityClass},
		},
	}, metav1.CreateOptions{})
	s.must(err)
	for _, namespace := range []string{"tenant", "agents", metav1.NamespaceSystem} {
		eventually.Succeeds(t, time.Minute, "a system priority in namespace "+namespace, func() error {
			return create(t.Context(), s.admin, namespace, "critical", critical)
		})
	}
	if err := create(t.Context(), s.tenant, "tenant", "plain", corev1.PodSpec{}); err != nil {
		t.Errorf("a pod without a priority: %v", err)
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "external"}, Spec: corev1.ServiceSpec{
		Ports: []corev1.ServicePort{{Port: 443}}, ExternalIPs: []string{"10.0.0.2"},
	}}
	_, err = s.tenant.CoreV1().Services("tenant").Create(t.Context(), service, metav1.CreateOptions{})
	kubetest.MustForbid(t, "an external IP", err)
}
