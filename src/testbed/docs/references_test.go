package docs

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// ofOthers are documents of other projects that comments name, and one of a provider that a test adds.
var ofOthers = []string{"docs/ca-rotation.md", "docs/config.md", "docs/hosts.md", "docs/runtime.md", "docs/toy.md"}

// TestNamedDocumentsExist: messages to operators, properties and comments name documents, and some of them sections.
func TestNamedDocumentsExist(t *testing.T) {
	names := regexp.MustCompile(`\bdocs/[a-z0-9-]+\.md\b`)
	sections := []*regexp.Regexp{
		regexp.MustCompile(`(docs/[a-z0-9-]+\.md)(?: of the release)?, \\?"([A-Z][^"\\]+)\\?"`),
		regexp.MustCompile(`\\?"([A-Z][^"\\]+)\\?" in (docs/[a-z0-9-]+\.md)`),
		regexp.MustCompile(`(docs/[a-z0-9-]+\.md)#([a-z0-9-]+)`),
	}
	documents, headed := 0, 0
	for _, path := range find(t, func(path string) bool {
		return slices.Contains([]string{"", ".go", ".erb", ".yml", ".sh", ".json"}, filepath.Ext(path)) &&
			!strings.HasPrefix(path, "bin/") && !strings.HasSuffix(path, "references_test.go")
	}) {
		text := lineBreak.ReplaceAllString(read(t, path), " ")
		for _, name := range names.FindAllString(text, -1) {
			documents++
			if !slices.Contains(ofOthers, name) && !exists(name) {
				t.Errorf("%s names %s, which does not exist", path, name)
			}
		}
		for _, pattern := range sections {
			for _, m := range pattern.FindAllStringSubmatch(text, -1) {
				name, section := m[1], m[2]
				if strings.HasPrefix(section, "docs/") {
					name, section = section, name
				}
				headed++
				anchor := strings.ReplaceAll(strings.ToLower(section), " ", "-")
				if exists(name) && !slices.Contains(anchors(read(t, name)), anchor) {
					t.Errorf("%s names %q of %s, which has no such heading", path, section, name)
				}
			}
		}
	}
	if documents < 100 || headed < 30 {
		t.Errorf("only %d documents and %d sections found", documents, headed)
	}
}
