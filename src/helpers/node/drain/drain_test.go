package drain

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
	"kubernetes-release/internal/readywait"
	"kubernetes-release/node/object"
)

// world is a real API server with two nodes, on which pods run as far as the API knows: a fake kubelet ends those that
// are deleted.
type world struct {
	*testing.T
	cluster *kubetest.Cluster
	admin   kubernetes.Interface
	kubelet kubernetes.Interface // of node "a"
	log     bytes.Buffer
}

func newWorld(t *testing.T, etcdFlags ...string) *world {
	cluster := kubetest.Start(t, kubetest.Options{ControllerManager: true, EtcdFlags: etcdFlags})
	w := &world{T: t, cluster: cluster, admin: cluster.Admin()}
	w.kubelet = cluster.ClientFor("system:node:a", "system:nodes")
	// As the job kubernetes-addons grants it.
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "drain"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{"storage.k8s.io"}, Resources: []string{"volumeattachments"}, Verbs: []string{"list"}},
	}}
	_, err := w.admin.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{})
	w.must(err)
	_, err = w.admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{
			Name: "drain",
		},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "drain"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:nodes"}},
	}, metav1.CreateOptions{})
	w.must(err)
	w.node("a")
	w.node("b")
	go w.endDeletedPods()
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) node(name string) {
	w.Helper()
	node, err := w.admin.CoreV1().
		Nodes().
		Create(w.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	w.must(err)
	node.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue,
		LastHeartbeatTime: metav1.NewTime(time.Now().Add(time.Hour)), // after each kubeconfig of a test was written
	}}
	node.ResourceVersion = "" // the controller manager changes it too
	_, err = w.admin.CoreV1().Nodes().UpdateStatus(w.Context(), node, metav1.UpdateOptions{})
	w.must(err)
	eventually.Succeeds(
		w.T,
		30*time.Second,
		"a node without taints",
		func() error { // which the controller manager removes
			node, err := w.admin.CoreV1().Nodes().Get(w.Context(), name, metav1.GetOptions{})
			if err == nil && !accepts(node, nil) {
				err = errors.New("it does not accept pods")
			}
			return err
		},
	)
}

// endDeletedPods removes the pods with a deletion time, as kubelets do when the containers have ended. Pods with the
// label "hangs" do not end.
func (w *world) endDeletedPods() {
	for w.Context().Err() == nil {
		list, err := w.admin.CoreV1().Pods("default").List(w.Context(), metav1.ListOptions{LabelSelector: "!hangs"})
		if err == nil {
			for _, pod := range list.Items {
				if pod.DeletionTimestamp != nil {
					_ = w.admin.CoreV1().
						Pods("default").
						Delete(w.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
				}
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// pod creates a pod that runs on node a.
func (w *world) pod(name string, change func(*corev1.Pod)) {
	w.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:   name,
			Labels: map[string]string{"app": name},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "example.com/v1", Kind: "Owner", Name: "owner", UID: "1", Controller: new(true)},
			},
		},
		Spec: corev1.PodSpec{
			NodeName:                      "a",
			Containers:                    []corev1.Container{{Name: "c", Image: "i"}},
			TerminationGracePeriodSeconds: new(int64(1)),
			AutomountServiceAccountToken:  new(false),
		},
	}
	if change != nil {
		change(pod)
	}
	var created *corev1.Pod
	eventually.Succeeds(
		w.T,
		30*time.Second,
		"pod "+name,
		func() (err error) { // the service account of the namespace is created late
			created, err = w.admin.CoreV1().Pods("default").Create(w.Context(), pod, metav1.CreateOptions{})
			return err
		},
	)
	created.Status.Phase = corev1.PodRunning
	created.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	_, err := w.admin.CoreV1().Pods("default").UpdateStatus(w.Context(), created, metav1.UpdateOptions{})
	w.must(err)
}

// budget protects the pods of a label: minAvailable of them must run.
func (w *world) budget(app string, minAvailable int) {
	w.Helper()
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: app},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt(minAvailable)),
			Selector:     &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
		},
	}
	_, err := w.admin.PolicyV1().PodDisruptionBudgets("default").Create(w.Context(), budget, metav1.CreateOptions{})
	w.must(err)
}

