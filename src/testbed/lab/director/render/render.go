// Package render renders the ERB templates of BOSH jobs as a Director does: Ruby evaluates them, with p, if_p, link,
// if_link and spec.
package render

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
)

//go:embed evaluate.rb
var evaluateProgram string

// MonitTarget is the path of a rendered job's monit file.
const MonitTarget = "monit"

// Job is a job of an instance, to be rendered.
type Job struct {
	// Name is the job's name, as in the release.
	Name string
	// Dir is the unpacked job, with monit and templates/.
	Dir string
	// Templates maps a path below templates/ to the path below the rendered job, as in the job's spec.
	Templates map[string]string
	// Context is what the templates see as spec, plus "properties" (those that the job declares, with defaults) and
	// "links" (name to content, of the links that the job consumes).
	Context map[string]any
}

// Rendered is a rendered job.
type Rendered struct {
	Name string
	// Files maps paths below the job's directory to contents.
	Files map[string][]byte
}

// TemplateError is the error of a template.
type TemplateError struct {
	Job      string
	Template string
	// Line is 0 if it is unknown.
	Line    int
	Message string
}

// Error has the Director's wording, which operators know.
func (e TemplateError) Error() string {
	line := "unknown"
	if e.Line > 0 {
		line = fmt.Sprint(e.Line)
	}
	return fmt.Sprintf("Error filling in template '%s' (line %s: %s)", e.Template, line, e.Message)
}

// JobError has the errors of all templates of a job.
type JobError struct {
	Job       string
	Templates []TemplateError
}

// Error lists the errors in the Director's format.
func (e *JobError) Error() string {
	lines := []string{fmt.Sprintf("- Unable to render templates for job '%s'. Errors are:", e.Job)}
	for _, t := range e.Templates {
		lines = append(lines, "  - "+strings.ReplaceAll(strings.TrimSpace(t.Error()), "\n", "\n    "))
	}
	return strings.Join(lines, "\n")
}

type file struct {
	Source string `json:"source"`
	Label  string `json:"label"`
	target string
}

type unit struct {
	Context map[string]any `json:"context"`
	Files   []file         `json:"files"`
}

type outcome struct {
	Content []byte `json:"content"`
	Error   string `json:"error"`
	Line    *int   `json:"line"`
}

// Jobs renders all templates of the jobs in one Ruby process. For every job, either the rendered files or a *JobError
// is set at the job's index. The last value is an error that prevented rendering, such as a missing ruby or an
// unreadable job.
func Jobs(ctx context.Context, jobs []Job) ([]Rendered, []*JobError, error) {
	units := make([]unit, len(jobs))
	for i, job := range jobs {
		u, err := unitFor(job)
		if err != nil {
			return nil, nil, err
		}
		units[i] = u
	}
	outcomes, err := evaluate(ctx, units)
	if err != nil {
		return nil, nil, err
	}
	rendered := make([]Rendered, len(jobs))
	failures := make([]*JobError, len(jobs))
	for i, job := range jobs {
		rendered[i], failures[i] = collect(job, units[i].Files, outcomes[i])
	}
	return rendered, failures, nil
}

func unitFor(job Job) (unit, error) {
	u := unit{Context: job.Context}
	monit := filepath.Join(job.Dir, "monit")
	if _, err := os.Stat(monit); err != nil {
		return unit{}, fmt.Errorf("job '%s': a job must have a monit file, which can be empty: %w", job.Name, err)
	}
	u.Files = append(u.Files, file{Source: monit, Label: "monit", target: MonitTarget})
	sources := make([]string, 0, len(job.Templates))
	for source := range job.Templates {
		sources = append(sources, source)
	}
	sort.Strings(sources)
	for _, source := range sources {
		path := filepath.Join(job.Dir, "templates", source)
		if _, err := os.Stat(path); err != nil {
			return unit{}, fmt.Errorf(
				"job '%s': the spec names the template '%s', which is not in the job: %w", job.Name, source, err,
			)
		}
		u.Files = append(u.Files, file{Source: path, Label: source, target: job.Templates[source]})
	}
	return u, nil
}

