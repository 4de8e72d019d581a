package conformance

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReport: what a person sees of a run that has failures, of one that is not whole, and of a whole one.
func TestReport(t *testing.T) {
	const passed = `<testsuites><testsuite><testcase name="[It] a [Conformance]" status="passed"></testcase>` +
		`</testsuite></testsuites>`
	const one = `[{testname: A, codename: "a [Conformance]", release: v1.9}]`
	for name, test := range map[string]struct{ junit, exit, required, printed, problem string }{
		"failures": {junit, "1", list, "2 tests passed, 3 failed", "3 tests failed; "},
		"a part":   {passed, "0", list, "Not all conformance tests were selected", ""},
		"all":      {passed, "0", one, "Archive for a submission to the CNCF: ", ""},
	} {
		run := newRun(t, fakeGinkgo+"cat >$reports/junit_01.xml <<'END'\n"+test.junit+"\nEND\nexit "+test.exit+"\n")
		module := t.TempDir()
		for path, content := range map[string]string{
			filepath.Join(run.Programs, "e2e.test"):                             "#!/bin/sh\necho v1.37.2\n",
			filepath.Join(module, "test/conformance/testdata/conformance.yaml"): test.required,
		} {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		var out strings.Builder
		err := run.Report(t.Context(), &out, module, "0.1.0")
		if (err == nil) != (test.problem == "") || err != nil && !strings.HasPrefix(err.Error(), test.problem) {
			t.Errorf("%s: %v, want %q", name, err, test.problem)
		}
		if !strings.Contains(out.String(), test.printed) {
			t.Errorf("%s: printed %q, want %q", name, out.String(), test.printed)
		}
		archives, _ := filepath.Glob(filepath.Join(run.Output, "*.tar.gz"))
		if (len(archives) == 1) != (name == "all") {
			t.Errorf("%s: archives %v", name, archives)
		}
	}
}