// pods returns the names of the pods of node a.
func (w *world) pods() string {
	w.Helper()
	list, err := w.admin.CoreV1().Pods("default").List(w.Context(), metav1.ListOptions{})
	w.must(err)
	var names []string
	for _, pod := range list.Items {
		names = append(names, pod.Name)
	}
	return strings.Join(names, " ")
}

func (w *world) a() *corev1.Node {
	w.Helper()
	node, err := w.admin.CoreV1().Nodes().Get(w.Context(), "a", metav1.GetOptions{})
	w.must(err)
	return node
}

func (w *world) awaitCordon() {
	w.Helper()
	eventually.Succeeds(w.T, 30*time.Second, "a cordoned node", func() error {
		if !w.a().Spec.Unschedulable {
			return errors.New("it is schedulable")
		}
		return nil
	})
}

func (w *world) drain(options Options) error { return w.drainUntil(w.Context(), options) }

func (w *world) drainUntil(ctx context.Context, options Options) error {
	options.Node, options.Interval = "a", 100*time.Millisecond
	if options.Timeout == 0 {
		options.Timeout = time.Minute
	}
	return Drain(ctx, w.kubelet, options, slog.New(slog.NewTextHandler(&w.log, nil)))
}

// clean removes what a test has left.
func (w *world) clean() {
	w.Helper()
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	w.must(w.admin.PolicyV1().PodDisruptionBudgets("default").DeleteCollection(w.Context(), now, metav1.ListOptions{}))
	w.must(w.admin.CoreV1().Pods("default").DeleteCollection(w.Context(), now, metav1.ListOptions{}))
	w.must(w.admin.CoreV1().PersistentVolumeClaims("default").DeleteCollection(w.Context(), now, metav1.ListOptions{}))
	w.must(w.admin.StorageV1().VolumeAttachments().DeleteCollection(w.Context(), now, metav1.ListOptions{}))
	w.must(Restore(w.Context(), w.admin, "a", slog.New(slog.DiscardHandler)))
	w.log.Reset()
}

func TestDrain(t *testing.T) {
	w := newWorld(t)
	for name, test := range map[string]func(*world){
		"pods leave, DaemonSets stay":          testPodsLeave,
		"a pod without a controller":           testUnmanagedPod,
		"pods that tolerate the cordon":        testToleratingPods,
		"a budget is honored until it permits": testBudget,
		"deadline: force":                      testForce,
		"deadline: fail":                       testFail,
		"canceled":                             testCanceled,
		"an eviction is forbidden":             testForbiddenEviction,
		"a deletion is forbidden for a while":  testForbiddenDeletion,
		"volumes are detached":                 testVolumes,
		"an operator's cordon stays":           testCordon,
		"taints change meanwhile":              testTaintsChange,
		"nowhere to go":                        testNowhere,
		"a pool with a taint":                  testPool,
		"load balancers":                       testLoadBalancers,
		"a start without a quorum of etcd":     testFinish,
	} {
		t.Run(name, func(t *testing.T) {
			// The world's own T is the outer one, as its API server is.
			inner := &world{T: t, cluster: w.cluster, admin: w.admin, kubelet: w.kubelet}
			inner.clean()
			test(inner)
			if t.Failed() {
				t.Log(inner.log.String())
			}
		})
	}
}

