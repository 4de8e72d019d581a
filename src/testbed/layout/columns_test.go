package layout

import (
	"bufio"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestTemplatesFitInto120Columns: golangci-lint (lll) says it of Go.
func TestTemplatesFitInto120Columns(t *testing.T) {
	templates := 0
	for _, dir := range []string{"../../../jobs", "../../shared-templates"} {
		err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() || !strings.HasSuffix(path, ".erb") {
				return err
			}
			templates++
			file, err := os.Open(path)
			if err != nil {
				return err
			}
			defer func() { _ = file.Close() }()
			lines := bufio.NewScanner(file)
			for number := 1; lines.Scan(); number++ {
				if columns := utf8.RuneCountInString(lines.Text()); columns > 120 {
					t.Errorf("%s:%d has %d columns", path, number, columns)
				}
			}
			return lines.Err()
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if templates < 100 {
		t.Errorf("only %d templates were read", templates)
	}
}
