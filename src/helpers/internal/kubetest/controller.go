package kubetest

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

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
		Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: corev1.TaintEffectNoSchedule,
	})
	node.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()},
	}
	if _, err := client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
