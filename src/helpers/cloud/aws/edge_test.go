package aws

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// usesSDK are the files that may import the SDK: they convert its answers to this package's own types.
var usesSDK = []string{"api.go", "calls.go"}

func TestOnlyTheEdgeImportsTheSDK(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") || slices.Contains(usesSDK, name) {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range file.Imports {
			if strings.Contains(i.Path.Value, "github.com/aws/") {
				t.Errorf("%s imports %s; only %s may", name, i.Path.Value, strings.Join(usesSDK, ", "))
			}
		}
	}
}
