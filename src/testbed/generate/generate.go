// Package generate writes what is generated from specs, rules, the manifest and the tables of cloud providers: parts of
// templates, pages and tables of the documentation, and the list of providers.
package generate

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"kubernetes-release/testbed/lab/director/release"
)

// tree is the repository with what generators have changed so far.
type tree struct {
	root    string
	changed map[string]string
	jobs    []*release.Job
}

func newTree(root string) (*tree, error) {
	t := &tree{root: root, changed: map[string]string{}}
	specs, err := filepath.Glob(filepath.Join(root, "jobs", "*", "spec"))
	if err != nil {
		return nil, err
	}
	if len(specs) == 0 {
		return nil, fmt.Errorf("--root %s has no files jobs/*/spec: it must be the repository", root)
	}
	for _, spec := range specs {
		job, err := release.ReadJob(filepath.Dir(spec))
		if err != nil {
			return nil, err
		}
		t.jobs = append(t.jobs, job)
	}
	return t, nil
}

// read returns a file's text. The path is below the root.
func (t *tree) read(path string) (string, error) {
	if text, ok := t.changed[path]; ok {
		return text, nil
	}
	content, err := os.ReadFile(filepath.Join(t.root, path))
	return string(content), err
}

// write keeps a file's text if it differs from what the file has.
func (t *tree) write(path, text string) {
	if have, err := t.read(path); err != nil || have != text {
		t.changed[path] = text
	}
}

// replace writes the text between two markers of a file.
func (t *tree) replace(path, begin, end, text string) error {
	content, err := t.read(path)
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(content, begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		return fmt.Errorf("%s must have the lines %q and %q, between which a part is generated", path, begin, end)
	}
	t.write(path, before+begin+text+end+after)
	return nil
}

// table replaces a table of a page.
func (t *tree) table(page, name, text string) error {
	begin := fmt.Sprintf("<!-- %s: written by make generate -->\n", name)
	return t.replace(page, begin, fmt.Sprintf("<!-- end of %s -->\n", name), text)
}

// glob returns the paths that match a pattern, all below the root.
func (t *tree) glob(pattern string) ([]string, error) {
	paths, err := filepath.Glob(filepath.Join(t.root, pattern))
	for i, path := range paths {
		paths[i], _ = filepath.Rel(t.root, path) // Glob returns paths that begin with the root
	}
	return paths, err
}

// readYAML decodes a file; unknown keys are errors.
func readYAML[T any](t *tree, path string) (T, error) {
	var value T
	text, err := t.read(path)
	if err != nil {
		return value, err
	}
	decoder := yaml.NewDecoder(strings.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&value); err != nil {
		return value, fmt.Errorf("%s: %w", path, err)
	}
	return value, nil
}

// Outdated are the generated files of a repository that are out of date: their new text by path.
func Outdated(root string) (map[string]string, error) {
	return outdated(
		root, providerList, providerTemplates, providerPages, rules, sharedParts, properties, topologies, failures,
	)
}

// OutdatedList is the list of cloud providers, if it is out of date. The rest is generated from what it lists.
func OutdatedList(root string) (map[string]string, error) { return outdated(root, providerList) }

// OutdatedFlags are the lists of known flags that are out of date. The folder has the built components.
func OutdatedFlags(root, components string) (map[string]string, error) {
	return outdated(root, func(t *tree) error { return knownFlags(t, components) })
}

func outdated(root string, generators ...func(*tree) error) (map[string]string, error) {
	t, err := newTree(root)
	if err != nil {
		return nil, err
	}
	for _, generator := range generators {
		if err := generator(t); err != nil {
			return nil, err
		}
	}
	return t.changed, nil
}

// Write writes files below the root, and prints their names.
func Write(root string, files map[string]string, names io.Writer) error {
	for _, path := range slices.Sorted(maps.Keys(files)) {
		if err := os.WriteFile(filepath.Join(root, path), []byte(files[path]), 0o644); err != nil {
			return err
		}
		fmt.Fprintln(names, "generated", path)
	}
	return nil
}

// wrapped joins words to lines of at most this width. Every line begins with the indentation.
func wrapped(words []string, indent string, width int) string {
	var text bytes.Buffer
	line := indent
	for i, word := range words {
		if len(line)+len(word) > width && line != indent {
			fmt.Fprintln(&text, strings.TrimRight(line, " "))
			line = indent
		}
		if line += word; i < len(words)-1 {
			line += " "
		}
	}
	return text.String() + line
}
