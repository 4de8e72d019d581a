package addons

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// directory writes files to a new directory.
func directory(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestLoad(t *testing.T) {
	dir := directory(t, map[string]string{
		"20-b.yml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b, namespace: ns}\ndata: {image: " +
			"\"${image:dns} and ${image:pause}\"}\n",
		"10-a.yaml": `# a comment before the first document
---
apiVersion: v1
kind: ConfigMap
metadata: {name: a, namespace: ns}
---

---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: ns}}
- {apiVersion: v1, kind: Secret, metadata: {name: a, namespace: ns}}
`,
		"30-c.json":  `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}`,
		"README.txt": "not a manifest",
	})
	objects, err := Load([]string{dir}, Images{"dns": "example/dns:1", "pause": "example/pause:2"})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, object := range objects {
		got = append(got, object.String())
	}
	want := []string{
		"10-a.yaml, document 2: ConfigMap ns/a", "10-a.yaml, document 4: ConfigMap ns/c",
		"10-a.yaml, document 4: Secret ns/a", "20-b.yml, document 1: ConfigMap ns/b",
		"30-c.json, document 1: Namespace n",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	data := objects[3].Object["data"].(map[string]any)
	if data["image"] != "example/dns:1 and example/pause:2" {
		t.Errorf("placeholders became %q", data["image"])
	}
}

func TestLoadRefuses(t *testing.T) {
	const good = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: ns}\n"
	tests := map[string]struct {
		files map[string]string
		want  []string
	}{
		"empty directory": {nil, []string{"no object"}},
		"only comments":   {map[string]string{"a.yaml": "# nothing\n"}, []string{"no object"}},
		"not YAML":        {map[string]string{"a.yaml": good + "---\n a: [\n"}, []string{"a.yaml, document 2"}},
		"key twice": {
			map[string]string{"a.yaml": good + "kind: Secret\n"},
			[]string{"a.yaml, document 1", "kind"},
		},
		"no name": {
			map[string]string{"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: a}\n"},
			[]string{"document 1", "lacks metadata.name"},
		},
		"no kind": {
			map[string]string{"a.yaml": "apiVersion: v1\nmetadata: {name: a}\n"},
			[]string{"document 1", "Kind"},
		},
		"no apiVersion": {
			map[string]string{"a.yaml": "kind: Role\nmetadata: {name: a}\n"},
			[]string{"Role a lacks apiVersion"},
		},
		"object twice": {
			map[string]string{"a.yaml": good, "b.yaml": good},
			[]string{"b.yaml, document 1: ConfigMap ns/a is also in a.yaml, document 1"},
		},
		"unknown image": {
			map[string]string{"a.yaml": good + "data: {x: \"${image:nope}\"}\n"},
			[]string{"ConfigMap a: .data.x: ${image:nope}", "known: dns, pause"},
		},
		"unclosed placeholder": {
			map[string]string{"a.yaml": good + "data: {x: [\"${image:dns\"]}\n"},
			[]string{".data.x[0]: ", `lacks its closing "}"`},
		},
		"several problems": {
			map[string]string{"a.yaml": "kind: Role\nmetadata: {name: a}\n", "b.yaml": "- 1\n"},
			[]string{"a.yaml, document 1", "b.yaml, document 1"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Load([]string{directory(t, test.files)}, Images{"dns": "d", "pause": "p"})
			if err == nil {
				t.Fatal("was accepted")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not hold %q", err, want)
				}
			}
		})
	}
}

func TestExpandWithoutAnyImage(t *testing.T) {
	_, err := Images(nil).Expand("${image:dns}")
	if err == nil || !strings.Contains(err.Error(), "no file with image references was given") {
		t.Errorf("got %v", err)
	}
}

// TestExpandCharacters: what scripts/prepare-manifests.sh writes for text that BOSH or the release would replace.
func TestExpandCharacters(t *testing.T) {
	for text, want := range map[string]string{
		"$(${(}i + 1))": "$((i + 1))", "(${(}(a": "(((a", "${(}${(}": "((", "${$}{image:dns}": "${image:dns}",
		"${$}{(}": "${(}", "${${image:dns}": "${d", "${HOME} ${": "${HOME} ${", "${image:dns}${(}": "d(",
	} {
		if got, err := (Images{"dns": "d"}).Expand(text); err != nil || got != want {
			t.Errorf("%q became %q, %v; want %q", text, got, err, want)
		}
	}
}

// TestObjectsOfOtherSourcesAreNotInManifests: before the API server is asked.
func TestObjectsOfOtherSourcesAreNotInManifests(t *testing.T) {
	dir := directory(t, map[string]string{"1.yaml": settingsManifest})
	objects, err := Load([]string{dir}, nil)
	if err != nil {
		t.Fatal(err)
	}
	objects[0].File, objects[0].Document = "cloud controller manager", 0
	_, err = Apply(t.Context(), &rest.Config{Host: "https://127.0.0.1:1"}, Options{
		Dirs: []string{dir}, Objects: objects, Timeout: time.Minute,
	}, slog.New(slog.DiscardHandler))
	const want = "cloud controller manager: ConfigMap default/settings is also in 1.yaml, document 1; keep one of them"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}
