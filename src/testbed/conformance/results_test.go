package conformance

import (
	"slices"
	"strings"
	"testing"
)

const junit = `<testsuites><testsuite>
<testcase name="[SynchronizedBeforeSuite]" status="passed"></testcase>
<testcase name="[It] b [Conformance]" status="passed"></testcase>
<testcase name="[It] a [Conformance]" status="passed"></testcase>
<testcase name="[It] c [Conformance]" status="skipped"></testcase>
<testcase name="[It] g" status="pending"></testcase>
<testcase name="[It] d [Conformance]" status="timedout"></testcase>
<testcase name="[It] e [Conformance]" status="failed"></testcase>
<testcase name="[ReportAfterSuite] [sig-testing] Log Check" status="failed"></testcase>
</testsuite></testsuites>`

const list = `
- {testname: A, codename: "a [Conformance]", release: v1.9}
- {testname: C, codename: "c [Conformance]", release: v1.9}
- {testname: D, codename: "d [Conformance]", release: v1.9}
- {testname: F, codename: "f [Conformance]", release: v1.9}
`

func TestResults(t *testing.T) {
	results, err := ParseJUnit([]byte(junit))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"a [Conformance]", "b [Conformance]"}; !slices.Equal(results.Passed, want) {
		t.Errorf("passed %q, want %q", results.Passed, want)
	}
	// A failure that belongs to no test counts too.
	if want := []string{
		"[ReportAfterSuite] [sig-testing] Log Check", "d [Conformance]", "e [Conformance]",
	}; !slices.Equal(results.Failed, want) {
		t.Errorf("failed %q, want %q", results.Failed, want)
	}
	required, err := ParseRequired([]byte(list))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := results.Missing(required), []string{
		"c [Conformance]", "d [Conformance]", "f [Conformance]",
	}; !slices.Equal(got, want) {
		t.Errorf("missing %q, want %q", got, want)
	}
	const last = "2 tests passed, 3 failed; 1 of 4 that conformance requires passed\n"
	if summary := results.Summary(required); !strings.HasSuffix(summary, last) ||
		strings.Count(summary, "FAILED ") != 3 {
		t.Errorf("the summary is\n%s", summary)
	}
}

func TestDamagedInputIsRefused(t *testing.T) {
	for _, content := range []string{"", "<testsuites>"} {
		if _, err := ParseJUnit([]byte(content)); err == nil {
			t.Errorf("the report %q is accepted", content)
		}
	}
	for _, content := range []string{"", "[]", "[{testname: A}]", "tests"} {
		if _, err := ParseRequired([]byte(content)); err == nil {
			t.Errorf("the list %q is accepted", content)
		}
	}
}
