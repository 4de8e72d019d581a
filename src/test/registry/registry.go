// Package registry is a registry of container images, as far as a container runtime pulls from it.
package registry

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
)

// Registry serves the images that were added to it, from memory.
type Registry struct {
	blobs map[string][]byte
	// manifests are listed by repository and tag, and by repository and digest.
	manifests map[[2]string]manifest
}

type manifest struct {
	content           []byte
	mediaType, digest string
}

// New returns a registry without images.
func New() *Registry {
	return &Registry{blobs: map[string][]byte{}, manifests: map[[2]string]manifest{}}
}

// Add adds an image under a name such as team/image, with a tag.
func (r *Registry) Add(repository, tag string, image v1.Image) error {
	content, err := image.RawManifest()
	if err != nil {
		return err
	}
	mediaType, err := image.MediaType()
	if err != nil {
		return err
	}
	digest, err := image.Digest()
	if err != nil {
		return err
	}
	layers, err := image.Layers()
	if err != nil {
		return err
	}
	config, err := partial.ConfigLayer(image)
	if err != nil {
		return err
	}
	for _, layer := range append(layers, config) {
		if err := r.addBlob(layer); err != nil {
			return fmt.Errorf("image %s: %w", repository, err)
		}
	}
	m := manifest{content, string(mediaType), digest.String()}
	r.manifests[[2]string{repository, tag}] = m
	r.manifests[[2]string{repository, m.digest}] = m
	return nil
}

func (r *Registry) addBlob(layer v1.Layer) error {
	digest, err := layer.Digest()
	if err != nil || r.blobs[digest.String()] != nil {
		return err
	}
	reader, err := layer.Compressed()
	if err != nil {
		return err
	}
	content, err := io.ReadAll(reader)
	r.blobs[digest.String()] = content
	return errors.Join(err, reader.Close())
}

// ServeHTTP answers requests for the API's version, manifests, and blobs. A blob is found by its digest, whatever the repository.
func (r *Registry) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	address, ok := strings.CutPrefix(request.URL.Path, "/v2/")
	if address == "" && ok {
		return
	}
	folder, reference := path.Split(address)
	repository, kind := path.Split(strings.TrimSuffix(folder, "/"))
	var content []byte
	switch kind {
	case "manifests":
		m := r.manifests[[2]string{strings.TrimSuffix(repository, "/"), reference}]
		content = m.content
		w.Header().Set("Content-Type", m.mediaType)
		w.Header().Set("Docker-Content-Digest", m.digest)
	case "blobs":
		content = r.blobs[reference]
		w.Header().Set("Content-Type", "application/octet-stream")
	}
	if content == nil {
		http.NotFound(w, request)
		return
	}
	http.ServeContent(w, request, "", time.Time{}, bytes.NewReader(content))
}