func testPodsLeave(w *world) {
	w.pod("web", nil)
	w.pod("done", nil)
	w.pod("daemon", func(pod *corev1.Pod) {
		pod.OwnerReferences[0].Kind = "DaemonSet" // of a made-up group, or the garbage collector would look for it
	})
	w.must(w.drain(Options{}))
	if got := w.pods(); got != "daemon" {
		w.Errorf("left: %q", got)
	}
	node := w.a()
	if _, out := node.Labels[corev1.LabelNodeExcludeBalancers]; !out || !node.Spec.Unschedulable {
		w.Errorf("the node is still in service: %v %v", node.Labels, node.Spec)
	}
	w.must(w.drain(Options{})) // again, before it was restored
	w.must(Restore(w.Context(), w.kubelet, "a", slog.New(slog.DiscardHandler)))
	node = w.a()
	if _, out := node.Labels[corev1.LabelNodeExcludeBalancers]; out || node.Spec.Unschedulable ||
		len(node.Annotations[drainedBy]) > 0 {
		w.Errorf("the node is not in service: %v %v %v", node.Labels, node.Spec, node.Annotations)
	}
}

func testUnmanagedPod(w *world) {
	w.pod("alone", func(pod *corev1.Pod) { pod.OwnerReferences = nil })
	w.must(w.drain(Options{}))
	if got := w.pods(); got != "alone" {
		w.Errorf("left: %q: a pod that nobody creates again must survive a restart", got)
	}
	w.must(w.drain(Options{VMDeleted: true}))
	if got := w.pods(); got != "" {
		w.Errorf("left: %q", got)
	}
}

// testToleratingPods: the scheduler chooses the cordoned node for the next pod too, which its controller creates as
// soon as the one before it is ending.
func testToleratingPods(w *world) {
	pods := w.admin.CoreV1().Pods("default")
	create := func(number int) {
		w.pod(fmt.Sprintf("tolerating-%d", number), func(pod *corev1.Pod) {
			pod.Labels["hangs"] = "" // until the next one is there
			pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		})
	}
	create(0)
	const timeout = 10 * time.Second
	started, drained := time.Now(), make(chan error, 1)
	go func() { drained <- w.drain(Options{Timeout: timeout, Force: true}) }()
	for next := 1; ; {
		select {
		case err := <-drained:
			w.must(err)
			if took := time.Since(started); w.pods() != "tolerating-1" || took > timeout {
				w.Errorf("left: %q after %s: one eviction of each pod is enough", w.pods(), took)
			}
			return
		case <-time.After(100 * time.Millisecond):
		}
		list, err := pods.List(w.Context(), metav1.ListOptions{})
		w.must(err)
		for _, pod := range list.Items {
			if pod.DeletionTimestamp != nil {
				create(next)
				next++
				w.must(pods.Delete(w.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
			}
		}
	}
}

func testBudget(w *world) {
	w.pod("guarded", nil)
	w.budget("guarded", 1)
	drained := make(chan error, 1)
	go func() { drained <- w.drain(Options{}) }()
	w.awaitCordon()
	w.pod(
		"other", func(pod *corev1.Pod) { pod.Labels["app"] = "guarded"; pod.Spec.NodeName = "b" },
	) // started elsewhere
	w.must(<-drained)
	if got := w.pods(); got != "other" {
		w.Errorf("left: %q", got)
	}
}

func testForce(w *world) {
	w.pod("guarded", nil)
	w.budget("guarded", 1)
	w.must(w.drain(Options{Timeout: 2 * time.Second, Force: true}))
	if got := w.pods(); got != "" {
		w.Errorf("left: %q", got)
	}
}

func testFail(w *world) {
	w.pod("guarded", nil)
	w.pod("free", nil)
	w.budget("guarded", 1)
	err := w.drain(Options{Timeout: 2 * time.Second})
	var deadline *DeadlineError
	if !errors.As(err, &deadline) || !strings.Contains(err.Error(), "guarded") ||
		!strings.Contains(err.Error(), "drain.timeout") {
		w.Errorf("got %v", err)
	}
	if got := w.pods(); got != "guarded" {
		w.Errorf("left: %q", got)
	}
	if w.a().Spec.Unschedulable {
		w.Error("the node stays out of service")
	}
}

// testCanceled: the agent ends a drain script when the Director's task is canceled.
func testCanceled(w *world) {
	w.pod("guarded", nil)
	w.budget("guarded", 1)
	ctx, cancel := context.WithCancel(w.Context())
	defer cancel()
	left := make(chan error, 1)
	go func() {
		left <- Leave(ctx, w.TempDir(), Steps{
			Drain: func(ctx context.Context, _ bool) error { return w.drainUntil(ctx, Options{}) },
			Restore: func(ctx context.Context) error {
				return Restore(ctx, w.kubelet, "a", slog.New(slog.DiscardHandler))
			},
		}, slog.New(slog.DiscardHandler))
	}()
	w.awaitCordon()
	cancel()
	if err := <-left; !errors.Is(err, errCanceled) {
		w.Errorf("got %v", err)
	}
	if _, out := w.a().Labels[corev1.LabelNodeExcludeBalancers]; out || w.a().Spec.Unschedulable {
		w.Error("the node stays out of service")
	}
}

// testForbiddenEviction: 403 for one pod, as from a policy of an operator, is no end of the drain of the others.
func testForbiddenEviction(w *world) {
	w.pod("a-refused", nil)
	w.pod("guarded", nil)
	w.pod("z-free", nil)
	w.budget("guarded", 1)
	defer w.forbid("a-refused", admissionv1.Create, "pods/eviction", func() error {
		return w.kubelet.CoreV1().Pods("default").EvictV1(w.Context(), &policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Name: "a-refused"},
			DeleteOptions: &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}},
		})
	})()
	const timeout = 3 * time.Second
	started := time.Now()
	err := w.drain(Options{Timeout: timeout})
	var deadline *DeadlineError
	if !errors.As(err, &deadline) || !strings.Contains(err.Error(), "a-refused") || time.Since(started) < timeout {
		w.Errorf("after %s: got %v", time.Since(started), err)
	}
	if got := w.pods(); got != "a-refused guarded" {
		w.Errorf("left: %q", got)
	}
	ctx, cancel := context.WithTimeout(w.Context(), timeout)
	defer cancel()
	w.must(w.drainUntil(ctx, Options{Timeout: time.Hour, Force: true}))
	if got := w.pods(); got != "a-refused guarded" {
		w.Errorf("left: %q: pods were deleted long before the deadline", got)
	}
}

