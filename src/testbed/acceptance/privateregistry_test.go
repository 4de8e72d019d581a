package acceptance

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/random"

	"kubernetes-release/testbed/registry"
)

// privateRegistry is an image registry that requires a password.
type privateRegistry struct{ host, image, ca string }

const registryUser, registryPassword = "puller", "correct horse"

// newPrivateRegistry returns a registry with one image.
func (l *lab) newPrivateRegistry(t *testing.T) *privateRegistry {
	t.Helper()
	image, err := random.Image(1024, 1)
	if err != nil {
		t.Fatal(err)
	}
	images := registry.New()
	if err := images.Add("team/image", "1", image); err != nil {
		t.Fatal(err)
	}
	url, ca := l.serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != registryUser || password != registryPassword {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		images.ServeHTTP(w, r)
	}))
	host := strings.TrimPrefix(url, "https://")
	return &privateRegistry{host: host, image: host + "/team/image:1", ca: ca}
}

// deploy makes the registry known to the nodes of a lab that runs: its credentials, and its CA.
func (p *privateRegistry) deploy(t *testing.T, l *lab) {
	t.Helper()
	credentials := map[string]any{
		p.host: map[string]any{"username": registryUser, "password": registryPassword},
	}
	var operations []any
	for path, value := range map[string]any{
		"name=control/jobs/name=kubelet/properties/registry_credentials?": credentials,
		"name=worker/jobs/name=kubelet/properties/registry_credentials?":  credentials,
		"name=worker/jobs/name=containerd/properties?/registry?/ca":       p.ca,
	} {
		operations = append(operations, map[string]any{
			"type": "replace", "path": "/instance_groups/" + path, "value": value,
		})
	}
	text, err := json.Marshal(operations)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "registry.yml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	l.ops = append(slices.Clone(l.ops), file)
	l.mustUp(t)
}

// checkPrivateRegistry pulls an image in a pod without an image pull secret. The image holds nothing that could run.
func (l *lab) checkPrivateRegistry(t *testing.T, private *privateRegistry) {
	t.Helper()
	l.pullEvents(t, "private", private.image, "Pulled Successfully pulled image")
}
