package cis

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// Problems are the outcomes that fail the comparison.
func Problems(outcomes []Outcome) []Outcome {
	return slices.DeleteFunc(slices.Clone(outcomes), func(o Outcome) bool { return o.Problem == "" })
}

// Table lists what did not pass, and counts all.
func Table(outcomes []Outcome) string {
	var buffer bytes.Buffer
	table := tabwriter.NewWriter(&buffer, 0, 0, 2, ' ', 0)
	counts := map[string]int{}
	for _, o := range outcomes {
		counts[o.Status]++
		if o.Status == pass && o.Problem == "" {
			continue
		}
		note := o.Excuse
		if o.Problem != "" {
			note = "UNEXPECTED: " + o.Problem
		}
		fmt.Fprintf(
			table, "%s\t%s\t%s\t%s\t%s\n", o.Status, o.VM, o.ID, o.Description, strings.ReplaceAll(note, "\n", " "),
		)
	}
	_ = table.Flush() // a buffer takes everything
	fmt.Fprintf(&buffer, "%d passed, %d failed (%d unexpected or stale), %d for a person to check\n",
		counts[pass], counts[fail], len(Problems(outcomes)), counts["WARN"])
	return buffer.String()
}

type testCase struct {
	Name    string   `xml:"name,attr"`
	Class   string   `xml:"classname,attr"`
	Failure *message `xml:"failure,omitempty"`
	Skipped *message `xml:"skipped,omitempty"`
}

type message struct {
	Text string `xml:"message,attr"`
}

// JUnit is the outcomes for continuous integration: a failure with a reason is a skipped test, and so is a check for a
// person.
func JUnit(outcomes []Outcome) ([]byte, error) {
	suite := struct {
		XMLName  xml.Name   `xml:"testsuite"`
		Name     string     `xml:"name,attr"`
		Tests    int        `xml:"tests,attr"`
		Failures int        `xml:"failures,attr"`
		Skipped  int        `xml:"skipped,attr"`
		Cases    []testCase `xml:"testcase"`
	}{Name: "CIS Kubernetes Benchmark", Tests: len(outcomes)}
	for _, o := range outcomes {
		c := testCase{Name: strings.TrimSpace(o.ID + " " + o.Description), Class: strings.TrimSuffix("cis."+o.VM, ".")}
		switch {
		case o.Problem != "":
			c.Failure = &message{o.Problem}
			suite.Failures++
		case o.Status != pass:
			c.Skipped = &message{o.Status + ": " + o.Excuse}
			suite.Skipped++
		}
		suite.Cases = append(suite.Cases, c)
	}
	content, err := xml.MarshalIndent(suite, "", "  ")
	return append([]byte(xml.Header), append(content, '\n')...), err
}

// Markdown is the table of remaining failures for docs/conformance.md.
func Markdown(remaining []Remaining) string {
	var b strings.Builder
	b.WriteString("| Check | Why it fails |\n|---|---|\n")
	for _, r := range remaining {
		fmt.Fprintf(&b, "| %s | %s |\n", strings.Join(r.Checks, ", "), strings.Join(strings.Fields(r.Reason), " "))
	}
	return b.String()
}
