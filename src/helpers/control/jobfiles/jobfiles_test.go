package jobfiles

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func render(t *testing.T, content any) string {
	t.Helper()
	encoded, err := json.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "files.json")
	if err := os.WriteFile(path, encoded, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDirectoryHoldsExactlyTheFiles(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "files")
	for _, want := range []map[string]string{
		{"tracing.yaml": "a: 1\n", "token": "s3cret", "empty": ""},
		{"tracing.yaml": "a: 2\n"},
		{},
	} {
		if err := Write(render(t, want), directory); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(directory)
		if err != nil {
			t.Fatal(err)
		}
		if len(entries) != len(want) {
			t.Errorf("got %v, want the files of %v", entries, want)
		}
		for name, content := range want {
			path := filepath.Join(directory, name)
			got, err := os.ReadFile(path)
			if err != nil || string(got) != content {
				t.Errorf("%s: got %q, %v; want %q", name, got, err, content)
			}
			info, err := os.Stat(path)
			if err != nil || info.Mode() != 0o640 {
				t.Errorf("%s: got mode %v, %v; want 0640", name, info.Mode(), err)
			}
		}
		if info, err := os.Stat(directory); err != nil || info.Mode().Perm() != 0o750 {
			t.Errorf("got mode %v, %v; want 0750", info.Mode(), err)
		}
	}
}

func TestErrorsNameFilesAndNoContent(t *testing.T) {
	for name, content := range map[string]any{
		"path":      map[string]string{"../up": "s3cret"},
		"absolute":  map[string]string{"/up": "s3cret"},
		"parent":    map[string]string{"..": "s3cret"},
		"directory": map[string]string{".": "s3cret"},
		"no name":   map[string]string{"": "s3cret"},
		"no text":   map[string]any{"file": []string{"s3cret"}},
		"list":      []string{"s3cret"},
	} {
		t.Run(name, func(t *testing.T) {
			parent := t.TempDir()
			rendered := render(t, content)
			err := Write(rendered, filepath.Join(parent, "files"))
			if err == nil {
				t.Fatal("not refused")
			}
			if !strings.Contains(err.Error(), rendered) || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("got %v, want an error with %s and without the content", err, rendered)
			}
			if _, err := os.Stat(filepath.Join(parent, "up")); err == nil {
				t.Error("a file was written outside the directory")
			}
		})
	}
}
