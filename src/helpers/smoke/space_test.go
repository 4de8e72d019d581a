package smoke

import (
	"bytes"
	"strings"
	"testing"

	"kubernetes-release/internal/kubetest"
)

// TestTheReportSaysThatEtcdIsFull: only the API is asked, by a real API server whose etcd has no room.
func TestTheReportSaysThatEtcdIsFull(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t, kubetest.Options{EtcdFlags: []string{"--quota-backend-bytes=16777216"}})
	admin := cluster.Admin()
	readyNode(t, admin, "node-a")
	cluster.FillEtcd()
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
