// Package cis compares what kube-bench finds in a cluster of this release with the checks of the CIS Kubernetes
// Benchmark that are known to fail, each with its reason.
package cis

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"kubernetes-release/internal/strictjson"

	"sigs.k8s.io/yaml"
)

// Results of a check, as kube-bench spells them. A WARN is a check that a person has to make.
const (
	pass = "PASS"
	fail = "FAIL"
)

// noOutput stands for nothing found in remaining.yml.
const noOutput = "(no output)"

// sections are those of the benchmark that each VM is checked for. Results that lack one say nothing about the cluster.
var sections = map[string][]string{
	Control: {"master", "etcd", "controlplane", "node", "policies"},
	Worker:  {"node"},
}

// VMs that are checked.
const (
	Control = "control"
	Worker  = "worker"
)

// Check is one check of the benchmark, with what kube-bench found.
type Check struct {
	ID          string `json:"test_number"`
	Description string `json:"test_desc"`
	Status      string `json:"status"`
	Found       string `json:"actual_value"`
	Reason      string `json:"reason"`
	// VM is where it was made, Control or Worker.
	VM string `json:"-"`
}

// ParseResults reads what `kube-bench run --json --include-test-output` prints on a VM (check/controls.go of
// kube-bench).
func ParseResults(vm string, content []byte) ([]Check, error) {
	var results struct {
		Controls []struct {
			NodeType string `json:"node_type"`
			Tests    []struct {
				Results []Check `json:"results"`
			} `json:"tests"`
		}
	}
	if err := json.Unmarshal(content, &results); err != nil {
		return nil, fmt.Errorf("read the results of kube-bench: %w", err)
	}
	var checks []Check
	missing := slices.Clone(sections[vm])
	for _, control := range results.Controls {
		for _, group := range control.Tests {
			for _, check := range group.Results {
				check.VM = vm
				checks = append(checks, check)
			}
			missing = slices.DeleteFunc(
				missing, func(section string) bool { return section == control.NodeType && len(group.Results) > 0 },
			)
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf(
			"the results of kube-bench have no checks of %s; on a %s VM it must run with the targets %s",
			strings.Join(missing, ", "), vm, strings.Join(sections[vm], ","),
		)
	}
	return checks, nil
}

// Remaining are checks that fail, and why they may.
type Remaining struct {
	Checks []string `json:"checks"`
	// Found matches each line that kube-bench reports as the cause. Anything else is a new failure.
	Found  string `json:"found"`
	Reason string `json:"reason"`

	found *regexp.Regexp
}

// ParseRemaining reads remaining.yml.
func ParseRemaining(content []byte) ([]Remaining, error) {
	asJSON, err := yaml.YAMLToJSONStrict(content)
	if err != nil {
		return nil, err
	}
	var list []Remaining
	if err := strictjson.Unmarshal(asJSON, &list); err != nil {
		return nil, err
	}
	listed := map[string]bool{}
	for i := range list {
		r := &list[i]
		if len(r.Checks) == 0 || r.Found == "" || strings.TrimSpace(r.Reason) == "" {
			return nil, fmt.Errorf("entry %d must have checks, found and a reason", i+1)
		}
		for _, id := range r.Checks {
			if listed[id] {
				return nil, fmt.Errorf("check %s is listed twice", id)
			}
			listed[id] = true
		}
		if r.found, err = regexp.Compile(`\A(?:` + r.Found + `)\z`); err != nil {
			return nil, fmt.Errorf("found of check %s: %w", r.Checks[0], err)
		}
	}
	return list, nil
}

// unexplained returns the first line of what kube-bench found that the reason is not about. Checks with many objects
// mark those that comply.
func (r *Remaining) unexplained(c Check) (string, bool) {
	found := strings.TrimSpace(c.Found)
	if found == "" {
		found = strings.TrimSpace(strings.ReplaceAll(c.Reason, "\n", " ")) // of a check that could not run
	}
	if found == "" {
		found = noOutput
	}
	for line := range strings.SplitSeq(found, "\n") {
		line = strings.TrimSpace(line)
		if !strings.Contains(line, "is_compliant: true") && !r.found.MatchString(line) {
			return line, true
		}
	}
	return "", false
}

// Outcome is a check with what the list of remaining failures says about it.
type Outcome struct {
	Check
	Excuse  string // the reason why a failure remains
	Problem string // why the comparison fails
}

// Compare sets the checks against the remaining failures. Each failure must have a reason, and each reason a failure on
// some VM.
func Compare(checks []Check, remaining []Remaining) []Outcome {
	reasons := map[string]*Remaining{}
	for i := range remaining {
		for _, id := range remaining[i].Checks {
			reasons[id] = &remaining[i]
		}
	}
	unknown := maps.Clone(reasons)
	fails := map[string]bool{}
	for _, check := range checks {
		fails[check.ID] = fails[check.ID] || check.Status == fail
	}
	var outcomes []Outcome
	for _, check := range checks {
		outcome := Outcome{Check: check}
		reason := reasons[check.ID]
		delete(unknown, check.ID)
		switch {
		case reason != nil && !fails[check.ID]:
			outcome.Problem = "stale: it does not fail any more (" + check.Status + "); remove its reason"
		case check.Status == fail && reason == nil:
			outcome.Problem = "fails without a reason"
		case check.Status == fail:
			outcome.Excuse = strings.TrimSpace(reason.Reason)
			if line, found := reason.unexplained(check); found {
				outcome.Problem = fmt.Sprintf("fails for another reason: %q", shortened(line))
			}
		}
		outcomes = append(outcomes, outcome)
	}
	for _, id := range sortedKeys(unknown) {
		outcomes = append(
			outcomes,
			Outcome{Check: Check{ID: id}, Problem: "stale: the benchmark has no such check; remove its reason"},
		)
	}
	return outcomes
}

func shortened(line string) string {
	const limit = 200
	if len(line) > limit {
		return line[:limit] + "…"
	}
	return line
}
