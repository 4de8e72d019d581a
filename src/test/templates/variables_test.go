package templates

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"gopkg.in/yaml.v3"
)

// sharedStore contains the generated variables of all tests: generating two dozen RSA keys per test would take minutes.
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

// variablesStore returns the path of the shared store or, if a variable must be regenerated, of a copy without it.
func variablesStore(t testing.TB, regenerate string) string {
	t.Helper()
	if regenerate == "" {
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
	delete(variables, regenerate)
	if text, err = yaml.Marshal(variables); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "variables.yml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
