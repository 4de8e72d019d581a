package nodelabels

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"kubernetes-release/internal/kubetest"
)

// createServiceAccount creates the one that pods have by default, which nothing else creates without a controller
// manager.
func createServiceAccount(t *testing.T, admin kubernetes.Interface) {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	_, err := admin.CoreV1().ServiceAccounts("default").Create(t.Context(), account, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

func amounts(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
	}
}

// patchStatus changes the pod web, by strategic merge patch as PatchPodStatus of kubelet sends it.
func patchStatus(t *testing.T, client kubernetes.Interface, text []byte) error {
	t.Helper()
	_, err := client.CoreV1().Pods("default").Patch(
		t.Context(), "web", types.StrategicMergePatchType, text, metav1.PatchOptions{}, "status",
	)
	return err
}

// TestNodesReportSmallStatusOfTheirPods is root on a worker that fills the memory of all that watch pods, or has a
// ReplicaSet delete the pods of other nodes first.
func TestNodesReportSmallStatusOfTheirPods(t *testing.T) {
	cluster, worker := withNodes(t)
	admin := cluster.Admin()
	createServiceAccount(t, admin)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{"example.com/note": "a"}},
		Spec:       corev1.PodSpec{NodeName: stolen},
	}
	var statuses []corev1.ContainerStatus
	given := amounts("100m", "64Mi")
	resources := corev1.ResourceRequirements{Requests: given, Limits: given}
	for n := range 40 {
		name := fmt.Sprintf("container-%d", n)
		container := corev1.Container{Name: name, Image: "image", Resources: resources}
		pod.Spec.Containers = append(pod.Spec.Containers, container)
		terminated := &corev1.ContainerStateTerminated{
			ExitCode: 1, Reason: "Error", Message: strings.Repeat("x", 300), StartedAt: metav1.Now(),
			FinishedAt: metav1.Now(), ContainerID: "containerd://" + strings.Repeat("a", 64),
		}
		statuses = append(statuses, corev1.ContainerStatus{
			Name: name, Image: "registry.example.com/image", ImageID: "sha256:" + strings.Repeat("b", 64),
			ContainerID: terminated.ContainerID, RestartCount: 7, State: corev1.ContainerState{Terminated: terminated},
			LastTerminationState: corev1.ContainerState{Terminated: terminated},
			AllocatedResources:   given, Resources: &resources,
		})
	}
	if _, err := admin.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	patch := func(client kubernetes.Interface, text []byte) error { return patchStatus(t, client, text) }
	message := func(size int) []byte {
		return fmt.Appendf(nil, `{"status": {"message": %q}}`, strings.Repeat("x", size))
	}
	kubetest.MustForbid(t, "a megabyte", patch(worker, message(1<<20)), "262144 characters as the status of a pod")
	for what, annotations := range map[string]string{
		"another":      `{"controller.kubernetes.io/pod-deletion-cost": "2147483647"}`,
		"one changed":  `{"example.com/note": "b"}`,
		"one too few":  `{"example.com/note": null}`,
		"none of them": `null`,
	} {
		err := patch(worker, fmt.Appendf(nil, `{"metadata": {"annotations": %s}}`, annotations))
		kubetest.MustForbid(t, "annotations: "+what, err, "annotations of its pods")
	}

	// The friends: kubelet, with a pod of many containers that failed, and controllers.
	status, err := json.Marshal(map[string]any{
		"status": map[string]any{"phase": "Running", "containerStatuses": statuses},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := patch(worker, status); err != nil {
		t.Errorf("kubelet's report of %d containers, %d bytes: %v", len(statuses), len(status), err)
	}
	if err := patch(worker, message(100<<10)); err != nil {
		t.Errorf("a message of 100 KiB: %v", err)
	}
	if err := patch(admin, []byte(`{"metadata": {"annotations": {"example.com/note": "c"}}}`)); err != nil {
		t.Errorf("a controller's annotation: %v", err)
	}
}

// TestNodesReportNoMoreThanPodsAskFor is root on a worker that uses up the ResourceQuota of a tenant whose pod runs
// there.
func TestNodesReportNoMoreThanPodsAskFor(t *testing.T) {
	cluster, worker := withNodes(t)
	admin := cluster.Admin()
	createServiceAccount(t, admin)
	request, limit := amounts("100m", "64Mi"), amounts("1", "1Gi")
	always := corev1.ContainerRestartPolicyAlways
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: corev1.PodSpec{
			NodeName: stolen,
			InitContainers: []corev1.Container{{
				Name: "sidecar", Image: "image", RestartPolicy: &always,
				Resources: corev1.ResourceRequirements{Requests: amounts("50m", "8Mi")},
			}},
			Containers: []corev1.Container{
				{
					Name: "server", Image: "image",
					Resources: corev1.ResourceRequirements{Requests: request, Limits: limit},
				},
				{Name: "plain", Image: "image"},
			},
		},
	}
	if _, err := admin.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	text := []byte(`{"status": {"allocatable": {"cpu": "4", "memory": "8Gi"}}}`) // without which nothing is resized
	if _, err := admin.CoreV1().Nodes().PatchStatus(t.Context(), stolen, text); err != nil {
		t.Fatal(err)
	}
	type report struct{ allocated, requests, limits corev1.ResourceList }
	status := func(list, container string, r report) error {
		s := corev1.ContainerStatus{
			Name: container, Image: "image", AllocatedResources: r.allocated,
			Resources: &corev1.ResourceRequirements{Requests: r.requests, Limits: r.limits},
		}
		text, err := json.Marshal(map[string]any{"status": map[string]any{list: []corev1.ContainerStatus{s}}})
		if err != nil {
			t.Fatal(err)
		}
		return patchStatus(t, worker, text)
	}
	server := func(r report) error { return status("containerStatuses", "server", r) }

	const more, overLimit = "was given more than it requests", "may use more than its limit"
	device := corev1.ResourceList{"example.com/device": resource.MustParse("1")}
	for what, test := range map[string]struct {
		list, container string
		report          report
		refusal         string
	}{
		"allocated":         {"containerStatuses", "server", report{allocated: amounts("100", "64Mi")}, more},
		"requests":          {"containerStatuses", "server", report{requests: amounts("100m", "1Ti")}, more},
		"the limit":         {"containerStatuses", "server", report{allocated: limit}, more},
		"limits":            {"containerStatuses", "server", report{limits: amounts("2", "1Gi")}, overLimit},
		"a device":          {"containerStatuses", "server", report{allocated: device}, more},
		"without requests":  {"containerStatuses", "plain", report{allocated: amounts("1", "64Mi")}, more},
		"without limits":    {"containerStatuses", "plain", report{limits: amounts("1", "64Mi")}, overLimit},
		"a sidecar":         {"initContainerStatuses", "sidecar", report{requests: amounts("1", "8Mi")}, more},
		"a sidecar's limit": {"initContainerStatuses", "sidecar", report{limits: amounts("1", "8Mi")}, overLimit},
		"nobody":            {"containerStatuses", "nobody", report{allocated: amounts("1", "8Mi")}, more},
	} {
		kubetest.MustForbid(t, what, status(test.list, test.container, test.report), test.refusal)
	}

	// The friend: kubelet reports what containers ask for, and beside a resize what they have had so far.
	permit := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	resize := func(request, limit corev1.ResourceList) {
		t.Helper()
		current, err := admin.CoreV1().Pods("default").Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		current.Spec.Containers[0].Resources = corev1.ResourceRequirements{Requests: request, Limits: limit}
		_, err = admin.CoreV1().Pods("default").UpdateResize(t.Context(), "web", current, metav1.UpdateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	asked := report{request, request, limit}
	permit("what it asks for", server(asked))
	permit("rounded up by systemd", server(report{request, amounts("110m", "64Mi"), amounts("1010m", "1Gi")}))
	permit("a container without requests", status("containerStatuses", "plain", report{}))
	permit("a sidecar", status("initContainerStatuses", "sidecar", report{allocated: amounts("50m", "8Mi")}))
	kubetest.MustForbid(t, "rounded up twice", server(report{request, amounts("120m", "64Mi"), limit}), more)

	larger, largerLimit := amounts("500m", "128Mi"), amounts("2", "2Gi")
	resize(larger, largerLimit)
	permit("before a resize", server(asked))
	permit("while it is resized", server(report{larger, request, limit}))
	permit("resized", server(report{larger, larger, largerLimit}))
	resize(request, limit)
	permit("before it is smaller", server(report{request, larger, largerLimit}))
	permit("smaller", server(asked))
	kubetest.MustForbid(t, "as before", server(report{larger, request, limit}), more)
	kubetest.MustForbid(t, "the limit as before", server(report{request, request, largerLimit}), overLimit)
}
