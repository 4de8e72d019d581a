package account

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestReadSettings refuses values that no account can have.
func TestReadSettings(t *testing.T) {
	example, err := os.ReadFile("../../../../../manifests/cloud-config/aws-vars.yml")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ old, replacement, want string }{
		"the example":         {"", "", ""},
		"a zone twice":        {"az2: us-east-1b", "az2: us-east-1a", ""},
		"a subnet twice":      {"aaa2", "aaa1", "subnet1_id and subnet2_id are both subnet-0aaaaaaaaaaaaaaa1"},
		"the last one twice":  {"subnet-0aaaaaaaaaaaaaaa3", "subnet-0aaaaaaaaaaaaaaa1", "subnet1_id and subnet3_id"},
		"one profile for all": {"kubernetes-worker", "kubernetes-control", "a profile of their own"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "vars.yml")
			text := strings.ReplaceAll(string(example), c.old+"\n", c.replacement+"\n")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := ReadSettings(file, "prod")
			if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// TestWriteGroup replaces the id in files as operators have them, such as outputs of Terraform in JSON, and nothing
// else.
func TestWriteGroup(t *testing.T) {
	const id = "sg-0fedcba9876543210"
	for name, c := range map[string]struct{ text, want, refused string }{
		"plain": {
			"# nodes\nsecurity_group: sg-0123456789abcdef0 # ours\naz1: é\n",
			"# nodes\nsecurity_group: sg-0fedcba9876543210 # ours\naz1: é\n", "",
		},
		"quoted, and one space more": {
			"az1: a\nsecurity_group:  'sg-0123456789abcdef0'\n",
			"az1: a\nsecurity_group:  'sg-0fedcba9876543210'\n", "",
		},
		"on a line of its own": {
			"security_group:\r\n  \"sg-0123456789abcdef0\"\r\n",
			"security_group:\r\n  \"sg-0fedcba9876543210\"\r\n", "",
		},
		"JSON": {
			`{"az1": "é", "old": "sg-0123456789abcdef0", "security_group": "sg-0123456789abcdef0"}`,
			`{"az1": "é", "old": "sg-0123456789abcdef0", "security_group": "sg-0fedcba9876543210"}`, "",
		},
		"JSON with tabs": {
			"{\n\t\"security_group\": \"sg-0123456789abcdef0\",\n\t\"az1\": \"a\"\n}\n",
			"{\n\t\"security_group\": \"sg-0fedcba9876543210\",\n\t\"az1\": \"a\"\n}\n", "",
		},
		"a key in quotes": {
			"---\n\"security_group\": sg-0123456789abcdef0\n", "---\n\"security_group\": sg-0fedcba9876543210\n", "",
		},
		"an alias":  {"group: &g sg-0123456789abcdef0\nsecurity_group: *g\n", "", "its value is an alias"},
		"an anchor": {"security_group: &g sg-0123456789abcdef0\nother: *g\n", "", "an anchor"},
		"merged": {
			"all: &all {security_group: sg-0123456789abcdef0}\n<<: *all\n", "", "not a key at the top",
		},
		"two lines": {"security_group: >-\n  sg-0123456789abcdef0\n", "", "cannot be replaced"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "vars.yml")
			link := file + ".link"
			if err := errors.Join(os.WriteFile(file, []byte(c.text), 0o640), os.Symlink(file, link)); err != nil {
				t.Fatal(err)
			}
			s := &Settings{File: link}
			may, err := s.mayWriteGroup(), s.writeGroup(id)
			got, _ := os.ReadFile(file)
			if c.refused == "" {
				if may != nil || err != nil || string(got) != c.want {
					t.Errorf("%v, %v, got\n%s\nwant\n%s", may, err, got, c.want)
				}
				if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
					t.Errorf("the link is replaced: %v", err)
				}
				return
			}
			if may == nil || err == nil || !strings.Contains(may.Error(), c.refused) || string(got) != c.text {
				t.Errorf("%v, %v, want %q; the file is\n%s", may, err, c.refused, got)
			}
		})
	}
}

// TestMayWriteGroupNeedsTheFolder: a file that the operator may write cannot be replaced in a folder of another's.
func TestMayWriteGroupNeedsTheFolder(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "vars.yml")
	if err := errors.Join(
		os.WriteFile(file, []byte("security_group: sg-0123456789abcdef0\n"), 0o600), os.Chmod(file, 0o666),
		os.Chmod(dir, 0o555), os.Chmod(filepath.Dir(dir), 0o755),
	); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.Chmod(dir, 0o755) }()
	if os.Geteuid() == 0 { // whom no mode stops
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		_ = unix.Setfsuid(65534)
		defer func() { _ = unix.Setfsuid(0) }()
	}
	err := (&Settings{File: file}).mayWriteGroup()
	if err == nil || !strings.Contains(err.Error(), "must replace "+file) {
		t.Errorf("got %v", err)
	}
}
