// Package nodemetrics tests what metrics-server, as this release builds it, believes a node.
package nodemetrics

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
)

// endless is the size of an answer without an end, as far as this machine can bear it.
const endless = 1 << 30

// nodes are kubelets of one cluster, each of which serves metrics with the certificate of its node.
type nodes struct {
	t       *testing.T
	cluster *kubetest.Cluster
	began   time.Time
}

// add registers a Node whose kubelet answers with this handler, and a pod on it.
func (n *nodes) add(name string, handler http.HandlerFunc) {
	n.t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.TLS = &tls.Config{
		Certificates: []tls.Certificate{n.cluster.ServerCertificate("system:node:"+name, "system:nodes")},
		MinVersion:   tls.VersionTLS12,
	}
	server.StartTLS()
	n.t.Cleanup(server.Close)
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	n.must(err)
	number, err := strconv.ParseInt(port, 10, 32)
	n.must(err)
	admin, create := n.cluster.Admin().CoreV1(), metav1.CreateOptions{}
	_, err = admin.Nodes().Create(n.t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{
			Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: host}},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(number)}},
			Conditions:      []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}, create)
	n.must(err)
	pods := admin.Pods(metav1.NamespaceDefault)
	no := false
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "of-" + name},
		Spec: corev1.PodSpec{
			NodeName: name, Containers: []corev1.Container{{Name: "main", Image: "example"}},
			AutomountServiceAccountToken: &no,
		},
	}
	pod, err = pods.Create(n.t.Context(), pod, create)
	n.must(err)
	pod.Status.Phase = corev1.PodRunning
	_, err = pods.UpdateStatus(n.t.Context(), pod, metav1.UpdateOptions{})
	n.must(err)
}

func (n *nodes) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

// usage is what a kubelet says of itself, with this many cores in use since the test began.
func (n *nodes) usage(cores float64) string {
	now := time.Now()
	return fmt.Sprintf("node_cpu_usage_seconds_total %f %d\nnode_memory_working_set_bytes 1e+08 %d\n",
		100+cores*now.Sub(n.began).Seconds(), now.UnixMilli(), now.UnixMilli())
}

// pod is what it says of a pod.
func (n *nodes) pod(name string, cores float64) string {
	now := time.Now()
	labels := fmt.Sprintf(`{container="main",namespace="default",pod=%q}`, name)
	return fmt.Sprintf("# TYPE container_cpu_usage_seconds_total counter\n"+
		"container_cpu_usage_seconds_total%[1]s %[2]f %[3]d\ncontainer_memory_working_set_bytes%[1]s 1e+07 %[3]d\n"+
		"container_start_time_seconds%[1]s 1.7e+09\n"+
		"pod_cpu_usage_seconds_total{namespace=\"default\",pod=%[4]q} 1 %[3]d\n",
		labels, 100+cores*now.Sub(n.began).Seconds(), now.UnixMilli(), name)
}

// start runs metrics-server and returns its process ID and a client for it.
func (n *nodes) start() (pid int, client *rest.RESTClient) {
	n.t.Helper()
	binary := filepath.Join(os.Getenv("KUBERNETES_BIN_DIR"), "metrics-server")
	ca := filepath.Join(n.t.TempDir(), "ca.pem")
	config := n.cluster.AdminConfig()
	n.must(os.WriteFile(ca, config.CAData, 0o600))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	n.must(err)
	address := listener.Addr().String()
	n.must(listener.Close())
	_, port, err := net.SplitHostPort(address)
	n.must(err)
	kubeconfig := n.cluster.Kubeconfig("metrics", "system:masters")
	command := exec.Command(binary,
		"--kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig,
		"--authentication-skip-lookup", "--client-ca-file="+ca, "--kubelet-certificate-authority="+ca,
		"--kubelet-use-node-status-port", "--kubelet-preferred-address-types=InternalIP",
		"--metric-resolution=10s", "--kubelet-request-timeout=9s", "--bind-address=127.0.0.1", "--secure-port="+port,
		"--cert-dir="+n.t.TempDir())
	command.Stdout, command.Stderr = n.t.Output(), n.t.Output()
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	n.must(command.Start())
	n.t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		_ = command.Wait()
	})
	config.Host = "https://" + address
	config.CAData, config.Insecure = nil, true // its certificate is its own
	clients, err := kubernetes.NewForConfig(config)
	n.must(err)
	rest, ok := clients.CoreV1().RESTClient().(*rest.RESTClient)
	if !ok {
		n.t.Fatal("no REST client")
	}
	return command.Process.Pid, rest
}

