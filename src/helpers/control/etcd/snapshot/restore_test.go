package snapshot

import (
	"os"
	"path/filepath"
	"testing"

	"kubernetes-release/control/etcd/members"
)

// TestReplaceKeepsTheOldData interrupts restores: the data that a repeated or failed one finds is not lost.
func TestReplaceKeepsTheOldData(t *testing.T) {
	const current, aside, restored = "etcd/member", "etcd/" + members.BeforeRestore, restoring + "/member"
	for name, test := range map[string]struct {
		before, after map[string]string
		fails         bool
	}{
		"a restore": {
			before: map[string]string{restored: "new", current: "old", aside: "older"},
			after:  map[string]string{current: "new", aside: "old"},
		},
		"into an empty directory": {
			before: map[string]string{restored: "new"},
			after:  map[string]string{current: "new"},
		},
		"again, after it was interrupted between the two moves": {
			before: map[string]string{restored: "new", aside: "old"},
			after:  map[string]string{current: "new", aside: "old"},
		},
		"the second move fails": {
			before: map[string]string{current: "old"},
			after:  map[string]string{current: "old"},
			fails:  true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			parent, err := os.OpenRoot(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = parent.Close() }()
			for _, dir := range []string{"etcd", restoring} {
				if err := parent.Mkdir(dir, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			for dir, content := range test.before {
				if err := parent.Mkdir(dir, 0o700); err != nil {
					t.Fatal(err)
				}
				if err := parent.WriteFile(filepath.Join(dir, "db"), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := replace(parent, "etcd"); (err != nil) != test.fails {
				t.Errorf("error: %v", err)
			}
			for _, dir := range []string{current, aside, restored} {
				if content, _ := parent.ReadFile(filepath.Join(dir, "db")); string(content) != test.after[dir] {
					t.Errorf("%s has %q, want %q", dir, content, test.after[dir])
				}
			}
		})
	}
}
