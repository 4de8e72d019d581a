package pipelines

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"gopkg.in/yaml.v3"
)

// The types follow Concourse's atc/config.go, atc/job_config.go, atc/steps.go and atc/task.go, as far as the pipelines
// use them. Concourse refuses fields that it does not know, and so does decoding into these.

type pipeline struct {
	Groups []struct {
		Name string   `yaml:"name"`
		Jobs []string `yaml:"jobs"`
	} `yaml:"groups"`
	ResourceTypes []struct {
		Name   string         `yaml:"name"`
		Type   string         `yaml:"type"`
		Source map[string]any `yaml:"source"`
	} `yaml:"resource_types"`
	Resources []resource `yaml:"resources"`
	Jobs      []job      `yaml:"jobs"`
}

type resource struct {
	Name   string         `yaml:"name"`
	Type   string         `yaml:"type"`
	Icon   string         `yaml:"icon"`
	Source map[string]any `yaml:"source"`
}

type job struct {
	Name         string   `yaml:"name"`
	Serial       bool     `yaml:"serial"`
	SerialGroups []string `yaml:"serial_groups"`
	Plan         []step   `yaml:"plan"`
}

type step struct {
	// Exactly one of these says what kind of step it is.
	Get        string `yaml:"get"`
	Put        string `yaml:"put"`
	Task       string `yaml:"task"`
	Do         []step `yaml:"do"`
	InParallel []step `yaml:"in_parallel"`

	Tags          []string          `yaml:"tags"`
	Resource      string            `yaml:"resource"`
	Passed        []string          `yaml:"passed"`
	Trigger       bool              `yaml:"trigger"`
	Version       any               `yaml:"version"` // every, or a version
	Image         string            `yaml:"image"`
	Privileged    bool              `yaml:"privileged"`
	File          string            `yaml:"file"`
	Config        *task             `yaml:"config"`
	Params        map[string]any    `yaml:"params"`
	InputMapping  map[string]string `yaml:"input_mapping"`
	OutputMapping map[string]string `yaml:"output_mapping"`
	Timeout       string            `yaml:"timeout"`
	Attempts      int               `yaml:"attempts"`
	Ensure        *step             `yaml:"ensure"`
}

type task struct {
	Platform string         `yaml:"platform"`
	Params   map[string]any `yaml:"params"`
	Inputs   []artifact     `yaml:"inputs"`
	Outputs  []artifact     `yaml:"outputs"`
	Caches   []struct {
		Path string `yaml:"path"`
	} `yaml:"caches"`
	Run struct {
		Path string   `yaml:"path"`
		Args []string `yaml:"args"`
	} `yaml:"run"`
}

type artifact struct {
	Name     string `yaml:"name"`
	Optional bool   `yaml:"optional"`
}

func names(artifacts []artifact) []string {
	var all []string
	for _, a := range artifacts {
		all = append(all, a.Name)
	}
	return all
}

func decode(text []byte, target any) error {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	return decoder.Decode(target)
}

func (s step) resource() string {
	if s.Resource != "" {
		return s.Resource
	}
	return s.Get + s.Put
}

// kind returns which kind of step this is, and an error unless it is exactly one, with the fields of that kind only.
func (s step) kind() (string, error) {
	var kinds []string
	for kind, is := range map[string]bool{
		"get": s.Get != "", "put": s.Put != "", "task": s.Task != "", "do": s.Do != nil,
		"in_parallel": s.InParallel != nil,
	} {
		if is {
			kinds = append(kinds, kind)
		}
	}
	slices.Sort(kinds)
	if len(kinds) != 1 {
		return "", fmt.Errorf("a step is %q, want exactly one of get, put, task, do and in_parallel", kinds)
	}
	kind := kinds[0]
	var problems []error
	for field, belongs := range map[string]struct {
		set bool
		to  []string
	}{
		"passed": {s.Passed != nil, []string{"get"}}, "trigger": {s.Trigger, []string{"get"}},
		"version": {s.Version != nil, []string{"get"}}, "resource": {
			s.Resource != "", []string{"get", "put"},
		},
		"tags": {s.Tags != nil, []string{"get", "put", "task"}}, "params": {
			s.Params != nil, []string{"get", "put", "task"},
		}, "image": {s.Image != "", []string{"task"}}, "file": {s.File != "", []string{"task"}},
		"config": {s.Config != nil, []string{"task"}}, "privileged": {s.Privileged, []string{"task"}},
		"input_mapping": {s.InputMapping != nil, []string{"task"}}, "output_mapping": {
			s.OutputMapping != nil, []string{"task"},
		},
	} {
		if belongs.set && !slices.Contains(belongs.to, kind) {
			problems = append(problems, fmt.Errorf("a %s step has the field %s", kind, field))
		}
	}
	if kind == "task" && (s.File == "") == (s.Config == nil) {
		problems = append(problems, fmt.Errorf("task %s must have either file or config", s.Task))
	}
	return kind, errors.Join(problems...)
}

// walk calls visit for each step that is no container, in the order of their execution; a hook follows what it belongs
// to.
func walk(steps []step, visit func(step)) {
	for _, s := range steps {
		if s.Do == nil && s.InParallel == nil {
			visit(s)
		}
		walk(s.Do, visit)
		walk(s.InParallel, visit)
		if s.Ensure != nil {
			walk([]step{*s.Ensure}, visit)
		}
	}
}
