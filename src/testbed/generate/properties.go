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
}

const propertiesIntroduction = `# Properties

All jobs with their properties, in the order of their specs, from which this page is generated. The specs also have
the links of a job, which the Director connects. Properties are set in the manifest, in
` + "`instance_groups/name=GROUP/jobs/name=JOB/properties`" + `, best by an ops-file. A deploy with a value that is not
allowed is refused before any VM changes. A misspelled property has no effect: the Director ignores it. Structured
values are shown in one line, as JSON.
`

// properties writes docs/properties.md from the specs.
func properties(t *tree) error {
	var page strings.Builder
	page.WriteString(propertiesIntroduction)
	none := []string{"Jobs", "without", "properties:"}
	for _, job := range t.jobs {
		text, err := documentJob(t, job.Name)
		if err != nil {
			return err
		}
		if text == "" {
			none = append(none, "`"+job.Name+"`,")
		}
		page.WriteString(text)
	}
	page.WriteString("\n" + strings.TrimSuffix(wrapped(none, "", 120), ",") + ".\n")
	t.write("docs/properties.md", page.String())
	return nil
}

// documentJob returns a job's section, "" if the job has no properties.
func documentJob(t *tree, job string) (string, error) {
	text, err := t.read("jobs/" + job + "/spec")
	if err != nil {
		return "", err
	}
	var spec specFile
	if err := yaml.Unmarshal([]byte(text), &spec); err != nil {
		return "", fmt.Errorf("%s: %w", job, err)
	}
	rows, err := rowsOf(job, spec.Properties.Content)
	if err != nil || len(rows) == 0 {
		return "", err
	}
	var section strings.Builder
	fmt.Fprintf(&section, "\n## %s\n\n%s\n", job, prose(spec.Description))
	section.WriteString("\n| Property | Default | Description |\n|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(&section, "| `%s` | %s | %s |\n", strings.Join(r.names, "`<br>`"), r.initial, r.text)
	}
	return section.String(), nil
}

// rowsOf returns the rows of a job's table. The content has names and declarations by turns.
func rowsOf(job string, content []*yaml.Node) ([]row, error) {
	mandatory := Leaves(Required[job], "")
	var rows []row
	for i := 0; i+1 < len(content); i += 2 {
		name, declaration := content[i].Value, content[i+1]
		// A required property of a map is listed by its leaves.
		needed := slices.ContainsFunc(mandatory, func(path string) bool {
			return path == name || strings.HasPrefix(path, name+".")
		})
		r, err := propertyRow(name, declaration, needed)
		if err != nil {
			return nil, fmt.Errorf("%s: property %s: %w", job, name, err)
		}
		if strings.HasPrefix(r.text, "Removed, and refused") {
			continue // the message of the template says what to do
		}
		if last := len(rows) - 1; last >= 0 && rows[last].isPartWith(r) {
			rows[last].add(r)
		} else {
			rows = append(rows, r)
		}
	}
	return rows, nil
}

// row is a row of a table: one property, or those of one certificate.
type row struct {
	names         []string
	initial, text string
}

// ofCertificate matches the names of a CA, a certificate and its key. The first group is what they belong to.
var ofCertificate = regexp.MustCompile(`^(.+)\.(ca|certificate|private_key)$`)

// isPartWith says whether a property belongs to the certificate of this row.
func (r row) isPartWith(other row) bool {
	m, of := ofCertificate.FindStringSubmatch(r.names[0]), ofCertificate.FindStringSubmatch(other.names[0])
	return m != nil && of != nil && m[1] == of[1] && r.initial == other.initial
}

// ofKey is the description of a key that says no more than its name.
var ofKey = regexp.MustCompile(`^Private key of [a-z_.]+\.certificate\.$`)

// add adds a property of the certificate.
func (r *row) add(other row) {
	r.names = append(r.names, other.names...)
	if !ofKey.MatchString(other.text) {
		r.text += "<br>" + other.text
	}
}

func propertyRow(name string, declaration *yaml.Node, needed bool) (row, error) {
	var initial, text string
	var err error
	if description := field(declaration, "description"); description != nil {
		text = cell(prose(description.Value))
	}
	if value := field(declaration, "default"); value != nil {
		if initial, err = code(value); err != nil {
			return row{}, err
		}
	} else if needed {
		initial = "**required**"
	}
	if value := field(declaration, "example"); value != nil {
		example, err := code(value)
		if err != nil {
			return row{}, err
		}
		text += "<br>Example: " + example
	}
	return row{[]string{name}, initial, text}, nil
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
