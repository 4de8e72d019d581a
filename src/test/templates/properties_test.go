package templates

import (
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

All jobs with their links and properties, in the order of their specs, from which this page is generated. Properties are set in the manifest,
in ` + "`instance_groups/name=GROUP/jobs/name=JOB/properties`" + `, best by an ops-file. A deploy with a value that is not allowed is refused
before any VM changes, and a misspelled property has no effect: the Director ignores it.

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
		t.Fatalf("%s is out of date; update it: UPDATE_DOCS=1 go test -count=1 -run TestPropertiesAreDocumented ./test/templates", path)
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
	for i := 0; i+1 < len(content); i += 2 {
		name, declaration := content[i].Value, content[i+1]
		fmt.Fprintf(&section, "\n### `%s` of %s\n\n", name, job)
		// A required property of a map is listed by its leaves.
		needed := slices.ContainsFunc(mandatory, func(path string) bool { return path == name || strings.HasPrefix(path, name+".") })
		section.WriteString(documentProperty(t, declaration, needed && field(declaration, "default") == nil))
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

func documentProperty(t *testing.T, declaration *yaml.Node, needed bool) string {
	t.Helper()
	var text strings.Builder
	if description := field(declaration, "description"); description != nil {
		text.WriteString(prose(description.Value) + "\n")
	}
	if needed {
		text.WriteString("\n**Required.**\n")
	}
	for _, key := range []string{"default", "example"} {
		if value := field(declaration, key); value != nil {
			text.WriteString("\n" + strings.ToUpper(key[:1]) + key[1:] + ":" + code(t, value) + "\n")
		}
	}
	return text.String()
}

func field(declaration *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(declaration.Content); i += 2 {
		if declaration.Content[i].Value == name {
			return declaration.Content[i+1]
		}
	}
	return nil
}

// code shows a value: a scalar and an empty collection in the line, anything else as a block of YAML, without the spec's comments.
func code(t *testing.T, value *yaml.Node) string {
	t.Helper()
	if value.Kind == yaml.ScalarNode && value.Value == "" {
		return " `\"\"`"
	}
	withoutComments(value)
	text, err := yaml.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	if line := strings.TrimSpace(string(text)); !strings.Contains(line, "\n") && (value.Kind == yaml.ScalarNode || len(value.Content) == 0) {
		return " `" + line + "`"
	}
	return "\n\n```yaml\n" + strings.TrimSpace(string(text)) + "\n```"
}

func withoutComments(node *yaml.Node) {
	node.HeadComment, node.LineComment, node.FootComment = "", "", ""
	for _, child := range node.Content {
		withoutComments(child)
	}
}

var markdown = regexp.MustCompile(`[*<\[]|\b_|^_`)

// prose is the text of a description with characters that Markdown would interpret escaped.
func prose(description string) string {
	return markdown.ReplaceAllString(strings.TrimSpace(description), `\$0`)
}
