package alerts

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"
)

const (
	folder = "../../../config/prometheus"
	file   = folder + "/alerts.yml"
	// examples has, by alert, when it must fire and when it must not.
	examples = folder + "/alerts.test.yml"
)

// promtool runs promtool, and returns what it prints.
func promtool(t *testing.T, arguments ...string) (string, error) {
	t.Helper()
	program := os.Getenv("PROMTOOL_BIN")
	if program == "" {
		t.Skip("PROMTOOL_BIN is not set: ci/prometheus.sh promtool builds the program")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	output, err := exec.CommandContext(ctx, program, arguments...).CombinedOutput()
	return string(output), err
}

// TestAlertsFire evaluates all rules at each minute of each example.
func TestAlertsFire(t *testing.T) {
	for _, arguments := range [][]string{
		{"check", "rules", "--lint=all", "--lint-fatal", file}, {"test", "rules", examples},
	} {
		if output, err := promtool(t, arguments...); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(arguments, " "), err, output)
		}
	}
}

// TestExamplesCanFail changes each alert so that it fires too early, and so that it never does: its examples must
// notice.
func TestExamplesCanFail(t *testing.T) {
	rules := load(t)
	for n, alert := range rules.alerts() {
		for what, change := range map[string]map[string]string{
			"at once, without a wait":        {"for": "0s"},
			"whatever the metrics are":       {"expr": "vector(1)"},
			"never, since the wait is a day": {"for": "1d"},
		} {
			if what == "at once, without a wait" && alert.For == "0m" {
				continue
			}
			content := rules.with(t, n, change)
			dir := t.TempDir()
			test, err := os.ReadFile(examples)
			if err != nil {
				t.Fatal(err)
			}
			for name, text := range map[string][]byte{"alerts.yml": content, "alerts.test.yml": test} {
				if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := promtool(
				t, "test", "rules", "--run=^"+alert.Alert+":", filepath.Join(dir, "alerts.test.yml"),
			); err == nil {
				t.Errorf("no example fails if %s fires %s", alert.Alert, what)
			}
		}
	}
}

// TestEveryAlertHasExamples: each has one in which it fires, and one in which nothing does.
func TestEveryAlertHasExamples(t *testing.T) {
	content, err := os.ReadFile(examples)
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Tests []struct {
			Name  string
			Rules []struct {
				Alertname string
				Alerts    []any `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
			Silent []struct {
				Expr    string
				Samples []any `yaml:"exp_samples"`
			} `yaml:"promql_expr_test"`
		}
	}
	if err := yaml.Unmarshal(content, &list); err != nil {
		t.Fatal(err)
	}
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, test := range list.Tests {
		alert, _, _ := strings.Cut(test.Name, ":")
		// Each begins with the time in which no alert fires.
		if len(test.Silent) == 0 || len(test.Silent[0].Samples) > 0 ||
			!strings.Contains(test.Silent[0].Expr, `ALERTS{alertstate="firing"}`) {
			t.Errorf("%q does not begin with an expression that no alert fires", test.Name)
		}
		switch {
		case len(test.Rules) == 0 && len(test.Silent) == 1:
			silent[alert] = true
		case len(test.Rules) == 1 && test.Rules[0].Alertname == alert && len(test.Rules[0].Alerts) > 0:
			fires[alert] = true
		default:
			t.Errorf("%q tests neither that %s fires, nor that nothing does", test.Name, alert)
		}
	}
	for _, alert := range load(t).alerts() {
		if !fires[alert.Alert] || !silent[alert.Alert] {
			t.Errorf("alert %s needs an example in which it fires, and one in which nothing does", alert.Alert)
		}
	}
}

// ruleFile is the file of rules.
type ruleFile struct{ document yaml.Node }

type rule struct{ Alert, Expr, For string }

func load(t *testing.T) *ruleFile {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var rules ruleFile
	if err := yaml.Unmarshal(content, &rules.document); err != nil {
		t.Fatal(err)
	}
	if len(rules.alerts()) == 0 {
		t.Fatalf("%s has no alerts", file)
	}
	return &rules
}

// alerts returns the rules of the only group.
func (f *ruleFile) alerts() []rule {
	var content struct{ Groups []struct{ Rules []rule } }
	if err := f.document.Decode(&content); err != nil || len(content.Groups) != 1 {
		return nil
	}
	return content.Groups[0].Rules
}

// with returns the file with other values of one alert.
func (f *ruleFile) with(t *testing.T, alert int, values map[string]string) []byte {
	t.Helper()
	var content map[string]any
	if err := f.document.Decode(&content); err != nil {
		t.Fatal(err)
	}
	changed := content["groups"].([]any)[0].(map[string]any)["rules"].([]any)[alert].(map[string]any)
	for key, value := range values {
		changed[key] = value
	}
	text, err := yaml.Marshal(content)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
