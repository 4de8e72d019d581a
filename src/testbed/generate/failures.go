package generate

import (
	"fmt"
	"regexp"

	"kubernetes-release/testbed/cis"
)

// failureTable is the table of checks of the CIS Benchmark that fail.
var failureTable = regexp.MustCompile(`(?s)\| Check \| Why it fails \|\n.*?\n\n`)

// failures writes the table in docs/conformance.md of what remaining.yml has.
func failures(t *tree) error {
	const page = "docs/conformance.md"
	text, err := t.read("src/testbed/cis/remaining.yml")
	if err != nil {
		return err
	}
	remaining, err := cis.ParseRemaining([]byte(text))
	if err != nil {
		return err
	}
	document, err := t.read(page)
	if err != nil {
		return err
	}
	if !failureTable.MatchString(document) {
		return fmt.Errorf("%s has no table of the failures that remain", page)
	}
	t.write(page, failureTable.ReplaceAllLiteralString(document, cis.Markdown(remaining)+"\n"))
	return nil
}
