package docs

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cloudfoundry/bosh-cli/v7/director/template"
	"github.com/cppforlife/go-patch/patch"
	"gopkg.in/yaml.v3"
)

var commandBlocks = regexp.MustCompile("(?ms)^```sh\n(.*?)^```")

// TestReadmeCommands checks each command of the README as far as possible without a lab or a Director; the acceptance
// tests run those that need the lab. A command of another kind fails, so that the README shows none that nothing
// checks.
func TestReadmeCommands(t *testing.T) {
	blocks := commandBlocks.FindAllStringSubmatch(read(t, "README.md"), -1)
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
	case "cp":
		if _, err := os.Stat(filepath.Join(root, words[1])); err != nil {
			t.Error(err)
		}
	case "bin/lab", ".lab/bin/kubectl":
		// run by the acceptance tests
	case "bosh":
		checkBosh(t, words[1:], nil)
	case "bin/cloud-preflight":
		// run by the test of docs/first-cluster.md
	default:
		t.Errorf("no test checks the command %q", words[0])
	}
}

// checkBosh interpolates what a bosh command deploys, strictly, and checks that every file it names exists or is shown:
// the content of files that the document has operators write, by name. An ellipsis stands for the other options of a
// deployment.
func checkBosh(t *testing.T, words []string, shown map[string]string) {
	var manifest string
	var ops []string
	vars := template.StaticVariables{}
	if slices.Contains(words, "…") {
		vars["cluster_name"] = "prod"
	}
	for i := 0; i < len(words); i++ {
		switch word := words[i]; {
		case word == "-d":
			i++
		case word == "-l":
			i++
			values := map[string]any{}
			if err := yaml.Unmarshal([]byte(shown[words[i]]), &values); err != nil {
				t.Errorf("%s: %v", words[i], err)
			}
			maps.Copy(vars, values)
		case word == "-o":
			i++
			text, ok := shown[words[i]]
			if !ok {
				text = read(t, words[i])
			}
			ops = append(ops, text)
		case word == "-v", word == "--var-file":
			i++
			name, value, _ := strings.Cut(words[i], "=")
			vars[name] = value
		case strings.HasPrefix(word, "manifests/") && !slices.Contains(words, "update-config"):
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
		if err := yaml.Unmarshal([]byte(f), &defs); err != nil {
			t.Fatalf("%v in\n%s", err, f)
		}
		ops, err := patch.NewOpsFromDefinitions(defs)
		if err != nil {
			t.Fatalf("%v in\n%s", err, f)
		}
		all = append(all, ops)
	}
	// Both the manifest and the ops-files declare variables, so a first, lenient pass collects them.
	content := template.NewTemplate([]byte(read(t, manifest)))
	merged, err := content.Evaluate(vars, all, template.EvaluateOpts{})
	if err != nil {
		t.Fatalf("%s: %v", manifest, err)
	}
	generated := struct {
		Variables []struct{ Name string }
	}{}
	if err := yaml.Unmarshal(merged, &generated); err != nil {
		t.Fatalf("%s: %v", manifest, err)
	}
	for _, v := range generated.Variables {
		vars[v.Name] = map[any]any{
			"ca":          "generated",
			"certificate": "generated",
			"private_key": "generated",
			"public_key":  "generated",
		}
	}
	if _, err := content.Evaluate(vars, all, template.EvaluateOpts{ExpectAllKeys: true}); err != nil {
		t.Errorf("%s: %v", manifest, err)
	}
}
