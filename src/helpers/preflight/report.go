package preflight

import (
	"encoding/json"
	"fmt"
	"io"
	"sort"
	"time"

	"kubernetes-release/internal/exposition"
	"kubernetes-release/internal/printable"
	"kubernetes-release/internal/rootfile"
	"kubernetes-release/node"
)

// SchemaVersion is the version of the JSON report. It changes when a field is removed or renamed or changes its
// meaning, not when one is added.
const SchemaVersion = 4

// Status is the result of one check.
type Status string

const (
	// Passed means that nothing was found.
	Passed Status = "pass"
	// Warned means that something was found that does not stop the deployment.
	Warned Status = "warn"
	// Failed means that something was found that stops the deployment.
	Failed Status = "fail"
	// Skipped means that the result could not be determined; the note says why.
	Skipped Status = "skip"
)

// Fix is a step or a way to resolve a problem.
type Fix struct {
	// Text says what the commands do, or, if there are none, what to do.
	Text string `json:"text"`
	// Commands are complete lines for a shell, in order. Values that only the operator knows are set first, by lines
	// such as cidr=CIDR_BLOCK whose value is to be replaced.
	Commands []string `json:"commands,omitempty"`
}

// Finding is one problem.
type Finding struct {
	// Resource has the problem, named as in the cloud's own tools (an instance id, a list of subnet ids, an action).
	Resource string `json:"resource"`
	Wanted   string `json:"wanted"`
	Found    string `json:"found"`
	// Why says in one sentence what will not work.
	Why string `json:"why"`
	// Fix lists what resolves the problem. The first entry does so on the running system; the texts of the others say
	// when they are to be used.
	Fix []Fix `json:"fix"`
	// Advisory findings only warn, unless the operator has overridden the check's severity.
	Advisory bool `json:"-"`
	// Eventual findings may disappear by themselves within the retry window.
	Eventual bool `json:"-"`
}

// Result is the result of one check.
type Result struct {
	Check    string    `json:"check"`
	Title    string    `json:"title"`
	Status   Status    `json:"status"`
	Note     string    `json:"note,omitempty"` // what was found to be right, or why the check was skipped
	Findings []Finding `json:"findings,omitempty"`
}

// Outcome is what a check returns before severities are applied: findings, or a note, or a reason to skip.
type Outcome struct {
	Findings []Finding
	Note     string // what was found to be right
	Skip     string // why it could not be determined
}

// Explanation predicts a decision of the cloud controller, line by line.
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

// RunResult is the result of a run.
type RunResult string

const (
	// RunPassed means that no check failed; there may be warnings.
	RunPassed RunResult = "passed"
	// RunFailed means that a check failed.
	RunFailed RunResult = "failed"
	// RunError means that no check failed, but the run did not do all that it was asked to, so the program fails.
	RunError RunResult = "error"
)

// Report is one run. Its JSON form is versioned by SchemaVersion.
type Report struct {
	SchemaVersion int            `json:"schema_version"`
	Provider      string         `json:"provider"`
	Cluster       string         `json:"cluster"`
	Role          Role           `json:"role"`
	Mode          Mode           `json:"mode"`
	Result        RunResult      `json:"result"`
	Started       time.Time      `json:"started"` // UTC
	Milliseconds  int64          `json:"duration_ms"`
	Node          *node.Identity `json:"node,omitempty"`
	Machine       string         `json:"machine,omitempty"` // the cloud's id of the machine that ran the checks
	Results       []Result       `json:"results"`
	Explanations  []Explanation  `json:"explanations,omitempty"`
	Calls         []Calls        `json:"calls,omitempty"`
}

// Grade applies the operator's severities to the outcome of a check. ok is false when the check is off.
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

// NewReport returns the report of the given results: first those that failed, then warnings, then skipped checks, then
// the rest, each in the order in which the provider lists its checks, which is the order of importance.
func NewReport(c Config, results []Result, started time.Time, took time.Duration) *Report {
	r := &Report{
		SchemaVersion: SchemaVersion,
		Provider:      c.Provider,
		Cluster:       c.Cluster,
		Role:          c.Role,
		Mode:          c.Mode,
		Result:        RunPassed,
		Started:       started.UTC(),
		Milliseconds:  took.Milliseconds(),
		Results:       append([]Result{}, results...),
	}
	rank := map[Status]int{Failed: 0, Warned: 1, Skipped: 2, Passed: 3}
	sort.SliceStable(r.Results, func(i, j int) bool { return rank[r.Results[i].Status] < rank[r.Results[j].Status] })
	if r.Count(Failed) > 0 {
		r.Result = RunFailed
	}
	return r
}

// Count returns the number of checks with a status.
func (r *Report) Count(s Status) int {
	n := 0
	for _, result := range r.Results {
		if result.Status == s {
			n++
		}
	}
	return n
}

// CallCount returns the number of calls to a service.
func (r *Report) CallCount(service string) int {
	n := 0
	for _, c := range r.Calls {
		if c.Service == service {
			n += c.Count
		}
	}
	return n
}

// Clean replaces every occurrence of the given secrets in the report's texts, and characters that a terminal obeys
// (printable.Text), because not only operators give names and tags. Against secrets it is the last line of defense: no
// text should contain one.
func (r *Report) Clean(secrets ...string) {
	list := &Secrets{}
	list.Add(secrets...)
	clean := func(text string) string { return printable.Text(list.Clean(text)) }
	for i := range r.Results {
		result := &r.Results[i]
		result.Note = clean(result.Note)
		for j := range result.Findings {
			f := &result.Findings[j]
			f.Resource, f.Wanted, f.Found, f.Why = clean(f.Resource), clean(f.Wanted), clean(f.Found), clean(f.Why)
			for k := range f.Fix {
				fix := &f.Fix[k]
				fix.Text = clean(fix.Text)
				for l := range fix.Commands {
					fix.Commands[l] = clean(fix.Commands[l])
				}
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

// WriteFile replaces the file at path by the JSON report (mode 0644; it contains no secret).
func (r *Report) WriteFile(path string) error {
	if err := rootfile.WriteFrom(path, 0o644, r.WriteJSON); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// WriteMetrics replaces the file at path by how many findings each check has that warned or failed, and the time of the
// run, for the textfile collector of node_exporter (mode 0644).
func (r *Report) WriteMetrics(path string) error {
	var text exposition.Text
	text.Gauge("kubernetes_bosh_preflight_timestamp_seconds", "Time at which the last preflight of this VM began.").
		Add(float64(r.Started.Unix()))
	findings := text.Gauge(
		"kubernetes_bosh_preflight_findings", "What a check of the last preflight of this VM has found, if anything.",
	)
	for _, result := range r.Results {
		if result.Status == Warned || result.Status == Failed {
			findings.Add(float64(len(result.Findings)), "check", result.Check, "status", string(result.Status))
		}
	}
	if err := rootfile.Write(path, []byte(text.String()), 0o644); err != nil {
		return fmt.Errorf("metrics of the preflight: %w", err)
	}
	return nil
}
