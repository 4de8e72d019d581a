package alerts

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEveryAlertHasAFault: a test makes each alert fire by a fault, and is there.
func TestEveryAlertHasAFault(t *testing.T) {
	var tests strings.Builder
	err := filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		content, err := os.ReadFile(path)
		tests.Write(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, alert := range load(t).alerts() {
		known[alert.Alert] = true
		proof, ok := Proofs[alert.Alert]
		if !ok || proof.Fault == "" {
			t.Errorf("no fault is known that makes %s fire: cause one in a test, and add it to Proofs", alert.Alert)
		} else if !strings.Contains(tests.String(), "func "+proof.Test+"(t *testing.T) {") {
			t.Errorf("%s is to fire in %s, which is not there", alert.Alert, proof.Test)
		}
	}
	for alert := range Proofs {
		if !known[alert] {
			t.Errorf("there is no alert %s, but a fault of it", alert)
		}
	}
}
