package templates

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
)

// TestImagesAreAlwaysPulled looks at each place of a pod in which an image can stand.
func TestImagesAreAlwaysPulled(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t, kubetest.Options{ControllerManager: true})
	pods := cluster.Admin().CoreV1().Pods("default")
	newPod := func(name string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "init", Image: "init:1"}},
			Containers: []corev1.Container{
				{Name: "tenant", Image: "registry.example/tenant:1", ImagePullPolicy: corev1.PullNever},
				{Name: "release", Image: "kubernetes.bosh.io/coredns:1", ImagePullPolicy: corev1.PullIfNotPresent},
			},
			Volumes: []corev1.Volume{
				{Name: "empty", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
				{Name: "image", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{
					Reference: "data:1", PullPolicy: corev1.PullIfNotPresent,
				}}},
			},
		}}
	}
	debug := func(pod *corev1.Pod, name string) *corev1.Pod {
		t.Helper()
		pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, corev1.EphemeralContainer{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{
				Name: name, Image: "debug:1", ImagePullPolicy: corev1.PullIfNotPresent,
				TerminationMessagePolicy: corev1.TerminationMessageReadFile,
			},
		})
		changed, err := pods.UpdateEphemeralContainers(t.Context(), pod.Name, pod, metav1.UpdateOptions{})
		if err != nil {
			t.Fatalf("debug a pod: %v", err)
		}
		return changed
	}
	var old *corev1.Pod
	eventually.Succeeds(t, time.Minute, "create a pod without the policy", func() (err error) {
		old, err = pods.Create(t.Context(), newPod("old"), metav1.CreateOptions{})
		return err // a new namespace has no service account at first
	})
	old = debug(old, "before")
	if policy := old.Spec.Containers[0].ImagePullPolicy; policy != corev1.PullNever {
		t.Fatalf("without the policy, the tenant's pod has the pull policy %s too, so this proves nothing", policy)
	}

	applyPodPolicies(t, cluster, values{"admission": values{"always_pull_images": true}})
	var pod *corev1.Pod
	eventually.Succeeds(t, time.Minute, "the policy changes a pod", func() (err error) {
		name := "new-" + time.Now().Format("150405.000000")
		if pod, err = pods.Create(t.Context(), newPod(name), metav1.CreateOptions{}); err != nil {
			return err
		}
		return expectPolicy("container tenant", pod.Spec.Containers[0].ImagePullPolicy, corev1.PullAlways)
	})
	pod, old = debug(pod, "after"), debug(old, "after")
	setImage := func(list string, index int, image string) error {
		patch := fmt.Appendf(nil, `[{"op": "replace", "path": "/spec/%s/%d/image", "value": %q}]`, list, index, image)
		_, err := pods.Patch(t.Context(), pod.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
		return err
	}
	setLabel := func(name string) error {
		patch := []byte(`{"metadata": {"labels": {"app": "a"}}}`)
		_, err := pods.Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	}
	kubetest.MustForbid(
		t, "a private image in place of the release's", setImage("containers", 1, "registry.example/a:1"),
		"container release does not pull its image each time", "delete the pod",
	)
	for what, err := range map[string]error{
		"another image that is pulled":      setImage("containers", 0, "registry.example/tenant:2"),
		"another init image that is pulled": setImage("initContainers", 0, "init:2"),
		"another image of the release's":    setImage("containers", 1, "kubernetes.bosh.io/coredns:2"),
		"a label of an older pod":           setLabel(old.Name),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, err := range []error{
		expectPolicy("init container", pod.Spec.InitContainers[0].ImagePullPolicy, corev1.PullAlways),
		expectPolicy("image of the release", pod.Spec.Containers[1].ImagePullPolicy, corev1.PullIfNotPresent),
		expectPolicy("volume", pod.Spec.Volumes[1].Image.PullPolicy, corev1.PullAlways),
		expectPolicy("ephemeral container", pod.Spec.EphemeralContainers[0].ImagePullPolicy, corev1.PullAlways),
		expectPolicy("old container", old.Spec.EphemeralContainers[0].ImagePullPolicy, corev1.PullIfNotPresent),
		expectPolicy("container of an old pod", old.Spec.EphemeralContainers[1].ImagePullPolicy, corev1.PullAlways),
	} {
		if err != nil {
			t.Error(err)
		}
	}
}

func expectPolicy(what string, got, want corev1.PullPolicy) error {
	if got != want {
		return fmt.Errorf("%s has the pull policy %s, want %s", what, got, want)
	}
	return nil
}
