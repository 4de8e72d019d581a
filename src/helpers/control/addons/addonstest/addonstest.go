// Package addonstest applies manifests in tests with a real API server.
package addonstest

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"kubernetes-release/control/addons"
	"kubernetes-release/internal/kubetest"
)

// Apply applies manifests as an administrator, and returns when the API server enforces the policies among them. Its
// log is the test's. Options without a timeout have one of a minute.
func Apply(t testing.TB, cluster *kubetest.Cluster, options addons.Options) {
	t.Helper()
	if options.Timeout == 0 {
		options.Timeout = time.Minute
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	if _, err := addons.Apply(t.Context(), cluster.AdminConfig(), options, log); err != nil {
		t.Fatal(err)
	}
	cluster.AwaitPolicies()
}

// Dir returns a directory with manifests, by the names of their files.
func Dir(t testing.TB, manifests map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, manifest := range manifests {
		if err := os.WriteFile(filepath.Join(dir, name), manifest, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Objects returns rendered objects as those of one file.
func Objects(rendered []*unstructured.Unstructured) []addons.Object {
	objects := make([]addons.Object, 0, len(rendered))
	for _, object := range rendered {
		objects = append(objects, addons.Object{Unstructured: object, File: "manifests"})
	}
	return objects
}
