package preflight

import (
	"fmt"
	"io"
	"strings"
)

// Escape sequences of a terminal.
const (
	red    = "\x1b[31m"
	yellow = "\x1b[33m"
	green  = "\x1b[32m"
	dim    = "\x1b[2m"
	bold   = "\x1b[1m"
	reset  = "\x1b[0m"
)

// Printer writes reports as text.
type Printer struct {
	Color bool // with a terminal's colors
	// Short leaves out the checks that passed and truncates the notes of skipped ones to lineLength.
	Short bool
}

// lineLength is the maximum length of a check's text in a short table, in characters.
const lineLength = 120

func (p Printer) paint(color, text string) string {
	if !p.Color {
		return text
	}
	return color + text + reset
}

func (p Printer) status(s Status) string {
	color := map[Status]string{Passed: green, Warned: yellow, Failed: red, Skipped: dim}[s]
	return p.paint(color, fmt.Sprintf("%-4s", s))
}

// Table writes one line per check, what the cloud controller would choose, and the result of the run.
func (p Printer) Table(w io.Writer, r *Report) {
	fmt.Fprintln(w, p.paint(bold, heading(r)))
	width := 0
	for _, result := range r.Results {
		if p.shows(result) {
			width = max(width, len(result.Check))
		}
	}
	for _, result := range r.Results {
		if !p.shows(result) {
			continue
		}
		text := []rune(summary(result))
		if room := lineLength - width; p.Short && result.Status == Skipped && len(text) > room {
			text = append(text[:room-1], '…')
		}
		fmt.Fprintf(w, "  %s  %-*s  %s\n", p.status(result.Status), width, result.Check, string(text))
	}
	if n := r.Count(Passed); p.Short && n > 0 {
		fmt.Fprintf(w, "  %s  %s\n", p.status(Passed), plural(n, "check"))
	}
	for _, e := range r.Explanations {
		fmt.Fprintln(w, e.Title)
		for _, line := range e.Lines {
			fmt.Fprintf(w, "  %s\n", line)
		}
	}
	fmt.Fprintln(w, p.result(r))
}

func (p Printer) shows(r Result) bool { return !p.Short || r.Status != Passed }

func heading(r *Report) string {
	provider := r.Provider
	if provider == "" {
		provider = "no cloud"
	}
	text := fmt.Sprintf("cloud-preflight: %s, cluster %q, %s", provider, r.Cluster, r.Role)
	if r.Machine != "" {
		text += " " + r.Machine
	}
	if r.Node != nil && r.Node.Zone != "" {
		text += " in " + r.Node.Zone
	}
	return text
}

func summary(r Result) string {
	if len(r.Findings) == 0 {
		if r.Note == "" {
			return r.Title
		}
		return fmt.Sprintf("%s: %s", r.Title, r.Note)
	}
	parts := make([]string, 0, len(r.Findings))
	for _, f := range r.Findings {
		parts = append(parts, f.Resource)
	}
	return fmt.Sprintf("%s: %s", r.Title, strings.Join(parts, "; "))
}

func (p Printer) result(r *Report) string {
	counts := fmt.Sprintf("%s failed, %s, %d skipped, %d passed in %.1f s", plural(r.Count(Failed), "check"),
		plural(r.Count(Warned), "warning"), r.Count(Skipped), r.Count(Passed), float64(r.Milliseconds)/1000)
	if n := r.CallCount("EC2"); n > 0 {
		counts += fmt.Sprintf(", %s", plural(n, "EC2 call"))
	}
	if r.Result == RunFailed {
		return p.paint(red, "FAILED") + ": " + counts
	}
	if r.Result == RunError {
		return p.paint(red, "ERROR") + ": " + counts
	}
	word := "PASSED"
	if r.Mode == ModeWarn && r.Count(Warned) > 0 {
		word = "PASSED (mode warn: nothing stops the deployment)"
	}
	return p.paint(green, word) + ": " + counts
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Findings writes every finding in full; if there are failures, warnings get one line each. Failures come last, the
// most important one first, because a Director shows the end of what a script wrote. Without findings nothing is
// written.
func (p Printer) Findings(w io.Writer, r *Report) {
	shown := map[string]string{}
	for _, status := range []Status{Warned, Failed} {
		if n := r.Count(status); n > 0 && status == Failed {
			machine := strings.TrimSpace(string(r.Role) + " " + r.Machine) // the id may be unknown
			fmt.Fprintf(
				w,
				"%s\n",
				p.paint(
					bold,
					fmt.Sprintf(
						"cloud-preflight: %s failed for cluster %q on %s:", plural(n, "check"), r.Cluster, machine,
					),
				),
			)
		}
		for _, result := range r.Results {
			switch {
			case result.Status != status:
			case status == Warned && r.Count(Failed) > 0:
				p.brief(w, result)
			default:
				p.findings(w, result, shown)
			}
		}
	}
}

// brief writes one line per finding.
func (p Printer) brief(w io.Writer, r Result) {
	for _, f := range r.Findings {
		fmt.Fprintf(
			w, "%s %s: %s (found: %s; details are in the report)\n", p.paint(yellow, "WARN"), r.Check, f.Resource,
			f.Found,
		)
	}
}

// findings writes the findings of one check in full. Commands that are already shown are not repeated: shown maps them
// to the check whose finding has them.
func (p Printer) findings(w io.Writer, r Result, shown map[string]string) {
	for _, f := range r.Findings {
		label := strings.ToUpper(string(r.Status))
		if p.Color {
			label = map[Status]string{Warned: yellow, Failed: red}[r.Status] + label + reset
		}
		fmt.Fprintf(w, "%s %s: %s\n", label, r.Check, f.Resource)
		fmt.Fprintf(w, "  wanted: %s\n  found:  %s\n  why:    %s\n", f.Wanted, f.Found, f.Why)
		for i, fix := range f.Fix {
			lead := "fix:"
			if i > 0 {
				lead = "" // the text starts with "or" or "also"
			}
			fmt.Fprintf(w, "  %-7s %s\n", lead, fix.Text)
			lines := strings.Join(fix.Commands, "\n")
			if earlier := shown[lines]; earlier != "" {
				fmt.Fprintf(w, "          (the commands are shown above, for %s)\n", earlier)
				continue
			}
			if len(fix.Commands) > 0 {
				shown[lines] = r.Check
			}
			for _, line := range fix.Commands {
				fmt.Fprintf(w, "          %s\n", p.paint(bold, line))
			}
		}
	}
}
