package smoke

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"kubernetes-release/internal/kubetest"
)

// fillEtcd creates objects until etcd refuses them.
func fillEtcd(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	content := map[string]string{"content": strings.Repeat("x", 900_000)}
	for n := range 100 {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("filler-", n)}, Data: content}
		_, err := client.CoreV1().
			ConfigMaps(metav1.NamespaceDefault).
			Create(t.Context(), object, metav1.CreateOptions{})
		if err != nil {
			if !strings.Contains(err.Error(), "database space exceeded") {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatal("etcd still accepts objects")
}

// TestTheReportSaysThatEtcdIsFull: only the API is asked, by a real API server whose etcd has no room.
func TestTheReportSaysThatEtcdIsFull(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t, kubetest.Options{EtcdFlags: []string{"--quota-backend-bytes=16777216"}})
	admin := cluster.Admin()
	readyNode(t, admin, "node-a")
	fillEtcd(t, admin)
	var output bytes.Buffer
	s := newWorld(admin, "", "smoke-tests-full").suiteFor(&output)
	err := s.run(t.Context())
	if err == nil {
		t.Error("the smoke tests passed")
	}
	for _, want := range []string{
		"ok      API server", "FAILED  objects", "create namespace: ", "etcd refuses writes",
		"the errand etcd-defragment",
	} {
		if !strings.Contains(output.String(), want) {
			t.Errorf("the report does not contain %q:\n%s", want, output.String())
		}
	}
}
