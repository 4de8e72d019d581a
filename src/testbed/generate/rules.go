package generate

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"kubernetes-release/testbed/lab/director/release"
)

const shared = "src/shared-templates"

// jobFlags is src/shared-templates/flags/JOB.yml.
type jobFlags struct {
	// Program is the command that lists the flags, below the folder of built components.
	Program string `yaml:"program"`
	// Owned are the flags that extra_args cannot set, with what to use instead.
	Owned map[string]string `yaml:"owned"`
	// Hidden are flags that the program accepts and does not list.
	Hidden string `yaml:"hidden,omitempty"`
	// Known are all flags that the program lists, by the kind of their values.
	Known map[string]string `yaml:"known"`
}

// propertyRule is one entry of src/shared-templates/rules.yml.
type propertyRule struct {
	Properties []string `yaml:"properties"`
	// Jobs and Except limit the jobs, for a property that does not mean the same everywhere.
	Jobs   []string `yaml:"jobs"`
	Except []string `yaml:"except"`
	Valid  string   `yaml:"valid"`
	Rule   string   `yaml:"rule"`
}

func (r propertyRule) appliesTo(job string) bool {
	return !slices.Contains(r.Except, job) && (len(r.Jobs) == 0 || slices.Contains(r.Jobs, job))
}

// Lines of a template of a job without extra_args, between which its rules are.
const (
	rulesBegin = "  # Generated from src/shared-templates/rules.yml: make generate\n"
	rulesEnd   = "  # End of the generated rules.\n"
)

// rules writes each job's rules: to its extra_args.json.erb or, without one, between two lines of another template.
func rules(t *tree) error {
	all, err := readYAML[[]propertyRule](t, shared+"/rules.yml")
	if err != nil {
		return err
	}
	used := map[string]bool{}
	for _, job := range t.jobs {
		text := rulesOf(job, all, used)
		if hasExtraArgs(job) {
			err = extraArgs(t, job.Name, text)
		} else if text != "" {
			err = rulesBetweenLines(t, job.Name, text)
		}
		if err != nil {
			return err
		}
	}
	for _, rule := range all {
		for _, property := range rule.Properties {
			if !used[property] {
				return fmt.Errorf("rules.yml has a rule of %s, which no job has", property)
			}
		}
	}
	return nil
}

func hasExtraArgs(job *release.Job) bool {
	_, ok := job.Properties["extra_args"]
	return ok
}

// rulesOf are the rules of a job's properties as a map of Ruby, "" if there are none.
func rulesOf(job *release.Job, rules []propertyRule, used map[string]bool) string {
	var text strings.Builder
	separator := "  rules = {\n"
	for _, rule := range rules {
		for _, property := range rule.Properties {
			if _, ok := job.Properties[property]; ok && rule.appliesTo(job.Name) {
				used[property] = true
				fmt.Fprintf(&text, "%s    '%s' => [\n      %s,\n      %s\n    ]",
					separator, property, rubyLambda(rule.Valid), rubyText(rule.Rule, "      "))
				separator = ",\n"
			}
		}
	}
	if text.Len() > 0 {
		text.WriteString("\n  }\n")
	}
	return text.String()
}

// rulesBetweenLines writes rules into the template of a job that has the two lines.
func rulesBetweenLines(t *tree, job, rules string) error {
	paths, err := t.glob(filepath.Join("jobs", job, "templates", "*.erb"))
	if err != nil {
		return err
	}
	code, err := t.read(shared + "/rules.rb")
	if err != nil {
		return err
	}
	for _, path := range paths {
		have, err := t.read(path)
		if err != nil {
			return err
		}
		if strings.Contains(have, rulesBegin) {
			return t.replace(path, rulesBegin, rulesEnd, rules+code)
		}
	}
	return fmt.Errorf(
		"rules.yml has rules of job %s: write these lines into one of its templates:\n%s%s", job, rulesBegin, rulesEnd,
	)
}

// extraArgs writes the template that checks a job's extra_args.
func extraArgs(t *tree, job, rules string) error {
	flags, err := readYAML[jobFlags](t, filepath.Join(shared, "flags", job+".yml"))
	if err != nil {
		return err
	}
	var text strings.Builder
	fmt.Fprintf(&text, "<%%-\n  # Generated from rules.yml and flags/%s.yml in src/shared-templates:\n"+
		"  # make generate\n  require 'json'\n\n%s  owned = {\n", job, rules)
	for _, name := range slices.Sorted(maps.Keys(flags.Owned)) {
		line := fmt.Sprintf("    '%s' => %s,\n", name, rubyText(flags.Owned[name], "      "))
		if first, _, _ := strings.Cut(line, "\n"); len(first) > 120 {
			line = strings.Replace(line, " => ", " =>\n      ", 1)
		}
		text.WriteString(line)
	}
	fmt.Fprintf(&text, "  }\n  program = '%s'\n  known = {\n", filepath.Base(strings.Fields(flags.Program)[0]))
	for _, kind := range slices.Sorted(maps.Keys(flags.Known)) {
		names := flags.Known[kind]
		if kind == "other" {
			names += " " + flags.Hidden
		}
		fmt.Fprintf(&text, "    '%s' => %%w[\n%s\n    ],\n", kind, wrapped(strings.Fields(names), "      ", rubyWidth))
	}
	text.WriteString("  }\n\n")
	for _, name := range []string{"rules.rb", "extra_args.json.erb"} {
		code, err := t.read(filepath.Join(shared, name))
		if err != nil {
			return err
		}
		text.WriteString(code)
		if name == "rules.rb" {
			text.WriteString("\n")
		}
	}
	t.write(filepath.Join("jobs", job, "templates", "extra_args.json.erb"), text.String())
	return nil
}

// sharedPart is what a template shares with that of another job, between two lines.
var sharedPart = regexp.MustCompile(
	`(?s)(  # Generated from src/shared-templates/(\w+\.rb): make generate\n)(.*?)(  # End of the generated part\.\n)`,
)

// sharedParts writes what templates share with those of other jobs that differ in the rest.
func sharedParts(t *tree) error {
	paths, err := t.glob("jobs/*/templates/*.erb")
	if err != nil {
		return err
	}
	for _, path := range paths {
		text, err := t.read(path)
		if err != nil {
			return err
		}
		for _, match := range sharedPart.FindAllStringSubmatch(text, -1) {
			code, err := t.read(filepath.Join(shared, match[2]))
			if err != nil {
				return err
			}
			text = strings.Replace(text, match[0], match[1]+code+match[4], 1)
		}
		t.write(path, text)
	}
	return nil
}

// rubyWidth is the longest line of generated Ruby.
const rubyWidth = 119

// rubyLambda is a function of one value. An expression of several lines is a block.
func rubyLambda(expression string) string {
	if !strings.Contains(expression, "\n") {
		return fmt.Sprintf("->(value) { %s }", expression)
	}
	return "lambda do |value|\n        " + strings.ReplaceAll(expression, "\n", "\n        ") + "\n      end"
}

// rubyText is a text in single quotes, in several if it is long.
func rubyText(text, indent string) string {
	lines := strings.Split(wrapped(strings.Fields(text), "          ", rubyWidth), "\n")
	for i, line := range lines {
		lines[i] = "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(strings.TrimSpace(line))
	}
	return strings.Join(lines, " ' \\\n"+indent) + "'"
}
