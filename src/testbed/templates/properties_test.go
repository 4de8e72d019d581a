package templates

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// specFile is a job's spec as people read it: its properties are in the order of the file.
type specFile struct {
	Description string    `yaml:"description"`
	Properties  yaml.Node `yaml:"properties"`
	Provides    []specLink
	Consumes    []specLink
}

type specLink struct {
	Name, Type string
	Optional   bool
	Properties []string
}

const propertiesIntroduction = `# Properties

All jobs with their links and properties, in the order of their specs, from which this page is generated. Properties are
set in the manifest, in ` + "`instance_groups/name=GROUP/jobs/name=JOB/properties`" + `, best by an ops-file. ` +
	`A deploy with
a value that is not allowed is refused before any VM changes, and a misspelled property has no effect: the Director
ignores it. Structured values are shown in one line, as JSON.

`

// TestPropertiesAreDocumented: docs/properties.md is generated from the specs. UPDATE_DOCS=1 rewrites it.
func TestPropertiesAreDocumented(t *testing.T) {
	var page strings.Builder
	page.WriteString(propertiesIntroduction)
	for _, job := range jobNames(t) {
		fmt.Fprintf(&page, "* [%s](#%s)\n", job, job)
	}
	documented := 0
	for _, job := range jobNames(t) {
		text, n := documentJob(t, job)
		page.WriteString(text)
		documented += n
	}
	if documented < 150 {
		t.Errorf("only %d properties found", documented)
	}
	path := filepath.Join(root, "docs", "properties.md")
	if old, err := os.ReadFile(path); err == nil && string(old) == page.String() {
		return
	}
	if os.Getenv("UPDATE_DOCS") == "" {
		t.Fatalf(
			"%s is out of date; update it: UPDATE_DOCS=1 go test -count=1 -run TestPropertiesAreDocumented ./templates",
			path,
		)
	}
	if err := os.WriteFile(path, []byte(page.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// documentJob returns a job's section and the number of its properties.
func documentJob(t *testing.T, job string) (string, int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "jobs", job, "spec"))
	if err != nil {
		t.Fatal(err)
	}
	var spec specFile
	if err := yaml.Unmarshal(text, &spec); err != nil {
		t.Fatalf("%s: %v", job, err)
	}
	var section strings.Builder
	fmt.Fprintf(&section, "\n## %s\n\n%s\n", job, prose(spec.Description))
	writeLinks(&section, "Provides", spec.Provides)
	writeLinks(&section, "Consumes", spec.Consumes)
	mandatory := leaves(required[job], "")
	content := spec.Properties.Content
	if len(content) > 0 {
		section.WriteString("\n| Property | Default | Description |\n|---|---|---|\n")
	}
	for i := 0; i+1 < len(content); i += 2 {
		name, declaration := content[i].Value, content[i+1]
		// A required property of a map is listed by its leaves.
		needed := slices.ContainsFunc(mandatory, func(path string) bool {
			return path == name || strings.HasPrefix(path, name+".")
		})
		section.WriteString(propertyRow(t, name, declaration, needed))
	}
	return section.String(), len(content) / 2
}

func writeLinks(section *strings.Builder, verb string, links []specLink) {
	for _, link := range links {
		fmt.Fprintf(section, "\n%s the link `%s` of type `%s`", verb, link.Name, link.Type)
		if link.Optional {
			section.WriteString(", if there is one")
		}
		if len(link.Properties) > 0 {
			fmt.Fprintf(section, ", with `%s`", strings.Join(link.Properties, "`, `"))
		}
		section.WriteString(".\n")
	}
}

func propertyRow(t *testing.T, name string, declaration *yaml.Node, needed bool) string {
	t.Helper()
	var initial, text string
	if description := field(declaration, "description"); description != nil {
		text = cell(prose(description.Value))
	}
	if value := field(declaration, "default"); value != nil {
		initial = code(t, value)
	} else if needed {
		initial = "**required**"
	}
	if value := field(declaration, "example"); value != nil {
		text += "<br>Example: " + code(t, value)
	}
	return fmt.Sprintf("| `%s` | %s | %s |\n", name, initial, text)
}

// paragraph is where a description begins a new paragraph, or a list's next item.
var paragraph = regexp.MustCompile(`\n\n|\n(\\?\*|-) `)

// cell puts a text of several paragraphs into one line of a table.
func cell(text string) string {
	text = paragraph.ReplaceAllString(text, "<br>$1 ")
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
}

func field(declaration *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(declaration.Content); i += 2 {
		if declaration.Content[i].Value == name {
			return declaration.Content[i+1]
		}
	}
	return nil
}

// code shows a value in one line: scalars as in the spec, anything else as JSON, which YAML accepts.
func code(t *testing.T, value *yaml.Node) string {
	t.Helper()
	if value.Kind == yaml.ScalarNode && value.Value != "" && !strings.Contains(value.Value, "\n") {
		return "`" + value.Value + "`"
	}
	var decoded any
	if err := value.Decode(&decoded); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(decoded)
	if err != nil {
		t.Fatal(err)
	}
	return "`" + strings.ReplaceAll(string(text), "|", `\|`) + "`"
}

var markdown = regexp.MustCompile(`[*<\[]|\b_|^_`)

// prose is the text of a description with characters that Markdown would interpret escaped.
func prose(description string) string {
	return markdown.ReplaceAllString(strings.TrimSpace(description), `\$0`)
}

// ownDefaults are the jobs in which a property has another default than in the other jobs: because the VM may have no
// API server (api.host), the values are of another kind (config, log_level, storage_classes) or for other objects
// (labels, timeout).
var ownDefaults = map[string][]string{
	"api.host":        {"kube-proxy", "kubectl", "smoke-tests"},
	"config":          {"cloud-provider"},
	"labels":          {"node-labeler"},
	"log_level":       {"aws-load-balancer-controller", "containerd", "etcd", "network-policy"},
	"storage_classes": {"cinder-csi-controller", "csi-driver-image"},
	"timeout":         {"smoke-tests"},
}

// A spec cannot include another, so the default of a property that several jobs have stands in each of them. It is the
// same everywhere.
func TestDefaultsOfSharedPropertiesAreEqual(t *testing.T) {
	type place struct{ job, value string }
	first := map[string]place{}
	for _, job := range jobNames(t) {
		for name, property := range readJob(t, job).Properties {
			if slices.Contains(ownDefaults[name], job) {
				continue
			}
			here := place{job, fmt.Sprintf("%#v", property.Default)}
			if _, ok := first[name]; !ok {
				first[name] = here
			}
			if first[name].value != here.value {
				t.Errorf("%s has the default %s in job %s and %s in job %s", name, first[name].value, first[name].job,
					here.value, job)
			}
		}
	}
}
