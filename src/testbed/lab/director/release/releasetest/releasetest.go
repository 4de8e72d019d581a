// Package releasetest builds release tarballs for tests from directories with jobs/NAME/{spec,monit,templates} and
// packages/NAME/{spec,packaging,...}. A release may lack one of the folders.
package releasetest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"gopkg.in/yaml.v3"
)

// Build builds the tarball NAME-VERSION.tgz in a temporary directory of the test and returns its path.
func Build(t *testing.T, dir, name, version string) string {
	t.Helper()
	manifest := map[string]any{"name": name, "version": version, "commit_hash": "none", "uncommitted_changes": false}
	files := map[string][]byte{}
	for kind, key := range map[string]string{"jobs": "jobs", "packages": "packages"} {
		entries, err := os.ReadDir(filepath.Join(dir, kind))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		var refs []map[string]any
		for _, entry := range entries {
			archive, spec := pack(t, filepath.Join(dir, kind, entry.Name()), kind)
			files[kind+"/"+entry.Name()+".tgz"] = archive
			sum := sha256.Sum256(archive)
			ref := map[string]any{
				"name": entry.Name(), "version": fmt.Sprintf("%x", sum[:8]), "fingerprint": fmt.Sprintf("%x", sum[:8]),
				"sha1": fmt.Sprintf("sha256:%x", sum),
			}
			if kind == "jobs" {
				ref["packages"] = spec["packages"]
			} else {
				ref["dependencies"] = spec["dependencies"]
			}
			refs = append(refs, ref)
		}
		manifest[key] = refs
	}
	text, err := yaml.Marshal(manifest)
	if err != nil {
		t.Fatal(err)
	}
	files["release.MF"] = text
	path := filepath.Join(t.TempDir(), name+"-"+version+".tgz")
	if err := os.WriteFile(path, archive(t, files), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func pack(t *testing.T, dir, kind string) ([]byte, map[string]any) {
	t.Helper()
	files := map[string][]byte{}
	var spec map[string]any
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if name == "spec" {
			if err := yaml.Unmarshal(text, &spec); err != nil {
				return err
			}
			if kind == "packages" {
				return nil
			}
			name = "job.MF"
		}
		files[name] = text
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return archive(t, files), spec
}

func archive(t *testing.T, files map[string][]byte) []byte {
	t.Helper()
	var buffer bytes.Buffer
	gz, err := gzip.NewWriterLevel(&buffer, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	tw := tar.NewWriter(gz)
	for name, text := range files {
		header := &tar.Header{Name: "./" + name, Mode: 0o644, Size: int64(len(text)), Typeflag: tar.TypeReg}
		if err := tw.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := tw.Write(text); err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	if err := gz.Close(); err != nil {
		t.Fatal(err)
	}
	return buffer.Bytes()
}
