// Package conformance runs the conformance tests of Kubernetes against a cluster, provides the images that they pull,
// and writes the files that a submission to the CNCF's conformance program consists of.
package conformance

import (
	"encoding/xml"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Results are the outcomes of tests, by name.
type Results struct {
	Passed, Failed []string
}

// ParseJUnit reads the results of a run. Tests that were not selected are in the report too, as skipped.
func ParseJUnit(content []byte) (Results, error) {
	var report struct {
		Suites []struct {
			Cases []struct {
				Name   string `xml:"name,attr"`
				Status string `xml:"status,attr"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(content, &report); err != nil {
		return Results{}, fmt.Errorf("read the JUnit report: %w", err)
	}
	var results Results
	for _, suite := range report.Suites {
		for _, test := range suite.Cases {
			// Other nodes are the set-up of the suite, which matters only if it fails.
			name, isTest := strings.CutPrefix(test.Name, "[It] ")
			switch {
			case test.Status == "skipped", test.Status == "pending": // the tests themselves turn off pending ones
			case test.Status != "passed":
				results.Failed = append(results.Failed, name)
			case isTest:
				results.Passed = append(results.Passed, name)
			}
		}
	}
	slices.Sort(results.Passed)
	slices.Sort(results.Failed)
	return results, nil
}

// ParseRequired reads the names of all conformance tests from test/conformance/testdata/conformance.yaml of Kubernetes.
func ParseRequired(content []byte) ([]string, error) {
	var tests []struct {
		Codename string `json:"codename"`
	}
	if err := yaml.Unmarshal(content, &tests); err != nil {
		return nil, fmt.Errorf("read the list of conformance tests: %w", err)
	}
	var names []string
	for _, test := range tests {
		if test.Codename == "" {
			return nil, fmt.Errorf("the list of conformance tests has one without a name, after %d others", len(names))
		}
		names = append(names, test.Codename)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("the list of conformance tests is empty")
	}
	return names, nil
}

// Missing are the required tests that have not passed.
func (r Results) Missing(required []string) []string {
	return slices.DeleteFunc(slices.Clone(required), func(name string) bool {
		_, passed := slices.BinarySearch(r.Passed, name)
		return passed
	})
}

// Summary is what a run prints at its end.
func (r Results) Summary(required []string) string {
	var b strings.Builder
	for _, name := range r.Failed {
		fmt.Fprintln(&b, "FAILED", name)
	}
	fmt.Fprintf(&b, "%d tests passed, %d failed; %d of %d that conformance requires passed\n",
		len(r.Passed), len(r.Failed), len(required)-len(r.Missing(required)), len(required))
	return b.String()
}
