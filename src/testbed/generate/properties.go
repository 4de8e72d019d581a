package generate

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

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

// properties writes docs/properties.md from the specs.
func properties(t *tree) error {
	var page strings.Builder
	page.WriteString(propertiesIntroduction)
	for _, job := range t.jobs {
		text, err := documentJob(t, job.Name)
		if err != nil {
			return err
		}
		page.WriteString(text)
	}
	t.write("docs/properties.md", page.String())
	return nil
}

// documentJob returns a job's section.
func documentJob(t *tree, job string) (string, error) {
	text, err := t.read("jobs/" + job + "/spec")
	if err != nil {
		return "", err
	}
	var spec specFile
	if err := yaml.Unmarshal([]byte(text), &spec); err != nil {
		return "", fmt.Errorf("%s: %w", job, err)
	}
	var section strings.Builder
	fmt.Fprintf(&section, "\n## %s\n\n%s\n", job, prose(spec.Description))
	if len(spec.Provides)+len(spec.Consumes) > 0 {
		section.WriteString("\n")
	}
	writeLinks(&section, "Provides", spec.Provides)
	writeLinks(&section, "Consumes", spec.Consumes)
	mandatory := Leaves(Required[job], "")
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
		row, err := propertyRow(name, declaration, needed)
		if err != nil {
			return "", fmt.Errorf("%s: property %s: %w", job, name, err)
		}
		section.WriteString(row)
	}
	return section.String(), nil
}

func writeLinks(section *strings.Builder, verb string, links []specLink) {
	for _, link := range links {
		fmt.Fprintf(section, "* %s the link `%s` of type `%s`", verb, link.Name, link.Type)
		if link.Optional {
			section.WriteString(", if there is one")
		}
		if len(link.Properties) > 0 {
			fmt.Fprintf(section, ", with `%s`", strings.Join(link.Properties, "`, `"))
		}
		section.WriteString(".\n")
	}
}

func propertyRow(name string, declaration *yaml.Node, needed bool) (string, error) {
	var initial, text string
	var err error
	if description := field(declaration, "description"); description != nil {
		text = cell(prose(description.Value))
	}
	if value := field(declaration, "default"); value != nil {
		if initial, err = code(value); err != nil {
			return "", err
		}
	} else if needed {
		initial = "**required**"
	}
	if value := field(declaration, "example"); value != nil {
		example, err := code(value)
		if err != nil {
			return "", err
		}
		text += "<br>Example: " + example
	}
	return fmt.Sprintf("| `%s` | %s | %s |\n", name, initial, text), nil
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
func code(value *yaml.Node) (string, error) {
	if value.Kind == yaml.ScalarNode && value.Value != "" && !strings.Contains(value.Value, "\n") {
		return "`" + value.Value + "`", nil
	}
	var decoded any
	if err := value.Decode(&decoded); err != nil {
		return "", err
	}
	text, err := json.Marshal(decoded)
	if err != nil {
		return "", err
	}
	return "`" + strings.ReplaceAll(string(text), "|", `\|`) + "`", nil
}

var markdown = regexp.MustCompile(`[*<\[]|\b_|^_`)

// prose is the text of a description with characters that Markdown would interpret escaped.
func prose(description string) string {
	return markdown.ReplaceAllString(strings.TrimSpace(description), `\$0`)
}

// Leaves are the paths of a tree of properties.
func Leaves(tree values, prefix string) []string {
	var paths []string
	for _, key := range slices.Sorted(maps.Keys(tree)) {
		if inner, ok := tree[key].(values); ok {
			paths = append(paths, Leaves(inner, prefix+key+".")...)
		} else {
			paths = append(paths, prefix+key)
		}
	}
	return paths
}
