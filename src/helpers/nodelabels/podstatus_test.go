package nodelabels

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"kubernetes-release/internal/kubetest"
)

// TestNodesReportSmallStatusOfTheirPods is root on a worker that fills the memory of all that watch pods, or has a
// ReplicaSet delete the pods of other nodes first.
func TestNodesReportSmallStatusOfTheirPods(t *testing.T) {
	cluster, worker := withNodes(t)
	admin := cluster.Admin()
	if _, err := admin.CoreV1().ServiceAccounts("default").Create(t.Context(), &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Name: "default"},
	}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{"example.com/note": "a"}},
		Spec:       corev1.PodSpec{NodeName: stolen},
	}
	var statuses []corev1.ContainerStatus
	for n := range 40 {
		name := fmt.Sprintf("container-%d", n)
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: name, Image: "image"})
		terminated := &corev1.ContainerStateTerminated{
			ExitCode: 1, Reason: "Error", Message: strings.Repeat("x", 300), StartedAt: metav1.Now(),
			FinishedAt: metav1.Now(), ContainerID: "containerd://" + strings.Repeat("a", 64),
		}
		statuses = append(statuses, corev1.ContainerStatus{
			Name: name, Image: "registry.example.com/image", ImageID: "sha256:" + strings.Repeat("b", 64),
			ContainerID: terminated.ContainerID, RestartCount: 7, State: corev1.ContainerState{Terminated: terminated},
			LastTerminationState: corev1.ContainerState{Terminated: terminated},
		})
	}
	if _, err := admin.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	patch := func(client kubernetes.Interface, text []byte) error {
		_, err := client.CoreV1().Pods("default").Patch(
			t.Context(), "web", types.StrategicMergePatchType, text, metav1.PatchOptions{}, "status",
		)
		return err
	}
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

	// The friends: kubelet, with a pod of many containers that failed, by strategic merge patch as PatchPodStatus sends
	// it, and controllers.
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
