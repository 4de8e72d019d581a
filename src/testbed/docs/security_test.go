package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestThreatModel: docs/security.md stays short, and each test that it names exists, in the folder that it names.
func TestThreatModel(t *testing.T) {
	const limit = 200
	text := read(t, "docs/security.md")
	if n := strings.Count(text, "\n"); n > limit {
		t.Errorf("docs/security.md has %d lines, more than %d", n, limit)
	}
	exist := map[string][]string{} // folders by name of test
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	for _, path := range find(t, func(path string) bool {
		return strings.HasPrefix(path, "src/") && strings.HasSuffix(path, "_test.go")
	}) {
		folder := strings.TrimPrefix(filepath.Dir(path), "src/")
		for _, m := range function.FindAllStringSubmatch(read(t, path), -1) {
			exist[m[1]] = append(exist[m[1]], folder)
		}
	}
	named := 0
	span := regexp.MustCompile("`(Test\\w+|(?:helpers|components|testbed)/[a-z/-]+)`")
	for _, block := range regexp.MustCompile(`\n\n|\|\n`).Split(text, -1) { // paragraphs and rows
		spans := span.FindAllStringSubmatch(block, -1)
		folder := ""
		slices.Reverse(spans) // a folder follows its tests
		for _, m := range spans {
			if !strings.HasPrefix(m[1], "Test") {
				folder = m[1]
				if _, err := os.Stat(filepath.Join(root, "src", folder)); err != nil {
					t.Errorf("docs/security.md names %s: %v", folder, err)
				}
				continue
			}
			named++
			if folders := exist[m[1]]; len(folders) == 0 {
				t.Errorf("docs/security.md names %s, which does not exist", m[1])
			} else if folder != "" && !slices.Contains(folders, folder) {
				t.Errorf("docs/security.md has %s in %s, but it is in %s", m[1], folder, strings.Join(folders, ", "))
			}
		}
	}
	if named < 30 {
		t.Errorf("only %d tests are named", named)
	}
}
