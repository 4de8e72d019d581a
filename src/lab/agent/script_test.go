package agent

import (
	"errors"
	"testing"
)

func TestScriptErrorShowsTheReason(t *testing.T) {
	err := &ScriptError{Script: "pre-start", Finished: []string{"etcd"}, Failed: []ScriptFailure{
		{Job: "kubelet", Err: errors.New("bin/pre-start exited with 1"), Log: "/log", Output: "Error: an earlier one\nlevel=INFO fine\nError: two problems:\n  - a\n  - b"},
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
