package node

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWriteAndRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "node.json")
	want := Identity{
		Name:       "ip-10-0-0-4.ec2.internal",
		ProviderID: "aws:///us-east-1a/i-0123456789abcdef0",
		Address:    "10.0.0.4",
		Region:     "us-east-1",
		Zone:       "us-east-1a",
	}
	for range 2 { // the second write replaces the first
		if err := Write(path, want); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Read(path)
	if err != nil || got != want {
		t.Fatalf("Read = %+v, %v; want %+v", got, err, want)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("mode = %v, %v; want 0644", info.Mode(), err)
	}
	entries, _ := os.ReadDir(filepath.Dir(path))
	if len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
}

func TestWriteRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		id   Identity
		want string
	}{
		"empty":        {Identity{}, "name is empty"},
		"upper case":   {Identity{Name: "Worker", Address: "10.0.0.4"}, `name "Worker" is not a DNS subdomain`},
		"long":         {Identity{Name: strings.Repeat("a", 254), Address: "10.0.0.4"}, "at most 253"},
		"bad address":  {Identity{Name: "worker", Address: "10.0.0.256"}, `address "10.0.0.256" is not an IP address`},
		"both at once": {Identity{}, `address "" is not`},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "node.json")
			err := Write(path, test.id)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error = %v, want %q", err, test.want)
			}
			if _, err := os.Stat(path); !os.IsNotExist(err) {
				t.Errorf("a file was written")
			}
		})
	}
}

func TestReadRefuses(t *testing.T) {
	for name, test := range map[string]struct{ content, want string }{
		"empty":     {"", "empty"},
		"truncated": {`{"name": "wor`, "unexpected end of JSON"},
		"unknown":   {`{"nam": "worker"}`, `unknown field "nam"`},
		"invalid":   {`{"name": "worker", "address": "x"}`, `address "x"`},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "node.json")
			if err := os.WriteFile(path, []byte(test.content), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Read(path)
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("error = %v, want the path and %q", err, test.want)
			}
		})
	}
	if _, err := Read(filepath.Join(t.TempDir(), "absent")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("absent file: %v", err)
	}
}