func testForbiddenDeletion(w *world) {
	w.pod("web", nil)
	w.budget("web", 1)
	allow := w.forbid("web", admissionv1.Delete, "pods", func() error {
		return w.kubelet.CoreV1().Pods("default").Delete(
			w.Context(), "web", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}},
		)
	})
	const timeout = time.Second
	drained := make(chan error, 1)
	go func() { drained <- w.drain(Options{Timeout: timeout, Force: true}) }()
	time.Sleep(timeout + time.Second)
	allow()
	w.must(<-drained)
	if got := w.pods(); got != "" {
		w.Errorf("left: %q", got)
	}
}

// forbid has the API answer 403 when the kubelet does something to a pod, from when it returns until the returned
// function is called.
func (w *world) forbid(
	pod string, operation admissionv1.OperationType, resource string, try func() error,
) (allow func()) {
	w.Helper()
	policies, bindings := w.admin.AdmissionregistrationV1().ValidatingAdmissionPolicies(),
		w.admin.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	forbidden := metav1.StatusReasonForbidden
	_, err := policies.Create(w.Context(), &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: pod},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{
				ResourceRules: []admissionv1.NamedRuleWithOperations{{
					RuleWithOperations: admissionv1.RuleWithOperations{
						Operations: []admissionv1.OperationType{operation},
						Rule: admissionv1.Rule{
							APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{resource},
						},
					},
				}},
			},
			Validations: []admissionv1.Validation{{
				Expression: fmt.Sprintf("request.userInfo.username != 'system:node:a' || request.name != '%s'", pod),
				Reason:     &forbidden,
			}},
		},
	}, metav1.CreateOptions{})
	w.must(err)
	_, err = bindings.Create(w.Context(), &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: pod},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: pod, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}, metav1.CreateOptions{})
	w.must(err)
	eventually.Succeeds(w.T, 30*time.Second, "a policy in force", func() error {
		if err := try(); !apierrors.IsForbidden(err) {
			return fmt.Errorf("got %w, want 403", err)
		}
		return nil
	})
	return func() {
		w.Helper()
		w.must(bindings.Delete(w.Context(), pod, metav1.DeleteOptions{}))
		w.must(policies.Delete(w.Context(), pod, metav1.DeleteOptions{}))
	}
}

