package account

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
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
