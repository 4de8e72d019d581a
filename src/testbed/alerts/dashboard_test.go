package alerts

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// dashboard is what the tests need of Grafana's format.
type dashboard struct {
	Panels []struct {
		ID          int
		Type        string
		Title       string
		Description string
		Datasource  struct{ UID string }
		Position    struct{ X, Y, W, H int } `json:"gridPos"`
		Targets     []struct{ Expr string }
	}
}

func loadDashboard(t *testing.T) dashboard {
	t.Helper()
	content, err := os.ReadFile(folder + "/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(content, &d); err != nil {
		t.Fatal(err)
	}
	if len(d.expressions()) == 0 {
		t.Fatal("the dashboard has no expressions")
	}
	return d
}

// anyCluster is what Grafana puts in place of all clusters: allValue of the variable. It fits series without the label.
const anyCluster = ".*"

// expressions returns those of all panels. Grafana chooses the interval of rates, and the reader the clusters.
func (d dashboard) expressions() []string {
	variables := strings.NewReplacer("$__rate_interval", "5m", "$cluster", anyCluster)
	var list []string
	for _, panel := range d.Panels {
		for _, target := range panel.Targets {
			list = append(list, variables.Replace(target.Expr))
		}
	}
	return list
}

// TestDashboardIsValid gives all expressions to promtool, as the rules that it can check.
func TestDashboardIsValid(t *testing.T) {
	var rules []map[string]string
	for n, expression := range loadDashboard(t).expressions() {
		rules = append(rules, map[string]string{"record": fmt.Sprintf("panel:%d", n), "expr": expression})
	}
	content, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": rules}}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "rules.yml")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if output, err := promtool(t, "check", "rules", "--lint=all", "--lint-fatal", path); err != nil {
		t.Errorf("%v\n%s", err, output)
	}
}

// TestDashboardShowsTheMetrics: whoever follows an alert finds its metrics on the dashboard, and no panel is empty
// because a metric has another name.
func TestDashboardShowsTheMetrics(t *testing.T) {
	var shown []string
	for _, expression := range loadDashboard(t).expressions() {
		shown = append(shown, metrics(expression)...)
	}
	for _, alert := range load(t).alerts() {
		for _, metric := range metrics(alert.Expr) {
			if !slices.Contains(shown, metric) {
				t.Errorf("no panel shows %s of alert %s", metric, alert.Alert)
			}
		}
	}
	code := helpers(t)
	for _, metric := range shown {
		if strings.HasPrefix(metric, "kubernetes_bosh_") && !strings.Contains(code, `"`+metric+`"`) {
			t.Errorf("a panel shows %s, which no program of src/helpers writes", metric)
		}
	}
}

// TestDashboardShowsTheChosenClusters: each metric of each expression is that of the clusters that the reader chooses.
func TestDashboardShowsTheChosenClusters(t *testing.T) {
	for _, expression := range loadDashboard(t).expressions() {
		named := len(metrics(expression)) + strings.Count(expression, "ALERTS")
		if named == 0 || strings.Count(expression, `{cluster=~"`+anyCluster+`"`) != named {
			t.Errorf("not every metric of %s has {cluster=~\"$cluster\"}", expression)
		}
	}
}

// TestDashboardCountsItsAlerts: a Prometheus has alerts of others too.
func TestDashboardCountsItsAlerts(t *testing.T) {
	var names []string
	for _, alert := range load(t).alerts() {
		names = append(names, alert.Alert)
	}
	want := `alertstate="firing", alertname=~"` + strings.Join(names, "|") + `"}`
	for _, expression := range loadDashboard(t).expressions() {
		if strings.Contains(expression, "ALERTS") && !strings.Contains(expression, want) {
			t.Errorf("%s does not count the alerts of %s: use %s", expression, file, want)
		}
	}
}

// TestPanelsAreComplete: each says what it shows, takes the data source that the reader chooses, and has a place of
// its own on Grafana's 24 columns.
func TestPanelsAreComplete(t *testing.T) {
	ids, places := map[int]bool{}, map[[2]int]string{}
	for _, panel := range loadDashboard(t).Panels {
		if ids[panel.ID] || panel.ID == 0 || panel.Title == "" {
			t.Errorf("panel %d %q needs an id of its own and a title", panel.ID, panel.Title)
		}
		ids[panel.ID] = true
		if panel.Type != "row" && (panel.Description == "" || panel.Datasource.UID != "${datasource}" ||
			len(panel.Targets) == 0) {
			t.Errorf("panel %q needs a description, the data source ${datasource} and an expression", panel.Title)
		}
		at := panel.Position
		if at.W == 0 || at.H == 0 || at.X+at.W > 24 {
			t.Errorf("panel %q has the place %+v", panel.Title, at)
		}
		for x := range at.W {
			for y := range at.H {
				place := [2]int{at.X + x, at.Y + y}
				if other := places[place]; other != "" {
					t.Fatalf("panels %q and %q overlap at %v", other, panel.Title, place)
				}
				places[place] = panel.Title
			}
		}
	}
}