func testVolumes(w *world) {
	w.pod("database", nil)
	// Its containers have ended: kubelet keeps the object until the volumes are unmounted.
	w.pod("ended", func(pod *corev1.Pod) {
		pod.Spec.Volumes = []corev1.Volume{
			{
				Name: "data",
				VolumeSource: corev1.VolumeSource{
					PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
				},
			},
		}
	})
	ended, err := w.admin.CoreV1().Pods("default").Get(w.Context(), "ended", metav1.GetOptions{})
	w.must(err)
	ended.Status.Phase = corev1.PodSucceeded
	_, err = w.admin.CoreV1().Pods("default").UpdateStatus(w.Context(), ended, metav1.UpdateOptions{})
	w.must(err)
	w.attachment("of-a", "a")
	w.attachment("of-b", "b")
	err = w.drain(Options{Timeout: 2 * time.Second})
	if err == nil || !strings.Contains(err.Error(), "of-a") || strings.Contains(err.Error(), "of-b") {
		w.Errorf("got %v", err)
	}
	time.AfterFunc(time.Second, func() { // the controller of the driver
		_ = w.admin.StorageV1().VolumeAttachments().Delete(w.Context(), "of-a", metav1.DeleteOptions{})
	})
	w.must(w.drain(Options{}))
	w.pod("daemon", func(pod *corev1.Pod) {
		pod.OwnerReferences[0].Kind = "DaemonSet"
		pod.Spec.Volumes = []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{
			Ephemeral: &corev1.EphemeralVolumeSource{
				VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: claimSpec()},
			},
		}}}
	})
	w.bind("daemon-scratch", "v-daemon")
	w.attachment("of-daemon", "a")
	w.must(w.drain(Options{}))
	// Volumes of NFS and EFS are not attached. That of a pod that stays is not taken for that of one that leaves.
	claim := corev1.PersistentVolumeClaimVolumeSource{ClaimName: "shared"}
	w.pod("sharing", func(pod *corev1.Pod) {
		pod.OwnerReferences[0].Kind = "DaemonSet"
		pod.Spec.Volumes = []corev1.Volume{
			{Name: "shared", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &claim}},
		}
	})
	w.must(w.drain(Options{})) // there is no such claim yet
	w.claim("shared")
	w.bind("shared", "v-nfs")
	w.attachment("of-a", "a")
	err = w.drain(Options{Timeout: 2 * time.Second})
	if err == nil || !strings.Contains(err.Error(), "of-a") || strings.Contains(err.Error(), "of-daemon") {
		w.Errorf("got %v", err)
	}
}

// claim creates a PersistentVolumeClaim.
func (w *world) claim(name string) {
	w.Helper()
	_, err := w.admin.CoreV1().PersistentVolumeClaims("default").Create(w.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: claimSpec(),
	}, metav1.CreateOptions{})
	w.must(err)
}

func claimSpec() corev1.PersistentVolumeClaimSpec {
	return corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		},
	}
}

// bind gives a claim a volume. The controller manager creates the claims of ephemeral volumes.
func (w *world) bind(claim, volume string) {
	w.Helper()
	patch := fmt.Appendf(nil, `{"spec": {"volumeName": "%s"}}`, volume)
	eventually.Succeeds(w.T, 30*time.Second, "claim "+claim, func() error {
		_, err := w.admin.CoreV1().
			PersistentVolumeClaims("default").
			Patch(w.Context(), claim, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	})
}

// attachment attaches the volume v-NAME to a node for the attachment of-NAME.
func (w *world) attachment(name, node string) {
	w.Helper()
	_, err := w.admin.StorageV1().VolumeAttachments().Create(w.Context(), &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: "example.com",
			NodeName: node,
			Source: storagev1.VolumeAttachmentSource{
				PersistentVolumeName: new(strings.Replace(name, "of-", "v-", 1)),
			},
		},
	}, metav1.CreateOptions{})
	w.must(err)
}