func evaluate(ctx context.Context, units []unit) ([][]outcome, error) {
	input, err := json.Marshal(units)
	if err != nil {
		return nil, fmt.Errorf("encoding the templates' context: %w", err)
	}
	ruby, err := exec.LookPath("ruby")
	if err != nil {
		return nil, fmt.Errorf("templates are rendered by Ruby, which is not installed (apt-get install ruby): %w", err)
	}
	command := exec.CommandContext(ctx, ruby, "--disable-gems", "-e", evaluateProgram)
	command.Env = append(os.Environ(), "LANG=C.UTF-8", "LC_ALL=C.UTF-8")
	command.Stdin = bytes.NewReader(input)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return nil, fmt.Errorf("running ruby to render templates: %w\n%s", err, strings.TrimSpace(stderr.String()))
	}
	var outcomes [][]outcome
	if err := json.Unmarshal(stdout.Bytes(), &outcomes); err != nil {
		return nil, fmt.Errorf("reading the rendered templates from ruby: %w", err)
	}
	return outcomes, nil
}

func collect(job Job, files []file, outcomes []outcome) (Rendered, *JobError) {
	result := Rendered{Name: job.Name, Files: map[string][]byte{}}
	failure := &JobError{Job: job.Name}
	for i, o := range outcomes {
		if o.Error == "" {
			result.Files[files[i].target] = o.Content
			continue
		}
		t := TemplateError{Job: job.Name, Template: files[i].Label, Message: o.Error}
		if o.Line != nil {
			t.Line = *o.Line
		}
		failure.Templates = append(failure.Templates, t)
	}
	if len(failure.Templates) > 0 {
		return Rendered{}, failure
	}
	return result, nil
}

// Properties returns the values that given (the job's properties in the manifest) has for the properties that the job's
// spec declares, and the default for others. As under a Director, templates see nothing else. Names are dotted paths.
func Properties(job string, declared map[string]any, given map[string]any) (map[string]any, error) {
	picked := map[string]any{}
	names := make([]string, 0, len(declared))
	for name := range declared {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		value, err := find(given, name)
		if err != nil {
			return nil, fmt.Errorf("job '%s': %w", job, err)
		}
		if value == nil {
			value = declared[name]
		}
		if err := set(picked, name, value); err != nil {
			return nil, fmt.Errorf("job '%s': %w", job, err)
		}
	}
	return picked, nil
}

// find returns the value at a dotted path, nil if there is none. A value on the path that is not a map is an error, in
// the Director's wording.
func find(tree map[string]any, name string) (any, error) {
	var node any = tree
	for _, key := range strings.Split(name, ".") {
		if node == nil {
			return nil, nil
		}
		m, ok := node.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("Property '%s' expects a hash, but received '%s'", name, rubyClass(node))
		}
		node = m[key]
	}
	return node, nil
}

// set sets the value at a dotted path. If a prefix of the path is a property too (a and a.b), the value is merged into
// a copy of that one's.
func set(tree map[string]any, name string, value any) error {
	keys := strings.Split(name, ".")
	node := tree
	for _, key := range keys[:len(keys)-1] {
		switch next := node[key].(type) {
		case nil:
			fresh := map[string]any{}
			node[key] = fresh
			node = fresh
		case map[string]any:
			clone := make(map[string]any, len(next))
			for k, v := range next {
				clone[k] = v
			}
			node[key] = clone
			node = clone
		default:
			return fmt.Errorf("Property '%s' expects a hash, but received '%s'", name, rubyClass(next))
		}
	}
	node[keys[len(keys)-1]] = value
	return nil
}

func rubyClass(v any) string {
	switch v.(type) {
	case string:
		return "String"
	case bool:
		return "Boolean"
	case int, int64, uint64:
		return "Integer"
	case float64:
		return "Float"
	case []any:
		return "Array"
	default:
		return fmt.Sprintf("%T", v)
	}
}
