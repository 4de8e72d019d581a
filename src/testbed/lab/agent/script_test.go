package agent

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestScriptErrorShowsTheReason(t *testing.T) {
	err := &ScriptError{Script: "pre-start", Finished: []string{"etcd"}, Failed: []ScriptFailure{
		{
			Job:    "kubelet",
			Err:    errors.New("bin/pre-start exited with 1"),
			Log:    "/log",
			Output: "Error: an earlier one\nlevel=INFO fine\nError: two problems:\n  - a\n  - b",
		},
		{Job: "flannel", Err: errors.New("bin/pre-start exited with 2"), Output: "line 1\nline 2"},
		{Job: "kubectl", Err: errors.New("context deadline exceeded")},
	}}
	const want = `3 of 4 pre-start scripts failed:
  - job kubelet: bin/pre-start exited with 1 (/log)
    Error: two problems:
      - a
      - b
  - job flannel: bin/pre-start exited with 2
    line 1
    line 2
  - job kubectl: context deadline exceeded`
	if got := err.Error(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestOutputOfAFailedScriptLeavesProgressOut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pre-start.stderr.log")
	const waiting = "time=2026-01-01T00:00:00.000Z level=INFO msg=waiting for=x\n"
	for name, test := range map[string]struct{ content, want string }{
		"errors and progress": {waiting + "Error: no tag\n" + waiting + "  fix: add it\n", "Error: no tag\n  fix: " +
			"add it"},
		"progress only": {waiting, strings.TrimSpace(waiting)},
		"warnings stay": {"time=2026-01-01T00:00:00.000Z level=WARN msg=slow\n", "time=2026-01-01T00:00:00.000Z " +
			"level=WARN msg=slow"},
	} {
		if err := os.WriteFile(path, []byte(test.content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := tailOf(path, 0); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}
