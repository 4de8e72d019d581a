package conformance

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestSubmission: the archive has the folder and files of github.com/cncf/k8s-conformance, and the fields that its
// checks look for (kodata/features of github.com/kubernetes-sigs/verify-conformance).
func TestSubmission(t *testing.T) {
	folder := t.TempDir()
	if err := errors.Join(
		os.WriteFile(filepath.Join(folder, logName), []byte("log"), 0o600),
		os.WriteFile(filepath.Join(folder, junitName), []byte(junit), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	path, err := Submission{Kubernetes: "v1.37.4", Release: "1.2.0"}.Write(folder)
	if err != nil {
		t.Fatal(err)
	}
	files := unpack(t, path)
	const prefix = "v1.37/" + product + "/"
	if len(files) != 4 || files[prefix+logName] != "log" || files[prefix+junitName] != junit {
		t.Errorf("the archive contains %q", files)
	}
	if readme := files[prefix+"README.md"]; !strings.Contains(
		readme, "Version 1.2.0 of the release, with Kubernetes v1.37.4.",
	) {
		t.Errorf("README.md is\n%s", readme)
	}
	var fields map[string]string
	if err := yaml.UnmarshalStrict([]byte(files[prefix+"PRODUCT.yaml"]), &fields); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"vendor", "name", "version", "type", "description", "website_url", "documentation_url", "contact_email_address",
		"repo_url",
	} {
		if _, ok := fields[name]; !ok {
			t.Errorf("PRODUCT.yaml has no field %s", name)
		}
	}
	if fields["version"] != "1.2.0" || fields["type"] != "installer" {
		t.Errorf("PRODUCT.yaml is %v", fields)
	}
}

func TestSubmissionNeedsAVersion(t *testing.T) {
	if _, err := (Submission{Kubernetes: "master"}).Write(t.TempDir()); err == nil ||
		!strings.Contains(err.Error(), `"master"`) {
		t.Errorf("got %v", err)
	}
}

func unpack(t *testing.T, path string) map[string]string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	compressed, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for archive := tar.NewReader(compressed); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = string(content)
	}
}
