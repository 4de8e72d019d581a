package bench

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPatchedRelease patches a small release, and reads the version of what it would install.
func TestPatchedRelease(t *testing.T) {
	tree := func(files map[string]string) entries {
		var list entries
		for name, content := range files {
			list = append(list, &entry{&tar.Header{Name: name, Mode: 0o644}, []byte(content)})
		}
		return list
	}
	xz := func(text string) string {
		out, err := filter(t.Context(), []byte(text), "xz", "--stdout")
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	bytesOf := func(e entries) []byte {
		content, err := e.bytes()
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	blob := xz("a program of v1.37.2 with modules v1.37.2 and v2.4.2 and v1.5.2")
	pkg := bytesOf(tree(map[string]string{"kubernetes/kubernetes.tar.xz": blob, "packaging": "unpack"}))
	manifest := fmt.Sprintf(`name: kubernetes
version: 0+dev.1
packages:
- name: kubernetes
  version: abc
  fingerprint: abc
  sha1: sha256:%x
`, sha256.Sum256(pkg))
	from, to := filepath.Join(t.TempDir(), "from.tgz"), filepath.Join(t.TempDir(), "to.tgz")
	if err := os.WriteFile(
		from, bytesOf(tree(map[string]string{"release.MF": manifest, kubernetesPackage: string(pkg)})), 0o600,
	); err != nil {
		t.Fatal(err)
	}
	old, patched, err := patchedRelease(t.Context(), from, to, nextPatch)
	if err != nil || old != "v1.37.2" || patched != "v1.37.9" {
		t.Fatalf("%s to %s: %v", old, patched, err)
	}
	result, err := readTar(to)
	if err != nil {
		t.Fatal(err)
	}
	now := result.find(kubernetesPackage).content
	if want := fmt.Sprintf(
		"  sha1: sha256:%x\n", sha256.Sum256(now),
	); !strings.Contains(string(result.find("release.MF").content), want) ||
		bytes.Equal(now, pkg) {
		t.Errorf("release.MF lacks %s:\n%s", want, result.find("release.MF").content)
	}
	if manifest := string(
		result.find("release.MF").content,
	); !strings.Contains(manifest, "\nversion: 0+dev.1.v1-37-9\n") {
		t.Errorf("the release has no version of its own:\n%s", manifest)
	}
	inner, err := parseTar(now)
	if err != nil {
		t.Fatal(err)
	}
	text, err := filter(t.Context(), inner.find("kubernetes/kubernetes.tar.xz").content, "xz", "-d", "--stdout")
	if want := "a program of v1.37.9 with modules v1.37.9 and v2.4.2 and v1.5.2"; err != nil || string(text) != want {
		t.Errorf("got %q %v", text, err)
	}
}

func TestNextVersions(t *testing.T) {
	for _, c := range []struct{ version, patch, minor string }{{"v1.37.0", "v1.37.9", "v1.38.0"}, {"v1.37.9", "v1.37.8", "v1.38.0"}} {
		if patch, minor := nextPatch(c.version), nextMinor(c.version); patch != c.patch || minor != c.minor {
			t.Errorf("after %s: %s and %s, want %s and %s", c.version, patch, minor, c.patch, c.minor)
		}
	}
}
