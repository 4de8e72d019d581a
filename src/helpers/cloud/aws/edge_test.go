package aws

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// TestOnlyTheEdgeImportsTheSDK: what decides deals with this release's own types. Only the packages that call AWS, and
// those that convert what it answers, import the SDK.
func TestOnlyTheEdgeImportsTheSDK(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{
		"checks",
		"cloudconfig",
		"facts",
		"fixes",
		"iampolicy",
		"resource",
		"subnetchoice",
	} {
		found, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v", folder, err)
		}
		files = append(files, found...)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range file.Imports {
			if strings.Contains(i.Path.Value, "github.com/aws/") {
				t.Errorf("%s imports %s", name, i.Path.Value)
			}
		}
	}
}
