// Package layout holds the rules of the folders in src.
package layout

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "kubernetes-release/"

// mayImport says which of our packages those below a folder may import, tests left out. What runs on VMs must not grow by
// what builds the release or tests it.
var mayImport = map[string][]string{
	"cmd/cloud-preflight": {"helpers/", "internal/"},
	"cmd/kube-launcher":   {"helpers/", "internal/"},
	"cmd/kube-tools":      {"helpers/", "internal/"},
	"cmd/smoke-server":    {"helpers/", "internal/"},
	"cmd/components":      {"release/", "internal/"},
	"cmd/cis":             {"test/", "internal/"},
	"cmd/conformance":     {"test/", "internal/"},
	"cmd/release":         {"release/", "internal/"},
	"cmd/gobuild":         {"release/", "internal/"},
	"cmd/pictures":        {"test/", "internal/"},
	"cmd/awssim":          {"lab/", "internal/"},
	"cmd/bench":           {"lab/", "release/", "internal/"},
	"cmd/bpm":             {"lab/", "internal/"},
	"cmd/lab":             {"lab/", "internal/"},
	"helpers/":            {"helpers/", "internal/"},
	"internal/":           {"internal/"},
	"release/":            {"release/", "internal/"},
	"lab/":                {"lab/", "helpers/", "internal/"},
	"lab/bench":           {"lab/", "helpers/", "release/", "internal/"},
	"test/":               {"test/", "internal/"},
}

// rule returns what the packages of the longest matching folder may import.
func rule(path string) (allowed []string, known bool) {
	longest := -1
	for folder, imports := range mayImport {
		if strings.HasPrefix(path+"/", strings.TrimSuffix(folder, "/")+"/") && len(folder) > longest {
			longest, allowed, known = len(folder), imports, true
		}
	}
	return allowed, known
}

func TestFoldersImportWhatTheyMay(t *testing.T) {
	list := exec.Command("go", "list", "-json=ImportPath,Imports", "./...")
	list.Dir = "../.."
	output, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	packages := 0
	for decoder := json.NewDecoder(strings.NewReader(string(output))); ; packages++ {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		for _, problem := range violations(p.ImportPath, p.Imports) {
			t.Error(problem)
		}
	}
	if packages < 30 {
		t.Errorf("go list found %d packages only", packages)
	}
}

func violations(path string, imports []string) []string {
	path = strings.TrimPrefix(path, module)
	allowed, known := rule(path)
	if !known {
		return []string{path + " is in no folder that mayImport names"}
	}
	var problems []string
	for _, imported := range imports {
		imported, ours := strings.CutPrefix(imported, module)
		if !ours || slices.ContainsFunc(allowed, func(folder string) bool { return strings.HasPrefix(imported+"/", folder) }) {
			continue
		}
		problems = append(problems, path+" imports "+imported+"; it may import "+strings.Join(allowed, ", "))
	}
	return problems
}

func TestViolationsAreFound(t *testing.T) {
	for path, imported := range map[string]string{
		"helpers/launcher":  "lab/vm",
		"cmd/kube-launcher": "release/components",
		"internal/poll":     "helpers/pki",
		"lab/director":      "release/components",
		"elsewhere":         "fmt",
	} {
		if len(violations(module+path, []string{module + imported})) != 1 {
			t.Errorf("%s may import %s", path, imported)
		}
	}
}
