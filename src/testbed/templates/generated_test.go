package templates

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

const shared = root + "/src/shared-templates"

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

// Each job's rules are what the files in src/shared-templates say: in its extra_args.json.erb or, without one, between
// two lines of another template. UPDATE_TEMPLATES=1 rewrites them.
func TestRulesInTemplatesAreUpToDate(t *testing.T) {
	rules := readYAML[[]propertyRule](t, filepath.Join(shared, "rules.yml"))
	used := map[string]bool{}
	for _, job := range jobNames(t) {
		text := rulesOf(t, job, rules, used)
		var path, want string
		if _, ok := readJob(t, job).Properties["extra_args"]; ok {
			path = filepath.Join(root, "jobs", job, "templates", "extra_args.json.erb")
			want = extraArgsTemplate(t, job, text)
		} else if text != "" {
			path, want = templateWithRules(t, job, text)
		} else {
			continue
		}
		if os.Getenv("UPDATE_TEMPLATES") != "" {
			writeFile(t, path, want)
		}
		if have, err := os.ReadFile(path); err != nil || string(have) != want {
			t.Errorf("%s is out of date (%v): run UPDATE_TEMPLATES=1 go test -count=1 ./templates", path, err)
		}
	}
	for _, rule := range rules {
		for _, property := range rule.Properties {
			if !used[property] {
				t.Errorf("rules.yml has a rule of %s, which no job has", property)
			}
		}
	}
}

// sharedPart is what a template shares with that of another job, between two lines.
var sharedPart = regexp.MustCompile(`(?s)(  # Generated from src/shared-templates/(\w+\.rb): UPDATE_TEMPLATES=1 ` +
	`go test \./templates\n)(.*?)(  # End of the generated part\.\n)`)

// A template can share a part with that of another job that differs in the rest. UPDATE_TEMPLATES=1 rewrites the parts.
func TestSharedPartsOfTemplatesAreUpToDate(t *testing.T) {
	paths, _ := filepath.Glob(filepath.Join(root, "jobs", "*", "templates", "*.erb"))
	parts := 0
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want := sharedPart.ReplaceAllStringFunc(string(content), func(part string) string {
			parts++
			match := sharedPart.FindStringSubmatch(part)
			return match[1] + sharedText(t, match[2]) + match[4]
		})
		if string(content) == want {
			continue
		}
		if os.Getenv("UPDATE_TEMPLATES") == "" {
			t.Errorf("%s is out of date: run UPDATE_TEMPLATES=1 go test -count=1 ./templates", path)
			continue
		}
		writeFile(t, path, want)
	}
	if parts < 2 {
		t.Errorf("%d templates share a part", parts)
	}
}

// Lines of a template of a job without extra_args, between which its rules are.
const (
	rulesBegin = "  # Generated from src/shared-templates/rules.yml: UPDATE_TEMPLATES=1 go test ./templates\n"
	rulesEnd   = "  # End of the generated rules.\n"
)

// templateWithRules is the template of a job that has the two lines, with the rules between them.
func templateWithRules(t testing.TB, job, rules string) (path, content string) {
	t.Helper()
	paths, _ := filepath.Glob(filepath.Join(root, "jobs", job, "templates", "*.erb"))
	for _, path := range paths {
		have, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		before, rest, _ := strings.Cut(string(have), rulesBegin)
		if _, after, ok := strings.Cut(rest, rulesEnd); ok {
			return path, before + rulesBegin + rules + sharedText(t, "rules.rb") + rulesEnd + after
		}
	}
	t.Fatalf(
		"rules.yml has rules of job %s: write these lines into one of its templates:\n%s%s", job, rulesBegin, rulesEnd,
	)
	return "", ""
}

