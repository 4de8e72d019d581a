package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
)

// kernel has the commands of iptables write to a network namespace of the test's. restore fails as long as broken
// exists, and then writes failed.
type kernel struct{ broken, failed string }

func newKernel(t *testing.T) kernel {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("creating network namespaces requires root")
	}
	dir := t.TempDir()
	holder := exec.CommandContext(t.Context(), "unshare", "--net", "sh", "-c", "echo; exec sleep infinity")
	unshared, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = holder.Process.Kill()
		_ = holder.Wait()
	})
	if _, err := unshared.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	k := kernel{filepath.Join(dir, "broken"), filepath.Join(dir, "failed")}
	scripts := map[string]string{"ipset": "exit"} // without policies there are no sets
	for _, name := range []string{"iptables", "iptables-save", "iptables-restore"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		scripts[name] = fmt.Sprintf(`exec nsenter --net=/proc/%d/ns/net %s "$@"`, holder.Process.Pid, path)
	}
	scripts["iptables-restore"] = fmt.Sprintf(
		"[ ! -e %[1]s ] || { touch %[2]s; exit 1; }\n%[3]s", k.broken, k.failed, scripts["iptables-restore"],
	)
	for name, script := range scripts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return k
}

// enforcing starts what the command does once it knows the pods and policies. A sync tries again at once.
func enforcing(t *testing.T, readyFile string) (sync, stop func()) {
	t.Helper()
	client := fake.NewClientset(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "own"}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: "127.0.0.1"},
		}},
	})
	s := settings{
		node: "own", serviceCIDR: "10.96.0.0/12", nodePorts: "30000-32767", readyFile: readyFile, syncPeriod: time.Hour,
	}
	options := s.options()
	options.MetricsEnabled = false // registers them once in a process
	controller, iptables, err := newController(client, informers.NewSharedInformerFactory(client, 0), options)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.enforce(ctx, controller, iptables) }()
	return controller.RequestFullSync, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func awaitFile(t *testing.T, path string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return
		}
	}
	t.Fatalf("%s does not exist after a minute", filepath.Base(path))
}

// TestRulesOfAnotherProcessAreNotInForce is a restart whose first sync fails: the rules that the process before has
// left are not those of the policies of now.
func TestRulesOfAnotherProcessAreNotInForce(t *testing.T) {
	k := newKernel(t)
	ready := filepath.Join(t.TempDir(), "ready")
	_, stop := enforcing(t, ready)
	awaitFile(t, ready)
	stop()

	if err := os.Remove(ready); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(k.broken, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	sync, stop := enforcing(t, ready)
	defer stop()
	awaitFile(t, k.failed)
	time.Sleep(5 * readyInterval)
	if _, err := os.Stat(ready); !os.IsNotExist(err) {
		t.Errorf("the rules count as in force after a sync that failed: %v", err)
	}
	if err := os.Remove(k.broken); err != nil {
		t.Fatal(err)
	}
	sync()
	awaitFile(t, ready)
}
