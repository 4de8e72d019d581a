// Package ownerstest serves the objects of a cluster to tests of what has load balancers.
package ownerstest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Serve starts an API server with these Services, JSON, besides its own, and returns a kubeconfig file for it.
func Serve(t *testing.T, services ...string) string {
	t.Helper()
	services = append(services, `{"metadata": {"namespace": "default", "name": "kubernetes"}}`)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/services" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		fmt.Fprintf(w, `{"kind": "ServiceList", "items": [%s]}`, strings.Join(services, ","))
	}))
	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	content := fmt.Sprintf(
		"apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c}}]\n"+
			"clusters: [{name: c, cluster: {server: %q}}]\n", server.URL,
	)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
