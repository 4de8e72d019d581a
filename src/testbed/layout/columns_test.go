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

// TestFilesFitInto120Columns reads what golangci-lint (lll) does not: templates, and the programs of components, which
// are modules of their own.
func TestFilesFitInto120Columns(t *testing.T) {
	templates, programs := 0, 0
	for _, dir := range []string{"../../../jobs", "../../shared-templates", "../../components"} {
		err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() {
				return err
			}
			switch filepath.Ext(path) {
			case ".erb", ".rb":
				templates++
			case ".go":
				programs++
			default:
				return nil
			}
			file, err := os.Open(path)
			if err != nil {
				return err
			}
			defer func() { _ = file.Close() }()
			lines := bufio.NewScanner(file)
			for number := 1; lines.Scan(); number++ {
				if columns := utf8.RuneCountInString(strings.ReplaceAll(lines.Text(), "\t", "    ")); columns > 120 {
					t.Errorf("%s:%d has %d columns", path, number, columns)
				}
			}
			return lines.Err()
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if templates < 100 || programs < 8 {
		t.Errorf("only %d templates and %d files of programs were read", templates, programs)
	}
}
