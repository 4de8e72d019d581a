package ociimage

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"
)

var example = Archive{
	Reference: "registry.example/group/hello:1.2",
	Program:   "/hello",
	Content:   []byte("program"),
	User:      "65532:65532",
}

func TestArchive(t *testing.T) {
	var first, second bytes.Buffer
	if err := errors.Join(example.Write(&first), example.Write(&second)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("archives are not reproducible")
	}
	index, err := layout.ImageIndexFromPath(unpack(t, &first))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("manifest %+v, %v", manifest, err)
	}
	names := manifest.Manifests[0].Annotations
	if names[containerdName] != example.Reference || names[ociName] != "1.2" {
		t.Errorf("names %v", names)
	}
	image, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.OS != "linux" || config.Architecture != "amd64" || config.Config.User != example.User ||
		!slices.Equal(config.Config.Entrypoint, []string{"/hello"}) {
		t.Errorf("configuration %+v", config)
	}
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("layers %v, %v", layers, err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	files := tar.NewReader(content)
	header, err := files.Next()
	if err != nil || header.Name != "hello" || header.Mode != 0o755 || header.Uid != 0 {
		t.Errorf("the layer contains %+v, %v", header, err)
	}
	if _, err := files.Next(); !errors.Is(err, io.EOF) {
		t.Error("the layer contains more than the program")
	}
}

func TestIncomplete(t *testing.T) {
	for name, change := range map[string]func(*Archive){
		"no tag":        func(a *Archive) { a.Reference = "hello" },
		"relative path": func(a *Archive) { a.Program = "hello" },
		"no program":    func(a *Archive) { a.Content = nil },
		"no user":       func(a *Archive) { a.User = "" },
	} {
		t.Run(name, func(t *testing.T) {
			archive := example
			change(&archive)
			if err := archive.Write(io.Discard); err == nil || !strings.Contains(err.Error(), archive.Reference) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func unpack(t *testing.T, archive io.Reader) string {
	t.Helper()
	dir := t.TempDir()
	for files := tar.NewReader(archive); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(files)
		if err != nil {
			t.Fatal(err)
		}
		digest := sha256.Sum256(content)
		if name, isBlob := strings.CutPrefix(header.Name, "blobs/sha256/"); isBlob &&
			name != hex.EncodeToString(digest[:]) {
			t.Errorf("%s has another digest, %x", header.Name, digest)
		}
		file := filepath.Join(dir, header.Name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, content, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
}
