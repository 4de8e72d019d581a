package object

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubernetes-release/internal/kubetest"
	"kubernetes-release/internal/nodestatus"
	"kubernetes-release/internal/readywait"
)

// The first control VM of a new cluster cannot be a node before others complete etcd's quorum.
func TestWaitEndsWithoutAQuorumOfEtcd(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	options := Options{
		Kubeconfig: filepath.Join(t.TempDir(), "kubeconfig"), Name: "n", Timeout: time.Minute,
		EtcdMembers: []string{listener.Addr().String(), "127.0.0.1:1", "127.0.0.1:1"},
	}
	var none *readywait.NoQuorumError
	if err := Wait(
		t.Context(), options, slog.New(slog.DiscardHandler),
	); !errors.As(err, &none) || none.Answering != 1 ||
		none.Members != 3 {
		t.Errorf("got %v, want 1 of 3 members", err)
	}
}

func TestWaitNamesTheMissingKubeconfigAtTheDeadline(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	var output bytes.Buffer
	err := Wait(
		context.Background(),
		Options{Kubeconfig: path, Name: "n", Timeout: 200 * time.Millisecond, Interval: 10 * time.Millisecond},
		slog.New(slog.NewTextHandler(&output, nil)),
	)
	if err == nil || !strings.Contains(err.Error(), path) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the deadline and the file", err)
	}
	if got := strings.Count(output.String(), "waiting for node"); got != 1 {
		t.Errorf("an unchanged reason was logged %d times, want once", got)
	}
}

// TestWaitAgainstRealAPIServer follows a kubelet's start: no kubeconfig, no Node, not Ready, tainted, initialized; all
// with the rights of the node itself.
func TestWaitAgainstRealAPIServer(t *testing.T) {
	cluster := kubetest.Start(t, kubetest.Options{})
	nodes := cluster.Admin().CoreV1().Nodes()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	reasons := make(chan string, 100)
	ended := make(chan error, 1)
	go func() {
		ended <- Wait(
			ctx,
			Options{
				Kubeconfig: path, Name: "node-a", Timeout: time.Minute, Untainted: true,
				Interval: 20 * time.Millisecond,
			},
			slog.New(reasonHandler{reasons}),
		)
	}()
	expect := func(want string) {
		t.Helper()
		for {
			select {
			case got := <-reasons:
				if strings.Contains(got, want) {
					return
				}
			case err := <-ended:
				t.Fatalf("Wait returned %v before it reported %q", err, want)
			case <-ctx.Done():
				t.Fatalf("never reported %q", want)
			}
		}
	}
	expect("not usable yet")
	content, err := os.ReadFile(cluster.Kubeconfig("system:node:node-a", "system:nodes"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	expect("does not exist")
	node, err := nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}, Spec: corev1.NodeSpec{
		Taints: []corev1.Taint{
			{Key: nodestatus.UninitializedTaint, Value: "true", Effect: corev1.TaintEffectNoSchedule},
		},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	expect("no Ready condition")
	node.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady", Message: "no network"},
	}
	if node, err = nodes.UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect("no network")
	node.Status.Conditions[0].Status = corev1.ConditionTrue
	node.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(time.Now().Add(-time.Minute)) // of the kubelet before
	if node, err = nodes.UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	node.Labels = map[string]string{nodestatus.AddressesLabel: "10.0.0.4"}
	node.Spec.PodCIDR, node.Spec.PodCIDRs = "10.244.1.0/24", []string{"10.244.1.0/24"}
	if node, err = nodes.Update(ctx, node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect("no cloud-controller-manager has initialized it yet")
	known := Options{Kubeconfig: path, Name: "node-a", Timeout: time.Minute}
	if err := WaitNetwork(ctx, known, slog.New(slog.DiscardHandler)); err != nil {
		t.Errorf("the VM is known and has a pod subnet, and WaitNetwork returned %v", err)
	}
	initialized := InitializedCheck(known)
	if err := initialized(ctx); err == nil || !strings.Contains(err.Error(), nodestatus.UninitializedTaint) {
		t.Errorf("InitializedCheck returned %v before it is", err)
	}
	node.Spec.Taints = nil
	if node, err = nodes.Update(ctx, node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := initialized(ctx); err != nil {
		t.Errorf("InitializedCheck returned %v afterwards", err)
	}
	expect("has not reported since")
	known.Full = func(context.Context) bool { return true }
	if err := Wait(ctx, known, slog.New(slog.DiscardHandler)); err != nil {
		t.Errorf("no kubelet can report while etcd is full, and Wait returned %v", err)
	}
	node.Status.Conditions[0].LastHeartbeatTime = metav1.Now()
	if _, err = nodes.UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// reasonHandler is a log handler that passes on the attribute "reason".
type reasonHandler struct{ reasons chan<- string }

func (h reasonHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h reasonHandler) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h reasonHandler) WithGroup(string) slog.Handler            { return h }
func (h reasonHandler) Handle(_ context.Context, record slog.Record) error {
	record.Attrs(func(attribute slog.Attr) bool {
		if attribute.Key == "reason" {
			h.reasons <- attribute.Value.String()
		}
		return true
	})
	return nil
}
