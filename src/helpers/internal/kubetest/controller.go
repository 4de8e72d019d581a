package kubetest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/nodestatus"
	"kubernetes-release/internal/tail"
)

// StartProgram starts a program, such as a cloud controller manager, and returns the path of the log with its output.
// The program is killed when the test ends, or when the test calls stop; that it ended before is an error. A test that
// fails shows the end of the log.
func StartProgram(t testing.TB, command *exec.Cmd) (log string, stop func()) {
	t.Helper()
	name := filepath.Base(command.Path)
	log = filepath.Join(t.TempDir(), name+".log")
	output, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	command.Stdout, command.Stderr = output, output
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan struct{})
	early := make(chan error, 1)
	go func() {
		err := command.Wait()
		select {
		case <-stopped:
		default:
			early <- err
		}
		close(early)
	}()
	stop = sync.OnceFunc(func() {
		close(stopped)
		_ = command.Process.Kill()
		if err, ended := <-early; ended {
			t.Errorf("%s ended by itself: %v", name, err)
		}
	})
	t.Cleanup(func() {
		stop()
		_ = output.Close()
		if t.Failed() {
			end, err := tail.File(log, 0, 64<<10, 60)
			t.Logf("log of %s: %v\n%s", name, err, end)
		}
	})
	return log, stop
}

// CreateUninitializedNode creates a Node as a kubelet with an external cloud provider does (initialNode in
// pkg/kubelet/kubelet_node_status.go): it is ready, and has the taint that the cloud controller manager removes.
func CreateUninitializedNode(t testing.TB, client kubernetes.Interface, node *corev1.Node) {
	t.Helper()
	node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{
		Key: nodestatus.UninitializedTaint, Value: "true", Effect: corev1.TaintEffectNoSchedule,
	})
	node.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()},
	}
	if _, err := client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// AwaitInitialized waits until the cloud controller manager has initialized a Node, which then has this provider ID and
// internal address, and returns it.
func AwaitInitialized(
	t testing.TB, client kubernetes.Interface, name, providerID, address string,
) (node *corev1.Node) {
	t.Helper()
	internal := corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address}
	eventually.Succeeds(t, time.Minute, name+" is initialized", func() (err error) {
		if node, err = client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			return err
		}
		uninitialized := slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool {
			return taint.Key == nodestatus.UninitializedTaint
		})
		if uninitialized || node.Spec.ProviderID != providerID || !slices.Contains(node.Status.Addresses, internal) {
			return fmt.Errorf(
				"taints %v, provider ID %q, addresses %v",
				node.Spec.Taints, node.Spec.ProviderID, node.Status.Addresses,
			)
		}
		return nil
	})
	return node
}
