package templates

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
	"kubernetes-release/internal/poll"
	"kubernetes-release/podspread"
)

const dnsPods = "k8s-app=kube-dns"

// TestCoreDNSIsInTwoZones deploys CoreDNS while there are nodes in one zone only, as in a first deploy with two workers
// in the first zone. Afterwards the identity of the job, with its real permissions, moves one pod.
func TestCoreDNSIsInTwoZones(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t, kubetest.Options{ControllerManager: true, Scheduler: true})
	w := &zonedCluster{t: t, client: cluster.Admin()}
	applyAddon(t, cluster, "30-coredns.yml", values{})
	go w.runPods(t.Context())
	pods := podspread.Pods{
		Client:    cluster.ClientFor("kubernetes-addons", "kubernetes.bosh.io:components"),
		Namespace: metav1.NamespaceSystem,
		Selector:  dnsPods, Timeout: time.Minute,
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	spread := func() []string {
		t.Helper()
		if err := pods.Spread(t.Context(), log); err != nil {
			t.Fatal(err)
		}
		return w.placed()
	}

	w.node("a1", "a", false)
	w.node("a2", "a", false)
	first := w.placed()
	if zones := w.zones(first); !slices.Equal(zones, []string{"a", "a"}) {
		t.Fatalf("the pods are in the zones %q, so this test proves nothing", zones)
	}
	if got := spread(); !slices.Equal(got, first) {
		t.Errorf("with one zone, the pods %q became %q", first, got)
	}
	w.node("control", "b", true)
	if got := spread(); !slices.Equal(got, first) {
		t.Errorf("with a second zone that takes no pods, the pods %q became %q", first, got)
	}
	w.node("b1", "b", false)
	w.node("c1", "c", false)
	second := spread()
	if zones := w.zones(second); len(slices.Compact(zones)) != 2 {
		t.Errorf("the pods are in the zones %q", zones)
	}
	if !slices.ContainsFunc(second, func(pod string) bool { return slices.Contains(first, pod) }) {
		t.Errorf("all of %q were moved: %q", first, second)
	}
	if got := spread(); !slices.Equal(got, second) {
		t.Errorf("pods that were spread, %q, became %q", second, got)
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

// runPods does for pods what kubelets do, until ctx ends.
func (w *zonedCluster) runPods(ctx context.Context) {
	pods := w.client.CoreV1().Pods(metav1.NamespaceSystem)
	for poll.Sleep(ctx, 100*time.Millisecond) == nil {
		list, err := pods.List(ctx, metav1.ListOptions{})
		if err != nil {
			continue
		}
		for _, pod := range list.Items {
			now := int64(0)
			switch {
			case pod.Spec.NodeName == "":
			case pod.DeletionTimestamp != nil:
				_ = pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now})
			case pod.Status.Phase != corev1.PodRunning:
				pod.Status.Phase = corev1.PodRunning
				pod.Status.Conditions = append(
					pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue},
				)
				_, _ = pods.UpdateStatus(ctx, &pod, metav1.UpdateOptions{})
			}
		}
	}
}

// placed waits for two running pods, and returns names and nodes.
func (w *zonedCluster) placed() []string {
	w.t.Helper()
	var placed []string
	eventually.Succeeds(w.t, time.Minute, "two pods of CoreDNS", func() error {
		list, err := w.client.CoreV1().Pods(metav1.NamespaceSystem).List(
			w.t.Context(), metav1.ListOptions{LabelSelector: dnsPods},
		)
		if err != nil {
			return err
		}
		placed = nil
		for _, pod := range list.Items {
			if pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning {
				placed = append(placed, pod.Name+" on "+pod.Spec.NodeName)
			}
		}
		if len(placed) != 2 {
			return errors.New(fmt.Sprint(placed))
		}
		slices.Sort(placed)
		return nil
	})
	return placed
}

// zones are those of pods, which the names of their nodes begin with.
func (w *zonedCluster) zones(placed []string) []string {
	var zones []string
	for _, pod := range placed {
		var name, node string
		if _, err := fmt.Sscanf(pod, "%s on %s", &name, &node); err != nil {
			w.t.Fatal(err)
		}
		zones = append(zones, node[:1])
	}
	slices.Sort(zones)
	return zones
}
