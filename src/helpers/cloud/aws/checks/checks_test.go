package checks

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var registration = regexp.MustCompile(`(?m)^var _ = register\(Check\{\n\tID:\s+"([^"]+)"`)

// TestChecksAreInTheFileOfTheirSubject: the id of a check begins with the name of its file.
func TestChecksAreInTheFileOfTheirSubject(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	inFiles := 0
	for _, name := range files {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		subject := strings.ReplaceAll(strings.TrimSuffix(name, ".go"), "_", "-")
		for _, match := range registration.FindAllStringSubmatch(string(content), -1) {
			inFiles++
			if id := match[1]; !strings.HasPrefix(id, subject) {
				t.Errorf("%s is in %s", id, name)
			}
		}
	}
	if inFiles != len(registered) {
		t.Errorf("%d of %d checks were found in files", inFiles, len(registered))
	}
}

// TestRanksAreUnique: the order of a report does not depend on the names of files.
func TestRanksAreUnique(t *testing.T) {
	ranks, ids := map[int]string{}, map[string]bool{}
	for _, c := range registered {
		if other := ranks[c.rank]; other != "" || c.rank == 0 {
			t.Errorf("%s has the rank %d, as has %q", c.ID, c.rank, other)
		}
		if ids[c.ID] {
			t.Errorf("%s is registered twice", c.ID)
		}
		ranks[c.rank], ids[c.ID] = c.ID, true
	}
}
