package cis

import (
	"strings"
	"testing"
)

// results are what kube-bench prints with one check in each section, all of which pass, and the given ones.
func results(more string) string {
	var controls []string
	for _, section := range sections[Control] {
		controls = append(
			controls,
			`{"id":"1","node_type":"`+section+
				`","tests":[{"results":[{"test_number":"`+section+`","status":"PASS"}]}]}`,
		)
	}
	return `{"Controls":[` + strings.Join(
		controls, ",",
	) + `,{"node_type":"master","tests":[{"results":[` + more + `]}]}]}`
}

func parse(t *testing.T, more string) []Check {
	t.Helper()
	checks, err := ParseResults(Control, []byte(results(more)))
	if err != nil {
		t.Fatal(err)
	}
	return checks
}

func TestCompare(t *testing.T) {
	const remaining = `[{checks: ["1.1.1"], found: permissions=640, reason: the group needs it}]`
	for name, test := range map[string]struct{ results, problem string }{
		"a failure with its reason": {`{"test_number":"1.1.1","status":"FAIL","actual_value":"permissions=640\n"}`, ""},
		"a warning needs none": {
			`{"test_number":"1.1.1","status":"FAIL","actual_value":"permissions=640"},{"test_number":"1.2.1",` +
				`"status":"WARN"}`,
			"",
		},
		"objects that comply": {
			`{"test_number":"1.1.1","status":"FAIL","actual_value":"role: a is_compliant: true\npermissions=640"}`, "",
		},
		"another value": {
			`{"test_number":"1.1.1","status":"FAIL","actual_value":"permissions=666"}`,
			`fails for another reason: "permissions=666"`,
		},
		"a value that contains it": {
			`{"test_number":"1.1.1","status":"FAIL","actual_value":"permissions=6400"}`,
			`fails for another reason: "permissions=6400"`,
		},
		"a second value": {
			`{"test_number":"1.1.1","status":"FAIL","actual_value":"permissions=640\npermissions=777"}`,
			`fails for another reason: "permissions=777"`,
		},
		"it could not run": {
			`{"test_number":"1.1.1","status":"FAIL","reason":"failed to run:\nx"}`,
			`fails for another reason: "failed to run: x"`,
		},
		"nothing found": {`{"test_number":"1.1.1","status":"FAIL"}`, `fails for another reason: "(no output)"`},
		"it passes now": {`{"test_number":"1.1.1","status":"PASS"}`, "stale: it does not fail any " +
			"more (PASS); remove its reason"},
		"the benchmark does not have it": {`{"test_number":"1.1.2","status":"PASS"}`, "stale: the benchmark has no " +
			"such check; remove its reason"},
		"no reason": {
			`{"test_number":"1.1.1","status":"FAIL","actual_value":"permissions=640"},{"test_number":"1.1.2",` +
				`"status":"FAIL"}`,
			"fails without a reason",
		},
	} {
		t.Run(name, func(t *testing.T) {
			list, err := ParseRemaining([]byte(remaining))
			if err != nil {
				t.Fatal(err)
			}
			outcomes := Compare(parse(t, test.results), list)
			problems := Problems(outcomes)
			if test.problem == "" && len(problems) > 0 ||
				test.problem != "" && (len(problems) != 1 || problems[0].Problem != test.problem) {
				t.Errorf("problems %+v, want %q", problems, test.problem)
			}
			if unexpected := strings.Count(Table(outcomes), "UNEXPECTED"); unexpected != len(problems) {
				t.Errorf("the table marks %d checks, want %d:\n%s", unexpected, len(problems), Table(outcomes))
			}
			junit, err := JUnit(outcomes)
			if err != nil {
				t.Fatal(err)
			}
			if failures := strings.Count(string(junit), "<failure "); failures != len(problems) {
				t.Errorf("JUnit has %d failures, want %d:\n%s", failures, len(problems), junit)
			}
		})
	}
}

func TestResultsMustBeComplete(t *testing.T) {
	_, err := ParseResults(
		Control,
		[]byte(strings.Replace(results(""), `"node_type":"etcd"`, `"node_type":"other"`, 1)),
	)
	if err == nil || !strings.Contains(err.Error(), "no checks of etcd;") {
		t.Errorf("got %v, want an error that names etcd", err)
	}
	if _, err := ParseResults(
		Worker,
		[]byte(`{"Controls":[]}`),
	); err == nil ||
		!strings.Contains(err.Error(), "no checks of node;") {
		t.Errorf("got %v, want an error that names node", err)
	}
	if _, err := ParseResults(Control, []byte("")); err == nil {
		t.Error("no results are accepted")
	}
}

// TestReasonIsForEveryVM: the same check is made on several VMs.
func TestReasonIsForEveryVM(t *testing.T) {
	list, err := ParseRemaining([]byte(`[{checks: ["4.1.1"], found: permissions=640, reason: the group needs it}]`))
	if err != nil {
		t.Fatal(err)
	}
	const failed = `{"test_number":"4.1.1","status":"FAIL","actual_value":"permissions=640"}`
	worker, err := ParseResults(
		Worker,
		[]byte(`{"Controls":[{"node_type":"node","tests":[{"results":[`+failed+`]}]}]}`),
	)
	if err != nil {
		t.Fatal(err)
	}
	passed := parse(t, strings.Replace(failed, "FAIL", "PASS", 1))
	if problems := Problems(Compare(append(passed, worker...), list)); len(problems) > 0 {
		t.Errorf("the check passes on one VM: problems %+v", problems)
	}
	outcomes := Compare(append(parse(t, failed), worker...), list)
	if problems := Problems(outcomes); len(problems) > 0 {
		t.Errorf("problems %+v", problems)
	}
	if table := Table(outcomes); strings.Count(table, "4.1.1") != 2 || !strings.Contains(table, "worker") {
		t.Errorf("the table does not name the VM:\n%s", table)
	}
}

func TestRemainingIsStrict(t *testing.T) {
	for content, problem := range map[string]string{
		`[{checks: ["1.1.1"], found: x}]`:                        "must have checks, found and a reason",
		`[{checks: ["1.1.1"], reason: x}]`:                       "must have checks, found and a reason",
		`[{found: x, reason: x}]`:                                "must have checks, found and a reason",
		`[{checks: ["1.1.1"], found: x, reason: x, because: x}]`: "because",
		`[{checks: ["1.1.1"], found: "(", reason: x}]`:           "found of check 1.1.1",
		`[{checks: ["1.1.1"], found: x, reason: x}, ` +
			`{checks: ["1.1.1"], found: x, reason: something}]`: "check 1.1.1 is listed twice",
	} {
		if _, err := ParseRemaining([]byte(content)); err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%s: got %v, want an error with %q", content, err, problem)
		}
	}
}
