package alerts

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestScrapeConfigurationsAreValid gives promtool each scrape configuration of docs/logs-and-metrics.md.
// TestSoakMonitoring scrapes with them.
func TestScrapeConfigurationsAreValid(t *testing.T) {
	content, err := os.ReadFile("../../../docs/logs-and-metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)\n```yaml\n(scrape_configs:.*?)```").FindAllStringSubmatch(string(content), -1)
	if len(blocks) != 5 {
		t.Errorf(
			"%d scrape configurations, want those in the cluster, two on control VMs, on nodes and outside",
			len(blocks),
		)
	}
	for _, block := range blocks {
		path := filepath.Join(t.TempDir(), "prometheus.yml")
		if err := os.WriteFile(path, []byte(block[1]), 0o600); err != nil {
			t.Fatal(err)
		}
		if output, err := promtool(t, "check", "config", "--syntax-only", path); err != nil {
			t.Errorf("%v: %s\n%s", err, strings.TrimSpace(output), block[1])
		}
	}
}

// TestAgentsTellTheirVMs: rules aggregate by instance, which would be the same on all VMs.
func TestAgentsTellTheirVMs(t *testing.T) {
	content, err := os.ReadFile("../../../docs/logs-and-metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(content), "\n### An agent on the VMs\n")
	section, _, _ = strings.Cut(section, "\n### ")
	jobs := strings.Split(section, "\n- job_name: ")[1:]
	if len(jobs) == 0 {
		t.Fatal("there are no jobs for an agent")
	}
	relabels := regexp.MustCompile(`(?m)^  relabel_configs: (\*instance|&instance\n  - .*target_label: instance,.*)$`)
	for _, job := range jobs {
		if !relabels.MatchString(job) {
			t.Errorf("this job does not set the label instance: %s", job)
		}
	}
}
