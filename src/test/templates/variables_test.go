package templates

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"gopkg.in/yaml.v3"
)

// sharedStore holds the generated variables of all tests of a run: making two dozen RSA keys for each would take minutes.
var sharedStore string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "templates")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	sharedStore = filepath.Join(dir, "variables.yml")
	return m.Run()
}

// variablesStore is the shared store or, where a variable is to be made anew, a copy without it.
func variablesStore(t testing.TB, anew string) string {
	t.Helper()
	if anew == "" {
		return sharedStore
	}
	text, err := os.ReadFile(sharedStore)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	variables := map[string]any{}
	if err := yaml.Unmarshal(text, &variables); err != nil {
		t.Fatal(err)
	}
	delete(variables, anew)
	if text, err = yaml.Marshal(variables); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "variables.yml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