// TestNodesReportTheirOwnPodsOnly is root on a worker, which serves metrics in the place of kubelet: of pods of
// others, so that a HorizontalPodAutoscaler scales their Deployment; a redirect to what only a control VM reaches; and
// an answer without an end, which would fill the memory of the control VM.
func TestNodesReportTheirOwnPodsOnly(t *testing.T) {
	n := &nodes{t: t, cluster: kubetest.Start(t, kubetest.Options{}), began: time.Now()}
	_, err := n.cluster.Admin().CoreV1().ServiceAccounts(metav1.NamespaceDefault).Create(
		t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{},
	)
	n.must(err)
	var reached atomic.Int32
	inside := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	t.Cleanup(inside.Close)
	n.add("mine", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, n.usage(1), n.pod("of-mine", 1), n.pod("of-theirs", 50),
			// What one parser may read otherwise than another.
			`container_cpu_usage_seconds_total{x="pod=\"of-mine\"",`+
				`container="main",namespace="default",pod="of-theirs"} 9e9`+"\n",
			strings.Replace(n.pod("of-theirs", 60), "{", ` {`, 3))
	})
	n.add("theirs", func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(2 * time.Second) // so the first answer about a pod is the other's
		_, _ = fmt.Fprint(w, n.usage(2), n.pod("of-theirs", 2))
	})
	n.add("redirects", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, inside.URL, http.StatusFound)
	})
	n.add("floods", func(w http.ResponseWriter, _ *http.Request) {
		line := []byte("# " + strings.Repeat("x", 1021) + "\n")
		for sent := 0; sent < endless; sent += len(line) {
			if _, err := w.Write(line); err != nil {
				return
			}
		}
	})
	pid, client := n.start()

	for path, want := range map[string]float64{
		"nodes/mine": 1, "namespaces/default/pods/of-mine": 1,
		"nodes/theirs": 2, "namespaces/default/pods/of-theirs": 2,
	} {
		var got float64
		eventually.Succeeds(t, time.Minute, "metrics of "+path, func() (err error) {
			got, err = processors(t, client, path)
			return err
		})
		if got < want-0.5 || got > want+0.5 {
			t.Errorf("%s uses %.1f processors, want %.0f, as its own node reports", path, got, want)
		}
	}
	if count := reached.Load(); count > 0 {
		t.Errorf("metrics-server followed a redirect %d times", count)
	}
	if peak := peakMemory(t, pid); peak > 400<<20 {
		t.Errorf("metrics-server had %d MB in memory, of an answer of %d MB", peak>>20, endless>>20)
	}
}

// processors is the use of a node, or of a pod with one container.
func processors(t *testing.T, client *rest.RESTClient, path string) (float64, error) {
	t.Helper()
	content, err := client.Get().AbsPath("/apis/metrics.k8s.io/v1beta1/" + path).DoRaw(t.Context())
	if err != nil {
		return 0, err
	}
	type usage struct {
		Usage corev1.ResourceList `json:"usage"`
	}
	var of struct {
		usage
		Containers []usage `json:"containers"`
	}
	if err := json.Unmarshal(content, &of); err != nil {
		return 0, err
	}
	if len(of.Containers) == 1 {
		of.usage = of.Containers[0]
	}
	used := of.Usage[corev1.ResourceCPU]
	return used.AsApproximateFloat64(), nil
}

// peakMemory is the most that a process had in memory.
func peakMemory(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kilobytes, err := strconv.Atoi(strings.Fields(value)[0])
			if err != nil {
				t.Fatal(err)
			}
			return kilobytes << 10
		}
	}
	t.Fatal("no VmHWM in the status of the process")
	return 0
}
