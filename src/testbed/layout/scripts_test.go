package layout

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// lifecycle are the names of the scripts that the agent, monit and errands run, and of their templates.
var lifecycle = map[string]bool{
	"ctl": true, "drain": true, "post-deploy": true, "post-start": true, "post-stop": true, "pre-start": true,
	"pre-stop": true, "run": true,
}

// TestLifecycleScriptsAreShort: what has to be decided belongs into Go, which is tested.
func TestLifecycleScriptsAreShort(t *testing.T) {
	const limit = 15
	templates, _ := filepath.Glob("../../../jobs/*/templates/*")
	scripts := 0
	for _, path := range templates {
		if !lifecycle[strings.TrimSuffix(filepath.Base(path), ".erb")] {
			continue
		}
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		scripts++
		if lines := bytes.Count(content, []byte("\n")); lines > limit {
			t.Errorf("%s has %d lines, more than %d: let a command of kube-tools decide", path, lines, limit)
		}
	}
	if scripts < 40 {
		t.Errorf("only %d scripts were found", scripts)
	}
}
