package templates

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubernetes-release/control/addons"
	"kubernetes-release/control/addons/addonstest"
	"kubernetes-release/internal/kubetest"
)

// prepared is what scripts/prepare-manifests.sh made of its input.
type prepared struct {
	output, messages string
	// stored is what was imported into CredHub.
	stored map[string]string
	err    error
}

// prepareManifests runs the script with a credhub that keeps what it imports.
func prepareManifests(t *testing.T, input string, arguments ...string) prepared {
	t.Helper()
	script, err := filepath.Abs(filepath.Join(root, "scripts", "prepare-manifests.sh"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	credhub := fmt.Sprintf(
		"#!/bin/bash\n[[ \"$1 $2\" == 'import --file' ]] && cat \"$3\" >'%s/imported' && echo Imported.\n", dir,
	)
	if err := os.WriteFile(filepath.Join(dir, "credhub"), []byte(credhub), 0o700); err != nil {
		t.Fatal(err)
	}
	command := exec.Command(script, arguments...)
	command.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "TMPDIR="+t.TempDir())
	command.Stdin = strings.NewReader(input)
	var messages strings.Builder
	command.Stderr = &messages
	output, err := command.Output()
	p := prepared{output: string(output), messages: messages.String(), stored: map[string]string{}, err: err}
	if imported, err := os.ReadFile(filepath.Join(dir, "imported")); err == nil {
		var file struct {
			Credentials []struct{ Name, Type, Value string }
		}
		if err := yaml.Unmarshal(imported, &file); err != nil {
			t.Fatalf("%v\n%s", err, imported)
		}
		for _, c := range file.Credentials {
			p.stored[c.Name] = c.Value
			if c.Type != "value" {
				t.Errorf("%s has the type %q", c.Name, c.Type)
			}
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return p
}

// variable is what the Director takes for a variable (config_server_helper.rb of its source).
var variable = regexp.MustCompile(`\(\(.*?\)\)`)

// resolved is the output after the Director has replaced variables.
func (p prepared) resolved(t *testing.T) string {
	t.Helper()
	return variable.ReplaceAllStringFunc(p.output, func(name string) string {
		value, known := p.stored[strings.Trim(name, "()")]
		if !known {
			t.Errorf("the output has %s, which is no variable", name)
		}
		return value
	})
}

// Input of TestPrepareManifests.
const (
	onePod       = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n"
	indentedPod  = "apiVersion: v1\nkind: Pod\nmetadata:\n    namespace: other\n    name: a\n"
	emptySecret  = "apiVersion: v1\nkind: Secret\nmetadata:\n  name: s\n"
	filledSecret = emptySecret + "stringData:\n  a: b\n"
	clusterWide  = "---\nkind: \"ClusterRole\" # comment\nmetadata:\n  name: a\n" +
		"---\nkind: ClusterIssuer\nmetadata:\n  name: b\n"
)

// TestPrepareManifests compares the whole output, for documents that are accepted.
func TestPrepareManifests(t *testing.T) {
	inNamespace := []string{"--namespace", "n"}
	for name, test := range map[string]struct {
		input     string
		arguments []string
		want      string
	}{
		"unchanged": {input: "---\n" + onePod, want: "---\n" + onePod},
		"namespace": {
			input: onePod + "---\n" + indentedPod, arguments: inNamespace,
			want: "---\n" + strings.Replace(onePod, "  name", "  namespace: n\n  name", 1) + "---\n" + indentedPod,
		},
		"namespace in one line": {
			input:     "kind: Role\nmetadata: {name: a}\n---\nkind: Role\nmetadata: {name: a, namespace: b}\n",
			arguments: inNamespace,
			want: "---\nkind: Role\nmetadata: {namespace: n, name: a}\n" +
				"---\nkind: Role\nmetadata: {name: a, namespace: b}\n",
		},
		"label of the name namespace": {
			input:     "kind: Role\nmetadata:\n  labels:\n    namespace: b\n  name: a\n",
			arguments: inNamespace,
			want:      "---\nkind: Role\nmetadata:\n  namespace: n\n  labels:\n    namespace: b\n  name: a\n",
		},
		"no namespace": {
			input: clusterWide, arguments: append(inNamespace, "--cluster-scoped", "ClusterIssuer"), want: clusterWide,
		},
		"empty documents": {
			input: "# comment\n---\n---\n\n--- # Source\n# Source: a.yaml\n" + onePod + "...\n",
			want:  "---\n# Source\n# Source: a.yaml\n" + onePod,
		},
		"line ends of Windows": {input: strings.ReplaceAll(onePod, "\n", "\r\n"), want: "---\n" + onePod},
		"characters": {
			input: onePod + "  annotations: {a: \"(((x)) ${image:y} ${(} $(z)\"}\n",
			want:  "---\n" + onePod + "  annotations: {a: \"(${(}(x)) ${$}{image:y} ${$}{(} $(z)\"}\n",
		},
		"Secret inline": {
			input: filledSecret, arguments: []string{"--inline-secrets"}, want: "---\n" + filledSecret,
		},
		"Secret that others fill": {input: emptySecret, want: "---\n" + emptySecret},
	} {
		t.Run(name, func(t *testing.T) {
			if p := prepareManifests(t, test.input, test.arguments...); p.err != nil || p.output != test.want {
				t.Errorf("%v\n%s\nthe output is\n%s\nwant\n%s", p.err, p.messages, p.output, test.want)
			}
		})
	}
}

func TestPrepareManifestsRefuses(t *testing.T) {
	const hook = "  annotations: {helm.sh/hook: test}\n"
	for name, test := range map[string]struct {
		input     string
		arguments []string
		want      string
	}{
		"Secret": {
			input: "# Source: a/s.yaml\n" + filledSecret,
			want:  "Error: document 1 (a/s.yaml): Secret s: choose --credhub NAME or --inline-secrets",
		},
		"Secret with data in one line": {
			input: "kind: 'Secret'\nmetadata: {name: s}\ndata: {a: Yg==}\n", want: "Secret s: choose",
		},
		"List": {
			input: "kind: List\nmetadata: {}\nitems:\n- {kind: Secret}\n",
			want:  "List : write its items as documents",
		},
		"document in braces": {
			input: onePod + "---\n{kind: Secret, metadata: {name: s}}\n",
			want:  "Error: document 2: has no line that begins with kind:",
		},
		"document after its mark": {input: "--- {kind: Secret}\n", want: "has no line that begins with kind:"},
		"nothing":                 {input: "---\n# nothing\n", want: "Error: the input has no objects"},
		"only hooks":              {input: onePod + hook, want: "left out: Pod a, a hook of the chart (test"},
		"name for CredHub":        {input: onePod, arguments: []string{"--credhub", "/a/b.c"}, want: "not '/a/b.c'"},
		"both": {
			input: onePod, arguments: []string{"--credhub", "/a/b", "--inline-secrets"}, want: "exclude each other",
		},
		"unknown option": {input: onePod, arguments: []string{"--values"}, want: "unknown argument --values"},
		"no value":       {input: onePod, arguments: []string{"--namespace"}, want: "--namespace requires a value"},
	} {
		t.Run(name, func(t *testing.T) {
			p := prepareManifests(t, test.input, test.arguments...)
			if p.err == nil || !strings.Contains(p.messages, test.want) || p.output != "" {
				t.Errorf("%v\n%s\nwithout %q, or with the output\n%s", p.err, p.messages, test.want, p.output)
			}
		})
	}
}

// TestSecretsAreInCredHub: the output has a variable in their place, which the Director replaces.
func TestSecretsAreInCredHub(t *testing.T) {
	const name = "/bosh/kubernetes/agents_secrets"
	const role = "---\nkind: Role\nmetadata:\n  name: r\n"
	const input = "kind: Secret\nmetadata:\n  name: s\nstringData:\n  a: |\n    ((secret))\n" + role
	p := prepareManifests(t, input, "--namespace", "n", "--credhub", name)
	const want = "---\nkind: Role\nmetadata:\n  namespace: n\n  name: r\n((" + name + "))\n"
	if p.err != nil || p.output != want {
		t.Errorf("%v\n%s\nthe output is\n%s\nwant\n%s", p.err, p.messages, p.output, want)
	}
	const secret = "---\nkind: Secret\nmetadata:\n  namespace: n\n  name: s\nstringData:\n  a: |\n    (${(}secret))\n"
	if !maps.Equal(p.stored, map[string]string{name: secret}) {
		t.Errorf("CredHub has %q", p.stored)
	}
	if p := prepareManifests(t, role, "--credhub", name); p.err != nil ||
		strings.Contains(p.output, name) || len(p.stored) > 0 {
		t.Errorf("without Secrets: %v, output %q, stored %q", p.err, p.output, p.stored)
	}
}

// TestKindsWithoutNamespaces compares the script's list with what an API server serves.
func TestKindsWithoutNamespaces(t *testing.T) {
	t.Parallel()
	cluster := kubetest.Start(t, kubetest.Options{})
	_, lists, err := cluster.Admin().Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile(filepath.Join(root, "scripts", "prepare-manifests.sh"))
	if err != nil {
		t.Fatal(err)
	}
	listed := regexp.MustCompile(`(?s)cluster_kinds='(.*?)'`).FindSubmatch(script)
	if listed == nil {
		t.Fatal("the script has no cluster_kinds")
	}
	kinds, found := strings.Fields(string(listed[1])), 0
	for _, list := range lists {
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") || !slices.Contains(r.Verbs, "patch") {
				continue // no objects that can be applied
			}
			found++
			if r.Namespaced == slices.Contains(kinds, r.Kind) {
				t.Errorf("%s %s: namespaced is %t, unlike in the script", list.GroupVersion, r.Kind, r.Namespaced)
			}
		}
	}
	if found < 50 {
		t.Errorf("the API server serves only %d kinds", found)
	}
}

// chartObjects renders the chart of testdata with the real helm, prepares it, and loads what the job has then.
func chartObjects(t *testing.T) []addons.Object {
	t.Helper()
	helm := os.Getenv("HELM_BIN")
	if helm == "" {
		t.Skip("HELM_BIN is not set: no helm to render a chart with")
	}
	command := exec.Command(
		helm, "template", "agents", "testdata/chart", "--namespace", "team-a", "--include-crds", "--kube-version",
		"v1.37.0",
	)
	command.Env = append(os.Environ(), "HOME="+t.TempDir())
	var messages strings.Builder
	command.Stderr = &messages
	rendered, err := command.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, messages.String())
	}
	const name = "/bosh/kubernetes/agents_secrets"
	p := prepareManifests(t, string(rendered), "--namespace", "team-a", "--credhub", name)
	if p.err != nil {
		t.Fatalf("%v\n%s", p.err, p.messages)
	}
	if strings.Contains(p.output, "password") || !strings.Contains(p.stored[name], "password") {
		t.Errorf("the Secret is in the output:\n%s\nor not in CredHub: %q", p.output, p.stored)
	}
	for _, want := range []string{
		"left out: Job agents-prepare, a hook of the chart (pre-install,pre-upgrade)",
		"left out: Pod agents-test, a hook of the chart (test",
	} {
		if !strings.Contains(p.messages, want) {
			t.Errorf("it does not say %q:\n%s", want, p.messages)
		}
	}
	manifests := "---\n{apiVersion: v1, kind: Namespace, metadata: {name: team-a}}\n" + p.resolved(t)
	// -v takes only the first document of a text.
	ops, err := yaml.Marshal([]map[string]string{{
		"type": "replace", "value": manifests,
		"path": "/instance_groups/name=control/jobs/name=kubernetes-addons/properties?/manifests",
	}})
	opsFile := filepath.Join(t.TempDir(), "manifests.yml")
	if err := errors.Join(err, os.WriteFile(opsFile, ops, 0o600)); err != nil {
		t.Fatal(err)
	}
	planned := plan(t, deployment{files: []string{opsFile}})
	text := file(t, group(t, planned, "control"), "kubernetes-addons", "config/manifests/90-operator.yml")
	objects, err := addons.Load([]string{addonstest.Dir(t, map[string][]byte{"90-operator.yml": text})}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// TestChartIsRendered goes the whole way of a chart into the job.
func TestChartIsRendered(t *testing.T) {
	var got []string
	for _, o := range chartObjects(t) {
		got = append(got, strings.Join(strings.Fields(o.GetKind()+" "+o.GetNamespace()+" "+o.GetName()), " "))
		if o.GetKind() != "ConfigMap" {
			continue
		}
		script := o.Object["data"].(map[string]any)["run.sh"]
		if want := "n=$((n + 1)) # ((not a variable))\necho \"${image:-none}\"\n"; script != want {
			t.Errorf("the script in the ConfigMap is %q, want %q", script, want)
		}
	}
	slices.Sort(got)
	want := []string{
		"Check agents", "ClusterRole agents", "ConfigMap team-a agents", "CustomResourceDefinition checks.example.com",
		"DaemonSet team-a agents", "Namespace team-a", "RoleBinding kube-system agents", "Secret team-a agents",
		"ServiceAccount team-a agents",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the objects are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestChartIsApplied applies the chart to a real API server, as the job does.
func TestChartIsApplied(t *testing.T) {
	t.Parallel()
	objects := chartObjects(t)
	cluster := kubetest.Start(t, kubetest.Options{})
	options := addons.Options{Objects: objects, Timeout: time.Minute}
	result, err := addons.Apply(t.Context(), cluster.AdminConfig(), options, slog.New(slog.DiscardHandler))
	if err != nil || result.Created != len(objects) {
		t.Fatalf("%d objects: %v, %v", len(objects), result, err)
	}
	again, err := addons.Apply(t.Context(), cluster.AdminConfig(), options, slog.New(slog.DiscardHandler))
	if err != nil || again.Unchanged != len(objects) {
		t.Errorf("applied again: %v, %v; want all %d unchanged", again, err, len(objects))
	}
	secret, err := cluster.Admin().CoreV1().Secrets("team-a").Get(t.Context(), "agents", metav1.GetOptions{})
	if err != nil || string(secret.Data["password"]) != "example" {
		t.Errorf("the Secret has %q, %v", secret.Data, err)
	}
}
