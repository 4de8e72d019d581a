package docs

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

const (
	alertsFile  = "config/prometheus/alerts.yml"
	runbookFile = "docs/logs-and-metrics.md"
)

type alert struct {
	Alert       string
	For         string
	Labels      struct{ Severity string }
	Annotations struct{ Summary, Runbook string }
}

func alerts(t *testing.T) []alert {
	t.Helper()
	var file struct{ Groups []struct{ Rules []alert } }
	if err := yaml.Unmarshal([]byte(read(t, alertsFile)), &file); err != nil {
		t.Fatal(err)
	}
	var all []alert
	for _, group := range file.Groups {
		all = append(all, group.Rules...)
	}
	if len(all) == 0 {
		t.Fatalf("%s has no rules", alertsFile)
	}
	return all
}

func TestEveryAlertHasARunbookAndEveryRunbookAnAlert(t *testing.T) {
	var runbooks, names []string
	_, section, _ := strings.Cut(read(t, runbookFile), "\n## Alerts\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, m := range regexp.MustCompile(`(?m)^### (.*)$`).FindAllStringSubmatch(section, -1) {
		runbooks = append(runbooks, m[1])
	}
	for _, a := range alerts(t) {
		names = append(names, a.Alert)
		if want := runbookFile + "#" + strings.ToLower(a.Alert); a.Annotations.Runbook != want {
			t.Errorf("alert %s has the runbook %q, want %q", a.Alert, a.Annotations.Runbook, want)
		}
		if a.Annotations.Summary == "" || a.For == "" {
			t.Errorf("alert %s needs a summary and the time for which its condition must hold", a.Alert)
		}
		if !slices.Contains([]string{"warning", "critical"}, a.Labels.Severity) {
			t.Errorf("alert %s has the severity %q, want warning or critical", a.Alert, a.Labels.Severity)
		}
	}
	if !slices.Equal(names, runbooks) {
		t.Errorf("%s has the alerts %q, and %s the headings %q: they must be the same, in this order",
			alertsFile, names, runbookFile, runbooks)
	}
}
