package templates

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
)

// TestNodesCannotStopTheScheduler is root on a worker that reports so much memory and so many processors that
// kube-scheduler's number for them overflows. The score of the node is then below 0, and kube-scheduler gives up each
// pod that could run there, and elsewhere.
func TestNodesCannotStopTheScheduler(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t, kubetest.Options{ControllerManager: true, Scheduler: true})
	applyManifests(t, cluster, nil, "10-nodes.yml")
	w := &zonedCluster{t: t, client: cluster.Admin()}
	for _, name := range []string{"mine", "theirs", "another"} {
		w.node(name, "a", false)
	}
	node := cluster.ClientFor("system:node:mine", "system:nodes")
	report := func(cpu, memory string) error {
		body := fmt.Appendf(nil, `{"status": {"capacity": %[1]s, "allocatable": %[1]s}}`, fmt.Sprintf(
			`{"cpu": %q, "memory": %q, "pods": "10", "hugepages-2Mi": "1Gi", "example.com/gpu": "8"}`, cpu, memory,
		))
		_, err := node.CoreV1().Nodes().Patch(
			t.Context(), "mine", types.MergePatchType, body, metav1.PatchOptions{}, "status",
		)
		return err
	}
	for _, test := range [][2]string{{"2", "1E"}, {"3", "8192Pi"}, {"1001k", "4Gi"}, {"100T", "100P"}} {
		cpu, memory := test[0], test[1]
		kubetest.MustForbid(t, cpu+" processors, memory "+memory, report(cpu, memory), "10P of other resources")
	}
	pods := cluster.Admin().CoreV1().Pods("default")
	eventually.Succeeds(t, time.Minute, "pods can be created", func() error {
		for n := range 5 {
			pod := podOf(fmt.Sprintf("pod-%d", n), corev1.PodSpec{})
			_, err := pods.Create(t.Context(), pod, metav1.CreateOptions{})
			if err != nil && !apierrors.IsAlreadyExists(err) {
				return err
			}
		}
		return nil
	})
	eventually.Succeeds(t, 30*time.Second, "pods are scheduled", func() error {
		list, err := pods.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, pod := range list.Items {
			if pod.Spec.NodeName == "" {
				return fmt.Errorf("%s is on no node: %v", pod.Name, pod.Status.Conditions)
			}
		}
		return nil
	})

	// The friend: kubelet of a large machine.
	if err := report("896", "24Ti"); err != nil {
		t.Errorf("896 processors and 24 TiB: %v", err)
	}
}

// zonedCluster is a cluster without kubelets.
type zonedCluster struct {
	t      *testing.T
	client kubernetes.Interface
}

// node creates a Node that is Ready, with a taint or without.
func (w *zonedCluster) node(name, zone string, tainted bool) {
	w.t.Helper()
	nodes := w.client.CoreV1().Nodes()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		corev1.LabelTopologyZone: zone, corev1.LabelHostname: name, corev1.LabelOSStable: "linux",
	}}}
	if tainted {
		node.Spec.Taints = []corev1.Taint{
			{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule},
		}
	}
	node, err := nodes.Create(w.t.Context(), node, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("4Gi"),
		corev1.ResourcePods: resource.MustParse("10"),
	}
	eventually.Succeeds(w.t, 30*time.Second, name+" is Ready", func() error {
		node, err = nodes.Get(w.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		now := metav1.Now()
		node.Status.Capacity, node.Status.Allocatable = capacity, capacity
		node.Status.Conditions = []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: now,
			LastTransitionTime: now,
		}}
		if _, err = nodes.UpdateStatus(w.t.Context(), node, metav1.UpdateOptions{}); err != nil {
			return err
		}
		want := 0
		if tainted {
			want = 1
		}
		if len(node.Spec.Taints) != want {
			return fmt.Errorf("it has the taints %v", node.Spec.Taints)
		}
		return nil
	})
}
