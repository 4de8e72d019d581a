package registry

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
)

func TestImageIsServedByTagAndDigest(t *testing.T) {
	image, err := random.Image(1024, 2)
	if err != nil {
		t.Fatal(err)
	}
	registry := New()
	if err := registry.Add("team/image", "1.0", image); err != nil {
		t.Fatal(err)
	}
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	for _, reference := range []string{"1.0", digest.String()} {
		response := get(registry, "/v2/team/image/manifests/"+reference)
		if response.Code != http.StatusOK || response.Header().Get("Docker-Content-Digest") != digest.String() {
			t.Fatalf("%s: %d, %v", reference, response.Code, response.Header())
		}
		manifest, err := v1.ParseManifest(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		if response.Header().Get("Content-Type") != string(manifest.MediaType) {
			t.Errorf("%s: %v, want the type %s", reference, response.Header(), manifest.MediaType)
		}
		for _, blob := range append(manifest.Layers, manifest.Config) {
			response := get(registry, "/v2/team/image/blobs/"+blob.Digest.String())
			if got, _, err := v1.SHA256(bytes.NewReader(response.Body.Bytes())); err != nil || got != blob.Digest {
				t.Errorf("blob %s: got %d with the digest %s, %v", blob.Digest, response.Code, got, err)
			}
		}
	}
}

func get(handler http.Handler, path string) *httptest.ResponseRecorder {
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, path, nil))
	return recorder
}
