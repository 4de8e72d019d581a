package templates

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"kubernetes-release/testbed/lab/director/render"
)

// snippet is a code block of a document.
type snippet struct{ document, language, text string }

var blocks = regexp.MustCompile("(?ms)^ *```([a-z]+)\n(.*?)^ *```$")

// snippets returns the code blocks of a document in these languages.
func snippets(t *testing.T, document string, languages ...string) []snippet {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, document))
	if err != nil {
		t.Fatal(err)
	}
	var found []snippet
	for _, m := range blocks.FindAllStringSubmatch(string(text), -1) {
		if slices.Contains(languages, m[1]) {
			found = append(found, snippet{document, m[1], m[2]})
		}
	}
	return found
}

func documents(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(paths) < 10 {
		t.Fatalf("documents %q, %v", paths, err)
	}
	names := []string{"README.md"}
	for _, path := range paths {
		names = append(names, "docs/"+filepath.Base(path))
	}
	return names
}

// TestOpsFilesInDocuments deploys the manifest with each ops-file that a document shows. Templates of the jobs it
// changes refuse wrong properties.
func TestOpsFilesInDocuments(t *testing.T) {
	t.Parallel()
	tested := 0
	for _, document := range documents(t) {
		for n, s := range snippets(t, document, "yaml") {
			var ops []map[string]any
			if yaml.Unmarshal([]byte(s.text), &ops) != nil || len(ops) == 0 || ops[0]["path"] == nil ||
				strings.Contains(s.text, ofSecondCluster) {
				continue
			}
			tested++
			t.Run(fmt.Sprint(filepath.Base(document), " ", n), func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "ops.yml")
				if err := os.WriteFile(path, []byte(s.text), 0o600); err != nil {
					t.Fatal(err)
				}
				d := deployment{files: []string{path}}
				if strings.Contains(s.text, "name=ebs-csi-") { // jobs that aws.yml adds
					d.ops = []string{"aws.yml"}
				}
				if strings.Contains(s.text, "/instance_groups/name=etcd/") {
					d.ops, d.vars = []string{"use-separate-etcd.yml"}, etcdVars
				}
				if filepath.Base(document) == "openstack.md" {
					d.ops, d.vars = []string{"openstack.yml"}, openstackVars
				}
				plan(t, d)
				checkSetProperties(t, ops)
			})
		}
	}
	if tested < 4 {
		t.Errorf("only %d ops-files found", tested)
	}
}

// checkSetProperties fails if an ops-file sets a property that the spec of the job lacks: the Director ignores such a
// property.
func checkSetProperties(t *testing.T, ops []map[string]any) {
	t.Helper()
	path := regexp.MustCompile(`/jobs/name=([a-z-]+)/properties\??/(.+)$`)
	for _, op := range ops {
		m := path.FindStringSubmatch(op["path"].(string))
		if m == nil {
			continue
		}
		property := strings.ReplaceAll(strings.ReplaceAll(m[2], "?", ""), "/", ".")
		checkDeclared(t, m[1], property)
	}
}

// checkDeclared fails unless the job declares the property, one below it or one above it.
func checkDeclared(t *testing.T, job, property string) {
	t.Helper()
	for declared := range readJob(t, job).Defaults() {
		if declared == property || strings.HasPrefix(property, declared+".") ||
			strings.HasPrefix(declared, property+".") {
			return
		}
	}
	t.Errorf("job %s has no property %s", job, property)
}

// TestPropertiesInDocuments renders the jobs that documents show with properties.
func TestPropertiesInDocuments(t *testing.T) {
	for _, test := range []struct{ document, begins, job string }{
		{"docs/proxy-and-registries.md", "registry:\n", "containerd"},
		{"docs/proxy-and-registries.md", "  registry_credentials:\n", "kubelet"},
	} {
		found := false
		for _, s := range snippets(t, test.document, "yaml") {
			if !strings.HasPrefix(s.text, test.begins) {
				continue
			}
			found = true
			var properties values
			if err := yaml.Unmarshal([]byte(s.text), &properties); err != nil {
				t.Fatalf("%s: %v", test.document, err)
			}
			if _, err := render.Properties(test.job, readJob(t, test.job).Defaults(), properties); err != nil {
				t.Error(err)
			}
			for name := range properties {
				checkDeclared(t, test.job, name)
			}
			mustRender(t, test.job, inputFor(t, test.job).with(properties))
		}
		if !found {
			t.Errorf("%s shows no %q", test.document, test.begins)
		}
	}
}

// TestYAMLInDocumentsParses covers what other tests do not read further, such as Kubernetes manifests: each object has
// an API version and a kind.
func TestYAMLInDocumentsParses(t *testing.T) {
	objects := 0
	for _, document := range documents(t) {
		for _, s := range snippets(t, document, "yaml", "json") {
			decoder := yaml.NewDecoder(strings.NewReader(s.text))
			for {
				var value any
				err := decoder.Decode(&value)
				if err != nil {
					if err.Error() != "EOF" {
						t.Errorf("%s: %v in\n%s", document, err, s.text)
					}
					break
				}
				object, _ := value.(map[string]any)
				if object["kind"] == nil && object["apiVersion"] == nil {
					continue
				}
				objects++
				metadata, _ := object["metadata"].(map[string]any)
				if object["kind"] == nil || object["apiVersion"] == nil ||
					metadata["name"] == nil && object["kind"] != "Config" {
					text, _ := json.Marshal(object)
					t.Errorf("%s shows an object without kind, apiVersion or name: %s", document, text)
				}
			}
		}
	}
	if objects == 0 {
		t.Error("no objects found")
	}
}

// TestShellInDocumentsParses also checks that files of this repository that commands name exist.
func TestShellInDocumentsParses(t *testing.T) {
	files := regexp.MustCompile(`(?:^|[\s=])((?:ops-files|manifests|scripts)/[A-Za-z0-9_./-]+)`)
	tested := 0
	for _, document := range documents(t) {
		for _, s := range snippets(t, document, "sh", "bash", "shell") {
			tested++
			command := exec.Command("bash", "-n")
			command.Stdin = strings.NewReader(s.text)
			if output, err := command.CombinedOutput(); err != nil {
				t.Errorf("%s: %v: %s in\n%s", document, err, output, s.text)
			}
			for _, m := range files.FindAllStringSubmatch(s.text, -1) {
				if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
					t.Errorf("%s names %s: %v", document, m[1], err)
				}
			}
		}
	}
	if tested < 20 {
		t.Errorf("only %d commands found", tested)
	}
}
