package alerts

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
)

// TestMetricsExist looks for the name of each metric where it comes from: our own in the code that writes it, whose own
// tests compare the whole text; etcd's in what etcd serves (TestEtcdOutOfSpace); the sidecars' in their program.
func TestMetricsExist(t *testing.T) {
	code := helpers(t)
	for _, alert := range load(t, &rules.ManagerOptions{}).AlertingRules() {
		names := metrics(alert)
		if len(names) == 0 {
			t.Errorf("alert %s has no metric in %q", alert.Name(), alert.Query())
		}
		for _, name := range names {
			switch {
			case strings.HasPrefix(name, "etcd_"), strings.HasPrefix(name, sidecarPrefix):
			case !strings.Contains(code, `"`+name+`"`):
				t.Errorf("alert %s uses %s, which no program of src/helpers writes", alert.Name(), name)
			}
		}
	}
}

const sidecarPrefix = "csi_sidecar_"

// TestMetricsOfSidecarsExist looks for the parts of names that csi-lib-utils (metrics/metrics.go) puts together, and
// for the labels. The driver has to answer before a sidecar serves metrics.
func TestMetricsOfSidecarsExist(t *testing.T) {
	components := os.Getenv("COMPONENTS_DIR")
	if components == "" {
		t.Skip("COMPONENTS_DIR is not set: there is no program of the sidecars to look at")
	}
	program, err := os.ReadFile(filepath.Join(components, "csi", "bin", "csi"))
	if err != nil {
		t.Fatal(err)
	}
	parts := []string{strings.TrimSuffix(sidecarPrefix, "_")}
	for _, alert := range load(t, &rules.ManagerOptions{}).AlertingRules() {
		for _, selector := range selectors(alert) {
			name, ok := strings.CutPrefix(selector.Name, sidecarPrefix)
			if !ok {
				continue
			}
			parts = append(parts, strings.TrimSuffix(name, "_count"))
			for _, matcher := range selector.LabelMatchers {
				if !strings.HasPrefix(matcher.Name, "__") {
					parts = append(parts, matcher.Name)
				}
			}
		}
	}
	if len(parts) < 4 {
		t.Errorf("only %q to look for", parts)
	}
	for _, part := range parts {
		if !bytes.Contains(program, []byte(part)) {
			t.Errorf("the program of the sidecars does not contain %q", part)
		}
	}
}

// metrics returns the names of the metrics that an alert uses.
func metrics(alert *rules.AlertingRule) []string {
	var names []string
	for _, selector := range selectors(alert) {
		names = append(names, selector.Name)
	}
	return names
}

func selectors(alert *rules.AlertingRule) []*parser.VectorSelector {
	var found []*parser.VectorSelector
	parser.Inspect(alert.Query(), func(node parser.Node, _ []parser.Node) error {
		if selector, ok := node.(*parser.VectorSelector); ok {
			found = append(found, selector)
		}
		return nil
	})
	return found
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
