package vulnerabilities

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// Accepted is a vulnerability that the release may have.
type Accepted struct {
	// ID is a finding's.
	ID string `yaml:"id"`
	// Reason says why it does no harm here, or what is waited for.
	Reason string `yaml:"reason"`
}

// ReadAccepted reads a YAML list of what is accepted. Each must have a reason.
func ReadAccepted(file string) ([]Accepted, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var list []Accepted
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	decoder.KnownFields(true)
	if err := decoder.Decode(&list); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: must be a list with id and reason: %w", file, err)
	}
	var problems []error
	for i, a := range list {
		switch {
		case a.ID == "":
			problems = append(problems, fmt.Errorf("%s: entry %d has no id, such as GO-2026-4321", file, i+1))
		case strings.TrimSpace(a.Reason) == "":
			problems = append(problems, fmt.Errorf("%s: %s has no reason: say why it does no harm here", file, a.ID))
		case slices.ContainsFunc(list[:i], func(other Accepted) bool { return other.ID == a.ID }):
			problems = append(problems, fmt.Errorf("%s: %s is there twice", file, a.ID))
		}
	}
	return list, errors.Join(problems...)
}

// Write writes the report for people: findings that are not accepted, with what to do, and then how many there are. It
// returns an error if there is any.
func (r Report) Write(w io.Writer, accepted []Accepted) error {
	var text strings.Builder
	open, known := 0, map[string]bool{}
	for _, f := range r.Findings {
		known[f.ID] = true
		if slices.ContainsFunc(accepted, func(a Accepted) bool { return a.ID == f.ID }) {
			continue
		}
		open++
		text.WriteString(f.describe())
	}
	for _, a := range accepted {
		if !known[a.ID] {
			fmt.Fprintf(&text, "%s is accepted, and no program has it: remove it from the list\n", a.ID)
		}
	}
	fmt.Fprintf(
		&text, "vulnerabilities: %d programs, %d known vulnerabilities of modules, %d of them accepted\n", r.Programs,
		len(r.Findings), len(r.Findings)-open,
	)
	if _, err := io.WriteString(w, text.String()); err != nil {
		return err
	}
	if open > 0 {
		return fmt.Errorf("%d known vulnerabilities are not accepted: %s", open, remedy)
	}
	return nil
}

const remedy = "raise the modules in the pins of the programs, or accept them with a reason (docs/releasing.md)"

// describe returns a paragraph about the finding.
func (f Finding) describe() string {
	names, fixed := f.ID, "no version fixes it"
	if len(f.Aliases) > 0 {
		names += " (" + strings.Join(f.Aliases, ", ") + ")"
	}
	if f.Fixed != "" {
		fixed = "fixed in " + f.Fixed
	}
	return fmt.Sprintf(
		"%s: %s\n  %s %s, %s\n  in %s\n  https://pkg.go.dev/vuln/%s\n", names, f.Summary, f.Module, f.Version, fixed,
		strings.Join(f.Programs, ", "), f.ID,
	)
}
