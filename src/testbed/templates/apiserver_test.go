package templates

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"kubernetes-release/internal/kubetest"
)

// ownAddress is one of this machine's that the API server takes for that of a pod.
func ownAddress(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range addresses {
		if network, ok := address.(*net.IPNet); ok && network.IP.IsGlobalUnicast() && network.IP.To4() != nil {
			return network.IP.String()
		}
	}
	t.Skip("this machine has no address but that of loopback")
	return ""
}

// TestTenantsCannotUseUpAPIServers is that kube-apiserver, as this release builds it, has the limits of
// src/components/kubernetes for pages and patches.
func TestTenantsCannotUseUpAPIServers(t *testing.T) {
	s := startTenants(t)
	ctx := t.Context()
	settings := s.tenant.CoreV1().ConfigMaps("tenant")
	_, err := settings.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
	s.must(err)
	patch := func(n int) error {
		finalizers := make([]string, n)
		for i := range finalizers {
			finalizers[i] = fmt.Sprintf("example.com/%d", i)
		}
		body, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": finalizers}})
		s.must(err)
		_, err = settings.Patch(ctx, "a", types.StrategicMergePatchType, body, metav1.PatchOptions{
			DryRun: []string{metav1.DryRunAll},
		})
		return err
	}
	if err := patch(2001); !apierrors.IsRequestEntityTooLargeError(err) || !strings.Contains(err.Error(), "have 2001") {
		t.Errorf("a patch with 2001 elements: %.300v", err)
	}
	if err := patch(2000); err != nil {
		t.Errorf("a patch with 2000 elements: %.300v", err)
	}

	listener, err := net.Listen("tcp", net.JoinHostPort(ownAddress(t), "0"))
	s.must(err)
	page := []byte(`<a href="/other">other</a>`)
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = w.Write(page)
			if r.URL.Path == "/long" {
				_, _ = w.Write(bytes.Repeat([]byte("x"), 1<<20))
			}
		},
	)}}
	server.Start()
	t.Cleanup(server.Close)
	address, port, err := net.SplitHostPort(listener.Addr().String())
	s.must(err)
	pods := s.tenant.CoreV1().Pods("tenant")
	pod, err := pods.Create(ctx, podOf("web", corev1.PodSpec{}), metav1.CreateOptions{})
	s.must(err)
	pod.Status.Phase, pod.Status.PodIP = corev1.PodRunning, address
	pod.Status.PodIPs = []corev1.PodIP{{IP: address}}
	_, err = s.admin.CoreV1().Pods("tenant").UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	s.must(err)
	client, err := rest.HTTPClientFor(s.ConfigFor("tenant"))
	s.must(err)
	for path, want := range map[string]string{
		"short": `<a href="/api/v1/namespaces/tenant/pods/`, "long": `<a href="/other">`,
	} {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf(
			"%s/api/v1/namespaces/tenant/pods/web:%s/proxy/%s", s.AdminConfig().Host, port, path,
		), nil)
		s.must(err)
		response, err := client.Do(request)
		s.must(err)
		beginning := make([]byte, len(want))
		if _, err := io.ReadFull(response.Body, beginning); err != nil || string(beginning) != want {
			t.Errorf("a %s page begins with %s, want %s (%v, %s)", path, beginning, want, err, response.Status)
		}
		_ = response.Body.Close()
	}
}

// TestUnreadableObjectsCanBeDeleted is that the last resort of an administrator works with kube-apiserver as this
// release builds it: to delete an object that is damaged in etcd, or whose key is lost (corrupt_obj_deleter.go in
// k8s.io/apiserver).
func TestUnreadableObjectsCanBeDeleted(t *testing.T) {
	t.Parallel()
	s := kubetest.Start(t, kubetest.Options{})
	objects := s.Admin().CoreV1().ConfigMaps(metav1.NamespaceDefault)
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "damaged"}}
	if _, err := objects.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Store("/registry/configmaps/default/damaged", []byte("damaged"))
	if err := objects.Delete(t.Context(), "damaged", metav1.DeleteOptions{}); err == nil {
		t.Fatal("the object can be deleted as any other")
	}
	unread := true
	for _, dryRun := range [][]string{{metav1.DryRunAll}, nil} {
		if err := objects.Delete(t.Context(), "damaged", metav1.DeleteOptions{
			IgnoreStoreReadErrorWithClusterBreakingPotential: &unread, DryRun: dryRun,
		}); err != nil {
			t.Fatalf("dry run %v: %v", dryRun, err)
		}
	}
	if _, err := objects.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Errorf("the object is not gone: %v", err)
	}
}
