package handover

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"kubernetes-release/internal/eventually"
	"kubernetes-release/internal/kubetest"
)

// TestAPIServerRefusesNothingBeforeItsClientsLeave stops an API server under the load of clients that keep their
// connection and retry nothing. Each must be able to leave, to another API server, before a request of its own is
// refused: all of its requests succeed until its next connection is refused.
func TestAPIServerRefusesNothingBeforeItsClientsLeave(t *testing.T) {
	const clients = 20
	cluster := kubetest.Start(t, kubetest.Options{APIServerFlags: []string{"--shutdown-delay-duration=2s"}})
	for _, protocol := range []string{"HTTP/2.0", "HTTP/1.1"} {
		t.Run(protocol, func(t *testing.T) {
			var stopping sync.WaitGroup
			started := make(chan struct{}, clients)
			for range clients {
				client := keepingClient(t, cluster.AdminConfig(), protocol)
				stopping.Go(func() {
					answered := 0
					for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); answered++ {
						response, err := client.Get(cluster.AdminConfig().Host + "/api/v1/namespaces/default")
						if answered > 0 && errors.Is(err, syscall.ECONNREFUSED) {
							return // left
						}
						if err != nil {
							t.Errorf("request %d: %v", answered, err)
							return
						}
						_, err = io.Copy(io.Discard, response.Body) // or HTTP/1.1 does not keep the connection
						if err := errors.Join(err, response.Body.Close()); err != nil {
							t.Errorf("request %d: %v", answered, err)
							return
						}
						if response.StatusCode != http.StatusOK || response.Proto != protocol {
							t.Errorf("request %d: %s by %s", answered, response.Status, response.Proto)
							return
						}
						if answered == 0 {
							started <- struct{}{}
						}
					}
					t.Errorf("has not left within a minute, after %d requests", answered)
				})
			}
			for range clients {
				<-started
			}
			cluster.Stop()
			stopping.Wait()
			cluster.Restart()
			cluster.AwaitReady()
		})
	}
}

// TestAPIServerAdmitsUntilItsClientsLeave creates claims, each in another namespace, while an API server stops.
// Admission asks the API server itself for the LimitRanges of each of these namespaces, also when its port is closed
// (plugin/pkg/admission/limitranger of Kubernetes).
func TestAPIServerAdmitsUntilItsClientsLeave(t *testing.T) {
	const clients, each = 20, 40
	cluster := kubetest.Start(t, kubetest.Options{APIServerFlags: []string{"--shutdown-delay-duration=2s"}})
	name := func(client, n int) string { return fmt.Sprintf("space-%d-%d", client, n) }
	var creating errgroup.Group
	for client := range clients {
		creating.Go(func() error {
			for n := range each {
				namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name(client, n)}}
				_, err := cluster.Admin().CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{})
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := creating.Wait(); err != nil {
		t.Fatal(err)
	}
	const claim = `{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": ` +
		`{"requests": {"storage": "1Gi"}}}}`
	var stopping sync.WaitGroup
	started := make(chan struct{}, clients)
	for client := range clients {
		keeping := keepingClient(t, cluster.AdminConfig(), "HTTP/2.0")
		stopping.Go(func() {
			for n := range each {
				response, err := keeping.Post(
					cluster.AdminConfig().Host+"/api/v1/namespaces/"+name(client, n)+"/persistentvolumeclaims",
					"application/json", strings.NewReader(claim),
				)
				if n > 0 && errors.Is(err, syscall.ECONNREFUSED) {
					return // left
				}
				if err != nil {
					t.Errorf("claim %d: %v", n, err)
					return
				}
				answer, err := io.ReadAll(response.Body)
				if err := errors.Join(err, response.Body.Close()); err != nil ||
					response.StatusCode != http.StatusCreated {
					t.Errorf("claim %d: %v, %s %s", n, err, response.Status, answer)
					return
				}
				if n == 0 {
					started <- struct{}{}
				}
				time.Sleep(100 * time.Millisecond)
			}
			t.Errorf("has not left after %d claims", each)
		})
	}
	for range clients {
		<-started
	}
	cluster.Stop()
	stopping.Wait()
}

// TestAPIServerLeavesItsServiceBeforeItsPortCloses is that the shortest delay that job kube-apiserver has for several
// API servers is enough: what takes an address from the Service kubernetes connects to the port of its own API server.
func TestAPIServerLeavesItsServiceBeforeItsPortCloses(t *testing.T) {
	const address = "192.0.2.1"
	cluster := kubetest.Start(t, kubetest.Options{APIServerFlags: []string{
		"--shutdown-delay-duration=2s", "--endpoint-reconciler-type=lease", "--advertise-address=" + address,
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

// keepingClient is a client that retries nothing, not even what was sent on a connection that was closed.
func keepingClient(t *testing.T, config *rest.Config, protocol string) *http.Client {
	t.Helper()
	settings, err := rest.TLSConfigFor(config)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: settings, Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(protocol == "HTTP/1.1")
	transport.Protocols.SetHTTP2(protocol == "HTTP/2.0")
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}
