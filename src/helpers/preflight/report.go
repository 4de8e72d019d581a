package preflight

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"kubernetes-release/helpers/node"
)

// SchemaVersion is the version of the JSON report. It rises when a field is removed or changes its meaning; fields
// may be added without.
const SchemaVersion = 1

// Status is how one check ended.
type Status string

const (
	// Passed: nothing was found.
	Passed Status = "pass"
	// Warned: something was found that lets the deployment go on.
	Warned Status = "warn"
	// Failed: something was found that stops the deployment.
	Failed Status = "fail"
	// Skipped: it could not be known; the note says why.
	Skipped Status = "skip"
)

// Finding is one thing that is wrong.
type Finding struct {
	// Resource is what is wrong, by the name that the cloud's own tools take (an instance id, a list of subnet ids, an action).
	Resource string `json:"resource"`
	Wanted   string `json:"wanted"`
	Found    string `json:"found"`
	// Why says in one sentence what breaks if it stays so.
	Why string `json:"why"`
	// Mend holds the commands or settings that put it right, each usable as it stands.
	Mend []string `json:"mend"`
	// Advisory findings only warn, unless the operator has set the check's severity.
	Advisory bool `json:"-"`
	// Eventual findings may vanish by themselves within the retry window.
	Eventual bool `json:"-"`
}

// Result is how one check ended.
type Result struct {
	Check    string    `json:"check"`
	Title    string    `json:"title"`
	Status   Status    `json:"status"`
	Note     string    `json:"note,omitempty"` // what was seen, or why it was skipped
	Findings []Finding `json:"findings,omitempty"`
}

// Outcome is what running one check gives, before severities are applied: findings, or a note, or a reason to skip.
type Outcome struct {
	Findings []Finding
	Note     string // what was seen when all is well
	Skip     string // why it could not be known
}

// Explanation is a decision of the cloud controller foretold, line by line.
type Explanation struct {
	Title string   `json:"title"`
	Lines []string `json:"lines"`
}

// Calls is how often one action of a cloud's API was called, retries included.
type Calls struct {
	Service string `json:"service"`
	Action  string `json:"action"`
	Count   int    `json:"count"`
}

// Verdict sums a run up.
type Verdict string

const (
	// VerdictPassed: no check failed; there may be warnings.
	VerdictPassed Verdict = "passed"
	// VerdictFailed: a check failed.
	VerdictFailed Verdict = "failed"
)

// Report is one run. Its JSON form is versioned by SchemaVersion.
type Report struct {
	SchemaVersion int            `json:"schema_version"`
	Provider      string         `json:"provider"`
	Cluster       string         `json:"cluster"`
	Role          Role           `json:"role"`
	Mode          Mode           `json:"mode"`
	Verdict       Verdict        `json:"verdict"`
	Started       time.Time      `json:"started"` // UTC
	Milliseconds  int64          `json:"duration_ms"`
	Node          *node.Identity `json:"node,omitempty"`
	Machine       string         `json:"machine,omitempty"` // the cloud's id of the machine that ran the checks
	Results       []Result       `json:"results"`
	Explanations  []Explanation  `json:"explanations,omitempty"`
	Calls         []Calls        `json:"calls,omitempty"`
}

// Grade turns the outcome of a check into its result under the operator's severities. ok is false when the check is off.
func (c Config) Grade(check Check, outcome Outcome) (result Result, ok bool) {
	severity, overridden := c.Checks[check.ID]
	if !overridden {
		severity = check.Severity
	}
	if severity == Off {
		return Result{}, false
	}
	result = Result{Check: check.ID, Title: check.Title, Status: Passed, Note: outcome.Note}
	switch {
	case outcome.Skip != "":
		result.Status, result.Note = Skipped, outcome.Skip
	case len(outcome.Findings) > 0:
		result.Status, result.Note, result.Findings = Warned, "", outcome.Findings
		for _, f := range outcome.Findings {
			if severity == Fail && c.Mode == ModeEnforce && (overridden || !f.Advisory) {
				result.Status = Failed
			}
		}
	}
	return result, true
}

// NewReport sums results up. They keep the order in which the provider lists its checks, which is the order of
// importance; those that failed come first, then warnings, then the rest.
func NewReport(c Config, results []Result, started time.Time, took time.Duration) *Report {
	r := &Report{
		SchemaVersion: SchemaVersion, Provider: c.Provider, Cluster: c.Cluster, Role: c.Role, Mode: c.Mode,
		Verdict: VerdictPassed, Started: started.UTC(), Milliseconds: took.Milliseconds(), Results: append([]Result{}, results...),
	}
	rank := map[Status]int{Failed: 0, Warned: 1, Skipped: 2, Passed: 3}
	sort.SliceStable(r.Results, func(i, j int) bool { return rank[r.Results[i].Status] < rank[r.Results[j].Status] })
	if r.Count(Failed) > 0 {
		r.Verdict = VerdictFailed
	}
	return r
}

// Count returns how many checks ended so.
func (r *Report) Count(s Status) int {
	n := 0
	for _, result := range r.Results {
		if result.Status == s {
			n++
		}
	}
	return n
}

// CallCount returns how often a service was called.
func (r *Report) CallCount(service string) int {
	n := 0
	for _, c := range r.Calls {
		if c.Service == service {
			n += c.Count
		}
	}
	return n
}

// Redact replaces every occurrence of the given secrets in the report's texts. It is the last line of defence: no
// text is meant to hold one.
func (r *Report) Redact(secrets ...string) {
	pairs := make([]string, 0, 2*len(secrets))
	for _, s := range secrets {
		if len(s) >= 8 { // shorter ones are no secrets, and replacing them would garble the text
			pairs = append(pairs, s, "[redacted]")
		}
	}
	if len(pairs) == 0 {
		return
	}
	clean := strings.NewReplacer(pairs...).Replace
	for i := range r.Results {
		result := &r.Results[i]
		result.Note = clean(result.Note)
		for j := range result.Findings {
			f := &result.Findings[j]
			f.Resource, f.Wanted, f.Found, f.Why = clean(f.Resource), clean(f.Wanted), clean(f.Found), clean(f.Why)
			for k := range f.Mend {
				f.Mend[k] = clean(f.Mend[k])
			}
		}
	}
	for i := range r.Explanations {
		for j := range r.Explanations[i].Lines {
			r.Explanations[i].Lines[j] = clean(r.Explanations[i].Lines[j])
		}
	}
}

// WriteJSON writes the report as indented JSON.
func (r *Report) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(r)
}

// WriteFile stores the JSON report at path (mode 0644, it holds no secret), at once and whole.
func (r *Report) WriteFile(path string) error {
	temporary, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	defer os.Remove(temporary.Name()) // fails harmlessly once the file has been renamed
	err = r.WriteJSON(temporary)
	if err == nil {
		err = temporary.Chmod(0o644)
	}
	if closeErr := temporary.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(temporary.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write report %s: %w", path, err)
	}
	return nil
}