func sharedText(t testing.TB, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(shared, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func jobsWithExtraArgs(t testing.TB) []string {
	t.Helper()
	return slices.DeleteFunc(jobNames(t), func(job string) bool {
		_, ok := readJob(t, job).Properties["extra_args"]
		return !ok
	})
}

func readYAML[T any](t testing.TB, path string) T {
	t.Helper()
	var value T
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	decoder := yaml.NewDecoder(file)
	decoder.KnownFields(true)
	if err := decoder.Decode(&value); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return value
}

func writeFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// rulesOf are the rules of a job's properties as a map of Ruby, "" if there are none.
func rulesOf(t testing.TB, job string, rules []propertyRule, used map[string]bool) string {
	t.Helper()
	var text strings.Builder
	separator := "  rules = {\n"
	for _, rule := range rules {
		for _, property := range rule.Properties {
			if _, ok := readJob(t, job).Properties[property]; ok && rule.appliesTo(job) {
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

func extraArgsTemplate(t testing.TB, job, rules string) string {
	t.Helper()
	flags := readYAML[jobFlags](t, filepath.Join(shared, "flags", job+".yml"))
	var text strings.Builder
	fmt.Fprintf(&text, "<%%-\n  # Generated from rules.yml and flags/%s.yml in src/shared-templates:\n"+
		"  # UPDATE_TEMPLATES=1 go test ./templates\n  require 'json'\n\n%s  owned = {\n", job, rules)
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
		fmt.Fprintf(&text, "    '%s' => %%w[\n%s\n    ],\n", kind, wrapped(strings.Fields(names), "      "))
	}
	return text.String() + "  }\n\n" + sharedText(t, "rules.rb") + "\n" + sharedText(t, "extra_args.json.erb")
}

// rubyLambda is a function of one value. An expression of several lines is a block.
func rubyLambda(expression string) string {
	if !strings.Contains(expression, "\n") {
		return fmt.Sprintf("->(value) { %s }", expression)
	}
	return "lambda do |value|\n        " + strings.ReplaceAll(expression, "\n", "\n        ") + "\n      end"
}

// rubyText is a text in single quotes, in several if it is long.
func rubyText(text, indent string) string {
	lines := strings.Split(wrapped(strings.Fields(text), "          "), "\n")
	for i, line := range lines {
		lines[i] = "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(strings.TrimSpace(line))
	}
	return strings.Join(lines, " ' \\\n"+indent) + "'"
}

// wrapped joins words to lines of at most 120 columns.
func wrapped(words []string, indent string) string {
	line, text := indent, ""
	for i, word := range words {
		if len(line)+len(word) > 119 && line != indent {
			text, line = text+strings.TrimRight(line, " ")+"\n", indent
		}
		if line += word; i < len(words)-1 {
			line += " "
		}
	}
	return text + line
}

var (
	listedFlag = regexp.MustCompile(`(?m)^\s+(?:-\w, )?--?([A-Za-z][\w.-]+)(?: ([^\s(']+))?`)
	numbers    = []string{"int", "int32", "int64", "uint", "uint16", "uint32", "float", "float32"}
)

// knownFlags reads the list that a program prints with --help.
func knownFlags(help string, owned map[string]string) map[string]string {
	names := map[string][]string{}
	seen := map[string]bool{}
	boolean := regexp.MustCompile(`(?m)^\s+(?:-\w, )?--?[A-Za-z][\w.-]+(?:\s{2,}|$)`)
	typed := !strings.Contains(help, "etcd --version") && !strings.Contains(help, "GLOBAL OPTIONS")
	for _, line := range strings.Split(help, "\n") {
		match := listedFlag.FindStringSubmatch(line)
		if match == nil {
			continue
		}
		name := strings.ReplaceAll(match[1], "_", "-")
		if _, ok := owned[name]; ok || seen[name] {
			continue
		}
		seen[name] = true
		kind := "other"
		switch {
		case !typed:
		case boolean.MatchString(line):
			kind = "boolean"
		case slices.Contains(numbers, match[2]):
			kind = "number"
		case match[2] == "duration":
			kind = "duration"
		}
		names[kind] = append(names[kind], name)
	}
	known := map[string]string{}
	for kind, list := range names {
		slices.Sort(list)
		known[kind] = wrapped(list, "") + "\n"
	}
	return known
}

// The flags that a job knows are those that its program lists. COMPONENTS_DIR names the folder of built components;
// UPDATE_FLAGS=1 rewrites the lists.
func TestKnownFlagsAreThoseOfThePrograms(t *testing.T) {
	components := os.Getenv("COMPONENTS_DIR")
	if components == "" {
		t.Skip("COMPONENTS_DIR is not set: no real programs to list their flags")
	}
	for _, job := range jobsWithExtraArgs(t) {
		t.Run(job, func(t *testing.T) {
			path := filepath.Join(shared, "flags", job+".yml")
			flags := readYAML[jobFlags](t, path)
			command := strings.Fields(flags.Program)
			help, _ := exec.Command(filepath.Join(components, command[0]), append(command[1:], "--help")...).
				CombinedOutput()
			known := knownFlags(string(help), flags.Owned)
			if os.Getenv("UPDATE_FLAGS") != "" {
				flags.Known = known
				content, err := yaml.Marshal(flags)
				if err != nil {
					t.Fatal(err)
				}
				writeFile(t, path, string(content))
			} else if !maps.Equal(known, flags.Known) {
				t.Errorf("%s is out of date: run UPDATE_FLAGS=1 UPDATE_TEMPLATES=1 go test -count=1 ./templates", path)
			}
		})
	}
}
