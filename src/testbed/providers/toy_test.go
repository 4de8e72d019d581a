// Package providers tests that a cloud provider is one Go package, one ops-file and one page, and nothing else.
package providers

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../../.."

// byHand are the files of the toy provider, and their places.
var byHand = map[string]string{
	"toy/provider.go.txt": "src/helpers/cloud/toy/provider.go",
	"toy.yml":             "ops-files/toy.yml",
	"toy.md.txt":          "docs/toy.md",
}

// generated are the files that make generate may change.
var generated = []string{
	"docs/providers.md", "jobs/cloud-provider/templates/preflight.json.erb", "src/helpers/cloud/providers/providers.go",
}

// TestToyProvider adds the toy provider to a copy of the repository. The tests that hold for every provider pass there,
// its ops-file deploys it, and its preflight runs.
func TestToyProvider(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the repository anew")
	}
	dir := t.TempDir()
	copyRepository(t, dir)
	before := digest(t, dir)
	for from, to := range byHand {
		content, err := os.ReadFile(filepath.Join("testdata", from))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, to), content)
	}
	helpers, testbed := filepath.Join(dir, "src/helpers"), filepath.Join(dir, "src/testbed")
	// A test notices that the generated files are out of date.
	if out, err := command(t, testbed, "go", "test", "./generate"); err == nil ||
		!strings.Contains(out, "providers.go is out of date: run make generate") {
		t.Fatalf("%v\n%s", err, out)
	}
	must(t, testbed, "go", "run", "./cmd/generate", "list")
	must(t, testbed, "go", "run", "./cmd/generate")

	want := slices.Concat(slices.Collect(maps.Values(byHand)), generated)
	slices.Sort(want)
	if changed := differences(before, digest(t, dir)); !slices.Equal(changed, want) {
		t.Errorf("changed files: %v, want %v", changed, want)
	}

	must(t, helpers, "go", "test", "./cloud", "./cloud/controller", "./cloud/providers", "./cmd/cloud-preflight")
	must(t, testbed, "go", "test", "./docs", "./generate")
	must(
		t, testbed, "go", "test", "-run",
		"TestOpsFiles$/^toy.yml$|TestEveryOpsFile|TestExampleVariables/^toy.yml$|TestTemplateAndPreflightAllow",
		"./templates",
	)

	config := filepath.Join(dir, "preflight.json")
	write(t, config, []byte(`{"provider": "toy", "cluster": "prod", "role": "control", "retry_window": "0s"}`))
	out, err := command(t, helpers, "go", "run", "./cmd/cloud-preflight", "--config", config)
	if err == nil || !strings.Contains(out, "write the name of the machine to /run/toy/name") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestLinesOfTheToyProvider keeps the figures of docs/providers.md.
func TestLinesOfTheToyProvider(t *testing.T) {
	lines := func(name string) int {
		content, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(content), "\n")
	}
	want := fmt.Sprintf(
		"%d lines of Go, %d of its ops-file and %d of its page", lines("toy/provider.go.txt"), lines("toy.yml"),
		lines("toy.md.txt"),
	)
	if docs, err := os.ReadFile(filepath.Join(root, "docs/providers.md")); err != nil ||
		!strings.Contains(string(docs), want) {
		t.Errorf("docs/providers.md does not say %q (%v)", want, err)
	}
}

// copyRepository copies what git knows and what is new; ignored files stay behind.
func copyRepository(t *testing.T, dir string) {
	t.Helper()
	files := must(t, root, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	for name := range strings.SplitSeq(strings.Trim(files, "\x00"), "\x00") {
		from, to := filepath.Join(root, name), filepath.Join(dir, name)
		info, err := os.Lstat(from)
		if os.IsNotExist(err) {
			continue // deleted, not yet committed
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(from)
			if err == nil {
				err = os.Symlink(target, to)
			}
			if err != nil {
				t.Fatal(err)
			}
			continue
		}
		content, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, content, info.Mode().Perm()); err != nil {
			t.Fatal(err)
		}
	}
}

// digest returns the content of every file by its path.
func digest(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	if err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		name, _ := strings.CutPrefix(path, dir+"/")
		found[name] = string(content)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return found
}

// differences returns the sorted paths of files that were added, changed or removed.
func differences(before, after map[string]string) []string {
	var changed []string
	for name, content := range after {
		if old, ok := before[name]; !ok || old != content {
			changed = append(changed, name)
		}
	}
	for name := range before {
		if _, ok := after[name]; !ok {
			changed = append(changed, name)
		}
	}
	slices.Sort(changed)
	return changed
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, dir string, argv ...string) string {
	t.Helper()
	out, err := command(t, dir, argv...)
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
	return out
}

// command leaves out what tests with real programs need, which run elsewhere.
func command(t *testing.T, dir string, argv ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(context.Background(), argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Env = slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return strings.HasPrefix(variable, "KUBERNETES_BIN_DIR=")
	})
	out, err := cmd.CombinedOutput()
	return string(out), err
}
