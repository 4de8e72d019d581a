// Package registry is a registry of container images, for runtimes that pull from it in tests.
package registry

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Registry serves the images that were added to it, from memory.
type Registry struct{ http.Handler }

// New returns a registry without images.
func New() *Registry {
	return &Registry{registry.New(registry.Logger(log.New(io.Discard, "", 0)))}
}

// Add adds an image under a name such as team/image, with a tag.
func (r *Registry) Add(repository, tag string, image v1.Image) error {
	server := httptest.NewServer(r)
	defer server.Close()
	reference, err := name.NewTag(server.Listener.Addr().String() + "/" + repository + ":" + tag)
	if err != nil {
		return err
	}
	if err := remote.Write(reference, image); err != nil {
		return fmt.Errorf("image %s: %w", repository, err)
	}
	return nil
}
