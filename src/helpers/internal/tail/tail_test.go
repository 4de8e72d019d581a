package tail

import (
	"os"
	"path/filepath"
	"testing"
)

func TestLines(t *testing.T) {
	for _, test := range []struct {
		text string
		n    int
		want string
	}{
		{"", 2, ""},
		{"a\nb\nc\n", 2, "b\nc"},
		{"\n a\nb\n\n", 5, "a\nb"},
	} {
		if got := Lines(test.text, test.n); got != test.want {
			t.Errorf("Lines(%q, %d) = %q, want %q", test.text, test.n, got, test.want)
		}
	}
}

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte("old\none\ntwo\nthree\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		from, maxBytes int64
		n              int
		want           string
	}{
		"the last lines":             {0, 100, 2, "two\nthree"},
		"what came after the offset": {4, 100, 9, "one\ntwo\nthree"},
		"the last bytes":             {0, 6, 9, "three"},
		"a truncated file":           {1000, 100, 1, "three"},
		"nothing since":              {18, 100, 9, ""},
	} {
		if got, err := File(path, test.from, test.maxBytes, test.n); err != nil || got != test.want {
			t.Errorf("%s: got %q, %v; want %q", name, got, err, test.want)
		}
	}
	if _, err := File(filepath.Join(t.TempDir(), "missing"), 0, 100, 1); err == nil {
		t.Error("a missing file: want an error")
	}
}

func TestIndent(t *testing.T) {
	if got := Indent("a\nb", "  | "); got != "  | a\n  | b" {
		t.Errorf("got %q", got)
	}
}
