package shutdown

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

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

// TestClientsNoticeNoStop stops one of two API servers after the other, with the flags of job kube-apiserver, under the
// load of clients of client-go with its default retries, which connect to the next address if one refuses, as the
// addresses of the API's name are tried.
func TestClientsNoticeNoStop(t *testing.T) {
	const clients, stops = 20, 4
	first := kubetest.Start(t, kubetest.Options{APIServerFlags: []string{
		"--shutdown-delay-duration=1s", "--shutdown-send-retry-after=false",
		"--shutdown-watch-termination-grace-period=0s",
	}})
	servers := []*kubetest.Cluster{first, first.Another()}
	var addresses []string
	for _, server := range servers {
		addresses = append(addresses, strings.TrimPrefix(server.AdminConfig().Host, "https://"))
	}
	running, end := context.WithCancel(t.Context())
	defer end()
	var (
		using    sync.WaitGroup
		lock     sync.Mutex
		requests int
		longest  time.Duration
	)
	for n := range clients {
		config := rest.CopyConfig(servers[n%2].AdminConfig())
		config.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			var dialer net.Dialer
			connection, err := dialer.DialContext(ctx, network, addresses[n%2])
			if err != nil {
				return dialer.DialContext(ctx, network, addresses[1-n%2])
			}
			return connection, nil
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		using.Go(func() {
			objects := client.CoreV1().ConfigMaps(metav1.NamespaceDefault)
			object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("client-%d", n)}}
			created, err := objects.Create(t.Context(), object, metav1.CreateOptions{})
			if err != nil {
				t.Error(err)
				return
			}
			for count := 0; running.Err() == nil; count++ {
				created.Data = map[string]string{"count": fmt.Sprint(count)}
				begin := time.Now()
				changed, err := objects.Update(t.Context(), created, metav1.UpdateOptions{})
				if err == nil {
					created, err = objects.Get(t.Context(), changed.Name, metav1.GetOptions{})
				}
				if err != nil {
					t.Errorf("client %d, request %d: %v", n, count, err)
					return
				}
				lock.Lock()
				requests, longest = requests+2, max(longest, time.Since(begin))
				lock.Unlock()
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	for n := range stops {
		time.Sleep(time.Second)
		servers[n%2].Restart()
		servers[n%2].AwaitReady()
	}
	end()
	using.Wait()
	t.Logf("%d requests while API servers stopped %d times; the longest pair of them took %s", requests, stops, longest)
	if limit := 2 * time.Second; longest > limit {
		t.Errorf("a client waited for %s, want %s at most", longest, limit)
	}
}
