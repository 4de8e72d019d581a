package pipelines

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// teamManifest is one of an operator's, with a variable of BOSH.
const teamManifest = `apiVersion: v1
kind: ConfigMap
metadata: {name: team, namespace: default}
data: {a: ((team))}
`

// chartCredHub takes note of what is imported.
const chartCredHub = `#!/bin/bash
echo "credhub $* $CREDHUB_SERVER" >>"$HOME/calls"
cat "$3" >>"$HOME/imported"
`

// chartHelm renders charts: a Secret for one called secret, and another text each time for one called random.
const chartHelm = `#!/bin/bash
echo "helm $*" >>"$HOME/calls"
printf -- '---\n# Source: %s\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %s\n' "$3" "$2"
case $2 in
  secret) printf -- '---\nkind: Secret\nmetadata:\n  name: s\nstringData: {a: b}\n' ;;
  random) printf 'data: {a: "%s"}\n' "$(wc -l <"$HOME/calls")" ;;
  broken) exit 1 ;;
esac
`

// renderCharts runs the task with a helm and a credhub that take note of what they get.
func renderCharts(t *testing.T, params map[string]any) (dir, output string, err error) {
	t.Helper()
	config, err := readTask("ci/tasks/render-charts.yml")
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	layOut(t, dir, config)
	programs := filepath.Join(dir, "programs")
	for name, text := range map[string]string{
		"helm": chartHelm, "credhub": chartCredHub,
	} {
		path := filepath.Join(programs, name)
		if err := os.MkdirAll(programs, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	maps.Copy(config.Params, params)
	output, err = runTask(t, dir, config, programs)
	return dir, output, err
}

func TestRenderCharts(t *testing.T) {
	dir, output, err := renderCharts(t, map[string]any{
		"MANIFESTS":    "team-a.yml",
		"CHARTS":       "plain ns charts/plain values/a.yml values/b.yml\n\nsecret ns charts/secret\n",
		"CREDHUB_PATH": "/bosh/kubernetes", "CREDHUB_SERVER": "credhub.example.com",
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	var vars map[string]string
	text, err := os.ReadFile(filepath.Join(dir, "rendered", "vars.yml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &vars); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	const configMap = "---\n# Source: charts/NAME\napiVersion: v1\nkind: ConfigMap\n" +
		"metadata:\n  namespace: ns\n  name: NAME\n"
	want := "---\n" + teamManifest + strings.ReplaceAll(configMap, "NAME", "plain") +
		strings.ReplaceAll(configMap, "NAME", "secret") + "((/bosh/kubernetes/secret_secrets))\n"
	if !maps.Equal(vars, map[string]string{"manifests": want}) {
		t.Errorf("the variables are\n%s\nwant\n%s", vars["manifests"], want)
	}
	calls, err := os.ReadFile(filepath.Join(dir, "calls"))
	if err != nil {
		t.Fatal(err)
	}
	lines := slices.Compact(strings.Split(strings.TrimSpace(string(calls)), "\n"))
	const options = " --namespace ns --include-crds --kube-version v1."
	for n, want := range []string{
		"helm template plain charts/plain" + options, "helm template secret charts/secret" + options,
		"credhub import --file /dev/stdin credhub.example.com",
	} {
		if n >= len(lines) || !strings.HasPrefix(lines[n], want) {
			t.Errorf("the calls are %q, want %q", lines, want)
		}
	}
	if !strings.HasSuffix(lines[0], " --values values/a.yml --values values/b.yml") {
		t.Errorf("%s: without the values", lines[0])
	}
	imported, err := os.ReadFile(filepath.Join(dir, "imported"))
	if err != nil || !strings.Contains(string(imported), "- name: /bosh/kubernetes/secret_secrets\n") {
		t.Errorf("CredHub got %q, %v", imported, err)
	}
	if strings.Contains(output, "Warning") {
		t.Errorf("it warns:\n%s", output)
	}
}

func TestRenderChartsRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		charts, want string
		failure      bool
	}{
		"another text each time": {
			"random ns charts/random", "Warning: charts/random renders differently each time", false,
		},
		"Secrets without CredHub": {"secret ns charts/secret", "Secret s: choose --credhub NAME", true},
		"a chart that fails":      {"broken ns charts/broken", "rendering charts/broken", true},
	} {
		_, output, err := renderCharts(t, map[string]any{"CHARTS": test.charts})
		if (err != nil) != test.failure || !strings.Contains(output, test.want) {
			t.Errorf("%s: %v\n%s", name, err, output)
		}
	}
}
