// Package docs holds the tests of what the repository's documents say: links lead somewhere, and every command that the README
// shows is one that works.
package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cloudfoundry/bosh-cli/v7/director/template"
	"github.com/cppforlife/go-patch/patch"
	"gopkg.in/yaml.v3"
)

const root = "../../.."

var (
	links  = regexp.MustCompile(`\]\(([^)#]+)(#[^)]*)?\)`)
	fences = regexp.MustCompile("(?ms)^```sh\n(.*?)^```")
)

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestLinksLeadSomewhere(t *testing.T) {
	documents := []string{"README.md"}
	for _, pattern := range []string{"docs/*.md", "ops-files/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v %v", pattern, found, err)
		}
		for _, f := range found {
			rel, _ := filepath.Rel(root, f)
			documents = append(documents, rel)
		}
	}
	for _, doc := range documents {
		for _, m := range links.FindAllStringSubmatch(read(t, doc), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(root, filepath.Dir(doc), m[1])); err != nil {
				t.Errorf("%s links to %s: %v", doc, m[1], err)
			}
		}
	}
}

// TestReadmeCommands checks each command of the README as far as that goes without a lab or a Director; the acceptance tests run
// those that need the lab. A command of another kind fails, so that none is shown that nothing checks.
func TestReadmeCommands(t *testing.T) {
	blocks := fences.FindAllStringSubmatch(read(t, "README.md"), -1)
	if len(blocks) < 3 {
		t.Fatalf("only %d command blocks found", len(blocks))
	}
	for _, block := range blocks {
		for _, line := range strings.Split(strings.TrimSpace(block[1]), "\n") {
			t.Run(line, func(t *testing.T) { checkCommand(t, strings.Fields(line)) })
		}
	}
}

func checkCommand(t *testing.T, words []string) {
	switch words[0] {
	case "make":
		cmd := exec.Command("make", append([]string{"-n"}, words[1:]...)...)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	case "bin/lab", ".lab/bin/kubectl":
		// run by the acceptance tests
	case "bosh":
		checkBosh(t, words[1:])
	default:
		t.Errorf("no test knows the command %q", words[0])
	}
}

// checkBosh interpolates what a bosh command deploys, strictly, and looks for every file that it names.
func checkBosh(t *testing.T, words []string) {
	var manifest string
	var ops []string
	vars := template.StaticVariables{}
	for i := 0; i < len(words); i++ {
		switch word := words[i]; {
		case word == "-d" || word == "-l":
			i++
		case word == "-o":
			i++
			ops = append(ops, words[i])
		case word == "-v":
			i++
			name, value, _ := strings.Cut(words[i], "=")
			vars[name] = value
		case strings.HasPrefix(word, "manifests/") && words[0] != "update-config":
			manifest = word
		case strings.HasPrefix(word, "manifests/"):
			if _, err := os.Stat(filepath.Join(root, word)); err != nil {
				t.Error(err)
			}
		}
	}
	if manifest != "" {
		interpolate(t, manifest, ops, vars)
	}
}

func interpolate(t *testing.T, manifest string, opsFiles []string, vars template.StaticVariables) {
	t.Helper()
	var all patch.Ops
	for _, f := range opsFiles {
		var defs []patch.OpDefinition
		if err := yaml.Unmarshal([]byte(read(t, f)), &defs); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		ops, err := patch.NewOpsFromDefinitions(defs)
		if err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		all = append(all, ops)
	}
	// Variables come from the manifest and from the ops-files alike, so they are read from a first, lenient pass.
	content := template.NewTemplate([]byte(read(t, manifest)))
	merged, err := content.Evaluate(vars, all, template.EvaluateOpts{})
	if err != nil {
		t.Fatalf("%s with %v: %v", manifest, opsFiles, err)
	}
	generated := struct {
		Variables []struct{ Name string }
	}{}
	if err := yaml.Unmarshal(merged, &generated); err != nil {
		t.Fatalf("%s with %v: %v", manifest, opsFiles, err)
	}
	for _, v := range generated.Variables {
		vars[v.Name] = map[interface{}]interface{}{"ca": "generated", "certificate": "generated", "private_key": "generated", "public_key": "generated"}
	}
	if _, err := content.Evaluate(vars, all, template.EvaluateOpts{ExpectAllKeys: true}); err != nil {
		t.Errorf("%s with %v: %v", manifest, opsFiles, err)
	}
}
