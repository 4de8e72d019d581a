package templates

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"kubernetes-release/internal/kubetest"
)

// podCost is what the creation of pods took.
type podCost struct{ client, admission, processor float64 } // seconds

func (c podCost) plus(other podCost) podCost {
	return podCost{c.client + other.client, c.admission + other.admission, c.processor + other.processor}
}

func (c podCost) minus(other podCost) podCost {
	return podCost{c.client - other.client, c.admission - other.admission, c.processor - other.processor}
}

// TestPodCostsAsMuchAsUpstreams creates pods through an API server with upstream's defaults and one with the
// configuration and the objects of this release, in turns, so that other work on the machine slows both down.
func TestPodCostsAsMuchAsUpstreams(t *testing.T) {
	if os.Getenv("SOAK") == "" {
		t.Skip("set SOAK=1")
	}
	const rounds, pods = 12, 150
	clusters := []*kubetest.Cluster{
		kubetest.Start(t, kubetest.Options{APIServerFlags: stockFlags}), startRelease(t),
	}
	clients := make([]corev1client.CoreV1Interface, len(clusters))
	for i, cluster := range clusters {
		prepare(t, cluster)
		clients[i] = cluster.Admin().CoreV1()
	}
	costs := make([]podCost, len(clusters))
	for round := range rounds + 1 {
		for i, client := range clients {
			before := costOf(t, client)
			start := time.Now()
			for n := range pods {
				pod := usualPod(fmt.Sprintf("pod-%d-%d", round, n))
				if _, err := client.Pods(tenant).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			took := time.Since(start).Seconds()
			cost := costOf(t, client).minus(before)
			cost.client = took
			if round > 0 { // the first warms up
				costs[i] = costs[i].plus(cost)
			}
		}
	}
	compare := func(what string, stock, release float64) {
		const each = rounds * pods / 1000.0 // in milliseconds
		t.Logf("%s of a pod: %.2f ms with upstream's defaults, %.2f ms here, ratio %.2f (aim: 1.1)",
			what, stock/each, release/each, release/stock)
	}
	compare("creation", costs[0].client, costs[1].client)
	compare("admission", costs[0].admission, costs[1].admission)
	compare("processor time", costs[0].processor, costs[1].processor)
}

// usualPod is a pod as charts create it.
func usualPod(name string) *corev1.Pod {
	pod := podOf(name, corev1.PodSpec{Volumes: []corev1.Volume{{
		Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
	}}})
	pod.Labels = map[string]string{"app.kubernetes.io/name": "web", "app.kubernetes.io/instance": "web"}
	container := &pod.Spec.Containers[0]
	for n := range 10 {
		container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprintf("VARIABLE_%d", n), Value: "value"})
	}
	container.Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}
	container.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	return pod
}

// costOf reads the counters of an API server.
func costOf(t *testing.T, client corev1client.CoreV1Interface) (cost podCost) {
	t.Helper()
	metrics, err := client.RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(metrics)) {
		name, number, _ := strings.Cut(strings.TrimSpace(line), " ")
		admission := strings.HasPrefix(name, "apiserver_admission_step_admission_duration_seconds_sum{") &&
			strings.Contains(name, `operation="CREATE"`)
		if !admission && name != "process_cpu_seconds_total" {
			continue
		}
		value, err := strconv.ParseFloat(number, 64)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if admission {
			cost.admission += value
		} else {
			cost.processor = value
		}
	}
	if cost.processor == 0 || cost.admission == 0 {
		t.Fatalf("the API server has no counters of these names: %+v", cost)
	}
	return cost
}
