package alerts

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
)

// TestMetricsExist looks for the name of each metric in the code that writes it, whose own tests compare the whole
// text.
func TestMetricsExist(t *testing.T) {
	code := helpers(t)
	for _, alert := range load(t, &rules.ManagerOptions{}).AlertingRules() {
		names := metrics(alert)
		if len(names) == 0 {
			t.Errorf("alert %s has no metric in %q", alert.Name(), alert.Query())
		}
		for _, name := range names {
			if !strings.Contains(code, `"`+name+`"`) {
				t.Errorf("alert %s uses %s, which no program of src/helpers writes", alert.Name(), name)
			}
		}
	}
}

// metrics returns the names of the metrics that an alert uses.
func metrics(alert *rules.AlertingRule) []string {
	var names []string
	parser.Inspect(alert.Query(), func(node parser.Node, _ []parser.Node) error {
		if selector, ok := node.(*parser.VectorSelector); ok {
			names = append(names, selector.Name)
		}
		return nil
	})
	return names
}

// helpers returns the code of what ships, without its tests.
func helpers(t *testing.T) string {
	t.Helper()
	var code strings.Builder
	err := filepath.WalkDir("../../helpers", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		content, err := os.ReadFile(path)
		code.Write(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return code.String()
}