func testCordon(w *world) {
	w.cordon("a", true)
	defer w.cordon("a", false)
	w.must(w.drain(Options{}))
	w.must(Restore(w.Context(), w.kubelet, "a", slog.New(slog.DiscardHandler)))
	if !w.a().Spec.Unschedulable {
		w.Error("the operator's cordon is gone")
	}
}

// testTaintsChange: the controller manager changes a taint between the two requests of an update.
func testTaintsChange(w *world) {
	defer w.patch("a", `{"spec": {"taints": null}}`)
	tries := 0
	w.must(update(w.Context(), w.kubelet, "a", func(node *corev1.Node) {
		if tries++; tries == 1 {
			w.patch("a", `{"spec": {"taints": [{"key": "pool", "effect": "NoSchedule"}]}}`)
		}
		node.Spec.Unschedulable, node.Annotations[drainedBy] = true, cordoned
	}))
	if !w.a().Spec.Unschedulable {
		w.Errorf("the node is in service after %d tries", tries)
	}
}

// cordon is kubectl cordon and uncordon.
func (w *world) cordon(name string, on bool) {
	w.Helper()
	w.patch(name, fmt.Sprintf(`{"spec": {"unschedulable": %t}}`, on))
}

func (w *world) patch(name, patch string) {
	w.Helper()
	_, err := w.admin.CoreV1().
		Nodes().
		Patch(context.WithoutCancel(w.Context()), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	w.must(err)
}

func testNowhere(w *world) {
	w.cordon("b", true)
	defer w.cordon("b", false)
	w.pod("web", nil)
	w.budget("web", 1)
	w.must(w.drain(Options{}))
	if got := w.pods(); got != "web" || w.a().Spec.Unschedulable {
		w.Errorf("left: %q: pods of the only node must survive a restart", got)
	}
	w.must(w.drain(Options{VMDeleted: true, Timeout: time.Hour})) // no budget could ever permit it
	if got := w.pods(); got != "" {
		w.Errorf("left: %q", got)
	}
}

// testPool: pods of a pool tolerate its taint, so that its other nodes can run them.
func testPool(w *world) {
	for _, name := range []string{"a", "b"} {
		w.patch(name, `{"spec": {"taints": [{"key": "pool", "value": "gpu", "effect": "NoSchedule"}]}}`)
		defer w.patch(name, `{"spec": {"taints": null}}`)
	}
	w.pod("guarded", nil)
	w.budget("guarded", 1)
	err := w.drain(Options{VMDeleted: true, Timeout: 2 * time.Second})
	var deadline *DeadlineError
	if !errors.As(err, &deadline) {
		w.Errorf("got %v", err)
	}
	if got := w.pods(); got != "guarded" {
		w.Errorf("left: %q", got)
	}
}

func testLoadBalancers(w *world) {
	_, err := w.admin.CoreV1().Services("default").Create(w.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "balanced"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	w.must(err)
	started := time.Now()
	w.must(w.drain(Options{LoadBalancerDelay: 2 * time.Second}))
	if took := time.Since(started); took < 2*time.Second {
		w.Errorf("drained after %s, while load balancers still send requests", took)
	}
}

// testFinish: post-start ends without a quorum of etcd, and post-deploy runs when all control VMs have started.
func testFinish(w *world) {
	log := slog.New(slog.DiscardHandler)
	w.must(retire(w.Context(), w.kubelet, "a", log))
	kubeconfig := w.cluster.Kubeconfig("system:node:a", "system:nodes")
	content, err := os.ReadFile(kubeconfig)
	w.must(err)
	content = regexp.MustCompile(`server: .*`).ReplaceAll(content, []byte("server: https://127.0.0.1:1"))
	unreachable, pending := filepath.Join(w.TempDir(), "kubeconfig"), filepath.Join(w.TempDir(), "pending")
	w.must(os.WriteFile(unreachable, content, 0o600))
	node := object.Options{
		Kubeconfig: unreachable, Name: "a", Timeout: time.Minute,
		EtcdMembers: []string{"127.0.0.1:1", "127.0.0.1:1", "127.0.0.1:1"},
	}
	in := func() bool { return !w.a().Spec.Unschedulable }

	var none *readywait.NoQuorumError
	if err := Return(w.Context(), node, Files{Pending: pending}, log); !errors.As(err, &none) {
		w.Fatalf("post-start: %v", err)
	}
	if err := Finish(w.Context(), node, pending, log); !errors.As(err, &none) || in() {
		w.Errorf("post-deploy without a quorum: in service %t, %v", in(), err)
	}
	node.Kubeconfig = kubeconfig
	if err := Finish(w.Context(), node, pending, log); err != nil || !in() {
		w.Errorf("post-deploy: in service %t, %v", in(), err)
	}
	w.must(retire(w.Context(), w.kubelet, "a", log)) // for an interruption
	if err := Finish(w.Context(), node, pending, log); err != nil || in() {
		w.Errorf("the next post-deploy: in service %t, %v", in(), err)
	}
	if err := Return(w.Context(), node, Files{Pending: pending}, log); err != nil || !in() || exists(pending) {
		w.Errorf("post-start with a quorum: in service %t, pending %t, %v", in(), exists(pending), err)
	}
}

func TestAccepts(t *testing.T) {
	const pressure = corev1.TaintNodeMemoryPressure
	own := []corev1.Taint{
		{Key: "pool", Value: "gpu", Effect: corev1.TaintEffectNoSchedule},
		{Key: pressure, Effect: corev1.TaintEffectNoSchedule},
	}
	for name, test := range map[string]struct {
		taint corev1.Taint
		want  bool
	}{
		"same pool":       {own[0], true},
		"only preferred":  {corev1.Taint{Key: "other", Effect: corev1.TaintEffectPreferNoSchedule}, true},
		"another pool":    {corev1.Taint{Key: "pool", Value: "cpu", Effect: corev1.TaintEffectNoSchedule}, false},
		"another effect":  {corev1.Taint{Key: "pool", Value: "gpu", Effect: corev1.TaintEffectNoExecute}, false},
		"memory pressure": {own[1], false},
	} {
		node := &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{test.taint}}}
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		if got := accepts(node, own); got != test.want {
			t.Errorf("%s: got %t, want %t", name, got, test.want)
		}
	}
}

// TestEndsWithoutAPI drains while the API does not answer, answers only errors, and knows no such Node.
func TestEndsWithoutAPI(t *testing.T) {
	for name, test := range map[string]struct {
		answer func(http.ResponseWriter, *http.Request)
		want   string
	}{
		"gone": {nil, "has not answered"},
		"shuts down": {
			func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusServiceUnavailable) },
			"has not answered",
		},
		"unknown Node": {http.NotFound, "nothing to drain"},
		"no rights": {
			func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) },
			"kubernetes-addons",
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(test.answer))
			defer server.Close()
			if test.answer == nil {
				server.Close()
			}
			client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, QPS: -1})
			if err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			options := Options{
				Node:       "a",
				Timeout:    time.Hour,
				VMDeleted:  true,
				APITimeout: 300 * time.Millisecond,
				Interval:   50 * time.Millisecond,
			}
			if err := Drain(ctx, client, options, slog.New(slog.NewTextHandler(&log, nil))); err != nil {
				t.Errorf("the drain fails: %v", err)
			}
			if ctx.Err() != nil || !strings.Contains(log.String(), test.want) {
				t.Errorf("logged:\n%s\nwant %q", &log, test.want)
			}
		})
	}
}
