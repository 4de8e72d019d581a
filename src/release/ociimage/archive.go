// Package ociimage writes container images of a single static program as archives in the OCI image layout. containerd
// imports them (ctr images import) with the name that the archive contains.
package ociimage

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// epoch is the time of everything in an image, so that archives are reproducible.
var epoch = time.Unix(0, 0).UTC()

const (
	containerdName = "io.containerd.image.name"
	ociName        = "org.opencontainers.image.ref.name"
)

// Archive is an image of one program.
type Archive struct {
	// Reference is the image's full name with its tag, such as kubernetes.bosh.io/pause:3.10.2.
	Reference string
	// Program is the absolute path of the program in the image, which is its entry point.
	Program string
	// Content is the program, statically linked for linux/amd64.
	Content []byte
	// User is the user and group of its process, UID:GID.
	User string
}

// Write writes the archive, uncompressed: it is compressed as part of its package. The output is reproducible.
func (a Archive) Write(w io.Writer) error {
	image, err := a.image()
	if err != nil {
		return fmt.Errorf("image %s: %w", a.Reference, err)
	}
	blobs, descriptor, err := describe(image)
	if err != nil {
		return fmt.Errorf("image %s: %w", a.Reference, err)
	}
	_, tag, _ := strings.Cut(a.Reference[strings.LastIndex(a.Reference, "/")+1:], ":")
	descriptor.Annotations = map[string]string{containerdName: a.Reference, ociName: tag}
	index := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex),
		mutate.IndexAddendum{Add: image, Descriptor: descriptor})
	rawIndex, err := index.RawManifest()
	if err != nil {
		return err
	}
	archive := tar.NewWriter(w)
	err = errors.Join(
		writeFile(archive, "oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`)),
		writeFile(archive, "index.json", 0o644, rawIndex),
	)
	for _, blob := range blobs {
		err = errors.Join(err, writeFile(archive, "blobs/sha256/"+blob.digest.Hex, 0o644, blob.content))
	}
	return errors.Join(err, archive.Close())
}

// image returns an image with one layer that contains only the program.
func (a Archive) image() (v1.Image, error) {
	if !strings.HasPrefix(a.Program, "/") || len(a.Content) == 0 || a.User == "" ||
		!strings.Contains(a.Reference, ":") {
		return nil, fmt.Errorf(
			"requires a reference with a tag, an absolute path, a program and a user; got path %q, %d bytes, user %q",
			a.Program, len(a.Content), a.User,
		)
	}
	var layer bytes.Buffer
	archive := tar.NewWriter(&layer)
	if err := errors.Join(writeFile(archive, a.Program[1:], 0o755, a.Content), archive.Close()); err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.AppendLayers(image, static.NewLayer(layer.Bytes(), types.OCIUncompressedLayer))
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.Architecture, config.OS, config.Created = "amd64", "linux", v1.Time{Time: epoch}
	config.Config = v1.Config{Entrypoint: []string{a.Program}, User: a.User, WorkingDir: "/"}
	config.History = []v1.History{{Created: v1.Time{Time: epoch}, CreatedBy: "kubernetes-release"}}
	return mutate.ConfigFile(image, config)
}

type blob struct {
	digest  v1.Hash
	content []byte
}

// describe returns an image's manifest, configuration and layers as blobs, and the manifest's descriptor.
func describe(image v1.Image) ([]blob, v1.Descriptor, error) {
	manifest, err := image.RawManifest()
	if err != nil {
		return nil, v1.Descriptor{}, err
	}
	manifestDigest, err := image.Digest()
	if err != nil {
		return nil, v1.Descriptor{}, err
	}
	config, err := image.RawConfigFile()
	if err != nil {
		return nil, v1.Descriptor{}, err
	}
	configDigest, err := image.ConfigName()
	if err != nil {
		return nil, v1.Descriptor{}, err
	}
	blobs := []blob{{manifestDigest, manifest}, {configDigest, config}}
	layers, err := image.Layers()
	if err != nil {
		return nil, v1.Descriptor{}, err
	}
	for _, layer := range layers {
		digest, err := layer.Digest()
		if err != nil {
			return nil, v1.Descriptor{}, err
		}
		reader, err := layer.Compressed()
		if err != nil {
			return nil, v1.Descriptor{}, err
		}
		content, err := io.ReadAll(reader)
		if err := errors.Join(err, reader.Close()); err != nil {
			return nil, v1.Descriptor{}, err
		}
		blobs = append(blobs, blob{digest, content})
	}
	return blobs, v1.Descriptor{
		MediaType: types.OCIManifestSchema1, Digest: manifestDigest, Size: int64(len(manifest)),
		Platform: &v1.Platform{Architecture: "amd64", OS: "linux"},
	}, nil
}

func writeFile(archive *tar.Writer, name string, mode int64, content []byte) error {
	header := &tar.Header{
		Typeflag: tar.TypeReg,
		Name:     name,
		Mode:     mode,
		Size:     int64(len(content)),
		ModTime:  epoch,
		Format:   tar.FormatUSTAR,
	}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err := archive.Write(content)
	return err
}
