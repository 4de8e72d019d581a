package docs

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// maxRecord is the number of lines that a decision record may have: one that needs more has more than one decision.
const maxRecord = 60

// TestDecisionRecords checks the form of decision records, and that their index has the titles that they have.
func TestDecisionRecords(t *testing.T) {
	index := read(t, "docs/decisions/README.md")
	title := regexp.MustCompile(`\A# (\d+)\. (.*)\n`)
	lineOfUpstream := regexp.MustCompile(`(?i)\bline \d{2,}`)
	for _, document := range documents(t) {
		name := filepath.Base(document)
		if filepath.Dir(document) != "docs/decisions" || name == "README.md" {
			continue
		}
		text := read(t, document)
		if lines := strings.Count(text, "\n"); lines > maxRecord {
			t.Errorf("%s has %d lines, more than %d", document, lines, maxRecord)
		}
		for _, section := range []string{"\n## Context\n", "\n## Decision\n", "\n## Consequences\n"} {
			if !strings.Contains(text, section) {
				t.Errorf("%s has no section %q", document, strings.TrimSpace(section))
			}
		}
		m := title.FindStringSubmatch(text)
		if m == nil || strings.TrimLeft(name[:4], "0") != m[1] {
			t.Errorf("%s does not begin with its number and title", document)
		} else if row := "| [" + name[:4] + "](" + name + ") | " + m[2] + " |\n"; !strings.Contains(index, row) {
			t.Errorf("docs/decisions/README.md has no row %q", row)
		}
		if found := lineOfUpstream.FindString(text); found != "" {
			t.Errorf("%s names %q of a source that changes", document, found)
		}
	}
}
