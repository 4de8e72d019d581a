package handover

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
)

// TestAPIServerLeavesItsServiceBeforeItsPortCloses is that the shortest delay that job kube-apiserver has for several
// API servers is enough: what takes an address from the Service kubernetes connects to the port of its own API server.
func TestAPIServerLeavesItsServiceBeforeItsPortCloses(t *testing.T) {
	const address = "192.0.2.1"
	cluster := kubetest.Start(t, kubetest.Options{APIServerFlags: []string{
		"--shutdown-delay-duration=1s", "--endpoint-reconciler-type=lease", "--advertise-address=" + address,
	}})
	slices := cluster.Admin().DiscoveryV1().EndpointSlices(metav1.NamespaceDefault)
	eventually.Succeeds(t, time.Minute, "the Service kubernetes has the API server", func() error {
		slice, err := slices.Get(t.Context(), "kubernetes", metav1.GetOptions{})
		if err == nil && !strings.Contains(fmt.Sprint(slice.Endpoints), address) {
			err = fmt.Errorf("it has %v", slice.Endpoints)
		}
		return err
	})
	cluster.Stop()
	if slice := cluster.Stored("/registry/endpointslices/default/kubernetes"); bytes.Contains(slice, []byte(address)) {
		t.Error("the Service kubernetes still has the API server that has stopped")
	}
}
