package cis

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReport: the table, both reports, and an error for a failure without a reason.
func TestReport(t *testing.T) {
	const failure = `{"test_number":"1.1.1","status":"FAIL","actual_value":"permissions=640"}`
	worker := `{"Controls":[{"node_type":"node","tests":[{"results":[{"test_number":"4.1.1","status":"PASS"}]}]}]}`
	for name, test := range map[string]struct{ remaining, worker, problem string }{
		"a reason is known":      {`[{checks: ["1.1.1"], found: permissions=640, reason: r}]`, worker, ""},
		"no reason":              {`[]`, worker, "1 checks differ from "},
		"reasons that are wrong": {`[{check: x}]`, worker, "remaining.yml: "},
		"results of another VM":  {`[]`, `{}`, "worker.json: the results of kube-bench have no checks of node"},
	} {
		dir := t.TempDir()
		write := func(name, content string) string {
			path := filepath.Join(dir, name)
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			return path
		}
		files := Files{
			Results: map[string]string{
				Control: write("control.json", results(failure)), Worker: write("worker.json", test.worker),
			},
			Remaining: write("remaining.yml", test.remaining), Output: dir,
		}
		var out strings.Builder
		err := files.Report(&out)
		if (err == nil) != (test.problem == "") || err != nil && !strings.Contains(err.Error(), test.problem) {
			t.Errorf("%s: %v, want %q", name, err, test.problem)
		}
		if out.Len() == 0 {
			continue
		}
		report, err := os.ReadFile(filepath.Join(dir, "report.txt"))
		if err != nil || string(report) != out.String() || !strings.Contains(out.String(), "1.1.1") {
			t.Errorf("%s: printed %q, report.txt has %q (%v)", name, out.String(), report, err)
		}
		if junit, err := os.ReadFile(filepath.Join(dir, "junit.xml")); err != nil ||
			!strings.Contains(string(junit), "1.1.1") {
			t.Errorf("%s: junit.xml has %q (%v)", name, junit, err)
		}
	}
}
