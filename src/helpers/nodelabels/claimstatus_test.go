package nodelabels

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
)

// TestNodesReportSizesOfClaimsOnly is root on a worker that has the driver's controller expand the volume of a tenant,
// or keeps it from doing so, by the status of the claim.
func TestNodesReportSizesOfClaimsOnly(t *testing.T) {
	cluster, worker := withNodes(t)
	admin := cluster.Admin()
	createServiceAccount(t, admin)
	claims := admin.CoreV1().PersistentVolumeClaims("default")
	if _, err := claims.Create(t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeName: "volume",
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("10Gi")},
			},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: corev1.PodSpec{
			NodeName: stolen, Containers: []corev1.Container{{Name: "main", Image: "image"}},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
			}}},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	report := func(client kubernetes.Interface, status map[string]any) error {
		text, err := json.Marshal(map[string]any{"status": status})
		if err != nil {
			t.Fatal(err)
		}
		_, err = client.CoreV1().PersistentVolumeClaims("default").Patch(
			t.Context(), "data", types.MergePatchType, text, metav1.PatchOptions{}, "status",
		)
		return err
	}
	storage := func(value string) map[string]string { return map[string]string{"storage": value} }
	// What csi-resizer has written when it has expanded the volume, of which kubelet is to expand the filesystem.
	if err := report(admin, map[string]any{
		"phase": "Bound", "capacity": storage("8Gi"), "allocatedResources": storage("10Gi"),
		"allocatedResourceStatuses": storage("NodeResizePending"),
	}); err != nil {
		t.Fatal(err)
	}
	eventually.Succeeds(t, 30*time.Second, "kubelet resizes the filesystem", func() error {
		return report(worker, map[string]any{"allocatedResourceStatuses": storage("NodeResizeInProgress")})
	})

	const byController = string(corev1.PersistentVolumeClaimControllerResizeInProgress)
	const capacity, stage = "only increase the capacity", "not what the driver's controller does"
	for what, test := range map[string]struct {
		status  map[string]any
		refusal string
	}{
		"the driver is to expand it": {
			map[string]any{
				"capacity": storage("1Ki"), "allocatedResources": storage("16Ti"),
				"allocatedResourceStatuses": storage(byController),
			},
			"what was allocated to a claim",
		},
		"allocated":           {map[string]any{"allocatedResources": storage("16Ti")}, "what was allocated to a claim"},
		"a stage":             {map[string]any{"allocatedResourceStatuses": storage(byController)}, stage},
		"a smaller capacity":  {map[string]any{"capacity": storage("1Ki")}, capacity},
		"a larger one":        {map[string]any{"capacity": storage("16Ti")}, capacity},
		"of something else":   {map[string]any{"capacity": map[string]string{"example.com/a": "1"}}, capacity},
		"none":                {map[string]any{"capacity": nil}, capacity},
		"many long messages":  {map[string]any{"conditions": longConditions(20)}, "16384 characters"},
		"one of 100 kilobyte": {map[string]any{"conditions": longConditions(1)}, "16384 characters"},
	} {
		kubetest.MustForbid(t, what, report(worker, test.status), test.refusal)
	}

	// The friends: kubelet, which cannot expand it and then can, also to what the driver rounded up, and csi-resizer.
	for what, status := range map[string]map[string]any{
		"infeasible": {
			"allocatedResourceStatuses": storage("NodeResizeInfeasible"),
			"conditions": []map[string]any{{
				"type": "NodeResizeError", "status": "True", "message": strings.Repeat("x", 4000),
			}},
		},
		"expanded": {"capacity": storage("10Gi"), "allocatedResourceStatuses": nil, "conditions": nil},
	} {
		if err := report(worker, status); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := report(worker, map[string]any{"capacity": storage("10737418241")}); err != nil {
		t.Errorf("rounded up: %v", err)
	}
	if err := report(admin, map[string]any{
		"allocatedResources": storage("20Gi"), "allocatedResourceStatuses": storage(byController),
	}); err != nil {
		t.Errorf("csi-resizer: %v", err)
	}
}

// longConditions are conditions of a claim with messages of 100 kilobytes in all.
func longConditions(count int) []map[string]any {
	conditions, message := make([]map[string]any, count), strings.Repeat("x", 100_000/count)
	for n := range conditions {
		conditions[n] = map[string]any{
			"type": "Resizing" + strings.Repeat("x", n), "status": "True", "message": message,
		}
	}
	return conditions
}
