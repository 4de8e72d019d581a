package corefile

import (
	"archive/tar"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const manifest = `kind: ServiceAccount
metadata: {name: coredns}
---
kind: ConfigMap
metadata: {name: coredns}
data:
  Corefile: |
    .:53 {
        hostz
    }
`

// archive is a tar with one file.
func archive(t *testing.T, name string, content []byte) []byte {
	t.Helper()
	var buffer bytes.Buffer
	writer := tar.NewWriter(&buffer)
	header := &tar.Header{Name: name, Mode: 0o755, Size: int64(len(content)), Typeflag: tar.TypeReg}
	if err := writer.WriteHeader(header); err != nil {
		t.Fatal(err)
	}
	if _, err := writer.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return buffer.Bytes()
}

// An image's program gets the Corefile; a refusal has its message and the line that it names.
func TestCheck(t *testing.T) {
	program := func(script string) []byte {
		return archive(t, "blobs/sha256/1", archive(t, "coredns", []byte("#!/bin/sh\n"+script)))
	}
	for name, c := range map[string]struct {
		manifest string
		image    []byte
		want     []string
	}{
		"accepted": {manifest, program(`[ "$1" = -check ] && grep -q hostz`), nil},
		"refused": {
			manifest, program("echo 'Corefile:2 - wrong'; exit 1"),
			[]string{`Corefile:2 - wrong (line 2 is "hostz")`, "coredns.extra_plugins"},
		},
		"other line": {manifest, program("echo 'Corefile:99 - wrong'; exit 1"), []string{"Corefile:99 - wrong;"}},
		"no program": {
			manifest, archive(t, "blobs/sha256/1", archive(t, "pause", nil)), []string{"no layer has the file coredns"},
		},
		"no Corefile": {"kind: Service\n", program("exit 0"), []string{"has no ConfigMap coredns"}},
		"not YAML":    {"a: [", program("exit 0"), []string{"manifest.yml", "yaml"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path, image := filepath.Join(dir, "manifest.yml"), filepath.Join(dir, "image.tar")
			for file, content := range map[string][]byte{path: []byte(c.manifest), image: c.image} {
				if err := os.WriteFile(file, content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			err := Check(t.Context(), path, image)
			if len(c.want) == 0 && err != nil {
				t.Error(err)
			}
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("the error is %v, want %q in it", err, want)
				}
			}
		})
	}
}
