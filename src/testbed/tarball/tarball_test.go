package tarball

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func tree(files map[string]string) entries {
	var list entries
	for name, content := range files {
		list = append(list, &entry{&tar.Header{Name: name, Mode: 0o644}, []byte(content)})
	}
	return list
}

func zipped(t *testing.T, files map[string]string) string {
	t.Helper()
	content, err := tree(files).zipped()
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// small writes a release tarball whose program is this text, and returns its path.
func small(t *testing.T, program string) string {
	t.Helper()
	var archive bytes.Buffer
	if err := tree(map[string]string{kubernetesProgram: program}).writeTo(&archive); err != nil {
		t.Fatal(err)
	}
	blob, err := filter(t.Context(), archive.Bytes(), "xz", "--stdout")
	if err != nil {
		t.Fatal(err)
	}
	pkg := zipped(t, map[string]string{kubernetesBlob: string(blob), "packaging": "unpack"})
	manifest := fmt.Sprintf(`name: kubernetes
version: 0+dev.1
packages:
- name: kubernetes
  version: abc
  fingerprint: abc
  sha1: sha256:%x
`, sha256.Sum256([]byte(pkg)))
	path := filepath.Join(t.TempDir(), "release.tgz")
	release := zipped(t, map[string]string{"release.MF": manifest, kubernetesPackage: pkg})
	if err := os.WriteFile(path, []byte(release), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// programOf returns the program in a release tarball, after a check of the digest and of the version in its manifest.
func programOf(t *testing.T, path, version string) string {
	t.Helper()
	release, err := read(path)
	if err != nil {
		t.Fatal(err)
	}
	pkg, manifest := release.find(kubernetesPackage).content, string(release.find("release.MF").content)
	for _, want := range []string{
		fmt.Sprintf("  sha1: sha256:%x\n", sha256.Sum256(pkg)), "\nversion: " + version + "\n",
	} {
		if !strings.Contains(manifest, want) {
			t.Errorf("release.MF lacks %q:\n%s", want, manifest)
		}
	}
	files, err := parseZipped(pkg)
	if err != nil {
		t.Fatal(err)
	}
	archive, err := filter(t.Context(), files.find(kubernetesBlob).content, "xz", "-d", "--stdout")
	if err != nil {
		t.Fatal(err)
	}
	if files, err = parse(bytes.NewReader(archive)); err != nil {
		t.Fatal(err)
	}
	return string(files.find(kubernetesProgram).content)
}

func TestPreviousKubernetesIsNotBuilt(t *testing.T) {
	from, to := small(t, "a program"), filepath.Join(t.TempDir(), "to.tgz")
	sources, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	if err := os.Symlink(sources, filepath.Join(root, "src")); err != nil {
		t.Fatal(err)
	}
	_, err = PreviousKubernetes(t.Context(), root, from, "patch", to)
	if !errors.Is(err, fs.ErrNotExist) ||
		!strings.Contains(err.Error(), "components kubernetes-previous-patch builds it") {
		t.Errorf("error = %v", err)
	}
}

func TestReplaceProgram(t *testing.T) {
	to, other := filepath.Join(t.TempDir(), "to.tgz"), filepath.Join(t.TempDir(), "kubernetes")
	if err := os.WriteFile(other, []byte("longer than the old one"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := ReplaceProgram(t.Context(), small(t, "the old one"), to, other, "v1.36.3"); err != nil {
		t.Fatal(err)
	}
	if program := programOf(t, to, "0+dev.1.v1-36-3"); program != "longer than the old one" {
		t.Errorf("got %q", program)
	}
}
